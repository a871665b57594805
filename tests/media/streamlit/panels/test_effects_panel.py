"""The effects in the tab *Improve*: the job, its cancel and failure, and a row on the board."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from inspector import layout as layouts
from inspector.compare.board import Board
from inspector.jobs.engine import Status
from inspector.jobs.inspection import Inspection
from inspector.jobs.request import Request
from inspector.layout import presets
from inspector.media.streamlit.parts import keep_buttons
from inspector.records import typed_json
from inspector.records.snapshot import Change, Effects, LayoutCost
from inspector.text.errors import InvalidInput

SMALL = {"depth": "64", "batch": "16", "layers": "1"}
COST = LayoutCost(1, {"data": 8}, 1.0, 1.0)


@dataclass
class FakeJob:
    """A job that the test ends."""

    program: str
    chip: str
    state: str = "running"
    refused: bool = False

    def status(self) -> Status:
        changed = Change("rule", "Remove hidden → model", None, replace(COST, seconds=2.0))
        result = typed_json.encode(Effects("train_step", "v5p", COST, (changed,)))
        progress = {"done": 2, "of": 8, "found": result}
        return Status(self.state, None, "effects", progress, (), 4.0, None, None, None)

    @property
    def finished(self) -> bool:
        return self.state != "running"

    @property
    def progress(self) -> dict[str, Any]:
        return self.status().progress

    def cancel(self) -> None:
        self.state = "cancelled"

    def answer(self) -> Effects:
        raise InvalidInput("Shardy refused the layout.")


@dataclass
class FakeService:
    jobs: list[FakeJob] = field(default_factory=list)
    known: Effects | None = None

    def request(self, layout, program: str, chip: str) -> Request:
        def start() -> FakeJob:
            self.jobs.append(FakeJob(program, chip))
            return self.jobs[-1]

        return Request(f"{layout.key()} {program} {chip}", start, lambda: self.known, layout=layout)


@pytest.fixture
def fake(monkeypatch) -> FakeService:
    fake = FakeService()
    monkeypatch.setattr(Inspection, "effects", lambda _, *asked: fake.request(*asked))
    return fake


def texts(page) -> str:
    return " ".join(one.value for one in (*page.test.main.markdown, *page.test.main.caption))


def open_drawer(page) -> None:
    page.test.session_state["effects_drawer"] = True
    page.test.run()


@pytest.mark.nightly
def test_the_open_tab_computes_effects_and_the_map_stays(open_page) -> None:
    page = open_page(**SMALL)
    page.open_panel("Improve")
    until = time.monotonic() + 90
    while "changes tried" not in texts(page):
        assert time.monotonic() < until
        time.sleep(0.2)
        page.test.run()
    assert not page.test.dataframe, "the effects are folded"
    open_drawer(page)
    assert "Remove hidden → model" in list(page.test.dataframe[0].value["Change"])
    page.open_panel("Summary")
    assert page.block_map()


def test_improvements_are_first_and_the_first_on_the_summary(open_page, fake) -> None:
    page = open_page(**SMALL)
    layout = page.test.session_state["last_layout"]
    without_rule = replace(layout, rules=layout.rules[:1])
    better = Change(
        "axis",
        "Move axis a",
        without_rule.to_json(),
        replace(COST, seconds=0.5, answer="better", low=0.4, high=0.6, wire_bytes={"data": 1}),
    )
    worse = Change("rule", "Remove b", layout.to_json(), replace(COST, seconds=27.0))
    fake.known = Effects("train_step", None, COST, (worse, better))
    started = len(fake.jobs)  # by Summary, in the background
    page.open_panel("Improve")
    assert len(fake.jobs) == started
    rows = [one.value for one in page.test.main.markdown if "Move axis a" in one.value]
    assert len(rows) == 1 and "−60% to −40%" in rows[0]
    assert not [one for one in page.test.main.markdown if "Remove b" in one.value]
    page.open_panel("Summary")
    assert [one.value for one in page.test.main.markdown if "Move axis a" in one.value] == [
        rows[0].partition("  \n")[0]
    ]
    page.press("improvement:0:apply")
    assert page.test.session_state["last_layout"] == without_rule
    assert len(page.test.session_state["board"].pins) == 1


def test_progress_and_cancel(page, fake) -> None:
    page.open_panel("Improve")
    assert [(job.program, job.chip) for job in fake.jobs] == [("train_step", None)]
    (progress,) = page.test.get("progress")
    assert {"3 of 8", "about 12 s left"} <= set(
        re.findall(r"\d of \d|about .* left", progress.proto.text.replace("\\", ""))
    )
    page.press("cancel_effects")
    assert fake.jobs[0].state == "cancelled"
    page.test.run()
    (again,) = [one.key for one in page.test.button if str(one.key).startswith("effects_again")]
    page.press(again)
    assert len(fake.jobs) == 2


def test_another_layout_or_chip_cancels_the_job(page, fake) -> None:
    page.open_panel("Improve")
    page.choose("chip", "v5e")
    assert [job.state for job in fake.jobs] == ["cancelled", "running"]
    page.open_panel("Arrays")
    assert fake.jobs[1].state == "running"
    page.type(page.rule_key(1, "axes"), "data")
    assert fake.jobs[1].state == "cancelled" and len(fake.jobs) == 2


def test_a_failed_job_shows_its_reason_once(page, fake) -> None:
    page.open_panel("Improve")
    fake.jobs[0].state = "failed"
    page.test.run()
    assert any("Shardy refused" in error for error in page.errors())
    assert len(fake.jobs) == 1
    page.type(page.rule_key(1, "axes"), "data")
    assert len(fake.jobs) == 2 and not page.errors()


@pytest.mark.nightly
def test_a_pair_is_pinned_with_the_current_layout_as_the_baseline(page, fake, monkeypatch) -> None:
    service, pinned = Inspection(run_workers=1), []
    try:
        layout = layouts.from_json({"model": "logical_mlp", "mesh": "2x4", "sizes": {"depth": 64}})
        changed = layout.to_json() | {"rules": [["batch", ["data"]]]}
        effect = Change("rule", "Remove hidden → model", changed, COST)
        monkeypatch.setattr(keep_buttons.pins, "board", lambda: pinned[-1] if pinned else start)
        start = Board()
        for _ in range(2):  # the second time, both are on the board
            pinned.append(
                keep_buttons._with_pair(
                    service, layout, effect.label, layouts.from_json(effect.layout), False
                )
            )
            assert pinned[-1].names == (presets.title(layout), "Remove hidden → model")
            assert pinned[-1].baseline == 0
        assert all(snapshot.programs for snapshot in pinned[-1].snapshots)
    finally:
        service.close()
