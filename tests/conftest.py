"""What every test stands on: emulated devices for JAX, and how hypothesis searches."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

# JAX reads both when it starts, so they are set before any test module can import it. Sixteen devices
# hold every mesh that the tests make in this process; worker processes set their own number.
DEVICES = 16
# What is compiled runs once or a few times, so that machine code made in half the time serves better than
# machine code that runs faster: LLVM's optimisations come after all that XLA does to a program, and no
# collective, FLOP or byte depends on them.
os.environ["XLA_FLAGS"] = " ".join(
    (
        os.environ.get("XLA_FLAGS", ""),
        f"--xla_force_host_platform_device_count={DEVICES}",
        "--xla_backend_optimization_level=0",
    )
).strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# What compilers answered before this run answers nothing in it, nothing of it stays on the machine, and
# nobody's own library is touched.
os.environ["SHARDING_INSPECTOR_CACHE"] = tempfile.mkdtemp(prefix="sharding-inspector-tests-")
os.environ["SHARDING_INSPECTOR_LIBRARY"] = os.environ["SHARDING_INSPECTOR_CACHE"]
atexit.register(shutil.rmtree, os.environ["SHARDING_INSPECTOR_CACHE"], ignore_errors=True)

# No deadline, because no test may depend on how fast or how busy the machine is.
# CI looks at the same examples each time, so that a change is judged by what it changed, and at fewer of
# them, because it has 20 minutes; everywhere else the search goes on.
settings.register_profile(
    "house",
    deadline=None,
    derandomize="CI" in os.environ,
    max_examples=40 if "CI" in os.environ else 100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("house")


class ByFile(LoadScopeScheduling):
    """Tests side by side, those of a file together, for they share what was costly to make.

    The browser tests share one server and one browser, so all of them are one scope.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "browser" if file.startswith("tests/browser/") else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """The scheduler that stands in for the one of `--dist`."""
    return ByFile(config, log)
