"""The state of a running search."""

from dataclasses import dataclass

from inspector.compare.search.result import Counts


@dataclass(frozen=True)
class Progress:
    """The state of a search at one moment.

    Attributes:
      phase: `bound` (compute bounds), `propagate` (partition the candidates that can be among the best),
        `improve` (change single rules of the best), `compile` or `done`.
      done, total: Tasks of this phase, and their largest possible number.
      seconds_left: Estimated seconds until the end of this phase; None before the first task ended.
    """

    phase: str
    done: int
    total: int
    counts: Counts
    seconds_left: float | None
    version: int
