"""The kind of each instruction of a program: the name of its time in a profile."""

import functools
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from inspector.hlo.module import Instruction, Module, Path
from inspector.hlo.opcodes import Does
from inspector.records.collectives import OPS
from inspector.records.snapshot import Collective

# The kind of events without an instruction of the program.
OTHER = "other"

# A fusion that computes has the kind of the first of these in it, because the rest costs little.
_COSTLY: tuple[Does, ...] = ("product", "solve", "scatter", "reduce", "gather")
# A fusion that only moves data has the kind of the first of these in it.
_MOVES: tuple[Does, ...] = (
    *("update", "slice", "concatenate", "pad", "cast", "reorder", "copy", "broadcast", "iota"),
)
_FREE: frozenset[Does] = frozenset({"parameter", "constant", "element", "tuple", "bitcast"})
# Instructions that run other instructions, which have their own events.
_CONTAINERS = frozenset({"while", "call", "conditional", "async-start", "async-done"})

# The precedence of instructions that overlap on one device: computation, then waiting for other devices,
# then instructions that run others.
_COMPUTES, _WAITS, _CONTAINS = range(3)

Role = Literal["whole", "start", "done"]

# The name of a result, and the index of the element of it that is used; None for all of it.
_Used = tuple[str | None, int | None]
_ANY = -1
_MOST_LATER = 200  # instructions that are followed from one


@dataclass(frozen=True)
class Kinds:
    """The instructions of one program.

    Attributes:
      kinds: kind by name.
      collectives: by the name of an instruction that is one, or a part: its position in the `collectives` of
        the program, and the part.
      module: their text.
    """

    kinds: Mapping[str, str]
    collectives: Mapping[str, tuple[int, Role]]
    module: Module

    def later(self, name: str) -> frozenset[str]:
        """Return instructions before which an instruction has ended, if it goes on in other threads.

        They use its result; of many, only the nearest ones. If none does, they are those of its computation,
        which the next iteration of a loop runs; after the last one of a program, there are none.
        """
        users, scope = self._users
        later: set[str] = set()
        # The result, and what has it at a path, without an event between.
        values: list[tuple[str, Path]] = [(name, ())]
        for value, path in values:
            if len(values) + len(later) > _MOST_LATER:
                break
            elements = users.get((value, path[0] if path else _ANY), ())
            values += [(user.name, path[1:]) for user, _ in elements[:_MOST_LATER]]
            for user, position in users.get((value, None), ())[:_MOST_LATER]:
                if not is_free(user):
                    later.add(user.name)
                else:
                    values.append((user.name, (position, *path) if user.does == "tuple" else path))
        return frozenset(later) or scope.get(name, frozenset())

    @functools.cached_property
    def _users(
        self,
    ) -> tuple[Mapping[_Used, Sequence[tuple[Instruction, int]]], Mapping[str, frozenset[str]]]:
        """Those of each result with the number of the operand, and the computation of each instruction."""
        users: dict[_Used, list[tuple[Instruction, int]]] = defaultdict(list)
        scope: dict[str, frozenset[str]] = {}
        entry = self.module.complete_entry()
        for computation in self.module.computations:
            inside = frozenset(instruction.name for instruction in computation.instructions)
            for instruction in computation.instructions:
                if entry is None or computation.name != entry.name:
                    scope[instruction.name] = inside
                indices = (instruction.tuple_index, _ANY) if instruction.does == "element" else (None,)
                for index, (position, operand) in itertools.product(indices, enumerate(instruction.operands)):
                    users[operand.name, index].append((instruction, position))
        return users, scope


def of_program(module: Module, collectives: Sequence[Collective]) -> Kinds:
    """Return the kinds of the instructions of a program with these collectives."""
    places = {collective.name: place for place, collective in enumerate(collectives)}
    roles: dict[str, tuple[int, Role]] = {}
    for computation in module.computations:
        for instruction in computation.instructions:
            name, opcode = instruction.name, instruction.opcode
            if name in places:
                roles[name] = places[name], "start" if opcode.endswith("-start") else "whole"
            elif opcode.endswith("-done") and instruction.operands:
                start = instruction.operands[0].name
                if start in places:
                    roles[name] = places[start], "done"
    return Kinds(kinds_of([module]), roles, module)


def kinds_of(modules: Iterable[Module]) -> dict[str, str]:
    """Return the kind of every instruction by its name."""
    return {
        instruction.name: _kind(module, instruction)
        for module in modules
        for computation in module.computations
        for instruction in computation.instructions
    }


def rank(kind: str) -> int:
    """Return the precedence of an instruction of this kind, the first 0."""
    if kind in _CONTAINERS:
        return _CONTAINS
    return _WAITS if kind in OPS else _COMPUTES


def _kind(module: Module, instruction: Instruction) -> str:
    opcode = instruction.opcode
    if opcode == "fusion":
        return _kind_of_fusion(module, instruction)
    if opcode in _CONTAINERS:
        return opcode
    return opcode.removesuffix("-start").removesuffix("-done")


def _kind_of_fusion(module: Module, fusion: Instruction) -> str:
    instructions = [inner for inner in _inside(module, fusion) if not is_free(inner)]
    opcodes = {inner.does: inner.opcode for inner in instructions}
    if costly := next((opcodes[does] for does in _COSTLY if does in opcodes), None):
        return costly
    # Scalars are only offsets of slices.
    if {inner.does for inner in instructions if not _is_scalar(inner)} <= set(_MOVES):
        return next((opcodes[does] for does in _MOVES if does in opcodes), "fusion")
    return "fusion"


def is_free(instruction: Instruction) -> bool:
    """Return whether an instruction takes no time, so it has no event."""
    return instruction.does in _FREE or instruction.opcode == "reshape"


def _is_scalar(instruction: Instruction) -> bool:
    shape = instruction.shape
    return shape is not None and shape.parts is None and not shape.dimensions


def _inside(module: Module, fusion: Instruction) -> Iterator[Instruction]:
    """Yield all instructions of a fusion and of the fusions in it."""
    fused = module.callee(fusion)
    for computation in () if fused is None else module.executed(fused, ("fusion",)):
        yield from computation.instructions
