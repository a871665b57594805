"""The memory of this machine that a layout needs for emulated devices.

Emulated devices share the memory of one machine, so an array replicated on N devices takes N times its bytes.
"""

from inspector.layout import MOST_DEVICES
from inspector.records.snapshot import Snapshot
from inspector.text.errors import InvalidInput
from inspector.text.formatting import bytes_text

# During a step the old and the new train state both exist, because the step does not donate its input.
STATES_DURING_A_STEP = 2
# The rest is left to the compiler and other programs.
USABLE_SHARE = 0.8


def state_bytes_in_a_step(plan: Snapshot) -> int:
    """Return the bytes on all devices for the train state before and after a step, and the gradients."""
    total, devices = 0, plan.mesh.size if plan.mesh else 1
    for array in plan.arrays:
        held = (array.bytes_per_device or 0) * devices
        if array.group in ("params", "opt_state", "other"):
            total += held * STATES_DURING_A_STEP
        if array.group == "params":
            total += held  # a gradient has the sharding of its parameter
        if array.group in ("batch", "output"):
            total += held
    return total


def why_not_emulated(devices: int) -> str | None:
    """Return why a mesh of this size cannot run here, or None if it can."""
    if devices <= MOST_DEVICES:
        return None
    return (
        f"At most {MOST_DEVICES:,} devices can be emulated, but the mesh has {devices:,}. Choose a TPU "
        "slice or GPU nodes as target to compile it."
    )


def why_too_large(needed: int, available: int, what: str) -> str | None:
    """Return why `what`, which needs `needed` bytes, does not fit a machine with `available` bytes."""
    limit = int(available * USABLE_SHARE)
    if needed <= limit:
        return None
    return (
        f"{what} needs about {bytes_text(needed)} for all emulated devices, but at most "
        f"{bytes_text(limit)} is allowed ({USABLE_SHARE:.0%} of the free memory); make the sizes "
        "smaller or replicate less"
    )


def refuse_too_large(needed: int, available: int, what: str) -> None:
    """Refuse to run `what` if it does not fit.

    Raises:
      InvalidInput: `needed` bytes exceed the usable share of `available` bytes.
    """
    if (reason := why_too_large(needed, available, what)) is not None:
        raise InvalidInput(reason)
