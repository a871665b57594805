"""One change of a layout, as a record."""

from dataclasses import dataclass
from typing import Literal, get_args

# In display order.
Kind = Literal[
    "model", "size", "mesh axis name", "mesh", "device order", "device ids", "mesh axes of size 1",
    "mesh axis order", "axis type", "rule", "rule reader", "rules", "PartitionSpec",
    "sharding constraint", "field",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)


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
        words: list[str]
        match self.before, self.after:
            case None, None:
                words = [self.name]
            case None, str(after):
                words = [self.name or after, "added"]
            case str(before), None:
                words = [self.name or before, "removed"]
            case str(before), str(after):
                words = [self.name, before, "changed to" if label == "rule" else "→", after]
        return " ".join(filter(None, (label, *words)))
