"""The report as one HTML file that opens from disk without a network.

Everything from a Snapshot is text or JSON data. A Content-Security-Policy adds a second barrier: the browser
runs only Plotly and `report.js`, identified by their hashes, and fetches nothing.
"""

import base64
import functools
import gzip
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from inspector.core.snapshot import Snapshot
from inspector.machines.hardware import Chip
from inspector.media.html.render import FOLDER, Page, environment
from inspector.sections import provenance, report, subject
from inspector.sections.section import Section

# Large shard maps of each Snapshot. They are left out if there are five or more, to limit the size.
_MAPS = {1: 4, 2: 3, 3: 2, 4: 2}
# Parts that are printed even if they are closed: a reviewer reads three pages. Others are if they are open.
_PRINTED = ("difference", "board", "findings", "source")


@dataclass(frozen=True)
class _Part:
    """A part that opens: its heading, its anchor and its content, and whether a print shows it."""

    heading: str
    anchor: str
    body: Markup
    level: int
    printed: bool


def page(
    named: Sequence[tuple[str, Snapshot]],
    chip: Chip | None = None,
    notes: Mapping[str, str] | None = None,
) -> str:
    """Return the whole page. The first Snapshot is the baseline of the others."""
    notes = notes or {}
    names = [name for name, _ in named]
    whole = Page(about=provenance.lines(named))
    stamped = replace(whole, about=())  # figures about several Snapshots have their own lines
    beginning = stamped.render(report.beginning(named, chip))
    if len(named) == 1:
        beginning += stamped.render(report.whole(named[0][1], chip))
    parts = _parts(report.compared(named, chip), stamped)
    for number, (name, snapshot) in enumerate(named, start=1):
        anchor = f"snapshot-{number}"
        sections = report.of_snapshot(snapshot, chip, _MAPS.get(len(named), 0))
        if len(named) == 1:
            parts += _parts(sections, replace(whole, prefix=f"{anchor}-"))
            continue
        own = replace(whole, prefix=f"{anchor}-", about=provenance.lines([(name, snapshot)]))
        sections = (Section("whole-model", "The whole model", report.whole(snapshot, chip)), *sections)
        parts.append(_Part(name, anchor, _folded(_parts(sections, own, level=3)), 2, False))
    plotly, drawing = _scripts()
    against = names[0] if len(names) == 1 else f"{names[0]} against {', '.join(names[1:])}"
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            title=f"{subject.title(named, chip)}: {against}",
            policy=_policy(plotly, drawing),
            style=Markup(_resource("report.css")),
            notes=[(name, notes[name]) for name in names if notes.get(name)],
            beginning=beginning,
            folded=_folded(parts),
            created=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            figures=whole.figures,
            plotly=_packed(plotly),
            drawing=Markup(drawing),
        )
    )


def _parts(sections: Sequence[Section], page: Page, level: int = 2) -> list[_Part]:
    """Return the sections as parts that open. `level` is the heading level of their summaries."""
    return [
        _Part(
            section.heading,
            f"{page.prefix}{section.key}",
            page.render(section.blocks, level + 1),
            level,
            section.key in _PRINTED and level == 2,
        )
        for section in sections
    ]


def _folded(parts: Sequence[_Part]) -> Markup:
    return Markup(environment().get_template("parts.html.j2").render(parts=parts))


@functools.cache
def _packed(script: str) -> str:
    """Return a script as text for `report.js`, which unpacks it: a third of its length."""
    return base64.b64encode(gzip.compress(script.encode(), mtime=0)).decode()


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
