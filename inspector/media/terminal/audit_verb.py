"""`audit`: what a reviewer should be told about a Snapshot, ranked, and what mends it."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from inspector import layout as layouts
from inspector.checks import audit
from inspector.checks.audit import Change
from inspector.core import snapshot, typed_json
from inspector.core.errors import InvalidInput
from inspector.core.formatting import bytes_text
from inspector.core.snapshot import Finding, Snapshot
from inspector.layout import Layout
from inspector.media.terminal.terminal import one_line
from inspector.service.own_model_registration import register_own

NAME = "audit"
HELP = "what costs memory or does nothing in a layout, ranked by bytes, and what mends it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("snapshot", metavar="SNAPSHOT.json")
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="the model, where it is one of your own, as package.module:function: for what mends it",
    )
    parser.add_argument("--json", action="store_true", help="a JSON list instead of text")


def run(options: argparse.Namespace) -> None:
    """Print the findings."""
    if options.model is not None and ":" in options.model:
        register_own(options.model)
    found = snapshot.read(options.snapshot)
    layout = _layout(found)
    findings = audit.audited(found).findings
    if not options.json:
        findings = audit.merged_by_logical_axis(findings)
    rows = [
        (one, None if layout is None else audit.smallest_change(found, one, layout))
        for one in findings
    ]
    if options.json:
        json.dump([_plain(*row) for row in rows], sys.stdout)
        print()
    elif rows:
        sys.stdout.write("\n".join(_text(*row) for row in rows))
    else:
        print(f"Nothing was found. Checked were {'; '.join(audit.questions())}.")


def _layout(found: Snapshot) -> Layout | None:
    """The layout that the Snapshot was made by, None where it has none that can be changed here."""
    try:
        return None if found.layout is None else layouts.from_json(found.layout)
    except InvalidInput:
        return None


def _text(finding: Finding, change: Change | None) -> str:
    saved = f", {bytes_text(finding.bytes)} a device" if finding.bytes else ""
    lines = [f"{finding.level}: {finding.code}{saved}", f"  {one_line(finding.message)}"]
    if change is not None:
        lines.append(f"  Fix: {one_line(change.words)}. {_saves(change)}")
    return "\n".join(lines) + "\n"


def _saves(change: Change) -> str:
    return "" if change.saves is None else f"Saves {bytes_text(change.saves)} of state a device."


def _plain(finding: Finding, change: Change | None) -> dict[str, Any]:
    plain = typed_json.encode(finding)
    plain["change"] = (
        None
        if change is None
        else {
            "words": change.words,
            "saves_per_device": change.saves,
            "layout": change.layout.to_json(),
        }
    )
    return plain
