"""A lane of a pool: jobs that wait for each other, and not for those of other lanes."""

from dataclasses import dataclass

ALONE = ""  # the name of the only lane of a pool without named ones


@dataclass(frozen=True)
class Lane:
    """The number of workers of a pool for the jobs of one lane.

    Attributes:
      workers: the most at once.
      kept: workers that are never taken by other lanes nor stopped when idle, so that a job begins at once.
      listed: users and the audit log see its jobs. Others take a moment.
    """

    workers: int
    kept: int = 0
    listed: bool = True
