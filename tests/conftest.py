"""What every test stands on: emulated devices for JAX, and how hypothesis searches."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

import pytest
from hypothesis import HealthCheck, settings

# JAX reads both when it starts, so they are set before any test module can import it. Sixteen devices
# hold every mesh that the tests make in this process; worker processes set their own number.
DEVICES = 16
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + f" --xla_force_host_platform_device_count={DEVICES}"
).strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# What compilers answered before this run answers nothing in it, and nothing of it stays on the machine.
os.environ["SHARDING_INSPECTOR_CACHE"] = tempfile.mkdtemp(prefix="sharding-inspector-tests-")
atexit.register(shutil.rmtree, os.environ["SHARDING_INSPECTOR_CACHE"], ignore_errors=True)

# No deadline, because no test may depend on how fast or how busy the machine is.
# CI looks at the same examples each time, so that a change is judged by what it changed; everywhere else
# the search goes on.
settings.register_profile(
    "house",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("house")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where tests run side by side, those of a file stay together, for they share what was costly to make.

    The browser tests share one server and one browser, so all of them are one group.
    """
    for item in items:
        file = item.location[0]
        group = "browser" if file.startswith("tests/browser/") else file
        item.add_marker(pytest.mark.xdist_group(group))
