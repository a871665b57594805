"""Check policies with one rule, for all tests of rules."""

from __future__ import annotations

from inspector.audit import policy
from inspector.audit.policy import RuleOutcome
from inspector.records.snapshot import Collective, Snapshot


def outcome(text: str, snapshot: Snapshot) -> RuleOutcome:
    """Return the outcome of a policy with one rule."""
    (only,) = policy.parse(text).check(snapshot)
    return only


def sentences(text: str, snapshot: Snapshot) -> list[str]:
    """Return the violations of a policy with one rule, none of which is unknown."""
    only = outcome(text, snapshot)
    assert only.unknown is None
    assert only.holds == (not only.violations)
    return [violation.sentence for violation in only.violations]


def collective(
    op: str = "all-gather",
    axes: tuple[str, ...] | None = ("data",),
    executions: int | None = 1,
    payload: int | None = 1024,
    conditional: bool = False,
) -> Collective:
    """Return one instruction that sends half of its payload."""
    return Collective(
        op=op,
        asynchronous=False,
        name=f"{op}.1",
        computation="main",
        executions=executions,
        conditional=conditional,
        mesh_axes=axes,
        group_size=2,
        groups=4,
        payload_bytes=payload,
        wire_bytes_per_device=None if payload is None else payload // 2,
    )
