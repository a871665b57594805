"""Measured steps of the user's own machines, on which intervals of predictions rest.

They are in one JSON file next to the library. Each run keeps the prediction that was made for it and a digest
of the constants of that prediction. With other constants, such as those of a newer version, it does not
count.
"""

import dataclasses
import functools
import hashlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inspector.core import strict_json, typed_json
from inspector.core.errors import InvalidInput
from inspector.core.typed_json import FiniteFloat, PositiveInt, Record
from inspector.core.user_folder import user_folder
from inspector.machines import hardware
from inspector.machines.prediction.calibration import (
    agreement,
    before_compile_constants,
    constants_of,
)

FORMAT = "sharding-inspector-runs"
VERSION = 1
_MOST_BYTES = 4 * 2**20

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OwnRun(Record):
    """One program of one run.

    Attributes:
      chip: Name of the chip.
      devices: Number of devices of its mesh.
      model: Name of the model; None if unknown.
      measured: Median of the measured steps in seconds.
      predicted: Predicted seconds of a step.
      constants: Digest of the constants of the prediction.
      created: When the run was made, in ISO 8601.
    """

    chip: str
    devices: PositiveInt
    program: str
    measured: FiniteFloat
    predicted: FiniteFloat
    constants: str
    created: str
    model: str | None = None

    @property
    def ratio(self) -> float:
        """Measured over predicted seconds."""
        return self.measured / self.predicted


@dataclass(frozen=True)
class OwnRuns(Record):
    """The runs of the file, the oldest first."""

    runs: tuple[OwnRun, ...] = ()


def path() -> Path:
    """Return the file of the own runs. It need not exist."""
    return user_folder() / "runs.json"


def read() -> tuple[OwnRun, ...]:
    """Return the runs of the file, the oldest first; none if there is no file.

    Raises:
      InvalidInput: the file is damaged or too large.
    """
    file = path()
    try:
        state = file.stat()
    except OSError:
        return ()
    return _read(file, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=4)
def _read(file: Path, changed: int, size: int) -> tuple[OwnRun, ...]:
    plain = strict_json.read(file, _MOST_BYTES)
    record = typed_json.decode_file(OwnRuns, plain, str(file), FORMAT, VERSION)
    if any(min(run.measured, run.predicted) <= 0 for run in record.runs):
        raise InvalidInput(f"{file}: measured and predicted must be above 0 seconds")
    return record.runs


def ratios(chip: str) -> tuple[float, ...]:
    """Return measured over predicted seconds of the own runs on a chip that count.

    A damaged file counts as empty, with a warning in the log: a page must not end because of it.
    """
    try:
        runs = read()
    except InvalidInput as error:
        _log.warning("Own runs are not used: %s", error)
        return ()
    return tuple(run.ratio for run in runs if run.chip == chip and counts(run))


@functools.lru_cache(maxsize=64)
def digest_of(chip: str) -> str:
    """Return a digest of the constants with which steps on a chip of this name are predicted."""
    plain: dict[str, Any] = dataclasses.asdict(constants_of(hardware.CHIPS[chip]))
    plain |= {"before": dataclasses.asdict(before_compile_constants()), "agreement": agreement()}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


def counts(run: OwnRun) -> bool:
    """Return whether the prediction of a run was made with the constants of this version."""
    return run.chip in hardware.CHIPS and run.constants == digest_of(run.chip)
