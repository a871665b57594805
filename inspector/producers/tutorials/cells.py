"""A walk's source, cut into its cells."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

_TITLE = re.compile(r"^ *# %% (?P<title>.+)$", re.MULTILINE)
_NAMES = re.compile(r"^# (?P<what>draw|refused): (?P<names>.+)\n?", re.MULTILINE)


@dataclass(frozen=True)
class Cell:
    """One step as it is written: its words, its code, and the names that the page asks for after it."""

    title: str
    words: str
    code: str
    draw: tuple[str, ...]
    refused: str | None


def cells_of(source: str) -> tuple[Cell, ...]:
    """The cells of a function's source in order; what stands before the first one belongs to none."""
    _, *parts = _TITLE.split(source)
    return tuple(_cell(title, body) for title, body in zip(parts[::2], parts[1::2], strict=True))


def _cell(title: str, body: str) -> Cell:
    words, _, code = textwrap.dedent(body).strip("\n").partition("\n\n")
    names = {found["what"]: found["names"].split(", ") for found in _NAMES.finditer(code)}
    return Cell(
        title=title,
        words=" ".join(line.removeprefix("#").strip() for line in words.splitlines()),
        code=_NAMES.sub("", code).strip("\n"),
        draw=tuple(names.get("draw", ())),
        refused=names["refused"][0] if "refused" in names else None,
    )
