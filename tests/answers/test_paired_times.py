"""Sentences about ratios: verdicts are words, and untimed layouts have a reason."""

from __future__ import annotations

import numpy as np
import pytest

from inspector.answers import comparison as section_of_times
from inspector.compare import paired_times
from inspector.compare.paired_times import PairedTimes
from inspector.layout.plan import now
from inspector.media.terminal import render
from inspector.records.snapshot import Snapshot, Source
from tests.compare.test_paired_times import times_of

NAMES = ["first", "second", "third"]


@pytest.fixture
def times() -> PairedTimes:
    rounds = np.arange(15)
    same = 1 + 0.1 * np.sin(rounds)
    seconds = np.array([[np.ones(15), 2 + 0.01 * rounds, same]] * 2)
    return times_of(seconds)


def test_verdicts_are_words(times: PairedTimes) -> None:
    said = section_of_times.timing_sentences(times, NAMES, 0)
    assert said[0].startswith("first, second and third ran once in each of 15 rounds")
    assert "8 emulated devices" in said[0]
    assert any(one.startswith("Train step: second takes 2.07 times as long as first: worse") for one in said)
    assert any("third takes" in one and "not distinguishable" in one for one in said)
    reversed_ = section_of_times.timing_sentences(times, NAMES, 1)
    assert any("Inference: first takes 0.48 times as long as second: better" in one for one in reversed_)


def test_untimed_layouts_have_a_reason(times: PairedTimes) -> None:
    fewer = paired_times.chosen(times, [None, 0, 1], "it has no layout to run")
    said = section_of_times.timing_sentences(fewer, NAMES, 0)
    assert "first was not timed, so ratios are relative to second." in said
    assert "first was not timed: it has no layout to run." in said
    none = paired_times.chosen(times, [None, None], "why")
    assert section_of_times.timing_sentences(none, NAMES, 0) == (
        "first was not timed: why.", "second was not timed: why.",
    )  # fmt: skip


def test_the_table_has_a_row_for_each_program_and_layout(times: PairedTimes) -> None:
    rows = section_of_times.table(times, NAMES).rows
    assert [row[1] for row in rows] == NAMES * 2
    assert rows[1][2:] == ("2.07 s", "2.00 s – 2.14 s")


def test_layouts_with_other_sizes_are_named(times: PairedTimes) -> None:
    source = Source("cpu", "cpu", now(), {})
    layouts = [
        {"model": "logical_mlp", "sizes": {"batch": 8, "depth": 64}},
        {"model": "logical_mlp", "sizes": {"batch": 8, "depth": 64}},
        {"model": "logical_mlp", "sizes": {"batch": 16, "depth": 64}},
    ]
    snapshots = [Snapshot(source=source, layout=layout, mesh=None, arrays=()) for layout in layouts]
    named = list(zip(NAMES, snapshots, strict=True))
    assert section_of_times.other_work(times, named, 0) == (
        "third does other work than first: batch 16 instead of 8.",
    )
    fewer = paired_times.chosen(times, [0, 1, None], "why")
    assert section_of_times.other_work(fewer, named, 0) == ()
    text = render.text([section_of_times.section(times, named, 0)])
    assert "emulated on this machine" in text and "batch 16 instead of 8" in text
