"""Settings for all tests: emulated devices for JAX, a compile cache of their own, Hypothesis."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.xla_flags import FAST_COMPILES

if TYPE_CHECKING:
    from inspector.jobs.inspection import Inspection

# JAX reads these variables when it starts, so they are set before a test module imports it. Sixteen
# devices are enough for every mesh of the tests in this process. Worker processes set their own number.
DEVICES = 16
os.environ["XLA_FLAGS"] = " ".join(
    (
        os.environ.get("XLA_FLAGS", ""),
        f"--xla_force_host_platform_device_count={DEVICES}",
        FAST_COMPILES,
    )
).strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# A folder of this process for temporary files, deleted at its end. Tests look for files that were left
# behind, and must not find those that other processes are using. Also a fresh cache and library. The name is
# short, because that of a process of pytest-xdist is in that of another, and a socket's path has 107 bytes.
OWN_FOLDER = tempfile.mkdtemp(prefix="tests-")
tempfile.tempdir = os.environ["TMPDIR"] = OWN_FOLDER
for name in ("SHARDING_INSPECTOR_CACHE", "SHARDING_INSPECTOR_LIBRARY"):
    os.environ[name] = f"{OWN_FOLDER}/kept"
atexit.register(shutil.rmtree, OWN_FOLDER, ignore_errors=True)

# No deadline, because the machine may be slow or busy. CI takes the same examples each time, so that only
# a change of the code changes the result, and fewer of them to save time.
settings.register_profile(
    "house",
    deadline=None,
    derandomize="CI" in os.environ,
    max_examples=20 if "CI" in os.environ else 100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("house")


# The files that take longest, the slowest first: 86 to 14 s. They come first, so that the test processes,
# which run whole files, end at about the same time.
LONGEST = (
    "tracing/test_distributed.py",
    "compiling/test_compile_layout.py",
    "docs/test_documentation.py",
    "test_benchmarks.py",
    "compiling/test_run_layout.py",
    "partition/test_partition_layout.py",
    "search/test_dask.py",
    "jobs/engine/test_group.py",
    "media/streamlit/pages/test_layout_page.py",
    "jobs/engine/test_pool.py",
    "test_installed.py",
    "search/test_run.py",
    "learn/test_host_local_arrays.py",
)


@pytest.hookimpl(tryfirst=True)  # before pytest selects tests by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put browser tests first, which run alone in CI, then those of LONGEST, then the others.

    All cases but the first of a test marked `nightly_but_first` become nightly.
    """
    seen: set[str] = set()
    for item in items:
        test, _, _ = item.nodeid.partition("[")
        if test in seen and item.get_closest_marker("nightly_but_first"):
            item.add_marker(pytest.mark.nightly)
        seen.add(test)
    places = {Path(__file__).parent / name: number for number, name in enumerate(LONGEST)}
    browser = Path(__file__).parent / "browser"
    items.sort(key=lambda item: -1 if browser in item.path.parents else places.get(item.path, len(places)))


def pytest_collection_finish() -> None:
    """Leave the imported modules out of garbage collections, which took 7% of the processor time of tests."""
    gc.freeze()


@pytest.fixture(scope="session")
def _shared_workers() -> Iterator[None]:
    """Stop the workers of the shared service after the tests."""
    # The package is imported after the variables above are set.
    from inspector.jobs import inspection

    yield
    inspection.shared().close()
    inspection.shared.cache_clear()


@pytest.fixture
def service(_shared_workers: None) -> Inspection:
    """The service that tests of this process share: a worker imports JAX for 1 s before its first job."""
    from inspector.jobs import inspection

    return inspection.shared()


@pytest.fixture
def known_models(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A model that a test registers is forgotten after it."""
    from inspector.model import own_model
    from inspector.model.built_in import catalogue

    before = dict(catalogue.CATALOGUE)
    monkeypatch.setenv(own_model.VARIABLE, "[]")
    yield
    catalogue.CATALOGUE.clear()
    catalogue.CATALOGUE.update(before)


@pytest.fixture(scope="session")
def commands_share_workers(_shared_workers: None) -> Iterator[None]:
    """Give commands the shared service, except commands with a model of the user's own."""
    from inspector.jobs import inspection
    from inspector.media.terminal import options as terminal_options
    from inspector.model import own_model

    start = terminal_options.workers

    @contextmanager
    def workers() -> Iterator[Inspection]:
        if own_model.from_environment(os.environ):
            with start() as own:
                yield own
        else:
            yield inspection.shared()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terminal_options, "workers", workers)
        yield


@pytest.fixture(scope="session")
def placements(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a dump, captures and JAX's own placements of programs with every kind of them."""
    folder, script = tmp_path_factory.mktemp("placements"), Path(__file__).parent / "readers" / "dumped.py"
    subprocess.run([sys.executable, str(script), str(folder)], check=True, capture_output=True)
    return folder
