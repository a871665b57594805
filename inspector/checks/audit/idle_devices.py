"""Devices of a recorded program on which it keeps nothing and runs nothing."""

from collections.abc import Iterator

from inspector.checks.audit.context import finding
from inspector.core.formatting import devices_text
from inspector.core.snapshot import Finding, Snapshot

CODE = "idle-devices"


def findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding if arrays and programs leave devices out: a warning if they use only one."""
    used = _used(snapshot)
    devices = snapshot.source.devices
    if used is None or devices is None or len(used) >= devices:
        return
    idle = devices - len(used)
    one = len(used) == 1
    message = (
        f"{idle} of the {devices} devices {'holds' if idle == 1 else 'hold'} and "
        f"{'computes' if idle == 1 else 'compute'} nothing: all recorded arrays and programs are on "
        f"device{'' if one else 's'} {devices_text(sorted(used))}."
    )
    remedy = (
        f"Place the arrays on a mesh of all {devices} devices with `NamedSharding`; jitted functions then "
        "run on all of them."
    )
    yield finding("warning" if one else "note", CODE, message, remedy=remedy, ratio=devices / len(used))


def applies(snapshot: Snapshot) -> bool:
    """Return whether the devices of the process, of its arrays and of its programs are known."""
    return (snapshot.source.devices or 0) > 1 and _used(snapshot) is not None


def _used(snapshot: Snapshot) -> set[int] | None:
    """Return the ids of the devices in use; None if a program or an array runs or is on unknown ones."""
    used = {device for mesh in snapshot.meshes for device in mesh.devices}
    for array in snapshot.arrays:
        if array.shards is None and array.spec is None:
            return None
        used |= {shard.device for shard in array.shards or ()}
    # A program on one device is on that of its arguments.
    most = max((program.devices or 0 for program in snapshot.programs), default=0)
    known = all(program.devices for program in snapshot.programs)
    return used if used and known and most <= len(used) else None
