"""The figures of a page that runs without a browser."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from streamlit.testing.v1 import AppTest


@dataclass(frozen=True)
class Figure:
    """A figure as the browser gets it.

    Attributes:
      spec: data and layout as JSON text.
    """

    key: str
    spec: str
    alt: str


def figure_of(element: Any) -> Figure | None:
    """Return the figure that an element draws, or None."""
    if element.type != "bidi_component" or element.proto.component_name != "figure":
        return None
    data = json.loads(element.proto.json)
    return Figure(element.key, data["figure"], data["alt"])


def figures(page: AppTest) -> list[Figure]:
    """Return the figures of a page in order."""
    return [figure for one in page.get("bidi_component") if (figure := figure_of(one)) is not None]
