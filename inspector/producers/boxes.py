"""The arrays of any pytree, out of the boxes that Flax puts around them. Never imports Flax.

Whoever has a Flax box in a tree has imported Flax; where it is not in `sys.modules`, there are none.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
from jax.sharding import NamedSharding

from inspector.core.snapshot import Box, Group

# Names of the dimensions: one name, several or none each.
Names = tuple[Any, ...]


@dataclass(frozen=True)
class Opened:
    """A leaf out of its box.

    `names` are those of its dimensions, None where nothing names them; `logical` tells that the box says
    they are logical axes and not mesh axes, which it does not always. `group` is what the box says that
    the value is for.
    """

    path: str
    value: Any
    names: Names | None = None
    logical: bool = False
    box: Box | None = None
    group: Group | None = None


def opened(tree: Any, modules: bool = True) -> Iterator[Opened]:
    """Every leaf of a tree, in the order of the tree, `a/b/0` its path.

    An nnx module is read as its state, so that a variable which two of its modules share comes once; with
    `modules` false it is left to JAX, which keeps the order that a jitted function has for it.
    """
    meta, nnx = _loaded("flax.core.meta"), _loaded("flax.nnx")
    linen_boxes = () if meta is None else (meta.AxisMetadata,)
    variables = () if nnx is None else (nnx.Variable,)
    graphs = () if nnx is None or not modules else (_graph_class(nnx), nnx.Module)

    def ends(node: Any) -> bool:
        return isinstance(node, (*linen_boxes, *variables, *graphs))

    for key_path, leaf in jax.tree_util.tree_leaves_with_path(tree, is_leaf=ends):
        path = jax.tree_util.keystr(key_path, simple=True, separator="/")
        if isinstance(leaf, graphs):
            for inner in opened(nnx.state(leaf), modules=False):
                yield _under(path, inner)
        elif isinstance(leaf, variables):
            yield from _inside(path, _variable_value(leaf), _of_variable(leaf, nnx))
        elif isinstance(leaf, linen_boxes):
            yield from _inside(path, _linen_value(leaf), _of_linen(leaf))
        else:
            yield Opened(path, leaf)


def has_variables(tree: Any) -> bool:
    """Whether a tree has variables of nnx in it."""
    nnx = _loaded("flax.nnx")
    if nnx is None:
        return False
    leaves = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, nnx.Variable))
    return any(isinstance(leaf, nnx.Variable) for leaf in leaves)


def _inside(path: str, value: Any, said: dict[str, Any]) -> Iterator[Opened]:
    """The value of a box, which is one array but for quantized ones; names are those of one array."""
    inner = list(opened(value, modules=False))
    for one in inner:
        whole = len(inner) == 1 and one.path == ""
        yield _under(path, Opened(one.path, one.value, **(said if whole else {})))


def _under(path: str, inner: Opened) -> Opened:
    joined = "/".join(part for part in (path, inner.path) if part)
    return Opened(joined, inner.value, inner.names, inner.logical, inner.box, inner.group)


def _of_linen(box: Any) -> dict[str, Any]:
    names = getattr(box, "names", None)
    if names is None:
        return {}
    kind = type(box).__name__
    return {
        "names": tuple(names),
        "logical": kind == "LogicallyPartitioned",
        "box": Box(kind, _entries(names)),
    }


def _linen_value(box: Any) -> Any:
    # Not `unbox` where there is another way: under a mesh it puts a constraint on the value.
    return box.value if hasattr(box, "value") else box.unbox()


def _of_variable(variable: Any, nnx: ModuleType) -> dict[str, Any]:
    said: dict[str, Any] = {}
    names = variable.get_metadata().get("out_sharding")
    if isinstance(names, NamedSharding):
        names = names.spec
    # A spec with unreduced axes cannot be iterated over.
    names = getattr(names, "partitions", names)
    if names is not None and _is_names(names):
        said = {"names": tuple(names), "box": Box(type(variable).__name__, _entries(names))}
    if isinstance(variable, nnx.Param):
        said["group"] = "params"
    elif isinstance(variable, nnx.optimizer.OptState):
        said["group"] = "opt_state"
    return said


def _is_names(names: Any) -> bool:
    # A Format has a sharding, which is not what a rule could take anywhere.
    return hasattr(names, "__iter__") and all(
        name is None or isinstance(name, (str, tuple)) for name in names
    )


def _entries(names: Names) -> tuple[tuple[str, ...] | None, ...]:
    return tuple(
        (name,) if isinstance(name, str) else tuple(name) if name else None for name in names
    )


def _variable_value(variable: Any) -> Any:
    return variable.get_value() if hasattr(variable, "get_value") else variable.value


def _graph_class(nnx: ModuleType) -> type:
    return getattr(nnx, "Pytree", None) or nnx.Object


def _loaded(name: str) -> ModuleType | None:
    return sys.modules.get(name)
