"""A compiled program of a person's own job, and what the compiler says of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from inspector.compiled import program_text
from inspector.core import snapshot
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Program, ProgramArray
from inspector.producers.leaves import Opened, opened
from inspector.producers.records import entries_of, memory_of, spec_of


@dataclass(frozen=True)
class Value:
    """An input or output. `sharding` is the compiled one, None for an input that the program drops."""

    path: str
    leaf: Opened
    sharding: Any
    output: bool
    used: bool
    donated: bool = False


class CapturedProgram:
    """A `jax.stages.Compiled` under a name. Raises InvalidInput for anything else."""

    def __init__(self, name: str, compiled: Any) -> None:
        if not isinstance(compiled, jax.stages.Compiled):
            raise InvalidInput(
                f"{name} is a {type(compiled).__name__}, but must be a compiled program, "
                "as jitted.lower(...).compile() gives it"
            )
        self.name = name
        self._compiled = compiled
        self._values = (*self._inputs(), *self._outputs())

    def values(self) -> tuple[Value, ...]:
        """Every input and output, in the order of the program."""
        return self._values

    def shardings(self) -> Iterator[Any]:
        """The sharding of every value that the program uses."""
        return (value.sharding for value in self._values if value.used)

    def record(self, jax_mesh: Any, mesh: snapshot.Mesh | None) -> Program:
        """What a Snapshot keeps of it; collectives are told in the axes of the mesh if it has that one."""
        told = tuple(self._told(value) for value in self._values)
        text = self._text()
        mine = all(
            sharding.mesh.shape == jax_mesh.shape
            for sharding in self.shardings()
            if isinstance(sharding, NamedSharding)
        )
        said = program_text.read(text, mesh if mine else None, told)
        return Program(
            self.name,
            flops_per_device=None if said.work is None else said.work.flops,
            memory=self._memory(),
            collectives=said.collectives,
            shardings=told,
            work=said.work,
        )

    def _told(self, value: Value) -> ProgramArray:
        got = None
        if isinstance(value.sharding, NamedSharding):
            spec = value.sharding.spec
            if PartitionSpec.UNCONSTRAINED not in entries_of(spec):
                got = spec_of(spec, len(value.leaf.value.shape))
        # A compiled program does not tell what was asked of the compiler, only what came of it.
        return ProgramArray(
            role="output" if value.output else "input",
            path=value.path,
            requested=None,
            compiled=got,
            same=None,
            used=value.used,
            extra={"donated": True} if value.donated else {},
        )

    def _inputs(self) -> Iterator[Value]:
        compiled = self._compiled
        given = compiled.in_tree.flatten_up_to(compiled.input_shardings)
        leaves = opened(compiled.args_info, modules=False)
        for leaf, sharding in zip(leaves, given, strict=True):
            # The first part tells positional arguments from those by name, which their names do, too.
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
        made = compiled.out_tree.flatten_up_to(compiled.output_shardings)
        leaves = opened(compiled.out_info, modules=False)
        for leaf, sharding in zip(leaves, made, strict=True):
            path = "/".join(part for part in (self.name, "output", leaf.path) if part)
            yield Value(path, leaf, sharding, output=True, used=True)

    def _text(self) -> str | None:
        try:
            return self._compiled.as_text()
        except (jax.errors.JaxRuntimeError, NotImplementedError):
            return None

    def _memory(self) -> snapshot.Memory | None:
        try:
            return memory_of(self._compiled)
        except (jax.errors.JaxRuntimeError, NotImplementedError):
            return None
