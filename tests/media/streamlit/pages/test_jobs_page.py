"""The Jobs page: a search, which anyone can cancel once the session of its owner has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from streamlit.testing.v1 import AppTest

from benchmarks.processes import PATIENCE, until
from inspector.service import lanes
from inspector.service.engine import Requester
from inspector.service.inspection import Inspection
from tests.media.streamlit.scripted_page import LonePage

SCRIPT = """
from inspector.media.streamlit.pages import jobs_page
jobs_page.show()
"""
ANN = Requester("ann", "Ann", "tab of Ann")


class Endless:
    """Work that runs until it is stopped."""

    def __init__(self) -> None:
        self.stopped = threading.Event()

    def run(self, report: Callable[[str, dict[str, Any]], None]) -> None:
        report("partition", {"done": 1, "of": 4})
        assert self.stopped.wait(PATIENCE)

    def stop(self) -> None:
        self.stopped.set()


def test_a_search_of_a_closed_tab_can_be_cancelled(service: Inspection, no_other_jobs: None) -> None:
    work = Endless()
    service.pool.coordinate("search", "endless", work, ANN, lane=lanes.SEARCHES)
    until(lambda: service.pool.jobs()[-1].status.progress)
    page = LonePage(AppTest.from_string(SCRIPT, default_timeout=PATIENCE))
    row = [cell.value for cell in page.test.markdown]
    assert "Search" in row and "Ann" in row and any("1 of 4" in cell for cell in row)
    assert not page.test.button
    service.pool.leave("tab of Ann")
    assert not work.stopped.is_set()
    page.run()
    page.test.button[0].click()
    page.run()
    assert work.stopped.is_set()
    until(lambda: service.pool.jobs() == (), "the end of the search, which has a thread of its own")
