"""The report as one HTML file that opens from disk without a network.

Everything from a Snapshot is text or JSON data. A Content-Security-Policy adds a second barrier: the browser
runs only Plotly and `report.js`, identified by their hashes, and fetches nothing.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from inspector.core.snapshot import Snapshot
from inspector.machines.hardware import Chip
from inspector.media.html.render import FOLDER, Page, environment
from inspector.sections import provenance, report, summary
from inspector.sections.section import Section

# Large shard maps of each Snapshot. They are left out if there are five or more, to limit the size.
_MAPS = {1: 4, 2: 3, 3: 2, 4: 2}
_MAX_LISTED = 3  # Snapshots whose sections are in the contents


@dataclass(frozen=True)
class _Part:
    """One Snapshot of the report."""

    name: str
    anchor: str
    note: str
    facts: Markup
    sections: tuple[Section, ...]
    body: Markup


def page(
    named: Sequence[tuple[str, Snapshot]],
    chip: Chip | None = None,
    notes: Mapping[str, str] | None = None,
) -> str:
    """Return the whole page. The first Snapshot is the baseline of the others."""
    notes = notes or {}
    names = [name for name, _ in named]
    whole = Page(about=provenance.lines(named))
    compared = report.compared(named, chip)
    rendered = replace(whole, about=()).render(compared)
    parts = [
        _part(f"snapshot-{number}", name, snapshot, chip, notes.get(name, ""), whole, len(named))
        for number, (name, snapshot) in enumerate(named, start=1)
    ]
    plotly, drawing = _scripts()
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            title=names[0] if len(names) == 1 else f"{names[0]} against {', '.join(names[1:])}",
            policy=_policy(plotly, drawing),
            style=Markup(_resource("report.css")),
            about=whole.about,
            comparison=compared,
            compared=rendered,
            parts=parts,
            max_listed=_MAX_LISTED,
            created=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            figures=whole.figures,
            scripts=(Markup(plotly), Markup(drawing)),
        )
    )


def _part(
    anchor: str,
    name: str,
    snapshot: Snapshot,
    chip: Chip | None,
    note: str,
    whole: Page,
    count: int,
) -> _Part:
    about = whole.about if count == 1 else provenance.lines([(name, snapshot)])
    page = replace(whole, prefix=f"{anchor}-", about=about)
    parts = report.of_snapshot(snapshot, chip, _MAPS.get(count, 0))
    facts = page.render([summary.facts(snapshot)])
    return _Part(name, anchor, note, facts, parts, page.render(parts, level=3))


def _policy(*scripts: str) -> str:
    hashes = " ".join(map(_hash, scripts))
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {hashes}",
            "style-src 'unsafe-inline'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


@functools.cache
def _scripts() -> tuple[str, str]:
    """Return Plotly and the page's own script with LF line ends, as a browser hashes them."""
    plotly, drawing = (
        script.replace("\r\n", "\n").replace("\r", "\n")
        for script in (get_plotlyjs(), _resource("report.js"))
    )
    return plotly, drawing


@functools.cache
def _resource(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


@functools.cache
def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
