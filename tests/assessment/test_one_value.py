"""One layout's numbers, read everywhere: no quantity has two values, and none has two names.

They are read from the header, every tab, Compare, both reports, Saved and the command line.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from benchmarks.processes import until
from inspector import layout as layouts
from inspector.answers import assessed
from inspector.assessment import assess
from inspector.compare.board import Board, dumps
from inspector.files import private_database
from inspector.jobs.inspection import Inspection
from inspector.jobs.library import Library
from inspector.machines import hardware
from inspector.media import report
from inspector.media.streamlit.panels import snapshot_panels
from inspector.media.terminal import main
from inspector.records import snapshot as snapshots
from inspector.records.assessment import MEMORY, STEP, TRAFFIC, Assessment
from inspector.records.snapshot import Snapshot
from inspector.text.formatting import bytes_text, seconds_text
from tests.assessment.test_doors import MLP, MOE, TRANSFORMER, skip_without_compiler
from tests.media.streamlit.drawn_figures import figures
from tests.media.streamlit.scripted_page import PATIENCE, ScriptedPage

# Names that the same quantities had before. The page *Search* has other axes.
RETIRED = re.compile(
    r"Memory of a device|Needed on one device|Time of a step|One step|Traffic of a step|"
    r"Predicted time|bytes on the wire|Train step, all\b"
)
NAMES = {
    MEMORY: r"Memory per device|(?:Probably )?(?:[Ff]its|[Dd]oes not fit)|Rejected by JAX",
    STEP: r"Step",
    TRAFFIC: r"Traffic(?: of the CPU partition)?",
}
_NUMBER, _UNIT = r"[\d.,]*\d", r"(?:[KMGT]?i?B|[nµm]?s)"
# `9.5 of 15.8 GiB` has one unit.
AMOUNT = re.compile(
    rf"(?:about |at least |up to |≥ )*(?:(none|unknown)\b|({_NUMBER})(?: of {_NUMBER})? ({_UNIT})\b)"
)
TWO_SLICES = TRANSFORMER | {"mesh": "2x8", "rules": "batch=fsdp+tensor,embed=tensor", "batch": "16"}
PLAN = {"target": "plan"}
TABS = {"Memory": MEMORY, "Time": STEP, "Communication": TRAFFIC}
# A layout, and the chip that is chosen for it.
FAST = (MLP | PLAN, "v5e")
CASES: dict[str, tuple[dict[str, str], str | None]] = {
    "guide": (MLP | PLAN, None),
    "fsdp": (TRANSFORMER | PLAN | {"mesh": "8", "axes": "fsdp", "rules": "batch=fsdp,embed=fsdp"}, "v5p"),
    "fsdp and tensor": (TRANSFORMER | PLAN, "v5e"),
    "two slices": (TWO_SLICES | {"target": "tpu:v5e:2x4*2"}, None),
    "experts": (MOE | PLAN, "h100"),
    "emulated": (MLP, None),
    "does not fit": (TRANSFORMER | PLAN | {"vocab": "8388608", "embed": "8192"}, "v5e"),
    "rejected": (MLP | PLAN | {"batch": "3"}, "v5e"),
}
OPENED = """
import streamlit as st
from inspector.records import snapshot
from inspector.media.streamlit.panels import summary_panel
from inspector.media.streamlit.session import chip_choice
chip_choice.put(st.session_state["chosen"])
summary_panel.show_opened("one", snapshot.read(st.session_state["path"]))
"""
COMPARE = """
from pathlib import Path
import streamlit as st
from inspector.compare import board
from inspector.media.streamlit.compare import board_comparison
st.session_state["board_equal_rows"] = True
board_comparison.show(board.parse(Path(st.session_state["path"]).read_bytes()))
"""


def test_one_layout_has_one_value_and_one_name_everywhere(
    service: Inspection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read_everywhere(*FAST, service, tmp_path, monkeypatch, capsys, ("Summary", *TABS))


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
def test_eight_layouts_have_one_value_and_one_name_everywhere(
    name: str,
    service: Inspection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    read_everywhere(*CASES[name], service, tmp_path, monkeypatch, capsys)


def read_everywhere(
    fields: dict[str, str],
    chip: str | None,
    service: Inspection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tabs: Sequence[str] = tuple(snapshot_panels.PANELS),
) -> None:
    monkeypatch.setenv(private_database.VARIABLE, str(tmp_path / "user"))
    snapshot = inspected(fields, service)
    expected = values(assess(snapshot, hardware.CHIPS.get(chip or "")))
    places = dict(texts(snapshot, fields, chip, tmp_path, capsys))
    places |= dict(pages(snapshot, fields, chip, tmp_path, tabs))
    for place, text in places.items():
        assert not (old := RETIRED.search(text)), (place, old)
        for name, value in named_values(text):
            assert value == expected[name], (place, name)
    # Each place has the quantities at all.
    rejected = bool(assess(snapshot).rejected)
    for place in ("show", "compare --all", "Compare", "markdown", "html", "header"):
        names = {name for name, _ in named_values(places[place])}
        assert names >= {MEMORY, TRAFFIC} or rejected, place
    for tab, name in TABS.items():
        said = places.get(tab, "").replace("\\", "")
        assert (
            tab not in places or rejected or expected[name] in ("unknown", "none") or expected[name] in said
        ), tab


def inspected(fields: dict[str, str], service: Inspection) -> Snapshot:
    layout = layouts.parse(fields).unwrap()
    if layout.target != "plan":
        skip_without_compiler(layout)
    planned = service.state(layout).answer() and service.plan(layout)
    if layout.target == "plan":
        return service.with_programs(planned, layout)
    return service.run(layout, planned).answer()


def values(own: Assessment) -> dict[str, str]:
    """Return each quantity as text, without its interval and its bounds."""
    step, need, sent = own.step, own.memory, own.traffic
    return {
        MEMORY: bytes_text(None if need is None else need.peak_bytes),
        STEP: "unknown" if step is None else seconds_text(step.seconds),
        TRAFFIC: "unknown" if sent is None else bytes_text(sent.bytes) if sent.bytes else "none",
    }


def named_values(text: str) -> Iterator[tuple[str, str]]:
    """Yield each quantity with the first amount after its name, on the lines that begin with a name."""
    for line in text.splitlines():
        cells = re.sub(r"[*`|:█▓▒░▏│]", " ", line.replace("\\", "")).strip()
        for name, pattern in NAMES.items():
            start = re.match(rf"(?:{pattern})\b(?:,.*?(?=  ))?\s+", cells)
            if start and (amount := AMOUNT.match(cells, start.end())):
                word, number, unit = amount.groups()
                yield name, word or f"{number} {unit}"


def texts(
    snapshot: Snapshot,
    fields: dict[str, str],
    chip: str | None,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[tuple[str, str]]:
    """Yield every place with its text, a line for each fact or row."""
    paths = [folder / f"{name}.json" for name in ("one", "two")]
    for path in paths:
        snapshots.write(snapshot, path)
    options = [] if chip is None else ["--chip", chip]
    for verb, files in (("show", paths[:1]), ("show --all", paths[:1]), ("compare --all", paths)):
        assert main([*verb.split(), *map(str, files), *options]) == 0
        yield verb, capsys.readouterr().out
    if any(program.name == "train_step" for program in snapshot.programs) and chip is not None:
        assert main(["predict", str(paths[0]), "--json", *options]) == 0
        yield "predict", capsys.readouterr().out
    one_chip = hardware.CHIPS.get(chip or "")
    for count in (1, 2):
        named = [(path.stem, snapshot) for path in paths[:count]]
        yield "markdown" + "s" * (count - 1), report.content(named, ".md", one_chip)
        page = re.sub(
            r"<script.*?</script>|<style.*?</style>", "", report.content(named, ".html", one_chip), flags=re.S
        )
        cells = re.sub(r"</t[dh]>\s*<t[dh][^>]*>", "  ", page)
        yield "html" + "s" * (count - 1), html.unescape(re.sub(r"<[^>]+>", "\n", cells))
    Library().save("saved", "", snapshot)
    yield "saved", facts(assess(Library().open("saved"), one_chip))


def pages(
    snapshot: Snapshot, fields: dict[str, str], chip: str | None, folder: Path, tabs: Sequence[str]
) -> Iterator[tuple[str, str]]:
    board = Board(chip=chip).pinned("one", snapshot).pinned("two", snapshot)
    (folder / "board.json").write_text(dumps(board))
    compare = AppTest.from_string(COMPARE, default_timeout=PATIENCE)
    compare.session_state["path"] = str(folder / "board.json")
    compare.run()
    assert not compare.exception, [error.value for error in compare.exception]
    yield "Compare", drawn(compare)
    if fields.get("target") != "plan":  # the Layout page would have to compile or run it again
        opened = AppTest.from_string(OPENED, default_timeout=PATIENCE)
        opened.session_state["path"], opened.session_state["chosen"] = str(folder / "one.json"), chip
        opened.run()
        assert not opened.exception, [error.value for error in opened.exception]
        yield "header", metrics(opened)
        return
    query = layouts.to_query(layouts.parse(fields).unwrap())
    if "embed" in query:  # is a parameter of Streamlit
        query["embed-size"] = query.pop("embed")
    page = ScriptedPage(**query | ({} if chip is None else {"chip": chip}))
    until(lambda: page.test.run() and "computing" not in metrics(page.test), "the partitioned programs")
    for tab in tabs:
        page.open_panel(tab)
        if tab == "Summary":
            yield "header", metrics(page.test)
        yield tab, drawn(page.test)


def metrics(page: AppTest) -> str:
    return "\n".join(f"{metric.label}  {metric.value}" for metric in page.metric)


def drawn(page: AppTest) -> str:
    """Return all texts and tables of a page, and what its figures say to a screen reader."""
    kinds = ("markdown", "caption", "info", "warning", "error", "success")
    lines = [element.value for kind in kinds for element in page.get(kind)]
    lines.append(metrics(page))
    for table in page.dataframe:
        rows = table.value.astype(str).to_numpy().tolist()
        lines += ["  ".join(row) for row in [list(table.value.columns), *rows]]
    lines += [figure.alt.replace(": ", "  ") for figure in figures(page)]
    return "\n".join(lines)


def facts(own: Assessment) -> str:
    return "\n".join(f"{fact.label}  {fact.value}" for fact in assessed.of_assessment(own).facts)


def columns(table: str) -> str:
    """Return a table with one row as a line for each column."""
    head, row = table.splitlines()[:2]
    starts = [match.start() for match in re.finditer(r"(?:^|(?<=  ))\S", head)]
    ends = [*starts[1:], max(len(head), len(row))]
    return "\n".join(f"{head[a:b].strip()}  {row[a:b].strip()}" for a, b in zip(starts, ends, strict=True))


def test_the_reader_of_this_test_reads_names_and_amounts() -> None:
    text = (
        "| **Fits** | about 9.5 of 15.8 GiB |\nStep, predicted, 1–2 ms  about 1.5 ms\nTraffic  none\nA  3 B"
    )
    assert dict(named_values(text)) == {MEMORY: "9.5 GiB", STEP: "1.5 ms", TRAFFIC: "none"}
    assert columns("Step  Traffic\n1 ms  3 B") == "Step  1 ms\nTraffic  3 B"
