"""Findings as a person is told them: what one logical axis does to many arrays is said once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from inspector.core.formatting import counted
from inspector.core.snapshot import Finding
from inspector.layout.plan import INDIVISIBLE


def together(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The same, in order; of arrays that are not divided for one logical axis the first stands for all.

    A plan has a finding for each, since each is a reason that it cannot be run.
    """
    several: dict[object, list[Finding]] = {}
    for number, finding in enumerate(findings):
        axis = finding.extra.get("logical_axis") if finding.code == INDIVISIBLE else None
        several.setdefault(number if axis is None else axis, []).append(finding)
    return tuple(
        first
        if not rest
        else replace(first, message=f"{first.message}, nor in {counted(len(rest), 'more array')}")
        for first, *rest in several.values()
    )
