"""The widths of the columns of a table."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inspector.media.streamlit.parts import table
from inspector.text.formatting import bytes_text

TEXTS = {"Bytes per device": bytes_text}


def columns(path: int, rest: list[int]) -> dict[str, list]:
    """Return columns whose longest texts have these numbers of characters."""
    others = {f"column {number}": ["x" * length] for number, length in enumerate(rest)}
    return {"Path": ["p" * path], "Bytes per device": [2**20], **others}


@given(st.integers(1, 200), st.lists(st.integers(0, 90), max_size=8), st.integers(300, 1400))
def test_no_column_is_cut_by_the_edge(path: int, rest: list[int], width_px: int) -> None:
    widths = table.fitted(columns(path, rest), TEXTS, width_px)
    if len(widths) == 1:
        return  # all fit
    edges = [sum([*widths.values()][: count + 1]) for count in range(len(widths))]
    assert width_px in edges, "one column ends at the edge"
    assert edges[1] <= width_px, "the bytes are visible"
    fitting = [name for name, edge in zip(widths, edges, strict=True) if edge <= width_px]
    for name, length in zip([*widths][2:], rest, strict=True):
        assert name not in fitting or widths[name] >= min(7 * length, 420)
