"""Name the inputs of a compiled program by the parameters of its function, instead of by position."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax

from inspector.core import renamed_paths
from inspector.core.snapshot import Snapshot
from inspector.model import PyTree
from inspector.producers.capture.split_modules import arguments as unpacked
from inspector.producers.capture.split_modules import merged

if TYPE_CHECKING:
    from inspector.producers.jax_internals.compile_hook import Split

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
