"""A lane of a pool: jobs that wait for each other, and not for those of other lanes."""

from dataclasses import dataclass

from inspector.service.engine.requester import NO_LIMITS, Limits

ALONE = ""  # the name of the only lane of a pool without named ones


@dataclass(frozen=True)
class Lane:
    """The number of workers of a pool for the jobs of one lane.

    Attributes:
      workers: the most at once.
      kept: workers that are never taken by other lanes nor stopped when idle, so that a job begins at once.
      limits: the number of jobs of the lane for one owner.
      listed: users and the audit log see its jobs. Others take a moment.
      outlives: its jobs go on when the browser sessions of their owners end.
      through: the lanes of the jobs that its jobs submit, if these are run by threads instead of workers.
      nouns: singular and plural of its jobs.
    """

    workers: int
    kept: int = 0
    limits: Limits = NO_LIMITS
    listed: bool = True
    outlives: bool = False
    through: tuple[str, ...] = ()
    nouns: tuple[str, str] = ("job", "jobs")
