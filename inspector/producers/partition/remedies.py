"""Worker job: find a change with which a layout fits into the memory of a device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from inspector.assessment import memory_need
from inspector.core import typed_json
from inspector.core.assessment import MemoryNeed
from inspector.core.errors import InvalidInput
from inspector.core.job_report import JobReport
from inspector.core.remedies import Remedies, Remedy
from inspector.layout import Layout, from_json
from inspector.layout.plan import INDIVISIBLE, plan, with_programs
from inspector.layout.remedies import Proposal, more_chips, rematerialized, sharded
from inspector.machines import hardware
from inspector.machines.hardware import Chip
from inspector.producers.model.abstract import cached_state
from inspector.producers.partition.partition_layout import partitioned_programs


def remedies(payload: dict[str, Any], report: JobReport) -> dict[str, Any]:
    """Worker job: a layout as JSON and the name of a chip in, its `Remedies` as JSON out."""
    layout, chip = from_json(payload["layout"]), hardware.chip(payload["chip"])
    return typed_json.encode(find_remedies(layout, chip, report))


def find_remedies(layout: Layout, chip: Chip, report: JobReport) -> Remedies:
    """Try changes of the layout, the smallest first, until the memory that one needs fits.

    On the same devices, arrays are sharded further. Then the backward pass computes more again, alone or with
    the sharding that needs the least memory. More devices come last. A train state is planned; the step is
    partitioned only if the state alone fits.
    """
    tried: list[Remedy] = []
    seen = {layout.key()}

    def attempt(proposals: Iterator[Proposal], first: Proposal | None = None) -> Iterator[Proposal]:
        for one in proposals:
            proposal = one if first is None else first.and_then(one)
            if proposal.layout.key() in seen:
                continue
            seen.add(proposal.layout.key())
            report("remedies", done=len(tried), label=proposal.label)
            need, reason = None, None
            try:
                need = _need(proposal.layout, chip)
            except InvalidInput as error:
                reason = str(error)
            tried.append(Remedy(proposal.kind, proposal.label, proposal.layout.to_json(), need, reason))
            yield proposal
            if need is not None and need.fits:
                return

    shardings = list(attempt(sharded(layout)))
    best = _closest(tried, shardings)
    steps: list[tuple[Iterator[Proposal], Proposal | None]] = [(rematerialized(layout), None)]
    if best is not None:
        steps.append((rematerialized(best.layout), best))
    steps.append((more_chips((best or Proposal("sharding", "", layout)).layout), best))
    for proposals, first in steps:
        if Remedies(chip.name, tuple(tried)).best is None:
            list(attempt(proposals, first))
    return Remedies(chip.name, tuple(tried))


def _closest(tried: list[Remedy], proposals: list[Proposal]) -> Proposal | None:
    """Return the change whose layout needs the least memory; None if no change is valid."""
    known = [
        (remedy.need.peak_bytes, number)
        for number, remedy in enumerate(tried)
        # The state alone says less than a whole step.
        if remedy.need is not None and not remedy.need.at_least
    ]
    return proposals[min(known)[1]] if known else None


def _need(layout: Layout, chip: Chip) -> MemoryNeed | None:
    planned = plan(layout, cached_state(layout))
    for finding in planned.findings:
        if finding.code == INDIVISIBLE:
            raise InvalidInput(finding.message)
    need = memory_need(planned, chip)
    if need is not None and need.fits is False:
        return need
    programs = partitioned_programs(layout, origins=False, only=("train_step",))
    return memory_need(with_programs(planned, programs), chip)
