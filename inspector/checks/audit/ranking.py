"""The rank of a finding, so that bytes, traffic and repeated work have one order."""

from inspector.core.once import once_per_snapshot
from inspector.core.snapshot import Finding, Snapshot
from inspector.core.totals import in_device_memory
from inspector.core.traffic import wire_bytes_of_run

_HALF = 2**30  # bytes that count as half of the memory, if no array is known


def weight(finding: Finding, snapshot: Snapshot) -> float:
    """Return the share of a device's arrays, work or traffic that a fix saves; 0 if it is unknown."""
    work = 1 - 1 / finding.ratio if finding.ratio and finding.ratio > 1 else 0.0
    sent = (wire_bytes_of_run(*program.collectives or ()) or 0 for program in snapshot.programs)
    traffic = min((finding.wire_bytes or 0) / max(*sent, 1, 1), 1.0)
    return max(share_of_memory(finding.bytes or 0, snapshot), work, traffic)


def rounded(share: float) -> float:
    """Return a share with three digits, so that two that nobody can tell apart are equal.

    >>> rounded(0.50146), rounded(0.50138), rounded(0.0000123)
    (0.501, 0.501, 1.23e-05)
    """
    return float(f"{share:.3g}")


def share_of_memory(size: float, snapshot: Snapshot) -> float:
    """Return bytes of one device as a share of the bytes of all arrays on it, between 0 and 1."""
    whole = _bytes_of_arrays(snapshot)
    return size / max(whole, size) if whole and size else size / (size + _HALF)


@once_per_snapshot
def _bytes_of_arrays(snapshot: Snapshot) -> int:
    """Return the bytes of all arrays in the memory of one device. Unknown bytes count as 0."""
    return sum(array.bytes_per_device or 0 for array in in_device_memory(snapshot, snapshot.arrays))
