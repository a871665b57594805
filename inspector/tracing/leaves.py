"""Convert JAX objects to Snapshot records, and read the arrays of a pytree through the boxes of libraries.

It imports JAX but neither Flax nor Haliax, and never reads the data of an array.

A tree can contain boxes of a library only if it is imported, so it is in `sys.modules`.
"""

import contextlib
import functools
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import MemberDescriptorType, ModuleType
from typing import Any, Protocol

import jax
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec, Sharding

from inspector.model import Model, PyTree
from inspector.records import snapshot
from inspector.records.snapshot import ArrayFacts, Box, Group, Memory, Shard, Spec
from inspector.sharding.array_groups import certain_group, group_of_path


def mesh_record(mesh: Mesh | AbstractMesh) -> snapshot.Mesh:
    """Return a mesh as a record. Devices of an abstract mesh are numbered in mesh order."""
    axes = tuple(
        snapshot.MeshAxis(name, size, kind.name.lower())
        for (name, size), kind in zip(mesh.shape.items(), mesh.axis_types, strict=True)
    )
    if isinstance(mesh, AbstractMesh):
        return snapshot.Mesh(axes, tuple(range(mesh.size)), abstract=True)
    devices = mesh.devices.flatten().tolist()
    slices = tuple(
        device.slice_index for device in devices if getattr(device, "slice_index", None) is not None
    )
    return snapshot.Mesh(
        axes=axes,
        devices=tuple(device.id for device in devices),
        processes=tuple(device.process_index for device in devices),
        device_kind=devices[0].device_kind,
        slice_index=slices if len(slices) == len(devices) and len(set(slices)) > 1 else None,
    )


def spec_of(partition_spec: PartitionSpec, rank: int) -> Spec:
    """Return a `PartitionSpec` as a Spec with `rank` entries. Missing entries are None, as in JAX."""
    entries = dimension_axes(entries_of(partition_spec))
    return entries + (None,) * (rank - len(entries))


def entries_of(partition_spec: PartitionSpec) -> tuple[Any, ...]:
    """Return the entries of a `PartitionSpec`. One with unreduced axes cannot be iterated over."""
    return tuple(partition_spec.partitions)


def dimension_axes(names: Iterable[Any]) -> tuple[tuple[str, ...] | None, ...]:
    """Return a tuple of names, or None, for each of JAX's entries: a name, several names, or None."""
    return tuple((name,) if isinstance(name, str) else tuple(name) if name else None for name in names)


def whole_names(names: Sequence[Any] | None, rank: int) -> tuple[Any, ...] | None:
    """Return one entry per dimension. As in JAX, missing entries at the end are None."""
    return None if names is None else (*names, *(None,) * (rank - len(names)))


def named_spec(sharding: object, rank: int) -> Spec | None:
    """Return the Spec of a `NamedSharding`, None for another sharding."""
    return spec_of(sharding.spec, rank) if isinstance(sharding, NamedSharding) else None


def shards_of(sharding: Sharding, shape: tuple[int, ...]) -> tuple[Shard, ...]:
    """Return the shard of each device, in the order of the sharding's devices.

    Raises:
      ValueError: the mesh axes do not divide a dimension.
    """
    counts: Counter[Any] = Counter()
    shards = []
    device: jax.Device
    for device, index in sharding.devices_indices_map(shape).items():
        bounds = index_bounds(index, shape)
        shards.append(Shard(device.id, bounds, counts[bounds], device.process_index))
        counts[bounds] += 1
    return tuple(shards)


def index_bounds(index: tuple[slice, ...], shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Return (start, stop) of each dimension for the index of a `jax.Shard`."""
    return tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True))


def largest_shape(shards: Iterable[Shard]) -> tuple[int, ...]:
    """Return the shape of the largest shard."""
    shapes = (tuple(stop - start for start, stop in shard.index) for shard in shards)
    return max(shapes, key=math.prod)


def array_facts(array: jax.Array) -> ArrayFacts:
    """Return the facts that a live `jax.Array` reports about its devices."""
    return ArrayFacts(committed=bool(array.committed), **_sharding_facts(array.sharding))


@functools.lru_cache(maxsize=256)
def _sharding_facts(sharding: Sharding) -> dict[str, Any]:
    devices: set[Any] = sharding.device_set
    if len(devices) == 1:
        placement = "single device"
    elif len({device.process_index for device in devices}) == 1:
        placement = "one process"
    else:
        placement = "several processes"
    return {
        "fully_addressable": sharding.is_fully_addressable,
        "fully_replicated": sharding.is_fully_replicated,
        "placement": placement,
        "devices": len(devices),
        "addressable_shards": len(sharding.addressable_devices),
        "global_shards": len(devices),
        "memory_kind": sharding.memory_kind,
    }


class Analyzed(Protocol):
    """A `jax.stages.Compiled`, or an object with its memory analysis."""

    def memory_analysis(self) -> Any: ...


def memory_of(compiled: Analyzed) -> Memory | None:
    """Return XLA's memory analysis of a compiled program for one device, None if there is none.

    Its peak for emulated devices leaves out temporaries (jaxlib 0.10.2 and 0.12), so it is unknown. For TPUs
    and GPUs it includes arguments and results in host memory, which are left out here.
    """
    analysis = compiled.memory_analysis()
    if analysis is None:
        return None
    arguments, outputs, aliased, temporaries = (
        getattr(analysis, f"host_{part}_size_in_bytes", 0) for part in ("argument", "output", "alias", "temp")
    )
    in_host = arguments + outputs - aliased
    return Memory(
        arguments=analysis.argument_size_in_bytes,
        outputs=analysis.output_size_in_bytes,
        aliased=analysis.alias_size_in_bytes,
        temporaries=analysis.temp_size_in_bytes,
        code=analysis.generated_code_size_in_bytes,
        peak=None if _emulated(compiled) else max(0, analysis.peak_memory_in_bytes - in_host),
        host=(in_host + temporaries) or None,
    )


def _emulated(compiled: object) -> bool:
    """Return whether a program was compiled for CPU devices."""
    shardings = jax.tree.leaves(
        (getattr(compiled, "input_shardings", ()), getattr(compiled, "output_shardings", ()))
    )
    return any(
        device.platform == "cpu"
        for sharding in shardings[:1]
        for device in getattr(sharding, "device_set", ())
    )


def bytes_per_device(compiled: jax.stages.Compiled) -> int:
    """Return the bytes that one run of a `jax.stages.Compiled` needs on one device, 0 if unknown."""
    memory = memory_of(compiled)
    if memory is None:
        return 0
    parts = (memory.arguments, memory.outputs, memory.temporaries)
    return sum(part or 0 for part in parts) - (memory.aliased or 0)


# The names of the dimensions, one entry each: a name, several names or None.
Names = tuple[Any, ...]

_META, _NNX, _SPMD = "flax.core.meta", "flax.nnx", "flax.core.spmd"
_HALIAX = "haliax.core"


@dataclass(frozen=True)
class Leaf:
    """One leaf of a pytree, concrete or abstract, without its box.

    Attributes:
      path: keys joined by "/".
      group: None if neither an Optax state around it nor the box determines it.
      names: names of the dimensions, None if there are none.
      logical: whether the box says that the names are logical axes.
      in_optax: whether it is inside of an Optax state.
    """

    path: str
    group: Group | None
    value: PyTree
    names: Names | None = None
    box: Box | None = None
    logical: bool = False
    in_optax: bool = False


def all_leaves(model: Model, batch: PyTree, state: PyTree, output: PyTree) -> list[Leaf]:
    """Return the leaves of a model's batch, train state and output."""
    leaves = [
        Leaf(f"batch/{name}", "batch", value, tuple(model.batch_axes[name])) for name, value in batch.items()
    ]
    leaves += leaves_of(state)
    if model.output_axes is not None:
        return [*leaves, Leaf("output", "output", output, tuple(model.output_axes))]
    # The output of a model without inference is None, which has no leaves.
    return leaves + [
        replace(leaf, path="/".join(filter(None, ("output", leaf.path))), group="output", box=None)
        for leaf in unboxed(output)
    ]


def leaves_of(tree: PyTree) -> Iterator[Leaf]:
    """Yield every leaf of a train state, with its group, in the order of the tree."""
    for leaf in unboxed(tree):
        yield replace(leaf, group=group_of(leaf, leaf.path) or "other")


def group_of(leaf: Leaf, path: str) -> Group | None:
    """Return the group of a leaf of a train state, or None if nothing determines it."""
    if leaf.in_optax:
        return "opt_state"
    # Moments can be nnx variables of the type of their parameters.
    return certain_group(path) or leaf.group or group_of_path(path)


def unboxed(tree: PyTree, modules: bool = True) -> Iterator[Leaf]:
    """Yield every leaf of a pytree without its box, in the order of the tree.

    Args:
      modules: whether to read an nnx module as its state, in which a shared variable occurs once. If False,
        JAX flattens modules, in the order of the arguments of a jitted function.
    """
    meta, nnx = sys.modules.get(_META), sys.modules.get(_NNX)
    linen_boxes = () if meta is None else (meta.AxisMetadata,)
    variables = () if nnx is None else (nnx.Variable,)
    graphs = () if nnx is None or not modules else (getattr(nnx, "Pytree", None) or nnx.Object, nnx.Module)
    named_arrays = _named_array_classes()

    def is_boxed(node: object) -> bool:
        boxes = (*linen_boxes, *variables, *graphs, *named_arrays)
        return isinstance(node, boxes) or _is_optax_state(node)

    for key_path, node in jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_boxed):
        path = _path(tree, key_path)
        if _is_optax_state(node) and structure_of(node) != structure_of(0):
            inside = jax.tree_util.tree_leaves_with_path(
                node, is_leaf=lambda subtree, of=node: subtree is not of
            )
            for keys, child in inside:
                below = jax.tree_util.keystr(keys, simple=True, separator="/")
                for inner in unboxed(child, modules):
                    yield _below(path, _below(below, replace(inner, in_optax=True)))
        elif nnx is not None and isinstance(node, graphs):
            for inner in unboxed(nnx.state(node), modules=False):
                yield _below(path, inner)
        elif nnx is not None and isinstance(node, variables):
            value = node.get_value() if hasattr(node, "get_value") else node.value
            yield from _inside(path, value, _variable_fields(node, nnx))
        elif isinstance(node, linen_boxes):
            # `unbox` adds a sharding constraint under a mesh, so it is the second choice.
            value = node.value if hasattr(node, "value") else node.unbox()
            yield from _inside(path, value, _linen_fields(node))
        elif isinstance(node, named_arrays):
            named: Any = node
            yield from _inside(path, named.array, _named_array_fields(named))
        else:
            yield Leaf(path, None, node)


def _path(tree: PyTree, keys: Sequence[Any]) -> str:
    """Return the path of a leaf: `model/up/kernel`.

    A class that is registered without keys numbers its children. Its attributes with them have names.
    """
    if not any(isinstance(key, jax.tree_util.FlattenedIndexKey) for key in keys):
        return jax.tree_util.keystr(tuple(keys), simple=True, separator="/")
    parts, node = [], tree
    try:
        for key in keys:
            children, _ = jax.tree_util.default_registry.flatten_one_level_with_keys(node)
            place = next(n for n, (own, _) in enumerate(children) if own == key)
            part = jax.tree_util.keystr((key,), simple=True)
            if isinstance(key, jax.tree_util.FlattenedIndexKey):
                part = _attribute(node, [child for _, child in children], place) or part
            parts.append(part)
            node = children[place][1]
    except Exception:  # flatten functions of the program can fail, or return other children each time
        return jax.tree_util.keystr(tuple(keys), simple=True, separator="/")
    return "/".join(parts)


def _attribute(node: object, children: Sequence[Any], place: int) -> str | None:
    """Return the name of the attribute with one of the children of a node; None without one."""
    child = children[place]
    names = [name for name, value in attributes_of(node).items() if value is child]
    # Attributes with one value are in the order of the children.
    earlier = sum(other is child for other in children[:place])
    return names[earlier].strip("_") if earlier < len(names) else None


def attributes_of(node: object) -> dict[str, Any]:
    """Return the attributes that an object stores, without calling any code of its class."""
    found = dict(getattr(node, "__dict__", {}))
    for kind in type(node).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            member = vars(kind).get(name)
            if isinstance(member, MemberDescriptorType):
                with contextlib.suppress(AttributeError):
                    found[name] = member.__get__(node)
    return found


def structure_of(tree: PyTree) -> jax.tree_util.PyTreeDef:
    """Return `jax.tree.structure` of a tree, with the public name of its type."""
    return jax.tree.structure(tree)


def has_variables(tree: PyTree) -> bool:
    """Return whether a pytree contains nnx variables."""
    nnx = sys.modules.get(_NNX)
    if nnx is None:
        return False
    nodes = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, nnx.Variable))
    return any(isinstance(node, nnx.Variable) for node in nodes)


def has_named_arrays(tree: PyTree) -> bool:
    """Return whether a pytree contains Haliax NamedArrays."""
    kinds = _named_array_classes()
    nodes = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, kinds)) if kinds else ()
    return any(isinstance(node, kinds) for node in nodes)


def map_variables(tree: PyTree, function: Callable[[Any], Any]) -> PyTree:
    """Replace the value of every nnx variable by `function(variable)`, other leaves by `function(None)`."""
    nnx = sys.modules[_NNX]
    return jax.tree.map(
        lambda node: node.replace(function(node)) if isinstance(node, nnx.Variable) else function(None),
        tree,
        is_leaf=lambda node: isinstance(node, nnx.Variable),
    )


@contextlib.contextmanager
def without_eager_sharding() -> Iterator[None]:
    """Keep nnx from sharding variables when they are created, because rules decide their sharding."""
    eager = getattr(sys.modules.get(_NNX), "use_eager_sharding", None)
    with contextlib.nullcontext() if eager is None else eager(False):
        yield


@contextlib.contextmanager
def nnx_rules(rules: Sequence[tuple[str, Any]]) -> Iterator[None]:
    """Let `nnx.get_partition_spec` use these rules."""
    spmd = sys.modules.get(_SPMD)
    with contextlib.nullcontext() if spmd is None else spmd.logical_axis_rules(rules):
        yield


def _inside(path: str, value: PyTree, fields: dict[str, Any]) -> Iterator[Leaf]:
    """Yield the value of a box. A quantized value consists of several arrays, and names fit only one."""
    inner = list(unboxed(value, modules=False))
    is_array = len(inner) == 1 and inner[0].path == ""
    rank = len(getattr(inner[0].value, "shape", ())) if is_array else 0
    if is_array and fields.get("names") is not None:
        # As in JAX, dimensions after the last name are not sharded.
        names = fields["names"]
        fields = fields | {"names": (*names, *(None,) * (rank - len(names)))}
    for leaf in inner:
        bare = Leaf(leaf.path, None, leaf.value)
        yield _below(path, replace(bare, **fields) if is_array else bare)


def _below(path: str, leaf: Leaf) -> Leaf:
    return replace(leaf, path="/".join(part for part in (path, leaf.path) if part))


def _linen_fields(box: Any) -> dict[str, Any]:
    names = getattr(box, "names", None)
    if names is None:
        return {}
    # A model may have its own subclass of a box.
    kind = next(cls.__name__ for cls in type(box).__mro__ if cls.__module__.startswith("flax."))
    return {
        "names": tuple(names),
        "logical": kind == "LogicallyPartitioned",
        "box": Box(kind, dimension_axes(names)),
    }


def _named_array_classes() -> tuple[type, ...]:
    haliax = sys.modules.get(_HALIAX)
    return () if haliax is None else (haliax.NamedArray,)


def _named_array_fields(array: Any) -> dict[str, Any]:
    names = tuple(axis.name for axis in array.axes)
    return {"names": names, "logical": True, "box": Box("NamedArray", dimension_axes(names))}


def _variable_fields(variable: Any, nnx: ModuleType) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    names = variable.get_metadata().get("out_sharding")
    if isinstance(names, NamedSharding):
        names = names.spec
    # A spec with unreduced axes cannot be iterated over.
    names = getattr(names, "partitions", names)
    if names is not None and _is_names(names):
        box = Box(type(variable).__name__, dimension_axes(names))
        fields = {"names": tuple(names), "box": box}
    if isinstance(variable, nnx.Param):
        fields["group"] = "params"
    elif isinstance(variable, nnx.optimizer.OptState):
        fields["group"] = "opt_state"
    return fields


def _is_names(names: object) -> bool:
    # The metadata can be a `Format`, which has no names.
    return hasattr(names, "__iter__") and all(
        name is None or isinstance(name, (str, tuple)) for name in names
    )


def _is_optax_state(node: object) -> bool:
    """Return whether a node is a state of Optax, or of a class derived from one."""
    kind: type = type(node)
    return _is_of_optax(kind)


@functools.lru_cache(maxsize=1024)
def _is_of_optax(kind: type) -> bool:
    return any(cls.__module__.partition(".")[0] == "optax" for cls in kind.__mro__)
