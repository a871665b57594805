"""A limit on the steps of a search through a program, whose text may be hostile."""

from inspector.compiled.hlo.module import Module

_CHARACTERS_PER_STEP = 64


class TooLong(Exception):
    """The search exceeds its limit."""


class StepLimit:
    """Counts the steps of a search. A program allows more of them the more instructions it has."""

    def __init__(self, module: Module, least: int, per_instruction: int) -> None:
        instructions = sum(len(computation.instructions) for computation in module.computations)
        self._left = least + per_instruction * instructions

    def count(self, steps: int = 0, characters: int = 0) -> None:
        """Count steps, and the text that they read."""
        self._left -= steps + characters // _CHARACTERS_PER_STEP

    @property
    def exceeded(self) -> bool:
        return self._left < 0
