"""A computation whose instructions are replaced, with an index of their uses.

Records of HLO text are immutable, so a pass edits this copy and then asks for the new computation. Only the
changed instructions are new. Operands come before their users again in the result.
"""

from collections.abc import Iterable, Sequence

from inspector.hlo.module import Computation, Instruction, operand_names

# Instructions that stay although nothing uses them.
_KEPT = frozenset({"parameter", "receive", "send", "custom", "while", "call"})


class EditedComputation:
    """One computation during a pass. Names of instructions are the keys of everything."""

    def __init__(self, computation: Computation) -> None:
        self._computation = computation
        self.instructions: dict[str, Instruction] = dict(computation.by_name)
        root = computation.root
        self._root = root.name if root is not None else None
        self._users: dict[str, dict[str, None]] = {}
        self._operands: dict[str, tuple[str, ...]] = {}
        self._places: dict[str, str] = {}  # new instruction → the one at whose place it is
        self.changed = False
        for instruction in computation.instructions:
            self._index(instruction)

    @property
    def name(self) -> str:
        return self._computation.name

    def _index(self, instruction: Instruction) -> None:
        names: Iterable[str] = ()
        if instruction.does not in ("parameter", "constant"):
            names = (name or "" for name in operand_names(instruction))
        operands = self._operands[instruction.name] = tuple(names)
        for operand in operands:
            self._users.setdefault(operand, {})[instruction.name] = None

    def operands(self, instruction: Instruction) -> list[Instruction]:
        """Return the instructions that compute the operands, in order."""
        return [self.instructions[name] for name in self._operands[instruction.name]]

    def operand(self, instruction: Instruction, number: int = 0) -> Instruction:
        return self.instructions[self._operands[instruction.name][number]]

    def users(self, instruction: Instruction) -> list[Instruction]:
        """Return the instructions that use the result, each once."""
        return [self.instructions[name] for name in self._users.get(instruction.name, ())]

    def only_user(self, instruction: Instruction) -> Instruction | None:
        """Return the instruction that alone uses the result; None if there are others or it is the root."""
        users = self._users.get(instruction.name, {})
        if len(users) != 1 or instruction.name == self._root:
            return None
        return self.instructions[next(iter(users))]

    def is_root(self, instruction: Instruction) -> bool:
        return instruction.name == self._root

    def free_name(self, wanted: str) -> str:
        """Return the wanted name, with a suffix if it is in use."""
        name, number = wanted, 0
        while name in self.instructions:
            number += 1
            name = f"{wanted}.{number}"
        return name

    def insert(
        self,
        opcode: str,
        shape_text: str,
        operands: Sequence[str],
        attributes_text: str,
        at: Instruction,
        name: str | None = None,
    ) -> Instruction:
        """Add an instruction at the place of another one, which can be replaced afterwards.

        Args:
          operands: names of the operands.
          name: the wanted name; by default the opcode and the number of `at`.
        """
        number = at.name.rpartition(".")[2]
        default = f"{opcode}.{number}" if number.isdecimal() else opcode
        written = Instruction(
            self.free_name(name or default), opcode, shape_text, _written(operands), attributes_text, False
        )
        self.instructions[written.name] = written
        self._places[written.name] = self._places.get(at.name, at.name)
        self._index(written)
        self.changed = True
        return written

    def set_operands(self, instruction: Instruction, operands: Sequence[str]) -> Instruction:
        """Replace the operands of an instruction, and remove those that nothing uses any more."""
        previous = self._operands[instruction.name]
        changed = instruction._replace(operands_text=_written(operands))
        self.instructions[instruction.name] = changed
        for name in previous:
            self._users.get(name, {}).pop(instruction.name, None)
        self._index(changed)
        self.changed = True
        for name in previous:
            self._remove_unused(name)
        return changed

    def set_shape(self, instruction: Instruction, shape_text: str) -> Instruction:
        return self._set(instruction._replace(shape_text=shape_text))

    def set_attributes(self, instruction: Instruction, attributes_text: str) -> Instruction:
        return self._set(instruction._replace(attributes_text=attributes_text))

    def _set(self, instruction: Instruction) -> Instruction:
        self.instructions[instruction.name] = instruction
        self.changed = True
        return instruction

    def replace(self, old: Instruction, new: Instruction, users: Sequence[Instruction] | None = None) -> None:
        """Let the users of one instruction use another one. Remove what nothing uses any more.

        users: only these; by default all but the new one.
        """
        for name in [user.name for user in (self.users(old) if users is None else users)]:
            if name != new.name:
                self._substitute(name, old.name, new.name)
                del self._users[old.name][name]
        if old.name == self._root:
            self._root = new.name
        self.changed = True
        self._remove_unused(old.name)

    def _substitute(self, user: str, old: str, new: str) -> None:
        """Let an instruction use the result `new` instead of `old`."""
        operands = tuple(new if name == old else name for name in self._operands[user])
        self._set(self.instructions[user]._replace(operands_text=_written(operands)))
        self._operands[user] = operands
        self._users.setdefault(new, {})[user] = None

    def rename(self, instruction: Instruction, name: str) -> Instruction:
        """Give a new instruction the name of one that was removed; keep its own name if that one stays."""
        if name in self.instructions:
            return instruction
        old = instruction.name
        renamed = self._set(self.instructions.pop(old)._replace(name=name))
        self._operands[name] = self._operands.pop(old)
        for operand in self._operands[name]:
            users = self._users[operand]
            del users[old]
            users[name] = None
        self._users[name] = {}
        for user in self._users.pop(old, {}):
            self._substitute(user, old, name)
        self._places[name] = self._places.pop(old, old)
        if old == self._root:
            self._root = name
        return renamed

    def _remove_unused(self, name: str) -> None:
        waiting = [name]
        while waiting:
            name = waiting.pop()
            instruction = self.instructions.get(name)
            if (
                instruction is None
                or self._users.get(name)
                or name == self._root
                or instruction.does in _KEPT
            ):
                continue
            del self.instructions[name]
            for operand in self._operands.pop(name):
                self._users.get(operand, {}).pop(name, None)
                waiting.append(operand)

    def computation(self) -> Computation:
        """Return the computation with the changes, or the same one if there are none."""
        if not self.changed:
            return self._computation
        order: dict[str, None] = {}
        following: dict[str, list[str]] = {}
        for name, place in self._places.items():
            following.setdefault(place, []).append(name)
        for original in self._computation.instructions:
            for name in (*following.get(original.name, ()), original.name):
                if name in self.instructions:
                    self._append(name, order)
        instructions = tuple(self.instructions[name]._replace(root=name == self._root) for name in order)
        return Computation(
            self._computation.name, self._computation.entry, instructions, self._computation.complete
        )

    def _append(self, name: str, order: dict[str, None]) -> None:
        """Append an instruction to the order, after its operands."""
        waiting = [name]
        while waiting:
            current = waiting[-1]
            missing = [
                operand
                for operand in self._operands[current]
                if operand not in order and operand in self.instructions
            ]
            if missing and current not in order:
                waiting += missing
            else:
                order[current] = None
                waiting.pop()


def _written(operands: Sequence[str]) -> str:
    return f"({', '.join(f'%{name}' for name in operands)})"
