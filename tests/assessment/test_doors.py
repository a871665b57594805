"""One layout has one answer: the same assessment in every verb, report, record and page."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from inspector import layout as layouts
from inspector.assessment import assess
from inspector.files import private_database
from inspector.jobs.inspection import Inspection
from inspector.machines import hardware, targets
from inspector.media import report
from inspector.media.terminal import main
from inspector.records import snapshot as snapshots
from inspector.records import typed_json
from inspector.records.snapshot import Snapshot
from inspector.text.formatting import bytes_text, seconds_text
from tests.media.streamlit import drawn_figures
from tests.media.streamlit.scripted_page import PATIENCE
from tests.media.terminal.command import inspector

pytestmark = pytest.mark.nightly

MLP = {"layers": "2", "depth": "64", "steps": "3"}
TRANSFORMER = {
    "model": "transformer", "layers": "2", "embed": "64", "mlp": "128", "heads": "4", "kv_heads": "4",
    "head_dim": "16", "vocab": "128", "seq": "32", "scan": "true", "mesh": "2x4", "axes": "fsdp,tensor",
    "rules": "batch=fsdp,embed=fsdp,heads=tensor,mlp=tensor",
}  # fmt: skip
MOE = TRANSFORMER | {"model": "moe", "rules": "batch=fsdp,embed=fsdp,heads=tensor,expert=tensor"}
OWN = {"model": "examples.linen_mlp:build", "mesh": "2x4", "steps": "2", "hidden": "256"}
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
    "v5e that does not fit": (
        MLP | {"target": "tpu:v5e:2x4", "depth": "65536", "layers": "4", "mesh": "8x1"},
        None,
    ),
    "h100": (TRANSFORMER | {"target": "gpu:h100:8"}, None),
    "experts": (MOE | {"target": "plan"}, "v5p"),
    "experts, emulated": (MOE | {"steps": "2"}, None),
    "experts, v5e": (MOE | {"target": "tpu:v5e:2x4"}, None),
    "experts, h100": (MOE | {"target": "gpu:h100:8"}, None),
    "own model": (OWN | {"target": "plan"}, None),
    "own model, emulated": (OWN, "v6e"),
    "own model, v5e": (OWN | {"target": "tpu:v5e:2x4"}, None),
}
SCRIPT = """
import streamlit as st
from inspector.compare.board import Board
from inspector.records import snapshot
from inspector.media.streamlit.compare import board_comparison
from inspector.media.streamlit.panels import summary_panel
from inspector.media.streamlit.session import chip_choice
chip_choice.put(st.session_state["chosen"])
found = snapshot.read(st.session_state["path"])
summary_panel.show_opened("one", found)
chip = st.session_state["chosen"]
board = Board(chip=chip).pinned("one", found).pinned("two", found)
board_comparison.show(board)
"""


@pytest.fixture(params=CASES)
def case(
    request: pytest.FixtureRequest, service: Inspection, known_models: None, tmp_path: Path
) -> tuple[Snapshot, str | None]:
    fields, chip = CASES[request.param]
    if fields.get("model") == OWN["model"]:
        return inspected(fields, tmp_path / "inspected.json"), chip
    layout = layouts.parse(fields).unwrap()
    skip_without_compiler(layout)
    planned = service.state(layout).answer() and service.plan(layout)
    if layout.target == "plan":
        return service.with_programs(planned, layout), chip
    return service.run(layout, planned).answer(), chip


def inspected(fields: dict[str, str], path: Path) -> Snapshot:
    """Return the Snapshot of a user's model, which needs a worker of its own."""
    options = [f"--{name}={fields[name]}" for name in ("model", "mesh", "steps")]
    target = fields.get("target", "cpu")
    done = inspector(
        "inspect",
        *options,
        f"--target={target}",
        f"--set=hidden={fields['hidden']}",
        "-o",
        str(path),
    )
    if "compiler" in done.stderr and "install" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return snapshots.read(path)


def skip_without_compiler(layout: layouts.Layout) -> None:
    if layout.machine is not None and (missing := targets.missing_compiler(layout.machine)):
        pytest.skip(missing)


def test_every_door_has_the_same_assessment(
    case: tuple[Snapshot, str | None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    snapshot, name = case
    monkeypatch.setenv(private_database.VARIABLE, str(tmp_path / "user"))
    path, other = tmp_path / "one.json", tmp_path / "two.json"
    for file in (path, other):
        snapshots.write(snapshot, file)
    chip = None if name is None else hardware.chip(name)
    options = [] if name is None else ["--chip", name]
    own = assess(snapshot, chip)
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

    # Reports and pages show the same numbers.
    figures = numbers(expected)
    for suffix in (".html", ".md"):
        content = report.content([("one", snapshot), ("two", snapshot)], suffix, chip)
        said = html.unescape(content if isinstance(content, str) else content.decode())
        said = re.sub(r"</?strong>", "", said.replace("\\", ""))
        for number in figures:
            assert number in said, (suffix, number)
        assert plain["sentence"].split(" (")[0] in said.replace("**", "")
    page = AppTest.from_string(SCRIPT, default_timeout=PATIENCE)
    page.session_state["path"], page.session_state["chosen"] = str(path), name
    page.run()
    assert not page.exception, [error.value for error in page.exception]
    head = " ".join(f"{metric.label} {metric.value}" for metric in page.metric).replace("\\", "")
    table = " ".join(markdown.value.replace("\\", "") for markdown in page.markdown)
    # Of layouts that JAX rejects, nothing is drawn.
    pictures = [figure.alt for figure in drawn_figures.figures(page) if figure.key == "glance"]
    assert len(pictures) == (own.rejected is None)
    for number in figures:
        assert number.split(" ")[0] in head, number
        assert number in table, number
        for picture in pictures:
            assert number.split(" ")[0] in picture, number


@pytest.mark.parametrize("target", ["cpu", "tpu:v5e:2x4"])
def test_a_search_and_a_comparison_of_its_result_have_the_same_assessments(
    tmp_path: Path, target: str
) -> None:
    """Each compiled candidate, in the result, in `compare`, and inspected by itself."""
    layout = layouts.parse(MLP | {"target": target}).unwrap()
    skip_without_compiler(layout)
    written, compared = tmp_path / "result.json", tmp_path / "compared.json"
    chip = ("--chip", "v5e") if target == "cpu" else ()
    options = ("--target", target, "--set=depth=64", "--set=layers=2", "--steps=3", *chip)
    done = inspector("search", *options, "--budget=2", "-o", str(written))
    assert done.returncode == 0, done.stderr
    found = json.loads(written.read_text())["candidates"]
    compiled = {json.dumps(one["layout"]): one["assessment"] for one in found if one["stage"] == "compiled"}
    assert len(compiled) >= 2
    assert inspector("compare", str(written), "-o", str(compared)).returncode == 0
    plain = json.loads(compared.read_text())
    pairs = [
        (column["assessment"], compiled[json.dumps(one["layout"])])
        for column, one in zip(plain["columns"], plain["snapshots"], strict=True)
        if json.dumps(one["layout"]) in compiled
    ]
    assert len(pairs) >= 2
    for of_column, of_candidate in pairs:
        assert of_column == of_candidate


def numbers(plain: dict[str, Any]) -> list[str]:
    """Return the figures of an assessment as text."""
    step, need, sent = plain["step"], plain["memory"], plain["traffic"]
    return [
        *([] if step is None or plain.get("rejected") else [seconds_text(step["seconds"])]),
        *([] if need is None or plain.get("rejected") else [bytes_text(need["peak_bytes"])]),
        *([] if not sent or not sent["bytes"] or plain.get("rejected") else [bytes_text(sent["bytes"])]),
    ]
