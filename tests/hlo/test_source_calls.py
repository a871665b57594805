"""What the code has at a place: which collective it calls, and whether a derivative rule can run there."""

from __future__ import annotations

from pathlib import Path

import pytest

from inspector.hlo.source_calls import written_at

SOURCE = """\
from functools import partial
import jax
from jax.lax import psum as total
from library import scaled

@jax.custom_vjp
def copied(x):
    return x

copied.defvjp(lambda x: (x, None), lambda _, g: (g,))

def f(x, w):
    a = jax.lax.pmean(x @ w, "data")
    b = total(x, "data") + w
    c = jax.tree.map(partial(jax.lax.psum, axis_name="data"), [x])
    d = copied(w) + scaled(x)
    e = jax.lax.all_gather(
        x, "data")
    return jax.tree.map(lambda g: jax.lax.psum(g, "data"), [x @ w])

@jax.custom_gradient
def gathered(x):
    return jax.lax.pmax(x, "data"), lambda g: jax.lax.psum_scatter(g, "data")
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    return str(path)


def place(text: str) -> tuple[int, int]:
    """Return the line, from 1, and the column, from 0, of a text."""
    before = SOURCE[: SOURCE.index(text)]
    return before.count("\n") + 1, len(before.rpartition("\n")[2])


@pytest.mark.parametrize(
    ("text", "collective", "own_rule"),
    [
        ("jax.lax.pmean", "pmean", False),
        ('x @ w, "data"', "", False),  # in the same line as pmean
        ("total(x", "psum", False),
        ("jax.tree.map(partial", "psum", False),
        ("copied(w)", "", True),
        ("scaled(x)", "", True),  # another file can give it a rule
        ("jax.lax.all_gather", "all_gather", False),
        ("jax.tree.map(lambda", "", False),  # the function has a frame of its own
        ("jax.lax.psum(g", "psum", False),
        ("jax.lax.pmax", "", True),  # its rule has this place, too
    ],
)
def test_an_expression(file: str, text: str, collective: str, own_rule: bool) -> None:
    result = written_at(file, *place(text))
    assert result is not None and (result.collective, result.own_rule) == (collective, own_rule)


def test_without_a_column_the_statement_counts(file: str) -> None:
    line, _ = place("jax.lax.all_gather")
    for part in (line, line + 1):
        result = written_at(file, part, None)
        assert result is not None and result.collective == "all_gather"
    assert written_at(file, place("def f")[0], None) == ("", False)


def test_what_cannot_be_read_is_unknown(tmp_path: Path, file: str) -> None:
    assert written_at(file, 1000, 0) is None
    assert written_at(str(tmp_path / "missing.py"), 1, 0) is None
    assert written_at("/dev/zero", 1, 0) is None
    broken = tmp_path / "broken.py"
    broken.write_text("def f(:\n")
    assert written_at(str(broken), 1, 0) is None
