"""Make the Program record of a `jax.stages.Compiled` from a user's job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec, Sharding

from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Program, ProgramArray
from inspector.producers.arrays.leaves import Leaf
from inspector.producers.arrays.records import entries_of, memory_of, spec_of
from inspector.producers.capture.captured_arrays import ArrayRecords
from inspector.producers.capture.split_modules import arguments
from inspector.producers.jax_internals.programs import results

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Value:
    """An input or output. `sharding` is the compiled one, None for an input that the program drops."""

    path: str
    leaf: Leaf
    sharding: Sharding | None
    output: bool
    used: bool
    donated: bool = False


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
        self.values: tuple[Value, ...] = (*self._inputs(), *self._outputs())

    def shardings(self) -> Iterator[Any]:
        """Yield the sharding of every value that the program uses."""
        return (value.sharding for value in self.values if value.used)

    def record(self, records: ArrayRecords, values: Sequence[Value] | None = None) -> Program:
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
        from inspector.producers.mlir.kernel_bodies import with_costs

        facts = program_text.read(with_costs(text), mesh if on_mesh else None, arrays, memory, local=True)
        program = Program(
            self.name,
            memory=memory,
            shardings=program_text.with_uses(arrays, facts.uses, facts.gradients, facts.reused),
            stage="compiled",
            mesh=index,
        )
        return facts.added_to(program)

    def _inputs(self) -> Iterator[Value]:
        compiled = self._compiled
        in_tree: jax.tree_util.PyTreeDef = compiled.in_tree
        shardings = in_tree.flatten_up_to(compiled.input_shardings)
        leaves = arguments(compiled.args_info, getattr(compiled, "split", None))
        for leaf, sharding in zip(leaves, shardings, strict=True):
            # The first key only separates positional from keyword arguments.
            path = leaf.path.partition("/")[2]
            yield Value(
                f"{self.name}/input/{path}",
                leaf,
                sharding,
                output=False,
                used=sharding is not None,
                donated=bool(leaf.value.donated),
            )

    def _outputs(self) -> Iterator[Value]:
        compiled = self._compiled
        out_tree: jax.tree_util.PyTreeDef = compiled.out_tree
        shardings = out_tree.flatten_up_to(compiled.output_shardings)
        for leaf, sharding in zip(arguments(results(compiled)), shardings, strict=True):
            path = "/".join(part for part in (self.name, "output", leaf.path) if part)
            yield Value(path, leaf, sharding, output=True, used=True)


def _program_array(value: Value) -> ProgramArray:
    spec = None
    if isinstance(value.sharding, NamedSharding):
        partition_spec = value.sharding.spec
        if PartitionSpec.UNCONSTRAINED not in entries_of(partition_spec):
            spec = spec_of(partition_spec, len(value.leaf.value.shape))
    # A compiled program does not contain the requested shardings.
    return ProgramArray(
        role="output" if value.output else "input",
        path=value.path,
        requested=None,
        compiled=spec,
        same=None,
        used=value.used,
        donated=value.donated,
        memory_kind=getattr(value.sharding, "memory_kind", None) or "device",
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
