"""`audit`: print what costs memory or has no effect in a layout, with the smallest change that fixes it."""

from __future__ import annotations

import argparse
from typing import Any

from inspector import layout as layouts
from inspector.checks import audit
from inspector.checks.audit import Change
from inspector.core import snapshot as snapshots
from inspector.core import typed_json
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Finding, Snapshot
from inspector.layout import Layout
from inspector.media.terminal import options as shared
from inspector.media.terminal import render
from inspector.sections import findings as section

NAME = "audit"
HELP = "find wasted memory and unused rules, ranked by bytes, with a fix for each"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_snapshot(parser)
    shared.add_own_model(parser, "to find fixes for its Snapshots")
    shared.add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Print the findings."""
    shared.register_own_model(options.model)
    snapshot = snapshots.read(options.snapshot)
    layout = _layout(snapshot)
    findings = audit.audited(snapshot).findings
    if not options.json:
        findings = audit.merged_by_logical_axis(findings)
    rows = [
        (one, None if layout is None else audit.smallest_change(snapshot, one, layout))
        for one in findings
    ]
    if options.json:
        shared.print_json([_plain(*row) for row in rows])
    else:
        render.show(section.audited(rows))


def _layout(snapshot: Snapshot) -> Layout | None:
    """Return the layout of the Snapshot, or None if there is no layout that can be changed here."""
    try:
        return None if snapshot.layout is None else layouts.from_json(snapshot.layout)
    except InvalidInput:
        return None


def _plain(finding: Finding, change: Change | None) -> dict[str, Any]:
    plain: dict[str, Any] = typed_json.encode(finding)
    plain["change"] = change and {
        "words": change.words,
        "saves_per_device": change.saves,
        "layout": change.layout.to_json(),
    }
    return plain
