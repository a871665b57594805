"""The answers of an assessment: does it fit, how long is a step, what does it send, and what is wrong."""

from __future__ import annotations

from inspector.assessment import assess
from inspector.core.assessment import Assessment
from inspector.core.formatting import bytes_text, counted, mesh_axes_text
from inspector.core.snapshot import Snapshot
from inspector.machines import hardware
from inspector.machines.hardware import Chip
from inspector.sections.section import Facts

BASES = {
    "measured": "measured",
    "compiled": "compiled",
    "partitioned": "partitioned before a compile",
    "propagated": "propagated before a compile",
    "planned": "planned: nothing was compiled",
}


def facts(snapshot: Snapshot, chip: Chip | None) -> Facts:
    """Return the four answers. `chip` is for a Snapshot without one."""
    return of_assessment(assess(snapshot, chip))


def of_assessment(found: Assessment) -> Facts:
    """Return the four answers of an assessment."""
    based = f"Based on: {BASES[found.basis]}."
    return Facts.of(
        ("Fits", fits_text(found), _fits_help(found)),
        ("Step", step_text(found), f"{_step_help(found)} {based}"),
        ("Traffic", traffic_text(found), f"Bytes that one device sends in one step. {based}"),
        ("Findings", findings_text(found), "Findings of the audit and of the source."),
    )


def fits_text(found: Assessment) -> str:
    """Return `9.5 GiB of 15.8 GiB: fits`, `does not fit`, or `9.5 GiB` without a chip."""
    need = found.memory
    if found.rejected is not None:
        return "rejected by JAX"
    if need is None:
        return "unknown"
    if need.capacity_bytes is None:
        return f"{need.text}, no chip"
    return f"{need.text}: {_FITS[need.fits]}"


_FITS = {True: "fits", False: "does not fit", None: "unknown whether it fits"}


def step_text(found: Assessment) -> str:
    """Return `145 ms (122 ms to 169 ms), predicted`, or why the step is unknown."""
    if found.step is None:
        return f"unknown: {found.unknown_step}" if found.unknown_step else "unknown"
    return f"{found.step.text}, {found.step.kind}"


def traffic_text(found: Assessment) -> str:
    """Return `1.9 GiB, most over fsdp`, or why it is unknown."""
    sent = found.traffic
    if sent is None:
        return f"unknown: {found.unknown_traffic}" if found.unknown_traffic else "unknown"
    if sent.largest is None:
        return "none"
    axes = sent.largest
    named = mesh_axes_text(None if axes == "unknown" else axes.split("+"))
    most = f", most over {named}" if len(sent.by_axes) > 1 else f" over {named}"
    return f"{bytes_text(sent.bytes)}{most}"


def findings_text(found: Assessment) -> str:
    """Return `2 errors, 1 warning`, or `none`."""
    counts = found.findings
    if counts is None:
        return "not audited"
    said = [
        counted(number, level)
        for level, number in (
            ("error", counts.error),
            ("warning", counts.warning),
            ("note", counts.note),
        )
        if number
    ]
    return ", ".join(said) or "none"


def claim(said: Assessment | None) -> str:
    """Return the figures that a link claims, as a sentence with a space before it; "" without any.

    They are what the author of the link saw. This server did not compute them.
    """
    if said is None:
        return ""
    parts = []
    if said.step is not None:
        parts.append(f"step {said.step.text} {said.step.kind} on {where(said)}")
    if said.memory is not None:
        parts.append(f"memory {fits_text(said)}")
    if said.traffic is not None:
        parts.append(f"traffic {bytes_text(said.traffic.bytes)}")
    return f" When the link was made: {', '.join(parts)}." if parts else ""


def where(found: Assessment) -> str:
    """Return the machine of the figures: `TPU v5e`, or `no chip`."""
    chip = hardware.CHIPS.get(found.chip or "")
    return "no chip" if chip is None else chip.title


def _fits_help(found: Assessment) -> str:
    need = found.memory
    if need is None:
        return "The bytes per device of its arrays are unknown."
    of = f" of the program {need.program}" if need.program else ""
    what = "At least the train state and the batch" if need.at_least else f"Peak memory{of}"
    on = "" if need.capacity_bytes is None else f", and the memory of a device of {where(found)}"
    return f"{what} on one device{on}."


def _step_help(found: Assessment) -> str:
    if found.step is None:
        return "Time of one step."
    program = f"One run of {found.program}"
    if found.step.kind == "measured":
        machine = "emulated devices of this machine" if found.chip is None else where(found)
        return f"{program}, measured on {machine}: the median, and the range of 80% of the steps."
    return f"{program}, predicted on {where(found)}, with an interval of 80%."
