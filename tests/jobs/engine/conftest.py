"""Pools for the tests of the engine, closed after each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.processes import PATIENCE
from inspector.jobs.engine import Pool


@pytest.fixture
def pool() -> Iterator[Pool]:
    """Two workers that know the jobs of these tests."""
    with Pool(workers=2, jobs="tests.jobs.engine.jobs") as pool:
        yield pool


@pytest.fixture
def patient() -> Iterator[Pool]:
    """Two workers that are not killed for being slow to stop: they must do it by themselves."""
    with Pool(workers=2, jobs="tests.jobs.engine.jobs", grace=10 * PATIENCE) as pool:
        yield pool


@pytest.fixture
def single() -> Iterator[Pool]:
    """One worker, so that everything else has to queue."""
    with Pool(workers=1, jobs="tests.jobs.engine.jobs") as pool:
        yield pool
