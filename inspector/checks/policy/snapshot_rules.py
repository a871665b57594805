"""Rules about a whole Snapshot: its PartitionSpecs are those of a file, and it has no serious findings."""

from inspector.checks import lock_file
from inspector.checks.audit import audited
from inspector.checks.lock_file import LockedArray, LockedMesh
from inspector.checks.policy.fields import Fields
from inspector.checks.policy.outcome import Check, Violation, name, unknown_text
from inspector.checks.policy.selection import read_selection
from inspector.core.errors import InvalidInput
from inspector.core.sharding_text import spec_text
from inspector.core.snapshot import Snapshot
from inspector.core.totals import STATE_GROUPS

LEVELS = ("note", "warning", "error")  # the least serious first


def findings(fields: Fields) -> Check:
    """No finding of this level or above, from the Snapshot or its audit. Codes in `except` are allowed."""
    none_from = fields.choice("none_from", LEVELS, required=True) or LEVELS[0]
    excepted = fields.texts("except") or ()

    def check(snapshot: Snapshot) -> tuple[list[Violation], str | None]:
        return [
            Violation(
                f"{finding.level} {name(finding.code)}: {' '.join(finding.message.split())} "
                f"(no finding from {none_from} allowed)",
                finding.array,
            )
            for finding in audited(snapshot).findings
            if finding.level in LEVELS[LEVELS.index(none_from) :] and finding.code not in excepted
        ], None

    return check


def specs(fields: Fields) -> Check:
    """Check that each selected array has the same spec and explicit shards as in the file `same_as`.

    By default, the arrays of the train state are selected. An array that only one side has is a violation.
    Mesh axes of size 1 are ignored. Meshes, shapes and dtypes are not compared. The path is relative to the
    policy file.
    """
    same_as = fields.text("same_as", required=True) or ""
    selection, file = read_selection(fields, STATE_GROUPS), name(same_as)
    try:
        expected = lock_file.read(fields.folder / same_as)
    except InvalidInput as error:
        raise InvalidInput(f"{fields.where} same_as: {error}") from None
    others = {array.path: array for array in expected.arrays if selection.includes(array.path, array.group)}

    def check(snapshot: Snapshot) -> tuple[list[Violation], str | None]:
        lock = lock_file.locked(snapshot)
        current = {array.path: array for array in lock.arrays}
        selected = {array.path for array in selection.arrays(snapshot)} | others.keys()
        violations, unknown = [], []
        for path in sorted(selected):
            own, other = current.get(path), others.get(path)
            if own is None or other is None:
                there = f"missing, but {_spec(other)} in {file}" if other else ""
                difference = there or f"{_spec(own)}, but missing in {file}"
            elif (None, None) in ((own.spec, own.shards), (other.spec, other.shards)):
                unknown.append(path)
                continue
            elif own.spec == other.spec and own.shards != other.shards:
                difference = f"other shards per device than in {file}"
            elif own.shards == other.shards and (
                own.spec == other.spec or _split(own, lock.mesh) == _split(other, expected.mesh) is not None
            ):
                continue
            else:
                difference = f"{_spec(own)}, but {_spec(other)} in {file}"
            violations.append(Violation(f"{name(path)}: {difference}", path))
        missing = unknown_text("spec", unknown)
        return violations, missing and f"{missing} here or in {file}"

    return check


def _spec(array: LockedArray | None) -> str:
    return name(spec_text(array.spec if array else None))


def _split(array: LockedArray, mesh: LockedMesh | None) -> tuple[tuple[str, ...], ...] | None:
    """Return the mesh axes larger than 1 that split each dimension, or None if unknown."""
    if array.spec is None or mesh is None:
        return None
    larger = {axis.name for axis in mesh.axes if axis.size > 1}
    return tuple(tuple(axis for axis in axes or () if axis in larger) for axes in array.spec)
