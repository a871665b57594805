"""Import a user's model, describe its sizes, logical axes and rules, and report errors in its code."""

import contextlib
import importlib
import inspect
import math
import os
import re
import site
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import jax
from flax import linen as nn
from jax.sharding import AbstractMesh, AxisType

from inspector.compiled.assumed import KernelCosts
from inspector.layout import (
    MOST_COMPILED_DEVICES,
    RESERVED_NAMES,
    Layout,
    parse_axes,
    parse_axis_types,
    parse_mesh,
)
from inspector.model import (
    RESERVED_PROGRAMS,
    Model,
    ModelEntry,
    Names,
    PipelineSizes,
    PyTree,
    RulesSemantics,
    Size,
    own_model,
)
from inspector.model.state_specs import table_of
from inspector.records.job_report import JobReport
from inspector.records.snapshot import MeshAxis
from inspector.sharding.rules import Rule
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import counted
from inspector.tracing.leaves import leaves_of, nnx_rules, without_eager_sharding
from inspector.tracing.model import placeholder_devices
from inspector.tracing.model.traceable import batch_function, is_changed, traceable

# The mesh axes that a user's model names, and whether its code runs under `jax.set_mesh`.
#
# Found by abstract traces on mesh axes of size 1. Nothing is compiled.


# JAX's error for a PartitionSpec with a name that the mesh lacks.
_UNKNOWN_AXIS = re.compile(r"Resource axis: (\w+) of ")
_MOST_AXES = 16
_NO_AXES = ("unnamed",)


@dataclass(frozen=True)
class MeshUse:
    """The needs of a model for a mesh.

    Attributes:
      axes: the mesh axes that its rules, names and code have, in order of first use.
      set_mesh: False if its functions fail under `jax.set_mesh` but not without.
      state: the abstract train state; None if `init` fails both ways.
    """

    axes: tuple[str, ...]
    set_mesh: bool
    state: PyTree


def mesh_use(model: Model, rules: Iterable[Rule]) -> MeshUse:
    """Return the needs of the model for a mesh. Errors of its code are not reported here."""
    rules = tuple(rules)
    axes = [axis for _, together in rules for axis in together]
    if model.names == "mesh":
        axes += _flat((*model.batch_axes.values(), model.output_axes or ()))
    state = _tried(model, rules, None, False)
    boxes = [] if state is None else _flat(leaf.names or () for leaf in leaves_of(state))
    if model.names == "mesh":
        axes += boxes
    named = tuple(dict.fromkeys(axes))
    axes = list(named)
    while len(axes) < _MOST_AXES:
        try:
            under_mesh = _trace(model, rules, axes or _NO_AXES, True)
            return MeshUse(tuple(axes), True, under_mesh if state is None else state)
        except (Exception, SystemExit) as error:
            unknown = _UNKNOWN_AXIS.search(str(error))
            # A box with logical axes may be taken for a PartitionSpec.
            if unknown is None or unknown[1] in {*axes, *boxes}:
                break
            axes.append(unknown[1])
    if _tried(model, rules, None, True) is not None:
        return MeshUse(named, False, state)
    return MeshUse(tuple(axes), True, state or _tried(model, rules, axes or _NO_AXES, False))


def _tried(model: Model, rules: tuple[Rule, ...], axes: Iterable[str] | None, all_programs: bool) -> PyTree:
    """Return the abstract state, or None if a function fails."""
    try:
        return _trace(model, rules, axes, all_programs)
    except (Exception, SystemExit):
        return None


def _trace(model: Model, rules: tuple[Rule, ...], axes: Iterable[str] | None, all_programs: bool) -> PyTree:
    """Trace init, and the other programs if asked, and return the abstract state.

    Without `axes`, no mesh is set.
    """
    key = jax.eval_shape(lambda: jax.random.key(0))
    programs = (model.step, model.apply, *model.programs.values())
    with _context(rules, axes):
        batch = jax.eval_shape(batch_function(model), key)
        # New function objects make JAX trace again, because a cached trace may have another mesh.
        state = jax.eval_shape(lambda *arguments: model.init(*arguments), key, batch)
        for function in programs if all_programs else ():
            if function is not None:
                jax.eval_shape(lambda *arguments, of=function: of(*arguments), state, batch)
    return state


@contextlib.contextmanager
def _context(rules: tuple[Rule, ...], axes: Iterable[str] | None) -> Iterator[None]:
    names = None if axes is None else tuple(axes)
    mesh = None
    if names is not None:
        # By default, JAX 0.12 makes the axes explicit.
        mesh = AbstractMesh((1,) * len(names), names, axis_types=(AxisType.Auto,) * len(names))
    given = tuple((name, tuple(together) or None) for name, together in rules)
    with (
        contextlib.nullcontext() if mesh is None else jax.sharding.use_abstract_mesh(mesh),
        nn.logical_axis_rules(given),
        nnx_rules(given),
        without_eager_sharding(),
    ):
        yield


def _flat(names: Iterable[Iterable[Any]]) -> list[str]:
    """Return the axis names in the names of dimensions, of which each is a name, several or None."""
    entries = (entry for name in names for entry in name)
    together = ((entry,) if isinstance(entry, str) else entry or () for entry in entries)
    return [name for group in together for name in group if isinstance(name, str)]


# Numbers of devices for a model that makes its own mesh. A default layout has 8.
_DEVICE_COUNTS = (8, 4, 2, 16, 32, 64, 128, 256, 512, 1)


def describe(payload: dict[str, Any], report: JobReport) -> dict[str, Any]:
    """Worker job: return the ModelEntry of `package.module:function` as JSON."""
    report("describe")
    entry = entry_on_devices(payload["model"], payload.get("devices"))
    return {"entry": own_model.to_json(entry)}


def entry_on_devices(name: str, devices: int | None = None) -> ModelEntry:
    """Return the entry of a model whose code may need a number of devices for its own mesh.

    Without `devices`, several numbers are tried if the code asks for devices.

    Raises:
      InvalidInput: the function fails with each number. The message is that of the first one.
    """
    first: InvalidInput | None = None
    for count in _DEVICE_COUNTS if devices is None else (devices,):
        placeholder_devices.provide(count)
        try:
            return entry_of(name)
        except InvalidInput as refused:
            first = first or refused
            if not placeholder_devices.were_used():
                break
    assert first is not None
    raise first


def entry_of(name: str) -> ModelEntry:
    """Return the entry of a model, from its defaults and a trace of `init`. Nothing is compiled.

    Raises:
      InvalidInput: the function cannot be imported or fails; the message has the file and line.
    """
    build = function_named(name)
    sizes = _sizes(build, name)
    model = built(name, build, {})
    rules = tuple(_rule(rule, name) for rule in model.rules)
    use = mesh_use(model, rules)
    of_mesh = default_mesh(model, name)
    if not callable(model.kernel_costs):
        costs_of_kernels(model, name, {})  # refuse other values before any layout
    rows = table_of(model.state_specs) or ()
    named = [axis.name for axis in of_mesh] + [axis for row in rows for axis in row.axes]
    return ModelEntry(
        name=name,
        title=name,
        build=name,
        sizes=sizes,
        logical_axes=_logical_axes(model, name, use.state) if model.names == "logical" else {},
        rules=rules,
        partitions={},
        names=model.names,
        rules_semantics=model.rules_semantics,
        own=True,
        mesh_axes=tuple(dict.fromkeys((*named, *use.axes))),
        set_mesh=use.set_mesh if model.set_mesh is None else model.set_mesh,
        state_specs=None if model.state_specs is None else rows,
        other_specs=model.state_specs is not None and table_of(model.state_specs) is None,
        mesh=of_mesh,
        programs=programs_of(model),
        traceable=not is_changed(model),
        pipeline=_pipeline(model, name, sizes),
    )


def _pipeline(model: Model, name: str, sizes: Sequence[Size]) -> PipelineSizes | None:
    """Return the sizes of the model's pipeline.

    Raises:
      InvalidInput: they are not the names of two sizes with whole numbers.
    """
    if model.pipeline is None:
        return None
    known = [size.name for size in sizes if type(size.default) is int]
    given = model.pipeline if isinstance(model.pipeline, (tuple, list)) else (model.pipeline,)
    if len(given) != 2 or not set(given) <= set(known):
        raise InvalidInput(
            f"{name}: pipeline is {shown(repr(model.pipeline))}, but must be the names of two sizes, that of "
            f"the stages and that of the microbatches; the whole numbers are {', '.join(known) or 'none'}"
        )
    return PipelineSizes(*given)


def costs_of_kernels(model: Model, name: str, sizes: Mapping[str, int]) -> KernelCosts:
    """Return the costs of custom kernels that a model states.

    Args:
      name: of the model.
      sizes: those of the mesh axes by name.

    Raises:
      InvalidInput: a cost is not two numbers of at least 0.
    """
    given = model.kernel_costs
    stated = given(sizes) if callable(given) else given
    costs = []
    for kernel, cost in stated.items():
        pair = cost if isinstance(cost, (tuple, list)) else ()
        if len(pair) != 2 or not all(isinstance(part, (int, float)) and 0 <= part <= 1e18 for part in pair):
            raise InvalidInput(
                f"{name}: kernel_costs has {shown(f'{kernel}: {cost!r}')}, but must have the FLOPs and "
                "the bytes of one execution, two numbers from 0 to 1e18"
            )
        costs.append((str(kernel), float(pair[0]), round(pair[1])))
    return tuple(costs)


def function_named(name: str) -> Callable[..., Any]:
    """Return the function `package.module:function`, or raise InvalidInput if it cannot be imported."""
    module_name, function_name = own_model.parse_name(name)
    try:
        with own_code(name):
            module = importlib.import_module(module_name)
    except InvalidInput as refused:
        cause = refused.__cause__
        if isinstance(cause, ModuleNotFoundError) and f"{module_name}.".startswith(f"{cause.name}."):
            raise InvalidInput(
                f"{name} cannot be imported: there is no module {cause.name!r} in the current folder, in "
                "PYTHONPATH or in the installed packages" + _name_clash(module_name)
            ) from cause
        raise
    function = getattr(module, function_name, None)
    if not callable(function):
        kind = "nothing" if function is None else f"{type(function).__name__}, not a function,"
        raise InvalidInput(
            f"{name} cannot be imported: the module {module_name} has {kind} named {function_name!r}"
        )
    return function


def built(name: str, build: Callable[..., Any], sizes: dict[str, Any]) -> Model:
    """Return the Model that a user's function builds with these sizes.

    Raise InvalidInput if it is not valid.
    """
    with own_code(name):
        model = build(**sizes)
    if not isinstance(model, Model):
        raise InvalidInput(f"{name} returns {type(model).__name__}, but must return an inspector.model.Model")
    functions = {field: getattr(model, field) for field in ("init", "batch", "step", "apply")}
    for field, function in (functions | dict(model.programs)).items():
        if field == "batch" and isinstance(function, Mapping):
            continue
        if not callable(function) and not (function is None and field in ("step", "apply")):
            raise InvalidInput(f"{name}: {field} is {shown(str(function))}, but must be a function")
    for program in model.programs:
        if not program.isidentifier() or program in RESERVED_PROGRAMS:
            raise InvalidInput(
                f"{name}: programs has {shown(program)}, but a program is named by letters, digits and _, "
                f"and not {', '.join(RESERVED_PROGRAMS)}"
            )
    for field, allowed in (("names", Names), ("rules_semantics", RulesSemantics)):
        if getattr(model, field) not in get_args(allowed):
            raise InvalidInput(
                f"{name}: {field} is {shown(str(getattr(model, field)))}, but must be one of "
                f"{', '.join(get_args(allowed))}"
            )
    with own_code(name):
        table_of(model.state_specs)
        return traceable(model)


def default_mesh(model: Model, name: str) -> tuple[MeshAxis, ...]:
    """Return the axes of the model's default mesh, empty without one.

    Raises:
      InvalidInput: the mesh or the types of its axes have another form.
    """
    mesh, types = model.mesh, model.axis_types
    if mesh is None:
        return ()
    sizes = dict(getattr(mesh, "shape", mesh))
    if types is None:
        types = getattr(mesh, "axis_types", ("auto",) * len(sizes))
    listed = types if isinstance(types, (list, tuple)) else (types,) * len(sizes)
    texts = [str(getattr(kind, "name", kind)).lower() for kind in listed]
    with own_code(name):
        shape = parse_mesh("x".join(map(str, sizes.values())), MOST_COMPILED_DEVICES)
        names = parse_axes(",".join(sizes), shape)
        parse_axis_types(",".join(texts), names)
    return tuple(MeshAxis(axis, size, kind) for axis, size, kind in zip(names, shape, texts, strict=True))


def checked_batch(name: str, batch: PyTree) -> dict[str, Any]:
    """Return the batch. Raise InvalidInput if it is not a dict from names to arrays."""
    if not isinstance(batch, dict) or not all(
        isinstance(key, str) and hasattr(value, "shape") for key, value in batch.items()
    ):
        raise InvalidInput(
            f"{name}: batch(key) returns {type(batch).__name__}, but must return a dict from names to arrays"
        )
    return batch


def _sizes(build: Callable[..., Any], name: str) -> tuple[Size, ...]:
    hints = {}
    with contextlib.suppress(Exception):  # annotations can use names that only type checkers import
        hints = get_type_hints(build)
    sizes = []
    for parameter in inspect.signature(build).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.default is parameter.empty or parameter.kind is parameter.POSITIONAL_ONLY:
            raise InvalidInput(
                f"{name} has the parameter {parameter.name}, but every parameter must have a default and be "
                "allowed as a keyword"
            )
        default = parameter.default
        if type(default) not in (bool, int, float, str):
            continue  # cannot be set from text, so it keeps its default
        if isinstance(default, float) and not math.isfinite(default):
            continue
        if parameter.name in RESERVED_NAMES:
            raise InvalidInput(
                f"{name} has the parameter {parameter.name}, which is a field of every layout: rename it"
            )
        choices = get_args(hints.get(parameter.name))
        texts = bool(choices) and all(isinstance(choice, str) for choice in choices)
        meaning = f"parameter of {name.partition(':')[2]}"
        sizes.append(Size(parameter.name, default, meaning, choices if texts else ()))
    return tuple(sizes)


def programs_of(model: Model) -> tuple[str, ...]:
    """Return the names of a model's programs other than init, in the order of a run."""
    named = (("train_step", model.step), ("apply", model.apply))
    return (*(name for name, function in named if function is not None), *model.programs)


def _logical_axes(model: Model, name: str, state: PyTree) -> dict[str, str]:
    """Return every logical axis with a description: the first array with it, and the number of others.

    Args:
      state: the abstract state; None if `init` fails, which is then reported.
    """
    key = jax.eval_shape(lambda: jax.random.key(0))
    with own_code(name), without_eager_sharding():
        batch = checked_batch(name, jax.eval_shape(batch_function(model), key))
        if state is None:
            state = jax.eval_shape(model.init, key, batch)
    by_axis: dict[str, list[str]] = {}
    named = [(f"batch/{part}", axes) for part, axes in model.batch_axes.items()]
    named += [(leaf.path, leaf.names) for leaf in leaves_of(state) if leaf.names is not None]
    for path, names in named:
        for axis in dict.fromkeys(entry for entry in names if isinstance(entry, str)):
            by_axis.setdefault(axis, []).append(path)
    return {
        axis: f"a dimension of {paths[0]}"
        + (f" and {counted(len(paths) - 1, 'more array')}" if len(paths) > 1 else "")
        for axis, paths in by_axis.items()
    }


def _rule(rule: Any, name: str) -> Rule:
    try:
        logical, axes = rule
        together = () if axes is None else (axes,) if isinstance(axes, str) else tuple(axes)
        if isinstance(logical, str) and all(isinstance(axis, str) for axis in together):
            return logical, together
    except (TypeError, ValueError):
        pass
    raise InvalidInput(
        f"{name}: rules has {shown(str(rule))}, but a rule is (logical axis, mesh axis), "
        "(logical axis, (mesh axes)) or (logical axis, None)"
    )


def _name_clash(module: str) -> str:
    first = module.partition(".")[0]
    return "; inspector is this package: rename yours" if first == "inspector" else ""


_PACKAGE = Path(__file__).resolve().parents[2]
_BUILT_IN = (_PACKAGE / "model" / "built_in").resolve()
_LONGEST = 200  # characters of an exception's message; the result of a worker has room for 300


@contextlib.contextmanager
def own_code(name: str, only_inside: bool = False) -> Iterator[None]:
    """Turn exceptions of the user's model `name` into an InvalidInput, one sentence with the file and line.

    If `only_inside`, leave exceptions unchanged that do not pass through the user's code.
    """
    try:
        yield
    except InvalidInput:
        raise
    except (Exception, SystemExit) as error:
        place = _place(error)
        if only_inside and not place:
            raise
        raise InvalidInput(f"{name} fails{place}: {_message(error)}") from error


def code_of(layout: Layout) -> contextlib.AbstractContextManager[None]:
    """Return `own_code` for a user's model, and a context manager without effect for others."""
    own = layout.entry.own
    return own_code(layout.model, only_inside=True) if own else contextlib.nullcontext()


def _message(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, SyntaxError):
        text = error.msg or text
    cut = text if len(text) <= _LONGEST else text[: _LONGEST - 1].rstrip() + "…"
    return f"{type(error).__name__}: {cut}" if cut else type(error).__name__


def _place(error: BaseException) -> str:
    """Return ` at file.py:31`, the innermost line of the user's code, or nothing if there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" at {_short(error.filename)}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if _is_own(frame.filename)]
    return f" at {_short(own[-1].filename)}:{own[-1].lineno}" if own else ""


def is_model_code(file: str) -> bool:
    """Return whether a file is the user's own code, or a built-in model other than `explicit.py`."""
    path = os.path.realpath(file)
    return _is_own(file) or (_is_in(path, (_BUILT_IN,)) and Path(path) != _BUILT_IN / "explicit.py")


def _is_own(file: str) -> bool:
    path = os.path.realpath(file)
    installed = (*sysconfig.get_paths().values(), *site.getsitepackages())
    return os.path.isfile(path) and not _is_in(
        path, (*(Path(os.path.realpath(folder)) for folder in installed), _PACKAGE, _BUILT_IN)
    )


def _is_in(path: str, folders: Iterable[Path]) -> bool:
    return any(path.startswith(f"{folder}{os.sep}") for folder in folders)


def _short(file: str) -> str:
    """Return the path relative to the current folder, or the name of a file elsewhere."""
    path = Path(os.path.realpath(file))
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return path.name
