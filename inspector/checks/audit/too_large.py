"""A layout that needs more memory than a device of its chip has."""

from collections.abc import Iterator

from inspector.core.formatting import bytes_text
from inspector.core.snapshot import Finding, Snapshot
from inspector.machines import out_of_memory, targets
from inspector.machines.hardware import Chip
from inspector.machines.prediction.memory import fit

CODE = "does-not-fit"
CODES = (CODE, out_of_memory.CODE)


def findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield an error if the layout does not fit into a device of the chip that it is for."""
    yield from on_chip(snapshot, targets.chip_for(snapshot, None))


def applies(snapshot: Snapshot) -> bool:
    """Return whether the chip and the memory that is needed are known."""
    return fit(snapshot, targets.chip_for(snapshot, None)).fits is not None


def on_chip(snapshot: Snapshot, chip: Chip | None) -> Iterator[Finding]:
    """Yield an error if the layout does not fit into a device of this chip, unless a compiler has said so."""
    if chip is None or out_of_memory.findings(snapshot):
        return
    memory = fit(snapshot, chip)
    if memory.fits is False and memory.needed is not None and memory.capacity is not None:
        least = {"state": "at least ", "estimate": "about "}.get(memory.basis, "")
        message = (
            f"The layout does not fit: it needs {least}{bytes_text(memory.needed)} on one device of "
            f"{chip.title}, which has {bytes_text(memory.capacity)}."
        )
        needed, available = memory.needed, memory.capacity
        yield Finding("error", CODE, message, program=memory.program, needed=needed, available=available)
