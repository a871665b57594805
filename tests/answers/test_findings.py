"""The findings of a Snapshot: which ones a Snapshot without programs cannot have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inspector import audit
from inspector.answers import improvements, screen
from inspector.answers.catalogue import Subject
from inspector.records.snapshot import Finding, Level, Source
from tests.compare import glances


@pytest.mark.parametrize(
    ("levels", "shown"), [((), "No findings."), (("note",), ""), (("note", "warning"), "warning")]
)
def test_the_first_screen_says_no_findings_only_if_there_are_none(
    monkeypatch: pytest.MonkeyPatch, levels: tuple[Level, ...], shown: str
) -> None:
    known = tuple(Finding(level, "some-code", "A sentence.") for level in levels)
    monkeypatch.setattr(audit, "ranked", lambda *_: known)
    blocks = list(screen.main_findings(Subject.of(glances.planned(), None)))
    assert shown in str(blocks) and bool(blocks) == bool(shown)


def test_what_is_not_checked_is_named_until_the_programs_are_known() -> None:
    known = glances.planned()
    plan = replace(known, programs=())
    checkpoint = replace(plan, source=Source("orbax", None, "2026-01-01T00:00:00Z"))
    assert improvements.not_checked(known) == ()
    for snapshot in (plan, checkpoint):
        (said,) = improvements.not_checked(snapshot)
        assert said in improvements.section(snapshot).blocks and said in improvements.audited(
            snapshot, [], {}
        )
        assert "lost the sharding" not in str(audit.questions(snapshot))
    assert "lost the sharding" in str(audit.questions(known))
    # After propagation the compiler can still form reduce-scatters, so this is not checked.
    assert "all-reduced" not in str(audit.questions(known))
    # A Snapshot without a mesh has no problem only because nothing is checked.
    nothing = replace(known, mesh=None)
    assert "No problems" not in str(
        improvements.audited(nothing, [], {}) + improvements.section(nothing).blocks
    )
    # Only a plan can be partitioned or run.
    assert improvements.not_checked(plan) != improvements.not_checked(checkpoint)
