"""The arrays of any pytree, out of the boxes that Flax puts around them. Never imports Flax.

Whoever has a Flax box in a tree has imported Flax; where it is not in `sys.modules`, there are none.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
from jax.sharding import NamedSharding

from inspector.core.snapshot import Box, Group
from inspector.model import Model

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


@contextlib.contextmanager
def without_eager_sharding() -> Iterator[None]:
    """Within it, an nnx variable with logical names is not put on mesh axes of these names at once.

    Does nothing where nobody has imported nnx.
    """
    nnx = sys.modules.get("flax.nnx")
    if nnx is None or not hasattr(nnx, "use_eager_sharding"):
        yield
        return
    with nnx.use_eager_sharding(False):
        yield


@contextlib.contextmanager
def nnx_rules(rules: Sequence[tuple[str, Any]]) -> Iterator[None]:
    """Within it, `nnx.get_partition_spec` reads these rules."""
    spmd = sys.modules.get("flax.core.spmd")
    if spmd is None:
        yield
        return
    with spmd.logical_axis_rules(rules):
        yield


def named_variables(tree: Any, chosen: Any) -> Any:
    """The tree with `chosen(variable)` in every variable of it, and `chosen(None)` for other leaves."""
    import jax

    nnx = sys.modules["flax.nnx"]
    return jax.tree.map(
        lambda leaf: leaf.replace(chosen(leaf)) if isinstance(leaf, nnx.Variable) else chosen(None),
        tree,
        is_leaf=lambda leaf: isinstance(leaf, nnx.Variable),
    )


@dataclass(frozen=True)
class Leaf:
    """One array, abstract or live. `names` are its dimensions' names, None where nothing names them."""

    path: str
    group: Group
    value: Any
    names: tuple[Any, ...] | None
    box: Box | None = None


def all_leaves(model: Model, batch: Any, state: Any, output: Any) -> list[Leaf]:
    """Every array of a model: what goes in, what is carried on, what comes out."""
    inputs = [
        Leaf(f"batch/{name}", "batch", value, tuple(model.batch_axes[name]))
        for name, value in batch.items()
    ]
    return [*inputs, *leaves_of(state), *_outputs(model, output)]


def _outputs(model: Model, output: Any) -> Iterator[Leaf]:
    """The output, one array or any tree of them; nothing of a model that has no inference."""
    if model.output_axes is not None:
        yield Leaf("output", "output", output, tuple(model.output_axes))
        return
    for one in opened(output):
        yield Leaf("/".join(filter(None, ("output", one.path))), "output", one.value, one.names)


def leaves_of(tree: Any) -> Iterator[Leaf]:
    """Every array of a tree, the boxes opened, in the order of the tree."""
    for one in opened(tree):
        yield Leaf(one.path, one.group or _group(one.path), one.value, one.names, one.box)


def _group(path: str) -> Group:
    first = path.split("/")[0]
    return first if first in ("params", "opt_state") else "other"
