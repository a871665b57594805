"""Policies from their text, and what comes of them, for all tests of rules."""

from __future__ import annotations

from inspector.checks import policy
from inspector.checks.policy import Outcome
from inspector.core.snapshot import Collective, Snapshot


def outcome(text: str, found: Snapshot) -> Outcome:
    """What a Snapshot says to the one rule of a policy."""
    (only,) = policy.parse(text).check(found)
    return only


def sentences(text: str, found: Snapshot) -> list[str]:
    """The violations of the one rule, all of which can be checked."""
    only = outcome(text, found)
    assert only.unknown is None
    assert only.holds == (not only.violations)
    return [one.sentence for one in only.violations]


def collective(
    op: str = "all-gather",
    axes: tuple[str, ...] | None = ("data",),
    executions: int | None = 1,
    payload: int | None = 1024,
    conditional: bool = False,
) -> Collective:
    """One instruction that sends half of its payload."""
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
