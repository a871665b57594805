"""Settings for tests that run pages with Streamlit's `AppTest`."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest
from streamlit.components.v2 import manifest_scanner


@pytest.fixture(scope="session", autouse=True)
def _one_scan_for_components() -> Iterator[None]:
    """Look for components in the installed packages once.

    A server does so when it starts, but `AppTest` in each new session: two thirds of the time of these tests.
    """
    with pytest.MonkeyPatch.context() as patch:
        scan = manifest_scanner.scan_component_manifests
        patch.setattr(manifest_scanner, "scan_component_manifests", functools.cache(scan))
        yield
