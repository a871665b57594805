"""The report as one HTML file: it opens from disk, needs no network, and runs two scripts that are constants.

Names, notes and everything else that comes out of a Snapshot are text or JSON data. That the page could
not run them even if one were missed is the browser's business, too: its Content-Security-Policy lets run
nothing but Plotly and `report.js`, by their hashes, and fetch nothing at all.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from plotly.offline import get_plotlyjs

from inspector.core.snapshot import Snapshot
from inspector.figures import provenance
from inspector.machines.hardware import Chip
from inspector.media.report import about_snapshot, comparison
from inspector.media.report.about_snapshot import Section
from inspector.media.report.embedded import Figures
from inspector.media.report.markup import (
    Html,
    joined,
    paragraph,
    tag,
    text,
)

_FOLDER = Path(__file__).parent

# Large shard maps of each Snapshot: fewer where there are more Snapshots, none from five on, for the size.
_MAPS = {1: 4, 2: 3, 3: 2, 4: 2}
_MOST_LISTED = 3  # Snapshots whose sections are listed in the contents


def page(
    named: Sequence[tuple[str, Snapshot]],
    chip: Chip | None = None,
    notes: Mapping[str, str] | None = None,
) -> str:
    """The whole page; the first Snapshot is the baseline of the others."""
    notes = notes or {}
    figures = Figures()
    all_lines = provenance.lines(named)
    several = comparison.sections(named, chip, figures)
    parts = [_header(named, notes), Html("")]  # the second place is for the contents
    contents = [_entry(section) for section in several]
    parts += [_section(section, "h2") for section in several]
    for number, (name, found) in enumerate(named, start=1):
        prefix = f"snapshot-{number}"
        inner = list(
            about_snapshot.sections(
                found,
                prefix,
                figures,
                chip=chip,
                about=provenance.lines([(name, found)]) if len(named) > 1 else all_lines,
                maps=_MAPS.get(len(named), 0),
            )
        )
        head = tag("h2", name, id=prefix)
        parts += [
            head,
            about_snapshot.headline(found) if len(named) > 1 else Html(""),
            about_snapshot.note(notes.get(name)) if len(named) > 1 else Html(""),
            *(_section(section, "h3") for section in inner),
        ]
        entries = [_entry(section) for section in inner]
        inside = [tag("ul", *entries)] if len(named) <= _MOST_LISTED else []
        entry = tag("li", tag("a", name, href=f"#{prefix}"), *inside)
        contents += [entry] if len(named) > 1 else entries
    parts[1] = tag("nav", tag("strong", "Contents"), tag("ul", *contents))
    parts.append(_footer())
    return _document(_title(named), joined(parts), figures)


def _title(named: Sequence[tuple[str, Snapshot]]) -> str:
    names = [name for name, _ in named]
    return names[0] if len(names) == 1 else f"{names[0]} against {', '.join(names[1:])}"


def _header(named: Sequence[tuple[str, Snapshot]], notes: Mapping[str, str]) -> Html:
    parts = [tag("h1", f"How it is sharded: {_title(named)}")]
    if len(named) == 1:
        name, found = named[0]
        parts += [about_snapshot.note(notes.get(name)), about_snapshot.headline(found)]
    else:
        parts += [paragraph(line, class_="quiet") for line in provenance.lines(named)]
    return tag("header", *parts)


def _section(section: Section, heading: str) -> Html:
    return tag("section", tag(heading, section.title, id=section.anchor), section.body)


def _entry(section: Section) -> Html:
    return tag("li", tag("a", section.title, href=f"#{section.anchor}"))


def _footer() -> Html:
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return tag(
        "footer",
        paragraph(
            f"Made by Sharding Inspector, {made}. Measured, compiled, planned, modelled and imported "
            "figures say which they are; what is not known is said to be unknown. The buttons under a "
            "figure save it as a picture.",
            class_="quiet",
        ),
    )


def _document(title: str, body: Html, figures: Figures) -> str:
    plotly, drawing = _scripts()
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(plotly)} {_hash(drawing)}",
            "style-src 'unsafe-inline'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    return "\n".join(
        (
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="referrer" content="no-referrer">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            tag("title", text(title)),
            f"<style>{_resource('report.css')}</style>",
            "</head>",
            "<body>",
            body,
            figures.scripts(),
            f"<script>{plotly}</script>",
            f"<script>{drawing}</script>",
            "</body>",
            "</html>",
            "",
        )
    )


@functools.cache
def _scripts() -> tuple[str, str]:
    """Plotly and the page's own script, with the line ends that a browser makes of them before it hashes."""
    return tuple(
        script.replace("\r\n", "\n").replace("\r", "\n")
        for script in (get_plotlyjs(), _resource("report.js"))
    )


@functools.cache
def _resource(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


@functools.cache
def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
