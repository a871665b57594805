"""The memory panel on real runs and plans: the verdict, the exact figures, and what is held twice."""

from __future__ import annotations

import dataclasses

import pytest

from inspector import layout as layouts
from inspector.core.snapshot import Snapshot
from inspector.layout.plan import plan
from inspector.machines import hardware
from inspector.machines.prediction import memory
from inspector.media.streamlit import memory_panel
from inspector.producers.abstract import abstract_state
from inspector.producers.run import run_layout

SCRIPT = """
import streamlit as st
from inspector.core import snapshot
from inspector.media.streamlit import memory_panel
memory_panel.show(snapshot.read(st.session_state["path"]), None)
"""

LAYOUT = layouts.parse({"layers": "2", "depth": "64", "steps": "1"}).unwrap()


@pytest.fixture(scope="module")
def found() -> Snapshot:
    return run_layout(LAYOUT, lambda *_, **__: None)


def texts(elements) -> str:
    return " ".join(element.value.replace("\\", "") for element in elements)


def test_what_fits_is_said_first(shown, found: Snapshot) -> None:
    page = shown(found)
    assert "of the 95.7 GiB of a TPU v5p chip: it fits" in texts(page.success)
    assert not page.error and not page.info
    assert [chart.key for chart in page.get("plotly_chart")] == ["memory_bars"]


def test_the_chip_is_chosen_here_and_stays(shown, found: Snapshot) -> None:
    page = shown(found)
    assert page.selectbox(key="chip").options == [chip.title for chip in hardware.CHIPS.values()]
    page.selectbox(key="chip").set_value("v5e").run()
    assert "of the 15.8 GiB of a TPU v5e chip" in texts(page.success)
    assert page.session_state["chip"] == "v5e"
    assert shown(found, chip="no such chip").selectbox(key="chip").value == "v5p"


def test_too_much_is_an_answer(shown, found: Snapshot) -> None:
    large = tuple(
        dataclasses.replace(
            program, memory=dataclasses.replace(program.memory, temporaries=200 * 2**30)
        )
        for program in found.programs
    )
    page = shown(dataclasses.replace(found, programs=large))
    said = texts(page.error)
    assert "of the 95.7 GiB of a TPU v5p chip: 104 GiB too much" in said
    assert "The largest part is temporaries, 200 GiB" in said


def test_every_figure_stands_in_full(shown, found: Snapshot) -> None:
    page = shown(found)
    table = next(one.value for one in page.dataframe if "train_step" in one.value)
    figures = dict(zip(table[""], table["train_step"], strict=True))
    told = found.program("train_step").memory
    assert figures["Arguments"] == f"{told.arguments:,}"
    assert figures["Outputs"] == f"{told.outputs:,}"
    assert figures["Temporaries"] == f"{told.temporaries:,}"
    assert figures["Peak, as the compiler says"] == f"{told.peak:,}"
    held = sum(a.bytes_per_device for a in found.arrays if a.group == "params")
    assert figures["Arguments: parameters"] == f"{held:,}"
    # The random key is an argument of init alone.
    init = dict(zip(table[""], table["init"], strict=True))
    assert (init["Arguments: not explained by arrays"], init["Arguments: batch"]) == ("8", "0")
    assert figures["Arguments: not explained by arrays"] == "0"


def test_what_is_unknown_is_said_so(shown, found: Snapshot) -> None:
    unknown = tuple(
        dataclasses.replace(program, memory=dataclasses.replace(program.memory, peak=None))
        for program in found.programs
    )
    page = shown(dataclasses.replace(found, programs=unknown))
    table = next(one.value for one in page.dataframe if "train_step" in one.value)
    figures = dict(zip(table[""], table["train_step"], strict=True))
    assert figures["Peak, as the compiler says"] == "unknown"


def test_rows_add_up(found: Snapshot) -> None:
    for program in memory.breakdowns(found):
        rows = dict(memory_panel.rows(program))
        whole = ("Arguments", "Outputs", "Temporaries", "Aliased, in both")
        assert sum(rows[name] for name in whole) == rows["Total"]
        for name in ("Arguments", "Outputs"):
            assert sum(n for key, n in rows.items() if key.startswith(f"{name}: ")) == rows[name]


def test_duplicated_arrays_are_ranked(shown, found: Snapshot) -> None:
    page = shown(found)
    table = next(one.value for one in page.dataframe if "Path" in one.value)
    assert list(table["Duplicated"]) == sorted(table["Duplicated"], reverse=True)
    by_path = {array.path: array for array in found.arrays}
    for path, copies in zip(table["Path"], table["Copies"], strict=True):
        assert copies == by_path[path].replicas


@pytest.mark.parametrize(
    ("everywhere", "said"), [(5 * 7, 7), (8 * 5, 8), (1024 * 5, 1024), (9216 * 5, 9216), (7, 1.4)]
)
def test_copies_are_written_in_full_from_a_thousand_up(everywhere: int, said: float) -> None:
    one = memory.Duplication("step", "other", 1, 5, everywhere)
    unknown = memory.Duplication("x", "other", 1, None, None)
    assert memory_panel.duplication_columns([one], "")["Copies"] == [said]
    texts = memory_panel.duplication_columns([one, unknown], "")["Copies"]
    assert texts == [f"{said:,}×", "unknown"]


def test_donating_is_said_to_save_what_it_could(shown, found: Snapshot) -> None:
    state = sum(
        a.bytes_per_device for a in found.arrays if a.group in ("params", "opt_state", "other")
    )
    assert "would save up to" in texts(shown(found).caption)
    (step,) = [one for one in memory.breakdowns(found) if one.program == "train_step"]
    assert step.not_donated == state
    donating = layouts.parse(
        {"layers": "2", "depth": "64", "steps": "1", "donate": "true"}
    ).unwrap()
    said = texts(shown(run_layout(donating, lambda *_, **__: None)).caption)
    assert "over arguments that were donated" in said and "would save up to" not in said


def test_a_plan_says_at_least(shown) -> None:
    page = shown(plan(LAYOUT, abstract_state(LAYOUT)))
    said = texts(page.info)
    assert "at least" in said and "Build and run" in said
    assert not page.get("plotly_chart")
    assert any("Path" in one.value for one in page.dataframe)


def test_nothing_twice_is_said(shown) -> None:
    alone = layouts.parse({"mesh": "1x1", "layers": "2", "depth": "64"}).unwrap()
    page = shown(plan(alone, abstract_state(alone)))
    assert "No two devices hold the same data." in texts(page.success)
