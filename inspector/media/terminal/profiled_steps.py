"""The profiles of a program that `run --profile` runs: which one has enough steps, and its content."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from inspector.media.terminal import options as shared
from inspector.records import program_run
from inspector.records.snapshot import Program, Snapshot
from inspector.records.statistics import statistics
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import counted, seconds_text

STEPS = 3  # that are profiled, without a number
_VALUES = frozenset({"-o", "--output", "--devices", "--target"})  # options with a value
_OPTION = "--profile"


def with_number(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of `run`, in which `--profile` and its number are one.

    >>> with_number(["--profile", "train.py", "--profile", "7"])
    ['--profile=3', 'train.py', '--profile', '7']
    >>> with_number(["--devices", "8", "--profile", "5", "train.py"])
    ['--devices', '8', '--profile=5', 'train.py']
    """
    place = 0
    written = list(arguments)
    while place < len(written) and written[place].startswith("-") and written[place] not in ("-m", "--"):
        if written[place] == _OPTION:
            number = written[place + 1 : place + 2]
            own = bool(number) and number[0].lstrip("+-").replace(".", "").isdigit()
            written[place : place + 1 + own] = [f"{_OPTION}={number[0] if own else STEPS}"]
        place += 2 if written[place] in _VALUES else 1
    return written


def parse(text: str | None) -> int | None:
    """Return the number of steps to profile, None without the option.

    Raises:
      InvalidInput: it is not a number from 1 up.
    """
    return None if text is None else shared.number(text, _OPTION, "a number of steps from 1 to 1000", 1, 1000)


class ProfiledSteps:
    """The profiles that a running program writes.

    Args:
      folder: that of the run.
      steps: the least number of complete runs of a program in a profile.
    """

    def __init__(self, folder: Path, steps: int) -> None:
        self._folder = folder
        self._steps = steps
        self._read = 0
        self._runs: dict[Path, int] = {}

    def check(self) -> None:
        """Read the profiles that are new, and ask for no further one if the last has enough runs."""
        from inspector.readers import profile

        while (path := self._folder / "raw" / program_run.PROFILE.format(self._read + 1)).exists():
            self._read += 1
            with contextlib.suppress(InvalidInput):
                self._runs[path] = profile.complete_runs(path)
                if self._runs[path] >= self._steps:
                    (self._folder / program_run.ENOUGH).touch()

    def keep(self) -> Path | None:
        """Move the last profile with enough runs, or else that with the most, to its folder; None without."""
        self.check()
        ran = [path for path, runs in self._runs.items() if runs]
        if not ran:
            return None
        chosen = max(ran, key=lambda path: (min(self._runs[path], self._steps), path.name))
        folder = self._folder / program_run.PROFILE_FOLDER
        folder.mkdir(exist_ok=True)
        return chosen.replace(folder / program_run.PROFILE_FILE)

    def why_none(self) -> str:
        """Return why nothing was profiled, and what to do."""
        if (self._folder / program_run.PROFILE_TAKEN).exists():
            return (
                "no steps were profiled, because the program profiles itself: "
                "`sharding-inspector import profile FOLDER` reads its profile"
            )
        return "no steps were profiled, because no compiled program ran long enough: run more steps"

    def forget_signs(self) -> None:
        """Delete the files with which this process and the program agree."""
        for name in (program_run.ENOUGH, program_run.PROFILE_TAKEN):
            (self._folder / name).unlink(missing_ok=True)


def measured(path: Path) -> Snapshot:
    """Return the Snapshot of a profile, read by a worker process."""
    with shared.workers() as service:
        return service.file(path, path.name, "profile").start().wait().answer()


def summary(programs: Sequence[Program]) -> str:
    """Return the steps that were profiled, of the program that took the most time."""
    profiled = [program for program in programs if program.trace is not None]
    if not profiled:
        return "the profile has none of the recorded programs"
    longest = max(profiled, key=lambda program: program.trace.seconds if program.trace else 0.0)
    assert longest.trace is not None and longest.seconds is not None
    steps = statistics(longest.seconds.steps)
    median = "median " if steps and steps.count > 1 else ""
    took = f", {median}{seconds_text(steps.median)}" if steps else ""
    return f"profiled {counted(longest.trace.steps, 'run')} of {shown(longest.name, 60)}{took}"
