"""See every compile of a program, whatever its style: `jax.jit`, `nnx.jit`, `eqx.filter_jit`, ahead of time.

All of them call three functions inside JAX, which are replaced when JAX has been imported. The replacements
add microseconds to a call that JAX traces or compiles, and nothing to a call of a compiled program. None of
them is on the stack while JAX traces a function of the program, so tracebacks are as without them. Until the
first compile, this file needs the standard library only. An error of the recorder is written to a file and
never reaches the program; an error of a signal handler of the program always does.

Public replacement: none. `jax.monitoring` reports that something was compiled, without the program. Tried on
JAX 0.10.2 and 0.12.0.
"""

import atexit
import contextlib
import functools
import importlib
import importlib.util
import inspect
import os
import signal
import sys
import threading
import time
import traceback
import weakref
from importlib.machinery import PathFinder

_PJIT, _PXLA = "jax._src.pjit", "jax._src.interpreters.pxla"
# JAX registers its own exit function at the end of this module.
_LAST = "jax._src.api"
_NAME = "_sharding_inspector"
_PARTITIONING = "jax._src.custom_partitioning"
# The files of JAX through which a call of `jax.jit` goes.
_INSIDE_JIT = ("pjit.py", "api.py", "traceback_util.py")
# The file of functions that call JAX for a program.
_MOVES = os.path.join(os.path.dirname(__file__), "move_hook.py")
_PROFILER = os.path.join(os.path.dirname(__file__), "profiler_hook.py")
_MOST_PROBLEMS = 5  # after this many errors, nothing more is recorded
# Modules whose jit splits the arguments of a function into arrays and one static argument.
_SPLITTERS = {"equinox._jit": "equinox", "haliax.partitioning": "haliax"}


class _Watcher:
    """Sees each import, and calls `ready` at the first one after `imported` is true.

    It finds no module itself, so it is in no traceback of an import that fails.
    """

    def __init__(self, ready, imported):
        self.ready, self.imported = ready, imported

    def find_spec(self, name, path=None, target=None):
        if self.imported():
            with contextlib.suppress(ValueError):  # another thread was faster
                sys.meta_path.remove(self)
                self.ready()
        return None


def _imported():
    module = sys.modules.get(_LAST)
    return module is not None and not getattr(module.__spec__, "_initializing", False)


def wait_for_jax(settings):
    """Record the programs of this process in the folder of `settings` as soon as it imports JAX."""
    hook = Hook(settings)
    if _imported():
        hook.install()
    else:
        sys.meta_path.insert(0, _Watcher(hook.install, _imported))


class TracedFunction:
    """What JAX knows about a traced function, without references to its arguments."""

    def __init__(self, function, information, arguments, keywords, parameters, seconds):
        self.in_tree, self.out_tree = parameters.in_tree, parameters.out_tree
        self.in_shardings = parameters.params["in_shardings"]  # of the code, before those of the arguments
        jaxpr = parameters.params["jaxpr"].jaxpr
        made = {id(value): equation for equation in jaxpr.eqns for value in equation.outvars}
        self.made = [made.get(id(value)) for value in jaxpr.outvars]  # the equation of each result, or None
        self.seconds = seconds
        self.function = _weak(function)
        # JAX jits its own functions, such as `jnp.add`, when it is imported or when it runs them.
        self.of_jax = getattr(information, "of_jax", True)
        self.name = self.source = self.argument_names = None
        mapped = getattr(information, "mapped", None)
        if mapped is not None:
            self.name, self.source = mapped.name, mapped.source
            self.in_tree, self.argument_names = mapped.in_tree, mapped.argument_names
        self.static = _static_values(information, arguments, keywords)
        self.split = None
        # How these libraries call JAX is not a public interface.
        with contextlib.suppress(Exception):
            self.split = _split(getattr(function, "__module__", None), arguments)
            if self.split is not None:
                self.static = _static_leaves(self.split, arguments[2])


class Mapped:
    """A function that `jax.pmap` maps. JAX jits its own function around it, with flat arguments.

    Attributes:
      name: of the function.
      source: the function as JAX writes it, `step at train.py:31`; None if it is not a Python function.
      in_tree: the structure of its positional and keyword arguments.
      argument_names: name of the parameter of each flat argument, None for a keyword argument.
    """

    def __init__(self, function, static, in_tree):
        named = _without_partials(function)
        self.name = getattr(named, "__name__", type(named).__name__)
        self.source, self.in_tree = _source(function), in_tree
        names = [None] * in_tree.num_leaves
        with contextlib.suppress(TypeError, ValueError):  # a function without a signature
            names = _flat_names(function, static, in_tree)
        self.argument_names = tuple(names)


class Split:
    """How Equinox's `filter_jit` or Haliax's `named_jit` gives the arguments of a function to JAX.

    Attributes:
      library: `equinox` or `haliax`.
      structures: the pytree structures in the static argument: of the function, and of its arguments.
      parameters: names of the function's positional parameters.
      source: the function as JAX writes it, `step at train.py:31`; None if it is not a Python function.
    """

    def __init__(self, library, structures, parameters, source):
        self.library, self.structures = library, structures
        self.parameters, self.source = parameters, source


class _Problems:
    """Writes an error of the recorder down, and lets errors of the program's signal handlers pass."""

    def __init__(self, hook, what):
        self.hook, self.what = hook, what

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error is None:
            return False
        if isinstance(error, Exception) and not _of_signal_handler(error):
            self.hook.problem(self.what)
            return True
        error.__traceback__ = None  # without the frames of the recorder
        return False


class Hook:
    """The replaced functions, and their notes between tracing and compiling."""

    def __init__(self, settings):
        self.settings = settings
        self.process = os.getpid()
        self.recorder = None
        self.ended = False  # no thread may start any more
        self.problems = 0
        self.questions = set()  # places in the program that ask for the platform
        self.traced = {}  # id of a jaxpr -> (weak reference to it, Traced)
        self.moves = None  # the Moves, None if this version of JAX has other internal functions
        self.profiler = None  # the Profiler, None if no steps are profiled

    def install(self):
        """Replace JAX's functions. If this version of JAX lacks one, write that down and change nothing."""
        try:
            pjit, pxla = sys.modules[_PJIT], sys.modules[_PXLA]
            wrapped = (
                (pjit, "PjitInfo", self._information),
                (pjit, "PjitParams", self._params),
                (pjit, "_resolve_and_lower", self._lower),
                (pxla.MeshComputation, "compile", self._compile),
            )
            hooks = [(owner, name, wrap(getattr(owner, name))) for owner, name, wrap in wrapped]
            _leave_out_frames(__file__)
        except Exception:
            self.problem("this version of JAX has other internal functions")
            return
        for owner, name, wrapper in hooks:
            setattr(owner, name, wrapper)
        with _Problems(self, "moves of arrays cannot be seen"):
            self._see_moves()
        if self.settings.get("profile"):
            with _Problems(self, "steps cannot be profiled"):
                profiler = _loaded("_sharding_inspector_profiler", _PROFILER).Profiler()
                profiler.install()
                self.profiler = profiler
        if self.settings.get("platform") is not None:
            with _Problems(self, "questions for the platform cannot be seen"):
                self._see_questions()
        if self.settings.get("one_device"):
            with _Problems(self, "meshes of one device cannot be made"):
                _use_one_device()
        # After JAX's own exit function was registered, so this one runs before JAX frees its arrays.
        atexit.register(self._end)

    def _see_moves(self):
        """Count the arrays that move between devices outside of compiled programs."""
        module = _loaded("_sharding_inspector_moves", _MOVES)
        moves = module.Moves(lambda: self.active, functools.partial(_Problems, self))
        moves.install()
        self.moves = moves

    def _see_questions(self):
        """Write down which functions of the program ask for the platform, which is not that of the target."""
        client = sys.modules["jax._src.lib"].xla_client
        for owner, name in (
            (client.Device, "platform"),
            (client.Device, "device_kind"),
            (client.Client, "platform"),
        ):
            setattr(owner, name, property(self._noted(getattr(owner, name).__get__)))
        noted = self._noted(sys.modules["jax._src.xla_bridge"].default_backend)
        for module in ("jax", "jax._src.xla_bridge"):
            # JAX is being imported, and can import the function from the second module later.
            if "default_backend" in vars(sys.modules[module]):
                vars(sys.modules[module])["default_backend"] = noted

    def _noted(self, original):
        @functools.wraps(original)
        def noted(*args):
            if self.active:
                with _Problems(self, "a question for the platform cannot be written"):
                    self._note_question(sys._getframe(1).f_code, sys._getframe(1).f_lineno)
            return original(*args)

        return noted

    def _note_question(self, code, line):
        package = os.path.join(os.path.dirname(sys.modules["jax"].__file__ or ""), "")
        own = os.path.join(self.settings["root"], "inspector", "")
        key = (code.co_filename, line)
        if code.co_filename.startswith((package, own)) or key in self.questions:
            return
        self.questions.add(key)
        where = f"{code.co_name} at {code.co_filename}:{line}"
        with open(os.path.join(self.settings["folder"], "questions.txt"), "a") as file:
            file.write(where.replace("\n", " ") + "\n")

    @functools.cached_property
    def package(self):
        """This package, created on first use, because Python sets `sys.path[0]` after the start."""
        return Package(self.settings["root"])

    @property
    def active(self):
        """False in a forked child, and after too many errors."""
        return self.problems < _MOST_PROBLEMS and os.getpid() == self.process

    def problem(self, what):
        """Append the current error to the file of problems."""
        self.problems += 1
        with contextlib.suppress(Exception):
            text = f"{what}\n{traceback.format_exc()}\n"
            with open(os.path.join(self.settings["folder"], "problems.txt"), "a") as file:
                file.write(text)

    def _information(self, original):
        """Return JAX's record of one use of `jax.jit`, extended by what called `jax.jit`."""

        class Information(original):  # type: ignore[misc, valid-type]  # a class of JAX
            of_jax, mapped = False, None

        def information(*args, **kwargs):
            result = Information(*args, **kwargs)
            with _Problems(self, "the caller of jax.jit cannot be read"):
                result.of_jax, result.mapped = _caller(sys._getframe(1))
            return result

        return information

    def _params(self, original):
        @functools.wraps(original, updated=())
        def params(*args, **kwargs):
            result = original(*args, **kwargs)
            if self.active:
                with _Problems(self, "the arguments of a function cannot be read"):
                    known = sys._getframe(1).f_locals
                    clock = getattr(known.get("elapsed_time_ctx"), "start_time", None)
                    seconds = None if clock is None else time.time() - clock
                    call = (known["fun"], known["ji"], known["args"], known["kwargs"])
                    self._keep(result.params["jaxpr"], TracedFunction(*call, result, seconds))
            return result

        return params

    def _keep(self, jaxpr, traced):
        key = id(jaxpr)
        _, before = self.traced.get(key, (None, None))
        # JAX traces a function once, also if it and the program jit it.
        if before is None or (before.of_jax and not traced.of_jax):
            self.traced[key] = (weakref.ref(jaxpr, lambda _: self.traced.pop(key, None)), traced)

    def _lower(self, original):
        @functools.wraps(original)
        def resolve_and_lower(args, jaxpr, **params):
            started = time.perf_counter()
            before = self._partitioned()
            computation = original(args, jaxpr=jaxpr, **params)
            if self.active:
                with _Problems(self, "a lowered function cannot be read"):
                    if not hasattr(computation, _NAME):
                        seconds = time.perf_counter() - started
                        _, traced = self.traced.get(id(jaxpr), (None, None))
                        again = functools.partial(original, args, jaxpr=jaxpr, **params)
                        target = self._for_target(again, params, before)
                        names = None if traced is None or traced.of_jax else self._checkpoint_names(jaxpr)
                        note = (traced, seconds, target, names)
                        setattr(computation, _NAME, note)
            return computation

        return resolve_and_lower

    def _checkpoint_names(self, jaxpr):
        """Return the names of activations in a traced function; None if they cannot be read."""
        with _Problems(self, "the names of activations cannot be read"), self.package.loaded():
            package = "inspector.jax_private.checkpoint_names"
            return importlib.import_module(package).checkpoint_names(jaxpr)

    def _partitioned(self):
        """Return the operations with partitioning functions by JAX's name, without a target none."""
        module = sys.modules.get(_PARTITIONING)
        if module is None or self.settings.get("platform") is None:
            return {}
        return dict(module._sharding_callbacks)

    def _for_target(self, lower, params, before):
        """Return the function lowered for the platform of the target, None without a target.

        An error of JAX is returned as text: the function uses something that the platform lacks.

        Args:
          before: what `_partitioned` returned before the function was lowered for this machine.
        """
        platform = self.settings.get("platform")
        if platform is None or params.get("lowering_platforms"):
            return None
        here = self._partitioned()
        own = [info for name, info in here.items() if name not in before]
        try:
            lowered = lower(lowering_platforms=(platform,))
            theirs = [name for name in self._partitioned() if name not in here]
            if own and len(own) == len(theirs):
                with self.package.loaded():
                    name = "inspector.jax_private.custom_partitions"
                    partitions = importlib.import_module(name)
                    calls = partitions.watch(own, [key.decode() for key in theirs], platform)
                    setattr(lowered, partitions.ATTRIBUTE, calls)
            return lowered
        except Exception as error:
            if _of_signal_handler(error):
                raise
            return f"{type(error).__name__}: {error}"

    def _compile(self, original):
        @functools.wraps(original)
        def compile(computation, *args, **kwargs):
            before = getattr(computation, "_executable", None)
            started = time.perf_counter()
            executable = original(computation, *args, **kwargs)
            if executable is not before and self.active:
                with _Problems(self, "a compiled program cannot be recorded"):
                    seconds = time.perf_counter() - started
                    self._record(computation, executable, seconds, _arguments(sys._getframe(1)))
            return executable

        return compile

    def _record(self, computation, executable, seconds, arguments):
        traced, lower_seconds, target, names = getattr(computation, _NAME, (None,) * 4)
        with self.package.loaded():
            self._recorder().compiled(
                computation,
                executable,
                traced,
                {"lower": lower_seconds, "compile": seconds},
                arguments,
                target,
                names,
            )

    def _recorder(self):
        with self.package.lock:
            if self.recorder is None:
                package = "inspector.recording"
                name = f"{package}.{self.settings.get('recorder', 'recorder')}"
                self.recorder = importlib.import_module(name).Recorder(self.settings, self)
                if not self.ended:
                    # Functions that the program has registered since then could free its arrays.
                    atexit.unregister(self._end)
                    atexit.register(self._end)
            return self.recorder

    def _end(self):
        """Read the last live arrays, and drop all references to devices.

        A forked child drops them, too: JAX then destroys its client, which can crash, as it does alone.
        """
        if os.getpid() == self.process:
            self._record_end()
        self.traced.clear()
        if self.moves is not None:
            self.moves.forget()
        if self.recorder is not None:
            self.recorder.forget()
            with self.package.loaded():
                _forget_results()

    def _record_end(self):
        """Record the arrays of the program at its end. After this, no thread of the recorder is left."""
        self.ended = True
        while self.recorder is not None and not self.recorder.stopped:
            # An error of a signal handler here would be too late for the program without the recorder.
            with contextlib.suppress(BaseException):
                self.recorder.stop()
        error = getattr(sys, "last_value", None)
        with contextlib.suppress(BaseException):
            if self.active and isinstance(error, Exception):
                with self.package.loaded():
                    self._recorder().write_error(error)
        with contextlib.suppress(BaseException):
            try:
                if self.active and _holds_arrays():
                    with self.package.loaded():
                        self._recorder().read_at_end()
            except Exception:
                self.problem("the live arrays cannot be read at the end")
        with contextlib.suppress(BaseException):
            try:
                if self.active and self.moves is not None and self.moves.counts:
                    with self.package.loaded():
                        self._recorder().write_moves(self.moves)
            except Exception:
                self.problem("the moves of arrays cannot be written at the end")


def _leave_out_frames(path):
    """Make JAX treat a file as its own: in no traceback of an error, and the source of no operation.

    Some operations are traced while JAX lowers a function, so the recorder is on the stack.
    """
    for name in ("traceback_util", "source_info_util"):
        with contextlib.suppress(KeyError, AttributeError):
            sys.modules[f"jax._src.{name}"].register_exclusion(path)


def _use_one_device():
    """Give every mesh that the program creates one device, with the same axis names and types.

    Only `sharding-inspector same` asks for this, in its second run of a program.
    """
    mesh = sys.modules["jax._src.mesh"].Mesh
    original = mesh.__new__

    @functools.wraps(original)
    def create(cls, devices, *args, **kwargs):
        array = sys.modules["numpy"].asarray(devices, dtype=object)
        if array.ndim and array.size:
            devices = array.ravel()[:1].reshape((1,) * array.ndim)
        return original(cls, devices, *args, **kwargs)

    mesh.__new__ = create
    # JAX is being imported, and imports this function later.
    if _has_pmap():
        _use_vmap()
    else:
        sys.meta_path.insert(0, _Watcher(_use_vmap, _has_pmap))


def _has_pmap():
    return "pmap" in vars(sys.modules.get("jax", sys))


def _use_vmap():
    """Map a function over its first axis on one device: `jax.pmap` becomes `jax.jit` of `jax.vmap`."""
    jax = sys.modules["jax"]
    original = jax.pmap

    @functools.wraps(original)
    def pmap(
        function,
        axis_name=None,
        *,
        in_axes=0,
        out_axes=0,
        static_broadcasted_argnums=(),
        axis_size=None,
        **_,
    ):
        given = static_broadcasted_argnums
        static = frozenset((given,) if isinstance(given, int) else given)
        jitted = {}  # by the values of static arguments

        @functools.wraps(function)
        def mapped(*arguments, **keywords):
            values = tuple(arguments[place] for place in sorted(static) if place < len(arguments))
            if values not in jitted:
                jitted[values] = jax.jit(one_device(dict(zip(sorted(static), values, strict=False))))
            dynamic = [value for place, value in enumerate(arguments) if place not in static]
            return jitted[values](*dynamic, **keywords)

        def one_device(fixed):
            @functools.wraps(function)
            def dynamic_only(*arguments, **keywords):
                rest = iter(arguments)
                count = len(arguments) + len(fixed)
                return function(*(fixed[n] if n in fixed else next(rest) for n in range(count)), **keywords)

            axes = in_axes
            if isinstance(axes, (tuple, list)):
                axes = tuple(axis for place, axis in enumerate(axes) if place not in static)
            return jax.vmap(
                dynamic_only if fixed else function,
                in_axes=axes,
                out_axes=out_axes,
                axis_name=axis_name,
                axis_size=axis_size,
            )

        return mapped

    for module in (jax, sys.modules["jax._src.pmap"]):
        vars(module)["pmap"] = pmap


def _caller(frame):
    """Return whether JAX calls `jax.jit` for a function of JAX, and the Mapped of a `jax.pmap`.

    Args:
      frame: of a function inside `jax.jit`.
    """
    package = os.path.join(os.path.dirname(sys.modules["jax"].__file__ or ""), "")
    inside = {os.path.join(package, "_src", name) for name in _INSIDE_JIT}
    inside.add(_MOVES)
    while frame is not None and frame.f_code.co_filename in inside:
        frame = frame.f_back
    if frame is None or not frame.f_code.co_filename.startswith(package):
        return False, None
    if frame.f_code.co_filename != os.path.join(package, "_src", "pmap.py"):
        return True, None
    in_tree = frame.f_locals["in_tree"]
    while frame.f_code.co_name != "infer_params":
        frame = frame.f_back
    known = frame.f_locals
    return False, Mapped(known["wrapped_fun"].f, known["static_broadcasted_tuple"], in_tree)


def _flat_names(function, static, in_tree):
    """Return the name of the parameter of each leaf of (arguments, keyword arguments)."""
    kinds = inspect.Parameter
    parameters = [
        parameter.name if parameter.kind is not kinds.VAR_POSITIONAL else f"{parameter.name}[0]"
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind not in (kinds.KEYWORD_ONLY, kinds.VAR_KEYWORD)
    ]
    dynamic = [name for place, name in enumerate(parameters) if place not in static]
    tree_util = sys.modules["jax"].tree_util
    return [
        dynamic[min(keys[1].idx, len(dynamic) - 1)] if keys[0].idx == 0 and dynamic else None
        for keys, _ in tree_util.tree_leaves_with_path(in_tree.unflatten(range(in_tree.num_leaves)))
    ]


def _arguments(frame):
    """Return the flat arguments of a call that compiles, None if the program compiles ahead of time.

    Args:
      frame: of the function that calls JAX's `compile`.
    """
    if frame.f_code is not sys.modules[_PJIT]._pjit_call_impl_python.__code__:
        return None
    return frame.f_locals["args"]


def _holds_arrays():
    bridge = sys.modules["jax._src.xla_bridge"]
    return bridge.backends_are_initialized() and bool(sys.modules["jax"].live_arrays())


def _of_signal_handler(error):
    """Return whether a signal handler of the program raised an error while the recorder ran."""
    if threading.get_ident() != threading.main_thread().ident:
        return False
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = {_code(handler) for handler in handlers if callable(handler)} - {None}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def _code(handler):
    while isinstance(handler, functools.partial):
        handler = handler.func
    for function in (handler, vars(type(handler)).get("__call__")):
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if code is not None:
            return code
    return None


def _weak(function):
    try:
        return weakref.ref(function)
    except TypeError:
        return None


def _static_values(information, arguments, keywords):
    """Return the static arguments by name: their text, and a hash that differs if they do."""
    values = {}
    for place in information.static_argnums or ():
        if -len(arguments) <= place < len(arguments):
            values[f"argument {place}"] = arguments[place]
    for name in information.static_argnames or ():
        if name in keywords:
            values[name] = keywords[name]
    return {name: (_text(value), hash(value)) for name, value in values.items()}


def _split(module, arguments):
    """Return the Split of a function that one of these libraries jits, None for any other function.

    Its arguments are the donated arrays, the other arrays, and pairs of static leaves and a structure.
    """
    library = _SPLITTERS.get(module)
    if library is None:
        return None
    _, _, static = arguments
    (leaves, structure), *_ = static
    function = structure.unflatten(leaves)
    parameters = inspect.signature(function).parameters.values()
    named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return Split(
        library,
        tuple(structure for _, structure in static),
        tuple(parameter.name for parameter in parameters if parameter.kind in named),
        _source(function),
    )


def _static_leaves(split, static):
    """Return a dict like that of `_static_values`.

    It has the function, the structure of its arguments, and by path each leaf that is not an array.
    """
    tree_util = sys.modules["jax"].tree_util
    trees = [structure.unflatten(leaves) for leaves, structure in static[1:]]
    if split.library == "equinox":  # the first argument, and all others with None at their end
        first, (rest, keywords) = trees
        positional = (first, *rest)[:-1]
    else:
        ((positional, keywords),) = trees
    names = (*split.parameters, *map(str, range(len(split.parameters), len(positional))))
    named = {**dict(zip(names, positional, strict=False)), **keywords}
    values = {
        "function": (split.source or "a callable object", hash(static[0])),
        "structure of the arguments": ("a pytree", hash(split.structures[1:])),
    }
    for keys, leaf in tree_util.tree_leaves_with_path(named):
        values[tree_util.keystr(keys, simple=True, separator="/")] = (_text(leaf), hash(leaf))
    return values


def _without_partials(function):
    """Return the function inside of decorators and `functools.partial`."""
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        function = inspect.unwrap(function.func)
    return function


def _source(function):
    function = _without_partials(function)
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code and f"{function.__name__} at {code.co_filename}:{code.co_firstlineno}"


def _text(value):
    """Return a value as text. Only plain values are printed: `repr` of others could run any code."""
    plain = (int, float, bool, str, bytes, complex, type(None))
    if isinstance(value, plain) and type(value) in plain:
        return repr(value)[:80]
    if type(value) in (tuple, frozenset) and all(type(element) in plain for element in value):
        return repr(value)[:80]
    return getattr(value, "__qualname__", None) or f"a {type(value).__name__}"


class _OwnPackage:
    """Finds this package, independent of the program's `sys.path`."""

    def __init__(self, root):
        self.root = root

    def find_spec(self, name, path=None, target=None):
        return PathFinder.find_spec(name, [self.root]) if name == "inspector" else None


def _loaded(name, path):
    """Return the module of a file, which is not in `sys.modules`: the program could see it there."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    _leave_out_frames(path)
    return module


class Package:
    """This package in the process of the program, which can have a module of the same name."""

    def __init__(self, root):
        self.finder = _OwnPackage(root)
        theirs = PathFinder.find_spec("inspector", sys.path)
        ours = self.finder.find_spec("inspector")
        self.shared = theirs is None or theirs.origin == ours.origin
        self.lock = threading.RLock()
        self.users = 0  # threads that record now
        self.modules, self.theirs = {}, {}

    @contextlib.contextmanager
    def loaded(self):
        """Make `inspector` this package; afterwards it is the program's module again."""
        with self.lock:
            self.users += 1
            if self.users == 1:
                self._enter()
        try:
            yield
        finally:
            with self.lock:
                self.users -= 1
                if self.users == 0:
                    self._leave()

    def _enter(self):
        if not self.shared:
            self.theirs = _taken_out()
            sys.modules.update(self.modules)
        sys.meta_path.insert(0, self.finder)

    def _leave(self):
        sys.meta_path.remove(self.finder)
        if not self.shared:
            self.modules = _taken_out()
            sys.modules.update(self.theirs)


def _forget_results():
    """Clear the caches of this package's functions, which can refer to devices."""
    for name in [module for module in list(sys.modules) if module.startswith("inspector.")]:
        for value in list(vars(sys.modules[name]).values()):
            if isinstance(value, functools._lru_cache_wrapper):
                value.cache_clear()


def _taken_out():
    names = [
        module for module in list(sys.modules) if module == "inspector" or module.startswith("inspector.")
    ]
    return {name: sys.modules.pop(name) for name in names}
