"""The time to read a file and to audit its Snapshot grows as the file does, whatever it has many of."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from inspector.checks import audit
from inspector.core.errors import InvalidInput
from inspector.producers.readers import import_file
from tests.hostile.growing import GROWING

_LEAST = 60  # parts of the smallest file
_SIZES = (1, 4, 16, 64)
_SECONDS = 0.15  # of CPU; less is noise
_MOST_GROWTH = 10.0  # for four times the size; a quadratic reader takes sixteen times as long
# One of each reader; the others are nightly.
_QUICK = ("runs", "instructions", "parameters", "moments", "programs of a Snapshot", "_sharding", "golden",
    "checkpoint",)  # fmt: skip


def seconds(name: str, count: int, folder: Path) -> float:
    path = GROWING[name](count, folder)
    start = time.process_time()
    try:
        snapshot = import_file.read(path, path.name, None, None, None, lambda *_, **__: None)
    except InvalidInput as refused:
        assert "at most" in str(refused) or "the most" in str(refused), refused
    else:
        audit.ranked(snapshot)
    return time.process_time() - start


@pytest.mark.parametrize(
    "name",
    [name if name in _QUICK else pytest.param(name, marks=pytest.mark.nightly) for name in GROWING],
)
def test_time_grows_as_the_file(name: str, tmp_path: Path) -> None:
    seconds(name, _LEAST, tmp_path / "first")  # imports
    least, *rest = (seconds(name, _LEAST * size, tmp_path / str(size)) for size in _SIZES)
    for more in rest:
        assert more <= _MOST_GROWTH * max(least, _SECONDS), (least, rest)
        least = more
