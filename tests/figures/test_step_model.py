"""The bars of the modelled step."""

from __future__ import annotations

import dataclasses

import pytest

from inspector.core.formatting import seconds_text
from inspector.core.snapshot import Collective, MatmulFlops, Mesh, MeshAxis, Program, Work
from inspector.figures import labels
from inspector.figures.step_model import step_model
from inspector.machines.hardware import chip
from inspector.machines.prediction.step_model import modelled
from tests.figures import drawn

MESH = Mesh((MeshAxis("data", 2), MeshAxis("model", 4)), tuple(range(8)), device_kind="cpu")
WORK = Work(1e12, (MatmulFlops("bfloat16", 1e12),), 1e9)


def collective(axis: str, executions: int | None = 2) -> Collective:
    return Collective("all-reduce", False, "r", "main", executions, False, (axis,), 4, 2, 10**7, 15 * 10**6)


PROGRAM = Program("train_step", collectives=(collective("data"), collective("model")), work=WORK, ideal=WORK)
V5P = chip("v5p")


def rows(figure) -> list[str]:
    """The line of text over each bar; the first annotation holds the notes."""
    return [one.text for one in figure.layout.annotations[1:]]


def test_bars_have_the_length_of_their_seconds() -> None:
    found = modelled(PROGRAM, MESH, V5P)
    figure = step_model(found)
    drawn_seconds = {y: x for bar in figure.data for x, y in zip(bar.x, bar.y, strict=True)}
    assert [drawn_seconds[y] for y in sorted(drawn_seconds)] == [term.seconds for term in found.terms]
    assert figure.layout.xaxis.range == (0, found.lower_seconds * 1.02)
    for term, row in zip(found.terms, rows(figure), strict=True):
        assert row.startswith(term.name)
        assert seconds_text(term.seconds) in row
        assert ("the bound" in row) == (term is found.ruling)


def test_an_unknown_term_has_no_bar() -> None:
    unknown = dataclasses.replace(PROGRAM, work=None)
    figure = step_model(modelled(unknown, MESH, V5P))
    assert sum(len(bar.x) for bar in figure.data) == 2
    assert [("unknown" in row) for row in rows(figure)] == [True, True, False, False]
    assert "the bound" not in " ".join(rows(figure))
    assert "unknown" in figure.layout.annotations[0].text


def test_a_program_without_figures_has_headings_only() -> None:
    bare = Program("init")
    figure = step_model(modelled(bare, MESH, V5P))
    assert len(rows(figure)) == 3 and not figure.data


@pytest.mark.parametrize("width", [340, 480, 760])
def test_no_line_is_wider_than_the_figure(width: int) -> None:
    name = "an_axis_with_a_name_that_nobody_would_want_to_read_twice"
    these = Mesh((MeshAxis(name, 8),), tuple(range(8)))
    found = modelled(dataclasses.replace(PROGRAM, collectives=(collective(name),)), these, V5P)
    figure = step_model(found, width_px=width)
    for row in (*rows(figure), *figure.layout.annotations[0].text.split("<br>")):
        plain = row.replace("<b>", "").replace("</b>", "")
        assert labels.width_px(plain, 12) <= width


def test_names_are_text() -> None:
    these = Mesh((MeshAxis("<i>x</i>", 8),), tuple(range(8)))
    named = dataclasses.replace(PROGRAM, name="<u>step</u>", collectives=(collective("<i>x</i>"),))
    texts = " ".join(drawn.texts(step_model(modelled(named, these, V5P))))
    assert "<i>" not in texts and "<u>" not in texts
    assert "&lt;i&gt;x" in texts


def test_the_title_says_modelled() -> None:
    figure = step_model(modelled(PROGRAM, MESH, V5P))
    assert figure.layout.title.text == "Modelled time of the train step"
    assert "modelled, not measured" in figure.layout.annotations[0].text
