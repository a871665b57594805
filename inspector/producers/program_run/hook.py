"""See every compile of a program, whatever its style: `jax.jit`, `nnx.jit`, `eqx.filter_jit`, ahead of time.

All of them call four functions inside JAX, which are wrapped when `jax._src.pjit` is imported. The wrappers
add microseconds to a call that JAX traces or compiles, and nothing to a call of a compiled program. Until
the first compile, this file needs the standard library only. An error of the recorder is written to a file
and never reaches the program.
"""

import contextlib
import functools
import importlib
import importlib.util
import inspect
import os
import sys
import threading
import time
import traceback
import weakref
from importlib.machinery import PathFinder

_PJIT, _PXLA = "jax._src.pjit", "jax._src.interpreters.pxla"
_NAME = "_sharding_inspector"
_MOST_PROBLEMS = 5  # after this many errors, nothing more is recorded
# Modules whose jit splits the arguments of a function into arrays and one static argument.
_SPLITTERS = {"equinox._jit": "equinox", "haliax.partitioning": "haliax"}


class _Finder:
    """Calls `ready` when both of JAX's modules, which import each other, have been imported."""

    def __init__(self, ready):
        self.ready = ready
        self.waiting = {_PJIT, _PXLA}

    def find_spec(self, name, path=None, target=None):
        if name not in self.waiting:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        run = spec.loader.exec_module

        def exec_module(module):
            del spec.loader.exec_module
            run(module)
            self.waiting.discard(name)
            if not self.waiting:
                sys.meta_path.remove(self)
                self.ready()

        spec.loader.exec_module = exec_module
        return spec


def wait_for_jax(settings):
    """Record the programs of this process in the folder of `settings` as soon as it imports JAX."""
    hook = Hook(settings)
    if _PJIT in sys.modules:
        hook.install()
    else:
        sys.meta_path.insert(0, _Finder(hook.install))


class Traced:
    """What JAX knows about a traced function, without references to its arguments."""

    def __init__(self, function, information, arguments, keywords, parameters, seconds):
        self.in_tree, self.out_tree = parameters.in_tree, parameters.out_tree
        self.argument_names = parameters.arg_names
        self.seconds = seconds
        self.function = _weak(function)
        self.static = _static_values(information, arguments, keywords)
        self.split = None
        # How these libraries call JAX is not a public interface.
        with contextlib.suppress(Exception):
            self.split = _split(getattr(function, "__module__", None), arguments)
            if self.split is not None:
                self.static = _static_leaves(self.split, arguments[2])


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


class Hook:
    """The wrappers, and their notes between tracing and compiling."""

    def __init__(self, settings):
        self.settings = settings
        self.process = os.getpid()
        self.recorder = None
        self.problems = 0
        self.local = threading.local()
        self.traced = {}  # id of a jaxpr -> (weak reference to it, Traced)

    def install(self):
        """Wrap JAX's functions. If this version of JAX lacks one, write that down and change nothing."""
        try:
            pjit, pxla = sys.modules[_PJIT], sys.modules[_PXLA]
            wrapped = (
                (pjit, "_infer_params", self._infer_params),
                (pjit, "_pjit_call_impl_python", self._call),
                (pjit, "_resolve_and_lower", self._lower),
                (pxla.MeshComputation, "compile", self._compile),
            )
            made = [(owner, name, wrap(getattr(owner, name))) for owner, name, wrap in wrapped]
            # JAX leaves these frames out of the tracebacks of errors, as it does with its own.
            with contextlib.suppress(KeyError, AttributeError):
                sys.modules["jax._src.traceback_util"].register_exclusion(__file__)
        except Exception:
            self.problem("this version of JAX has other internal functions")
            return
        for owner, name, wrapper in made:
            setattr(owner, name, wrapper)

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

    def _infer_params(self, original):
        @functools.wraps(original)
        def infer_params(fun, ji, args, kwargs):
            started = time.perf_counter()
            result = original(fun, ji, args, kwargs)
            try:
                if self.active:
                    jaxpr = result[0].params["jaxpr"]
                    if id(jaxpr) not in self.traced:
                        seconds = time.perf_counter() - started
                        self._keep(jaxpr, Traced(fun, ji, args, kwargs, result[0], seconds))
            except Exception:
                self.problem("the arguments of a function cannot be read")
            return result

        return infer_params

    def _keep(self, jaxpr, traced):
        key = id(jaxpr)
        reference = weakref.ref(jaxpr, lambda _: self.traced.pop(key, None))
        self.traced[key] = (reference, traced)

    def _call(self, original):
        @functools.wraps(original)
        def pjit_call_impl_python(*args, **params):
            self.local.arguments = args
            try:
                return original(*args, **params)
            finally:
                self.local.arguments = None

        return pjit_call_impl_python

    def _lower(self, original):
        @functools.wraps(original)
        def resolve_and_lower(args, jaxpr, **params):
            started = time.perf_counter()
            computation = original(args, jaxpr=jaxpr, **params)
            try:
                if self.active and not hasattr(computation, _NAME):
                    seconds = time.perf_counter() - started
                    _, traced = self.traced.get(id(jaxpr), (None, None))
                    again = functools.partial(original, args, jaxpr=jaxpr, **params)
                    setattr(computation, _NAME, (traced, seconds, self._for_target(again, params)))
            except Exception:
                self.problem("a lowered function cannot be read")
            return computation

        return resolve_and_lower

    def _for_target(self, lower, params):
        """Return the function lowered for the platform of the target, None without a target.

        An error of JAX is returned as text: the function uses something that the platform lacks.
        """
        platform = self.settings.get("platform")
        if platform is None or params.get("lowering_platforms"):
            return None
        try:
            return lower(lowering_platforms=(platform,))
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def _compile(self, original):
        @functools.wraps(original)
        def compile(computation, *args, **kwargs):
            before = getattr(computation, "_executable", None)
            started = time.perf_counter()
            executable = original(computation, *args, **kwargs)
            if executable is not before:
                try:
                    if self.active:
                        self._record(computation, executable, time.perf_counter() - started)
                except Exception:
                    self.problem("a compiled program cannot be recorded")
            return executable

        return compile

    def _record(self, computation, executable, seconds):
        traced, lower_seconds, target = getattr(computation, _NAME, (None, None, None))
        with self.package.loaded():
            if self.recorder is None:
                name = "inspector.producers.program_run.recorder"
                self.recorder = importlib.import_module(name).Recorder(self.settings, self)
            self.recorder.compiled(
                computation,
                executable,
                traced,
                {"lower": lower_seconds, "compile": seconds},
                getattr(self.local, "arguments", None),
                target,
            )


def _weak(function):
    try:
        return weakref.ref(function)
    except TypeError:
        return None


def _static_values(information, arguments, keywords):
    """Return the static arguments by name: their text, and a hash that differs if they do."""
    found = {}
    for place in information.static_argnums or ():
        if -len(arguments) <= place < len(arguments):
            found[f"argument {place}"] = arguments[place]
    for name in information.static_argnames or ():
        if name in keywords:
            found[name] = keywords[name]
    return {name: (_text(value), hash(value)) for name, value in found.items()}


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
        tuple(one.name for one in parameters if one.kind in named),
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
    found = {
        "function": (split.source or "a callable object", hash(static[0])),
        "structure of the arguments": ("a pytree", hash(split.structures[1:])),
    }
    for keys, leaf in tree_util.tree_leaves_with_path(named):
        found[tree_util.keystr(keys, simple=True, separator="/")] = (_text(leaf), hash(leaf))
    return found


def _source(function):
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        function = inspect.unwrap(function.func)
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code and f"{function.__name__} at {code.co_filename}:{code.co_firstlineno}"


def _text(value):
    """Return a value as text. Only plain values are printed: `repr` of others could run any code."""
    plain = (int, float, bool, str, bytes, complex, type(None))
    if isinstance(value, plain) and type(value) in plain:
        return repr(value)[:80]
    if type(value) in (tuple, frozenset) and all(type(one) in plain for one in value):
        return repr(value)[:80]
    return getattr(value, "__qualname__", None) or f"a {type(value).__name__}"


class _OwnPackage:
    """Finds this package, independent of the program's `sys.path`."""

    def __init__(self, root):
        self.root = root

    def find_spec(self, name, path=None, target=None):
        return PathFinder.find_spec(name, [self.root]) if name == "inspector" else None


class Package:
    """This package in the process of the program, which can have a module of the same name."""

    def __init__(self, root):
        self.finder = _OwnPackage(root)
        theirs = PathFinder.find_spec("inspector", sys.path)
        ours = self.finder.find_spec("inspector")
        self.shared = theirs is None or theirs.origin == ours.origin
        self.modules = {}

    @contextlib.contextmanager
    def loaded(self):
        """Make `inspector` this package; afterwards it is the program's module again."""
        if self.shared:
            sys.meta_path.insert(0, self.finder)
            try:
                yield
            finally:
                sys.meta_path.remove(self.finder)
            return
        theirs = _taken_out()
        sys.modules.update(self.modules)
        sys.meta_path.insert(0, self.finder)
        try:
            yield
        finally:
            sys.meta_path.remove(self.finder)
            self.modules = _taken_out()
            sys.modules.update(theirs)


def _taken_out():
    names = [one for one in list(sys.modules) if one == "inspector" or one.startswith("inspector.")]
    return {name: sys.modules.pop(name) for name in names}
