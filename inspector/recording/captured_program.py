"""Make the Program record of a `jax.stages.Compiled` from a user's job.

`nnx.jit` and `eqx.filter_jit` number the arrays of a module. `named_jit` of Haliax separates donated arrays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import jax
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec, Sharding

from inspector.jax_private.programs import results
from inspector.model import PyTree
from inspector.recording.captured_arrays import ArrayRecords
from inspector.records.snapshot import Program, ProgramArray
from inspector.text.errors import InvalidInput
from inspector.tracing.leaves import Leaf, entries_of, memory_of, spec_of, unboxed

if TYPE_CHECKING:
    from inspector.jax_private.compile_hook import Split

_NNX, _EXTRACT = "flax.nnx", "flax.nnx.extract"


def arguments(tree: PyTree, split: Split | None = None) -> Iterator[Leaf]:
    """Yield every leaf of the arguments or results of a jitted function, in the order of the tree.

    A leaf of a split module has the path that it has in the module.

    Args:
      split: the `Split` of the hook for arguments of Equinox and Haliax, None for others.
    """
    whole = merged(tree, split)
    named = {} if whole is None else {id(leaf.value): leaf for leaf in unboxed(whole)}
    for leaf in unboxed(tree, modules=False):
        yield named.get(id(leaf.value), leaf)


def merged(tree: PyTree, split: Split | None = None) -> PyTree | None:
    """Return the pytree with modules for their parts, or None without any, or if they cannot be merged.

    With a `split`, it consists of positional and keyword arguments. The latter include `self`: the function
    itself, if it is a module or a method of one.
    """
    if split is not None:
        try:
            return _called(tree, split)
        except Exception:  # how these libraries split modules is not a public interface
            return None
    nnx, extract = sys.modules.get(_NNX), sys.modules.get(_EXTRACT)
    kind = getattr(extract, "NodeStates", None)
    if nnx is None or kind is None:
        return None
    nodes, structure = jax.tree.flatten(tree, is_leaf=lambda node: isinstance(node, kind))
    if not any(isinstance(node, kind) for node in nodes):
        return None
    try:
        # Modules of several arguments can share variables, so they are merged together.
        with nnx.merge_context(None, True) as context:
            modules = [
                context.unflatten(node.graphdef, *node.states) if isinstance(node, kind) else node
                for node in nodes
            ]
        return jax.tree.unflatten(structure, modules)
    except Exception:  # how flax splits modules is not a public interface
        return None


def _called(tree: PyTree, split: Split) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and keyword arguments of a function of Equinox or Haliax."""
    (donated, others), _ = tree
    if split.library == "haliax":
        function, (positional, keywords) = jax.tree.map(
            lambda array, other: other if array is None else array,
            donated,
            others,
            is_leaf=lambda node: node is None,
        )
    else:
        parts = {**donated, **others}
        function, first, (rest, keywords) = (
            structure.unflatten(parts[name])
            for name, structure in zip(("fun", "first", "rest"), split.structures, strict=True)
        )
        positional = (first, *rest)[:-1]  # Equinox appends None, so that there is a first argument
    return positional, {**keywords, "self": function}


_Result = TypeVar("_Result")


@dataclass(frozen=True)
class ProgramValue:
    """An input or output. `sharding` is the compiled one, None for an input that the program drops.

    fixed: whether the code gives it to jit, as an entry of `in_shardings` or `out_shardings`.
    constraint: the line of the constraint that gives a result its sharding; None if none does.
    """

    path: str
    leaf: Leaf
    sharding: Sharding | None
    output: bool
    used: bool
    donated: bool = False
    fixed: bool = False
    constraint: str | None = None


class CapturedProgram:
    """A `jax.stages.Compiled` with a name."""

    def __init__(self, name: str, compiled: Any) -> None:
        # nnx.jit and eqx.filter_jit wrap what JAX compiles.
        while not isinstance(compiled, jax.stages.Compiled) and hasattr(compiled, "compiled"):
            compiled = compiled.compiled
        if not isinstance(compiled, jax.stages.Compiled):
            raise InvalidInput(
                f"{name} is a {type(compiled).__name__}, but must be a compiled program, the result of "
                "jitted.lower(...).compile() of jax.jit, nnx.jit or eqx.filter_jit"
            )
        self.name = name
        self._compiled = compiled
        self.values: tuple[ProgramValue, ...] = (*self._inputs(), *self._outputs())

    def shardings(self) -> Iterator[Any]:
        """Yield the sharding of every value that the program uses."""
        return (value.sharding for value in self.values if value.used)

    def record(self, records: ArrayRecords, values: Sequence[ProgramValue] | None = None) -> Program:
        """Return the record.

        Collectives have mesh axes if all shardings of the program are on the devices of its mesh.

        Args:
          records: knows the meshes.
          values: the inputs and outputs with the paths of captured arrays; by default those of the program.
        """
        jax_mesh, mesh, index = records.mesh_of_program(self.shardings())
        arrays = tuple(_program_array(value) for value in values or self.values)
        on_mesh = all(
            sharding.mesh.shape == jax_mesh.shape
            or _device_ids(sharding.mesh) == _device_ids(jax_mesh) is not None
            for sharding in self.shardings()
            if isinstance(sharding, NamedSharding)
        )
        text = _if_available(self._compiled.as_text)
        memory = _if_available(lambda: memory_of(self._compiled))
        if text is None:
            return Program(self.name, memory=memory, shardings=arrays, stage="compiled", mesh=index)
        # Not imported in the process of a program under `run`, whose text is read later by another one.
        from inspector.compiled import program_text
        from inspector.tracing.mlir.kernel_bodies import with_costs

        facts = program_text.read(with_costs(text), mesh if on_mesh else None, arrays, memory, local=True)
        program = Program(
            self.name,
            memory=memory,
            shardings=program_text.with_uses(arrays, facts.uses, facts.gradients, facts.reused),
            stage="compiled",
            mesh=index,
        )
        return facts.added_to(program)

    def _inputs(self) -> Iterator[ProgramValue]:
        compiled = self._compiled
        in_tree: jax.tree_util.PyTreeDef = compiled.in_tree
        shardings = in_tree.flatten_up_to(compiled.input_shardings)
        leaves = arguments(compiled.args_info, getattr(compiled, "split", None))
        fixed = self._known("fixed_inputs", len(shardings))
        for leaf, sharding, own in zip(leaves, shardings, fixed, strict=True):
            # The first key only separates positional from keyword arguments.
            path = leaf.path.partition("/")[2]
            yield ProgramValue(
                f"{self.name}/input/{path}",
                leaf,
                sharding,
                output=False,
                used=sharding is not None,
                donated=bool(leaf.value.donated),
                fixed=bool(own),
            )

    def _outputs(self) -> Iterator[ProgramValue]:
        compiled = self._compiled
        out_tree: jax.tree_util.PyTreeDef = compiled.out_tree
        shardings = out_tree.flatten_up_to(compiled.output_shardings)
        facts = self._known("fixed", len(shardings)), self._known("constraints", len(shardings))
        for leaf, sharding, own, line in zip(arguments(results(compiled)), shardings, *facts, strict=True):
            path = "/".join(part for part in (self.name, "output", leaf.path) if part)
            yield ProgramValue(path, leaf, sharding, output=True, used=True, fixed=bool(own), constraint=line)

    def _known(self, name: str, count: int) -> Sequence[Any]:
        known: Sequence[Any] = getattr(self._compiled, name, ())
        return known if len(known) == count else [None] * count


def _program_array(value: ProgramValue) -> ProgramArray:
    spec = None
    if isinstance(value.sharding, NamedSharding):
        partition_spec = value.sharding.spec
        if PartitionSpec.UNCONSTRAINED not in entries_of(partition_spec):
            spec = spec_of(partition_spec, len(value.leaf.value.shape))
    # A compiled program does not contain the requested shardings. JAX keeps those that the code gives to jit.
    return ProgramArray(
        role="output" if value.output else "input",
        path=value.path,
        requested=spec if value.fixed else None,
        compiled=spec,
        same=None,
        used=value.used,
        donated=value.donated,
        memory_kind=getattr(value.sharding, "memory_kind", None) or "device",
        constraint=value.constraint,
    )


def _device_ids(mesh: Mesh | AbstractMesh) -> tuple[int, ...] | None:
    """Return the ids in mesh order, which is the order of groups; None for a mesh without devices."""
    if not isinstance(mesh, Mesh):
        return None
    return tuple(device.id for device in mesh.devices.flat)


def _if_available(function: Callable[[], _Result]) -> _Result | None:
    """Return the result, or None if this executable does not provide it."""
    try:
        return function()
    except (jax.errors.JaxRuntimeError, NotImplementedError):
        return None
