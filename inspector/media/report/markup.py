"""HTML made of texts: whatever is put in as text is data, and stays text.

`Html` is the only type that is written as it stands. Everything else is escaped.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Sequence


class Html(str):
    """Markup that was made here."""

    __slots__ = ()


_SPACE = re.compile(r"\s+")

# What a heading of a column is, and how its cells are aligned.
NUMBER = "number"


def text(value: object) -> Html:
    """A value as text, on one line, without control characters and what reorders or hides text."""
    if isinstance(value, Html):
        return value
    return Html(html.escape(printable(_SPACE.sub(" ", str(value))), quote=True))


def lines(value: str) -> Html:
    """A text with its line ends."""
    return Html("<br>".join(text(line) for line in value.splitlines()))


def printable(value: str) -> str:
    """The text with a replacement character for each that is not drawn or moves others."""
    if value.isprintable():
        return value
    return "".join(
        "\N{REPLACEMENT CHARACTER}"
        if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
        else one
        for one in value
    )


def tag(name: str, *parts: object, **attributes: str | bool | None) -> Html:
    """An element; `class_` is the attribute `class`, True an attribute without a value, None none."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}"
        + ("" if value is True else f'="{html.escape(printable(value), quote=True)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Html(f"<{name}{written}>{joined(parts)}</{name}>")


def joined(parts: Iterable[object]) -> Html:
    """Texts and elements one after the other."""
    return Html("".join(text(part) for part in parts))


def paragraph(*parts: object, class_: str | None = None) -> Html:
    return tag("p", *parts, class_=class_)


def listing(items: Iterable[object]) -> Html:
    """A list with an entry for each item."""
    return tag("ul", *(tag("li", item) for item in items))


def table(
    headings: Sequence[object],
    rows: Iterable[Sequence[object]],
    *,
    numbers: Iterable[int] = (),
    class_: str | None = None,
) -> Html:
    """A table that scrolls by itself where it is wider than the page.

    Args:
      numbers: the columns whose cells end together.
    """
    right = set(numbers)

    def aligned(place: int) -> str | None:
        return NUMBER if place in right else None

    head = [
        tag("th", cell, scope="col", class_=aligned(place)) for place, cell in enumerate(headings)
    ]
    body = [
        tag("tr", *(tag("td", cell, class_=aligned(place)) for place, cell in enumerate(row)))
        for row in rows
    ]
    whole = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body), class_=class_)
    return tag("div", whole, class_="wide", tabindex="0")


def folded(summary: object, *parts: object, open_: bool = False) -> Html:
    """What can be unfolded under a summary."""
    return tag("details", tag("summary", summary), *parts, open=open_)
