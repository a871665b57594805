"""The rule that arrays have the PartitionSpecs of a Snapshot or lock file."""

from __future__ import annotations

from dataclasses import dataclass

from inspector.checks import lock_file
from inspector.checks.lock_file import LockedArray, LockedMesh, LockFile
from inspector.checks.policy.fields import Fields
from inspector.checks.policy.outcome import Outcome, Violation, first_and_more, name
from inspector.checks.policy.selection import Selection, read_selection
from inspector.core.errors import InvalidInput
from inspector.core.formatting import spec_text
from inspector.core.snapshot import Snapshot
from inspector.core.totals import STATE_GROUPS


@dataclass(frozen=True)
class SameSpecs:
    """Every array has the spec that it has in a file, and both have the same arrays.

    Mesh axes of size 1 do not count. Meshes, shapes and dtypes are not compared.
    """

    selection: Selection
    same_as: str
    expected: LockFile
    title: str = "specs"

    def outcome(self, snapshot: Snapshot) -> Outcome:
        lock = lock_file.locked(snapshot)
        current = {one.path: one for one in lock.arrays}
        expected = {
            one.path: one
            for one in self.expected.arrays
            if self.selection.includes(one.path, one.group)
        }
        selected = {array.path for array in self.selection.arrays(snapshot)} | expected.keys()
        violations, unknown = [], []
        for path in sorted(selected):
            own, other = current.get(path), expected.get(path)
            if (
                own
                and other
                and (None, None) in ((own.spec, own.shards), (other.spec, other.shards))
            ):
                unknown.append(path)
            elif (difference := self._difference(own, other, lock.mesh)) is not None:
                violations.append(Violation(f"{name(path)}: {difference}", path))
        missing = None
        if unknown:
            missing = (
                f"the spec of {first_and_more(unknown)} is unknown here or in {name(self.same_as)}"
            )
        return Outcome(self.title, tuple(violations), missing)

    def _difference(
        self, own: LockedArray | None, other: LockedArray | None, mesh: LockedMesh | None
    ) -> str | None:
        file = name(self.same_as)
        if own is None or other is None:
            if other is not None:
                return f"missing, but {name(spec_text(other.spec))} in {file}"
            return f"{name(spec_text(own.spec if own else None))}, but missing in {file}"
        if own.shards == other.shards and (
            own.spec == other.spec
            or _split(own, mesh) == _split(other, self.expected.mesh) is not None
        ):
            return None
        if own.spec == other.spec:
            return f"other shards per device than in {file}"
        return f"{name(spec_text(own.spec))}, but {name(spec_text(other.spec))} in {file}"


def read_specs(fields: Fields) -> SameSpecs:
    """Read `same_as`, a path relative to the policy file. The default group is the train state.

    Raises:
      InvalidInput: if the file is not usable.
    """
    fields.require("same_as")
    selection = read_selection(fields, STATE_GROUPS)
    same_as = fields.text("same_as") or ""
    try:
        expected = lock_file.read(fields.folder / same_as)
    except InvalidInput as error:
        raise InvalidInput(f"{fields.where} same_as: {error}") from None
    return SameSpecs(selection, same_as, expected)


def _split(array: LockedArray, mesh: LockedMesh | None) -> tuple[tuple[str, ...], ...] | None:
    """Return the mesh axes larger than 1 that split each dimension, or None if unknown."""
    if array.spec is None or mesh is None:
        return None
    larger = {axis.name for axis in mesh.axes if axis.size > 1}
    return tuple(tuple(axis for axis in axes or () if axis in larger) for axes in array.spec)
