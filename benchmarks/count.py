"""A count of checks that held, with the reason of each that did not."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field


@dataclass
class Count:
    """How many checks of one kind held."""

    name: str
    of: int = 0
    broken: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def check(self, problem: str | None, where: str) -> None:
        """Count one check. `problem` is why it did not hold, or None."""
        self.of += 1
        if problem is not None:
            self.broken.append(f"{where}: {problem}")
            print(f"  BROKEN {self.name}, {where}: {problem}", file=sys.stderr, flush=True)

    def text(self) -> str:
        """Return `NAME: N of M`, the notes, and one line for each check that did not hold."""
        lines = [f"{self.name}: {self.of - len(self.broken)} of {self.of}"]
        return "\n".join(
            [
                *lines,
                *(f"  {one}" for one in self.notes),
                *(f"  BROKEN {one}" for one in self.broken),
            ]
        )
