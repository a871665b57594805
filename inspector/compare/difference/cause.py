"""One change of a layout, as a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    *("model", "size", "field", "mesh", "device order", "device ids", "mesh axis name"),
    *("mesh axes of size 1", "mesh axis order", "axis type", "rule", "rules", "rule reader"),
    *("PartitionSpec", "sharding constraint"),
]


@dataclass(frozen=True)
class Cause:
    """What changed, with its values as text.

    name: the entry that changed, if the kind does not say it all. before, after: None if absent.
    """

    kind: Kind
    name: str
    before: str | None = None
    after: str | None = None

    @property
    def text(self) -> str:
        """The change as a phrase: `dtype float32 → bfloat16`, `rule embed → data added`."""
        label = "" if self.kind in ("size", "field") else self.kind
        subject = f"{label} {self.name}".strip()
        if self.before is None and self.after is None:
            return subject
        if self.before is None:
            return f"{subject} added" if self.name else f"{subject} {self.after} added"
        if self.after is None:
            return f"{subject} removed" if self.name else f"{subject} {self.before} removed"
        if self.kind == "rule":
            return f"{subject} {self.before} changed to {self.after}"
        return f"{subject} {self.before} → {self.after}"
