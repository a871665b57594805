"""The Board page: pins, their link, their file, and Screenshot mode."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from benchmarks.processes import until
from inspector import layout as layouts
from inspector.compare import board as boards
from inspector.compare.board import Board
from inspector.jobs.compile_cache import CompileCache
from inspector.jobs.inspection import Inspection
from inspector.jobs.request import Request
from inspector.layout import layout_of
from inspector.media.streamlit.pages import board_page
from inspector.media.streamlit.session import view_link
from inspector.records import snapshot
from inspector.records.snapshot import Snapshot, Source
from tests.figures import samples
from tests.media.streamlit.drawn_figures import figures
from tests.media.streamlit.scripted_page import PATIENCE, ScriptedPage
from tests.media.streamlit.session.test_page_programs import FakeJob

HOSTILE = "<img src=x onerror=alert(1)> $x^2$ [a](http://b.c)"

PAGE = """
from pathlib import Path
import streamlit as st
from inspector.compare import board
from inspector.media.streamlit.pages import board_page
from inspector.media.streamlit.session import pins, current_layout
current_layout.begin(on_layout_page=False)
if "path" in st.session_state and "board" not in st.session_state:
    pins.put(board.parse(Path(st.session_state["path"]).read_bytes()))
board_page.show()
"""

PIN = """
import streamlit as st
from inspector.records import snapshot
from inspector.media.streamlit.parts import keep_buttons
from inspector.jobs.request import Request

def show():
    keep_buttons.show_pin(snapshot.read(st.session_state["path"]), st.session_state["name"], key="pin")

st.navigation([st.Page(show), st.Page(lambda: None, title="Board", url_path="board")]).run()
"""


def found(number: int = 0, **axes: int) -> Snapshot:
    mesh = samples.mesh(**(axes or {"data": 2, "model": 4}))
    source = Source("capture", None, f"2026-01-{number + 1:02}T00:00:00+00:00")
    return Snapshot(source, None, mesh, samples.mlp_state(mesh))


def three() -> Board:
    """Two meshes and a Snapshot without any, one of them of a hostile name and array."""
    hostile = replace(
        found(2, data=4, model=2),
        arrays=(samples.array(f"params/{HOSTILE}", (8,), (None,), samples.DEFAULT_MESH),),
    )
    board = Board().pinned("one", found(0)).pinned("two", found(1, data=4, model=2))
    return board.pinned(HOSTILE, hostile)


@pytest.fixture(autouse=True)
def _own_cache(service: Inspection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache without the results of other tests, which a link would open instead of a plan."""
    monkeypatch.setattr(service, "compiled", CompileCache(tmp_path / "compiled.sqlite3"))


@pytest.fixture
def page_of(tmp_path: Path):
    """The page as a new session that has this board, or that opened this link."""

    def show(board: Board | None = None, query: dict[str, list[str]] | None = None, **state) -> AppTest:
        page = AppTest.from_string(PAGE, default_timeout=PATIENCE)
        if board is not None:
            (tmp_path / "board.json").write_text(boards.dumps(board))
            page.session_state["path"] = str(tmp_path / "board.json")
        for key, value in state.items():
            page.session_state[key] = value
        page.query_params.update(query or {})
        return checked(page.run())

    return show


def checked(page: AppTest) -> AppTest:
    assert not page.exception, [error.value for error in page.exception]
    return page


def board_of(page: AppTest) -> Board:
    return page.session_state["board"]


def names(page: AppTest) -> tuple[str, ...]:
    return board_of(page).names


def query_of(page: AppTest) -> dict[str, list[str]]:
    """The URL's parameters, each as a list."""
    result = dict(page.query_params.items())
    return {key: [value] if isinstance(value, str) else list(value) for key, value in result.items()}


def read_as_markup(text: str) -> bool:
    """Whether a character of the hostile name is left that Markdown would read."""
    return re.search(r"(?<!\\)(<img|\$x|\[a)", text) is not None


def said(page: AppTest) -> str:
    """Every text of the page, escapes taken away."""
    texts = [
        e.value
        for kind in ("markdown", "caption", "info", "warning", "error", "success")
        for e in page.get(kind)
    ]
    return " ".join(texts).replace("\\", "").replace("\u2060", "")


FSDP = "mesh.8 axes.fsdp rules.batch.fsdp~embed.fsdp layers.2 depth.64"
LINK = {
    "pin": [
        "Data + tensor~~layers.2 depth.64",
        "FSDP~~mesh.8 rules.batch.data~embed.data layers.2 depth.64 was.cpu",
    ]
}


def test_a_link_is_planned(page_of) -> None:
    page = page_of(query=LINK | {"baseline": ["FSDP"], "chip": ["h100"]})
    board = board_of(page)
    assert board.names == ("Data + tensor", "FSDP") and board.baseline == 1
    assert {snapshot.source.kind for snapshot in board.snapshots} == {"plan"}
    assert (
        layout_of(board.snapshots[1])
        == layouts.parse(
            {"mesh": "8", "rules": "batch=data,embed=data", "layers": "2", "depth": "64"}
        ).unwrap()
    )
    assert page.session_state["chip"] == "h100"
    assert not page.warning
    assert "FSDP was run before" in page.info[0].value
    # The page's own address opens the same board.
    again = page_of(query=query_of(page))
    assert board_of(again) == replace(board, pins=board_of(again).pins)
    assert [pin.snapshot.layout for pin in board_of(again).pins] == [
        pin.snapshot.layout for pin in board.pins
    ]


def test_what_is_computed_is_not_compared(page_of, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Inspection, "programs", lambda _, layout, *__, **___: Request(layout.key(), lambda: FakeJob(()))
    )
    query = {"pin": ["one~~layers.2 depth.64", "FSDP~~" + FSDP], "chip": ["v5e"]}
    page = page_of(query=query)
    (notice,) = page.info
    assert all(word in notice.value for word in ("Computing", "one", "FSDP"))
    assert "comparable" not in said(page) and "unknown" not in said(page) and not figures(page)
    # The layouts whose programs are known are compared.
    planned = board_of(page)
    step = snapshot.Program("train_step", collectives=(), stage="partitioned")
    known = replace(planned.pins[0].snapshot, programs=(step,))
    page = page_of(Board().pinned("one", known).pinned("FSDP", planned.pins[1].snapshot))
    assert "Computing FSDP:" in page.info[0].value
    assert "comparable" not in said(page)
    (picture,) = [figure for figure in figures(page) if figure.key == "glance"]
    assert "one" in picture.alt and "FSDP" not in picture.alt


@pytest.mark.nightly
def test_plans_of_a_link_get_their_propagated_programs(page_of) -> None:
    page = page_of(query={"pin": ["one~~layers.2 depth.64", "FSDP~~" + FSDP], "chip": ["v5e"]})
    until(lambda: not checked(page.run()).info, "the programs of both layouts")
    for found in board_of(page).snapshots:
        assert found.program("train_step").stage == "partitioned"
    (picture,) = [figure for figure in figures(page) if figure.key == "glance"]
    for name in ("one", "FSDP"):
        assert f"{name} unknown" not in picture.alt and name in picture.alt
    # The picture has the same bytes as the table.
    for cell in table_of(page)["Traffic"]:
        assert re.split(r" :\w+\[| ✗| ✓", cell.strip())[0].strip("*") in picture.alt


def test_a_bad_link_gives_a_notice_and_the_rest_of_it(page_of) -> None:
    query = {
        "pin": ["nonsense", "good~~layers.2 depth.64", HOSTILE + "~~mesh.0"],
        "baseline": ["absent"],
    }
    page = page_of(query=query | {"chip": ["abacus"], "screenshot": ["yes"]})
    assert names(page) == ("good",)
    (warning,) = page.warning
    text = warning.value.replace("\\", "")
    for sentence in (
        "pin is 'nonsense', but must be a name",
        "mesh 0 has an axis of size 0",
        "baseline is 'absent'",
        "chip is 'abacus', but must be one of",
        "screenshot is 'yes', but must be",
    ):
        assert sentence in text
    assert not read_as_markup(warning.value)


def table_of(page: AppTest) -> dict[str, list[str]]:
    """Return the cells of the table by the first cell of their row."""
    (table,) = (markdown.value for markdown in page.markdown if markdown.value.startswith("| Question"))
    rows = [re.split(r"(?<!\\) ?\| ?", line)[1:-1] for line in table.splitlines()]
    plain = [[cell.replace("\\", "") for cell in row] for row in rows]
    return {first: cells for first, *cells in plain}


def test_the_table_marks_differences_by_sign_and_word(page_of) -> None:
    page = page_of(three())
    table = table_of(page)
    assert table["Question"][:2] == ["one (baseline)", "two"]
    assert "✗ +100% worse" in table["Train state per device"][1]
    assert "**two** compared with **one**" in said(page)
    assert "**one** compared with" not in said(page)


def test_another_baseline_another_verdict(page_of) -> None:
    page = page_of(three())
    page.button(key="pin_baseline:1").click()
    checked(page.run())
    table = table_of(page)
    assert table["Question"][:2] == ["one", "two (baseline)"]
    assert "better" in table["Train state per device"][0]


def test_pins_are_renamed_moved_and_removed(page_of) -> None:
    page = page_of(three())
    page.text_input(key="pin_name:0:one").set_value("uno")
    checked(page.run())
    assert names(page)[0] == "uno"
    page.text_input(key="pin_name:0:uno").set_value("two")
    checked(page.run())
    assert names(page)[0] == "uno"
    assert "is taken" in page.error[0].value
    page.button(key="pin_right:0").click()
    checked(page.run())
    assert names(page) == ("two", "uno", HOSTILE) and board_of(page).baseline == 1
    assert page.button(key="pin_left:0").disabled and page.button(key="pin_right:2").disabled
    page.button(key="pin_remove:1").click()
    checked(page.run())
    assert names(page) == ("two", HOSTILE) and board_of(page).baseline == 0
    for _ in range(2):
        page.button(key="pin_remove:0").click()
        checked(page.run())
    assert names(page) == ()
    assert "No layout is pinned" in page.info[0].value


@pytest.mark.parametrize("view", [None, *view_link.BOARD_VIEWS])
def test_every_section_draws_unlike_snapshots(page_of, view: str | None) -> None:
    state = {} if view is None else {"board_section": "Arrays", "board_view": view}
    unknown = ("spec", "shard_shape", "shape", "bytes", "bytes_per_device", "replicas")
    kernel = replace(samples.kernel(), **dict.fromkeys(unknown))
    bare = replace(found(5), mesh=None, arrays=(kernel,))
    empty = replace(found(6), arrays=())
    cube = found(7)
    deep = samples.array(
        "params/DotReluDot_0/Dense_0/kernel",
        (8, 4, 16),
        (("data",), ("model",), None),
        samples.DEFAULT_MESH,
    )
    cube = replace(cube, arrays=(deep,))
    board = three().pinned("bare", bare).pinned("empty", empty).pinned("cube", cube)
    for baseline in range(len(board.pins)):
        page = page_of(board.compared_to(baseline), **state)
        for chart in figures(page):
            figure = json.loads(chart.spec)
            for trace in figure["data"]:
                if "customdata" not in trace.get("hovertemplate", ""):
                    trace.pop("customdata", None)  # the path for a click, which no text shows
            drawn = json.dumps(figure)
            assert "<img" not in drawn and "$x" not in drawn


def test_maps_of_one_array_are_chosen_once(page_of) -> None:
    page = page_of(three(), board_section="Arrays", board_view="Shard maps")
    charts = figures(page)
    assert len(charts) == 1
    layout = json.loads(charts[0].spec)["layout"]
    assert layout["xaxis2"]["matches"] == "x"
    assert "has no array" in " ".join(one["text"] for one in layout["annotations"])
    page.selectbox(key="board_array").set_value(f"params/{HOSTILE}")
    checked(page.run())
    layout = json.loads(figures(page)[0].spec)["layout"]
    assert " ".join(one["text"] for one in layout["annotations"]).count("has no array") == 2


def test_times_are_there_if_two_layouts_can_run(page_of) -> None:
    assert [tab.label for tab in page_of(three()).tabs] == ["Side by side", "Arrays"]
    page = page_of(query=LINK | {"tab": ["times"]})
    assert [tab.label for tab in page.tabs] == ["Side by side", "Arrays", "Times"]
    assert page.session_state["board_section"] == "Times" and not page.warning
    # A link to times that cannot be measured here opens the first tab, and says so.
    page = page_of(three(), board_section="Times")
    assert page.session_state["board_section"] == "Side by side"
    assert any(one.icon == ":material/timer_off:" for one in page.info)


def test_a_column_opens_in_layout(page_of, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(board_page.page_switch, "to", opened.append)
    page = page_of(query=LINK)
    page.button(key="pin_open:1").click()
    checked(page.run())
    assert opened == [board_page.page_switch.LAYOUT]
    assert page.session_state["field:mesh"] == "8"
    assert not [one for one in page_of(three()).button if one.key.startswith("pin_open")]


def test_hostile_names_are_text_on_the_page(page_of) -> None:
    page = page_of(three())
    texts = [e.value for kind in ("markdown", "caption") for e in page.get(kind)]
    assert any("onerror" in text for text in texts)
    assert not any(map(read_as_markup, texts))


def test_layouts_without_a_link_are_named(page_of) -> None:
    board = three()
    layout = layouts.parse({"layers": "2", "depth": "64"}).unwrap()
    planned = replace(found(), source=replace(found().source, kind="cpu"), layout=layout.to_json())
    page = page_of(board.pinned("ran", planned))
    last = page.caption[-1].value.replace("\\", "")
    assert "shows ran as planned" in last
    assert "one, two and <img" in last and "are not in a link" in last
    assert query_of(page)["pin"][0].startswith("ran~~") and len(query_of(page)["pin"]) == 1


@pytest.mark.nightly
def test_an_uploaded_file_is_opened_or_rejected(page_of, monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(*_: object) -> None:
        raise AssertionError("the server parses the file")

    content = boards.dumps(three()).encode()
    monkeypatch.setattr(boards, "parse", parse)
    page = page_of()
    page.get("file_uploader")[0].set_value(("board.json", content, "application/json"))
    checked(page.run())
    page.button(key="replace_board").click()
    checked(page.run())
    assert names(page) == three().names
    page.get("file_uploader")[0].set_value(("bad.json", b'{"format": 1}', "application/json"))
    checked(page.run())
    assert 'must have "format"' in page.error[0].value.replace("\\", "")
    assert names(page) == three().names


def test_screenshot_mode_shows_the_provenance(page_of) -> None:
    page = page_of(three())
    assert "2026-01-01" not in " ".join(caption.value.replace("\\", "") for caption in page.caption[-2:])
    page.button(key="enter_screenshot_mode").click()
    checked(page.run())
    assert page.query_params["screenshot"] in ("1", ["1"])
    (about,) = [one.value for one in page.caption if one.value.startswith(":small[")]
    about = about.replace("\\", "")
    assert "2026-01-01" in about
    assert "recorded while the program ran" in about and "data 2 × model 4" in about
    page.button(key="leave_screenshot_mode").click()
    checked(page.run())
    assert "screenshot" not in page.query_params


def pin_of(one: Snapshot, name: str, path: Path) -> AppTest:
    snapshot.write(one, path)
    page = AppTest.from_string(PIN, default_timeout=PATIENCE)
    page.session_state["path"], page.session_state["name"] = str(path), name
    return checked(page.run())


def test_the_pin_button_explains_a_full_board(tmp_path: Path) -> None:
    page = pin_of(found(), HOSTILE, tmp_path / "found.json")
    for number in range(8):
        page.button(key="pin").click()
        checked(page.run())
        assert len(names(page)) == number + 1 and not page.error
    assert names(page)[:2] == (HOSTILE, f"{HOSTILE} (2)")
    page.button(key="pin").click()
    checked(page.run())
    assert len(names(page)) == 8
    assert "already has 8 layouts" in page.error[0].value
    assert not read_as_markup(page.caption[-1].value)


def test_a_taken_name_is_an_error(tmp_path: Path) -> None:
    page = pin_of(found(), "mine", tmp_path / "found.json")
    page.button(key="pin").click()
    checked(page.run())
    page.text_input(key="pin:name:mine (2):1").set_value("mine")
    page.button(key="pin").click()
    checked(page.run())
    assert names(page) == ("mine",)
    assert "is taken" in page.error[0].value
    assert "already pinned as mine" in page.caption[-1].value.replace("\\", "")


def test_the_layout_page_has_the_pin_button(open_page) -> None:
    page: ScriptedPage = open_page(depth="64", layers="2")
    page.press("pin")
    board: Board = page.test.session_state["board"]
    assert board.names == ("Data + tensor 2x4",)
    assert layout_of(board.snapshots[0]) == layouts.parse({"depth": "64", "layers": "2"}).unwrap()


def test_a_short_link_of_another_server_says_so(page_of, user_files: Path) -> None:
    page = page_of(query={"board": ["FSDP and tensor"]})
    assert "no entry named 'FSDP and tensor'" in said(page) and "server" in said(page)
    assert names(page) == ()


def test_the_current_layout_is_added_once(page_of) -> None:
    page = page_of(Board().pinned("one", found()))
    checked(page.button(key="pin_current").click().run())
    snapshot, added = board_of(page).snapshots
    assert snapshot == found() and layout_of(added) == layouts.parse({}).unwrap()
    assert not [button for button in page.button if button.key == "pin_current"]
