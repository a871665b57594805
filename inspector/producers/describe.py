"""What a model of a person's own tells of itself: its sizes, its logical axes, its rules."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import math
import os
import site
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import jax

from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import counted
from inspector.core.rules import Rule
from inspector.layout import Layout
from inspector.model import (
    Model,
    ModelEntry,
    Names,
    RulesSemantics,
    Size,
    own_model,
)
from inspector.producers.leaves import leaves_of, without_eager_sharding


def describe(payload: dict[str, Any], report: Callable[..., None]) -> dict[str, Any]:
    """Worker job: the name of a model as `package.module:function` in, its ModelEntry as JSON out."""
    report("describe")
    return {"entry": own_model.to_json(entry_of(payload["model"]))}


def entry_of(name: str) -> ModelEntry:
    """Import the module, build the model at its defaults and trace its `init`; nothing is compiled.

    Raises:
      InvalidInput: it cannot be imported, is no such function, or fails; with its own words and line.
    """
    build = function_named(name)
    sizes = _sizes(build, name)
    model = built(name, build, {})
    return ModelEntry(
        name=name,
        title=name,
        build=name,
        sizes=sizes,
        logical_axes=_logical_axes(model, name) if model.names == "logical" else {},
        rules=tuple(_rule(rule, name) for rule in model.rules),
        partitions={},
        names=model.names,
        rules_semantics=model.rules_semantics,
        own=True,
    )


def function_named(name: str) -> Callable[..., Any]:
    """The function that `package.module:function` names.

    Raises:
      InvalidInput: there is none, or importing its module fails.
    """
    module_name, function_name = own_model.parse_name(name)
    try:
        with own_code(name):
            module = importlib.import_module(module_name)
    except InvalidInput as refused:
        cause = refused.__cause__
        if isinstance(cause, ModuleNotFoundError) and f"{module_name}.".startswith(
            f"{cause.name}."
        ):
            raise InvalidInput(
                f"{name} is not there: no module named {cause.name!r} can be imported from where the "
                "inspector was started, nor from PYTHONPATH" + _ours(module_name)
            ) from cause
        raise
    function = getattr(module, function_name, None)
    if not callable(function):
        what = (
            "has nothing" if function is None else f"has {type(function).__name__}, not a function,"
        )
        raise InvalidInput(
            f"{name} is not there: the module {module_name} {what} named {function_name!r}"
        )
    return function


def built(name: str, build: Callable[..., Any], sizes: dict[str, Any]) -> Model:
    """What the person's function makes of these sizes.

    Raises:
      InvalidInput: it fails, or gives no Model whose fields have the values they can have.
    """
    with own_code(name):
        model = build(**sizes)
    if not isinstance(model, Model):
        raise InvalidInput(
            f"{name} gives {type(model).__name__}, but must give an inspector.model.Model"
        )
    for field in ("init", "step", "batch"):
        if not callable(getattr(model, field)):
            raise InvalidInput(
                f"{name}: {field} is {shown(str(getattr(model, field)))}, not a function"
            )
    for field, allowed in (("names", Names), ("rules_semantics", RulesSemantics)):
        if getattr(model, field) not in get_args(allowed):
            raise InvalidInput(
                f"{name}: {field} is {shown(str(getattr(model, field)))}, but must be one of "
                f"{', '.join(get_args(allowed))}"
            )
    return model


def checked_batch(name: str, batch: Any) -> dict[str, Any]:
    """The batch, if it is arrays by name.

    Raises:
      InvalidInput: it is anything else.
    """
    if not isinstance(batch, dict) or not all(
        isinstance(key, str) and hasattr(value, "shape") for key, value in batch.items()
    ):
        raise InvalidInput(
            f"{name}: batch(key) gives {type(batch).__name__}, but must give arrays by name"
        )
    return batch


def _sizes(build: Callable[..., Any], name: str) -> tuple[Size, ...]:
    hints = {}
    with contextlib.suppress(Exception):  # names that only a type checker imports
        hints = get_type_hints(build)
    sizes = []
    for parameter in inspect.signature(build).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.default is parameter.empty or parameter.kind is parameter.POSITIONAL_ONLY:
            raise InvalidInput(
                f"{name} has the parameter {parameter.name}, but each must have a default and be "
                "given by name"
            )
        default = parameter.default
        if type(default) not in (bool, int, float, str):
            continue  # it keeps its default: no text says another one
        if isinstance(default, float) and not math.isfinite(default):
            continue
        if parameter.name in own_model.NOT_SIZES:
            raise InvalidInput(
                f"{name} has the parameter {parameter.name}, which every layout has as a field: "
                "give it another name"
            )
        choices = get_args(hints.get(parameter.name))
        texts = bool(choices) and all(isinstance(choice, str) for choice in choices)
        meaning = f"parameter of {name.partition(':')[2]}"
        sizes.append(Size(parameter.name, default, meaning, choices if texts else ()))
    return tuple(sizes)


def _logical_axes(model: Model, name: str) -> dict[str, str]:
    """Every logical axis, with how many arrays have it and the first of them."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    with own_code(name), without_eager_sharding():
        batch = checked_batch(name, jax.eval_shape(model.batch, key))
        state = jax.eval_shape(model.init, key, batch)
    found: dict[str, list[str]] = {}
    named = [(f"batch/{part}", axes) for part, axes in model.batch_axes.items()]
    named += [(leaf.path, leaf.names) for leaf in leaves_of(state) if leaf.names is not None]
    for path, names in named:
        for axis in dict.fromkeys(_flat(names)):
            found.setdefault(axis, []).append(path)
    return {
        axis: f"a dimension of {paths[0]}"
        + (f" and {counted(len(paths) - 1, 'more array')}" if len(paths) > 1 else "")
        for axis, paths in found.items()
    }


def _flat(names: Iterable[Any]) -> Iterable[str]:
    return (name for name in names if isinstance(name, str))


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


def _ours(module: str) -> str:
    first = module.partition(".")[0]
    if first not in ("inspector", "tests", "benchmarks"):
        return ""
    return f"; {first} is a package of the inspector itself: call yours otherwise"


_PACKAGE = Path(__file__).resolve().parents[1]
_LONGEST = 200  # characters of what an exception says; a worker's answer has room for 300


@contextlib.contextmanager
def own_code(name: str) -> Iterator[None]:
    """Within it, an exception that goes through code of the model `name` becomes one sentence.

    Raises:
      InvalidInput: the exception's own words, and the file and line of the person's code.
    """
    try:
        yield
    except InvalidInput:
        raise
    except (Exception, SystemExit) as error:
        raise InvalidInput(f"{name} fails{_place(error)}: {_words(error)}") from error


@contextlib.contextmanager
def code_of(layout: Layout) -> Iterator[None]:
    """The same for a layout's model, if it is not one of this project."""
    try:
        yield
    except InvalidInput:
        raise
    except (Exception, SystemExit) as error:
        # What no line of theirs has caused is no fault of their code.
        if not layout.entry.own or not _place(error):
            raise
        raise InvalidInput(f"{layout.model} fails{_place(error)}: {_words(error)}") from error


def _words(error: BaseException) -> str:
    said = " ".join(str(error).split())
    if isinstance(error, SyntaxError):
        said = error.msg or said
    cut = said if len(said) <= _LONGEST else said[: _LONGEST - 1].rstrip() + "…"
    return f"{type(error).__name__}: {cut}" if cut else type(error).__name__


def _place(error: BaseException) -> str:
    """` at file.py:31`, the innermost line of the person's own; nothing where none is known."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" at {_short(error.filename)}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if _is_own(frame.filename)]
    return f" at {_short(own[-1].filename)}:{own[-1].lineno}" if own else ""


def _is_own(file: str) -> bool:
    path = os.path.realpath(file)
    if not os.path.isfile(path):
        return False
    installed = (*sysconfig.get_paths().values(), *site.getsitepackages())
    if any(path.startswith(os.path.realpath(folder) + os.sep) for folder in installed):
        return False
    ours = (_PACKAGE, (_PACKAGE / "models").resolve())
    return not any(path.startswith(str(folder) + os.sep) for folder in ours)


def _short(file: str) -> str:
    """The file as seen from where the program was started, or its name."""
    path = Path(os.path.realpath(file))
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return path.name
