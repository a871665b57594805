"""One layout has one answer: the same assessment in every verb, report, record and page."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from inspector import layout as layouts
from inspector.assessment import assess
from inspector.core import snapshot as snapshots
from inspector.core import typed_json, user_folder
from inspector.core.formatting import bytes_text, seconds_text
from inspector.core.snapshot import Snapshot
from inspector.machines import hardware, targets
from inspector.media import report
from inspector.media.terminal import main
from inspector.service.engine import LOCAL
from inspector.service.history import History
from inspector.service.inspection import Inspection
from tests.media.streamlit.scripted_page import PATIENCE

MLP = {"layers": "2", "depth": "64", "steps": "3"}
TRANSFORMER = {
    "model": "transformer", "layers": "2", "embed": "64", "mlp": "128", "heads": "4", "kv_heads": "4",
    "head_dim": "16", "vocab": "128", "seq": "32", "scan": "true", "mesh": "2x4", "axes": "fsdp,tensor",
    "rules": "batch=fsdp,embed=fsdp,heads=tensor,mlp=tensor",
}  # fmt: skip
# A layout, and the chip that is chosen for it.
CASES: dict[str, tuple[dict[str, str], str | None]] = {
    "plan": (MLP | {"target": "plan"}, None),
    "plan on a chosen chip": (TRANSFORMER | {"target": "plan"}, "v5e"),
    "plan that does not fit": (
        TRANSFORMER | {"target": "plan", "vocab": "8388608", "embed": "8192"},
        "v5e",
    ),
    "emulated": (MLP, None),
    "emulated, on a chosen chip": (MLP, "v5p"),
    "rejected": (MLP | {"target": "plan", "batch": "3"}, None),
    "v5e": (TRANSFORMER | {"target": "tpu:v5e:2x4"}, None),
    "h100": (TRANSFORMER | {"target": "gpu:h100:8"}, None),
}
SCRIPT = """
import streamlit as st
from inspector.compare.board import Board
from inspector.core import snapshot
from inspector.media.streamlit import board_comparison, chip_choice, summary_panel
chip_choice.put(st.session_state["chosen"])
found = snapshot.read(st.session_state["path"])
summary_panel.show_opened("one", found)
chip = st.session_state["chosen"]
board = Board(chip=chip).pinned("one", found).pinned("two", found)
board_comparison.show(board)
"""


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, service: Inspection) -> tuple[Snapshot, str | None]:
    fields, chip = CASES[request.param]
    layout = layouts.parse(fields).unwrap()
    if layout.machine is not None and (missing := targets.missing_compiler(layout.machine)):
        pytest.skip(missing)
    planned = service.start_state(layout).wait().answer() and service.plan(layout)
    if layout.target == "plan":
        return service.with_programs(planned, layout), chip
    return service.start_run(layout, planned).wait().answer(), chip


def test_every_door_has_the_same_assessment(
    case: tuple[Snapshot, str | None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found, name = case
    monkeypatch.setenv(user_folder.VARIABLE, str(tmp_path / "user"))
    path, other = tmp_path / "one.json", tmp_path / "two.json"
    for file in (path, other):
        snapshots.write(found, file)
    chip = None if name is None else hardware.chip(name)
    options = [] if name is None else ["--chip", name]
    own = assess(found, chip)
    expected = typed_json.encode(own)

    # Verbs.
    assert main(["show", str(path), "--json", *options]) == 0
    assert json.loads(capsys.readouterr().out)["assessment"] == expected
    compared = tmp_path / "compared.json"
    assert main(["compare", str(path), str(other), "-o", str(compared), *options]) == 0
    plain = json.loads(compared.read_text())
    assert [one["assessment"] for one in plain["columns"]] == [expected, expected]
    assert plain["verdicts"][0]["answer"] in ("not distinguishable", "not comparable")
    assert plain["sentence"] == plain["verdicts"][0]["sentence"]

    # The history, which knows no chosen chip.
    layout = layouts.from_json(found.layout)
    History().record_answer(layout, found, LOCAL)
    assert main(["history", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["assessment"] == typed_json.encode(assess(found))

    # Reports and pages show the same numbers.
    figures = numbers(expected)
    for suffix in (".html", ".md"):
        content = report.content([("one", found), ("two", found)], suffix, chip)
        said = html.unescape(content if isinstance(content, str) else content.decode())
        said = said.replace("\\", "")
        for number in figures:
            assert number in said, (suffix, number)
        assert plain["sentence"].split(" (")[0] in said.replace("**", "")
    page = AppTest.from_string(SCRIPT, default_timeout=PATIENCE)
    page.session_state["path"], page.session_state["chosen"] = str(path), name
    page.run()
    assert not page.exception, [error.value for error in page.exception]
    head = " ".join(f"{metric.label} {metric.value}" for metric in page.metric).replace("\\", "")
    table = " ".join(one.value.replace("\\", "") for one in page.markdown)
    (picture,) = [one.proto.alt for one in page.get("plotly_chart") if one.key == "glance"]
    for number in figures:
        assert number.split(" ")[0] in head, number
        assert number in table, number
        if own.rejected is None:
            assert number in picture, number


def numbers(plain: dict[str, Any]) -> list[str]:
    """Return the figures of an assessment as text."""
    step, need, sent = plain["step"], plain["memory"], plain["traffic"]
    return [
        *([] if step is None or plain.get("rejected") else [seconds_text(step["seconds"])]),
        *([] if need is None or plain.get("rejected") else [bytes_text(need["peak_bytes"])]),
        *(
            []
            if not sent or not sent["bytes"] or plain.get("rejected")
            else [bytes_text(sent["bytes"])]
        ),
    ]
