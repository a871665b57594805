"""Names that a program gives its arrays: variables, arguments and results.

No library is imported here, and no code of a class runs that is not needed to flatten a pytree.
"""

from __future__ import annotations

import contextlib
import gc
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from inspector.files.source_files import is_library
from inspector.model import PyTree
from inspector.recording.captured_program import arguments as unpacked
from inspector.recording.captured_program import merged
from inspector.records import renamed_paths
from inspector.records.snapshot import Group, Snapshot
from inspector.tracing.leaves import Leaf, attributes_of, unboxed

if TYPE_CHECKING:
    from inspector.jax_private.compile_hook import Split


_PARAMETER = re.compile(r"[^\[.]+")


@dataclass(frozen=True)
class ArgumentPaths:
    """The paths of a program's inputs and outputs.

    Attributes:
      tree: the pytree of positional and keyword arguments.
      parameters: position of an argument, as text -> name of its parameter.
      inputs: path of each input, which begins with its parameter.
      outputs: path of each output; empty for a single array.
      split: the `Split` of the hook for a function of Equinox or Haliax, else None.
    """

    tree: PyTree
    parameters: dict[str, str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    split: Split | None = None

    def trees(self, arguments: Sequence[Any]) -> list[tuple[str, Any]]:
        """Return each argument of a call by name. The flat `arguments` can begin with constants."""
        count = self.tree.num_leaves
        if len(arguments) < count:
            return []
        called = self.tree.unflatten(arguments[len(arguments) - count :])
        whole = merged(called, self.split)
        positional, keywords = called if whole is None else whole
        named = [(self.parameters.get(str(n), str(n)), value) for n, value in enumerate(positional)]
        return [*named, *keywords.items()]


def argument_paths(
    in_tree: jax.tree_util.PyTreeDef,
    out_tree: jax.tree_util.PyTreeDef,
    names: Sequence[str | None],
    split: Split | None = None,
) -> ArgumentPaths:
    """Return the paths for JAX's pytrees and its names of flat arguments, such as `state['w']`.

    The parameters of a `split` function replace these names, which are those of its library's wrapper.
    """
    keys = _paths(in_tree, split)
    if split is not None:
        parameters = {str(place): name for place, name in enumerate(split.parameters)}
    else:
        heads: dict[str, str] = {}
        for path, name in zip(keys, names, strict=False):
            kind, _, rest = path.partition("/")
            match = _PARAMETER.match(name or "")
            if kind == "0" and match:
                heads.setdefault(rest.partition("/")[0], match.group())
        counts = Counter(heads.values())
        # The parameter `*arrays` has several positions: `arrays/0`, `arrays/1`.
        first = {name: int(place) for place, name in reversed(heads.items())}
        parameters = {
            place: name if counts[name] == 1 else f"{name}/{int(place) - first[name]}"
            for place, name in heads.items()
        }
    inputs = tuple(_renamed(path.partition("/")[2], parameters) for path in keys)
    return ArgumentPaths(in_tree, parameters, inputs, tuple(_paths(out_tree)), split)


def with_argument_names(snapshot: Snapshot, program: str, paths: ArgumentPaths) -> Snapshot:
    """Replace positions in the paths of a program's inputs: `step/input/0/w` by `step/input/state/w`."""
    prefix = f"{program}/input/"

    def renamed(path: str) -> str:
        if not path.startswith(prefix):
            return path
        return prefix + _renamed(path.removeprefix(prefix), paths.parameters)

    return renamed_paths.in_snapshot(snapshot, renamed)


def _paths(tree: PyTree, split: Split | None = None) -> list[str]:
    """Return the path of each leaf of a pytree's structure."""
    leaves = [object() for _ in range(tree.num_leaves)]
    return [leaf.path for leaf in unpacked(tree.unflatten(leaves), split)]


def _renamed(path: str, parameters: dict[str, str]) -> str:
    place, slash, rest = path.partition("/")
    return parameters.get(place, place) + slash + rest


# Objects of these types contain no arrays.
_PLAIN = (ModuleType, FunctionType, BuiltinFunctionType, MethodType, type, str, bytes, int, float,
          bool, type(None))  # fmt: skip
_MOST_OBJECTS = 2000
LEAST_BYTES = 64 * 2**10  # of a constant that is recorded
_DEEPEST = 4  # attributes of attributes
_KERAS, _OPTIMIZERS = "keras.src.backend.common.variables", "keras.src.optimizers.base_optimizer"


class OwnName(NamedTuple):
    """The name that a library gives to an array, and its group if the library knows it."""

    path: str
    group: Group | None


def trees_of_objects(variables: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the pytrees with arrays in variables and in the attributes of their objects, with their paths."""
    seen: set[int] = set()
    waiting = [(name, value, 0) for name, value in variables]
    while waiting and len(seen) < _MOST_OBJECTS:
        name, value, depth = waiting.pop(0)
        if isinstance(value, _PLAIN) or id(value) in seen:
            continue
        seen.add(id(value))
        leaves = _leaves(value)
        if any(isinstance(leaf.value, jax.Array) for leaf in leaves):
            yield name, value
        if depth < _DEEPEST:
            for leaf in leaves:
                if isinstance(leaf.value, (*_PLAIN, jax.Array)):
                    continue
                below = "/".join(filter(None, (name, leaf.path)))
                waiting += (
                    (f"{below}/{attribute.strip('_')}", held, depth + 1)
                    for attribute, held in attributes_of(leaf.value).items()
                )


def arrays_of_function(function: Callable[..., object] | None) -> Iterator[tuple[str, Any]]:
    """Yield the large arrays that a function uses without having them as arguments, by their names.

    They are variables around it, or of the functions that it calls by name. JAX makes them constants.
    """
    waiting: list[Any] = [function]
    seen: set[int] = set()
    while waiting and len(seen) < _MOST_OBJECTS:
        value = waiting.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        wrapped = (getattr(value, name, None) for name in ("__wrapped__", "func"))
        waiting += (inner for inner in wrapped if inner is not None)
        value = getattr(value, "__func__", value)
        if not isinstance(value, FunctionType):
            continue
        for name, held in _variables_of(value):
            if isinstance(held, FunctionType):
                if not is_library(held.__code__.co_filename):
                    waiting.append(held)
            elif not isinstance(held, _PLAIN):
                for leaf in _leaves(held):
                    array = isinstance(leaf.value, (jax.Array, np.ndarray))
                    if array and leaf.value.nbytes >= LEAST_BYTES:
                        yield "/".join(filter(None, (name, leaf.path))), leaf.value


def _variables_of(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the variables of other scopes that a function refers to, also inside of nested functions."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # it has no value yet
            yield name, cell.cell_contents
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes += (constant for constant in code.co_consts if isinstance(constant, CodeType))
        for name in code.co_names:
            if name in function.__globals__:
                yield name, function.__globals__[name]


def _leaves(value: PyTree) -> list[Leaf]:
    try:
        return list(unboxed(value))
    except Exception:  # a class of the program whose flatten function fails
        return []


def names_of_libraries() -> dict[int, OwnName]:
    """Return the names of the values of Keras variables by `id`. Their paths are those of a LayoutMap."""
    variables, optimizers = sys.modules.get(_KERAS), sys.modules.get(_OPTIMIZERS)
    kind = getattr(variables, "Variable", None)
    if kind is None:
        return {}
    optimizer = getattr(optimizers, "BaseOptimizer", None)
    found, state = [], set()
    for value in gc.get_objects():
        if issubclass(type(value), kind):
            found.append(value)
        elif optimizer is not None and issubclass(type(value), optimizer):
            state |= {id(variable) for variable in value.variables}
    names = {}
    for variable in found:
        held = vars(variable)
        group: Group | None = None
        if id(variable) in state:
            group = "opt_state"
        elif held.get("_trainable"):
            group = "params"
        if isinstance(held.get("_value"), jax.Array) and held.get("_path"):
            names[id(held["_value"])] = OwnName(held["_path"], group)
    return names
