"""The rule that arrays are sharded as a Snapshot or lock file says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from inspector.checks import lock_file
from inspector.checks.lock_file import LockedArray, LockedMesh, LockFile
from inspector.checks.policy.fields import Fields
from inspector.checks.policy.outcome import Outcome, Violation, name
from inspector.checks.policy.selection import Selection, read_selection
from inspector.core.errors import InvalidInput
from inspector.core.formatting import spec_text
from inspector.core.snapshot import Snapshot
from inspector.core.totals import STATE_GROUPS


@dataclass(frozen=True)
class SameSpecs:
    """Every array has the spec that it has in a file, and no array is there that is not in the other.

    Specs are equal as they are written, or without the mesh axes of size 1, which split nothing. Meshes,
    shapes and types are not compared.
    """

    selection: Selection
    same_as: str
    expected: LockFile
    title: str = "specs"

    def outcome(self, found: Snapshot) -> Outcome:
        now = lock_file.locked(found)
        here = {one.path: one for one in now.arrays}
        there = {one.path: one for one in self.expected.arrays}
        # A path that only the other file has is meant by the patterns, too.
        wanted = [array.path for array in self.selection.arrays(found)]
        wanted += [path for path, one in there.items() if path not in here and self._means(one)]
        violations, unknown = [], []
        for path in sorted(wanted):
            mine, other = here.get(path), there.get(path)
            if mine is None and other is not None:
                words = (
                    f"is not there, but is {name(spec_text(other.spec))} in {name(self.same_as)}"
                )
            elif other is None and mine is not None:
                words = f"{name(spec_text(mine.spec))}, but {name(self.same_as)} has no such array"
            elif mine is not None and other is not None:
                facts = [(one.spec, one.shards) for one in (mine, other)]
                if (None, None) in facts:
                    unknown.append(path)
                    continue
                if facts[0] == facts[1] or (
                    mine.shards == other.shards
                    and _split(mine, now.mesh) == _split(other, self.expected.mesh) is not None
                ):
                    continue
                words = (
                    f"{name(spec_text(mine.spec))}, but {name(spec_text(other.spec))} "
                    f"in {name(self.same_as)}"
                )
                if mine.spec == other.spec:
                    words = f"other index ranges on the devices than in {name(self.same_as)}"
            violations.append(Violation(f"{name(path)}: {words}", path))
        missing = None
        if unknown:
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            missing = (
                f"the spec of {name(unknown[0])}{more} is unknown here or in {name(self.same_as)}"
            )
        return Outcome(self.title, tuple(violations), missing)

    def _means(self, one: LockedArray) -> bool:
        return self.selection.means(one.path, one.group)


def read_same_specs(fields: Fields, folder: Path) -> SameSpecs:
    """`same_as`, a path from the policy file's folder; of the train state where no groups are named.

    Raises:
      InvalidInput: the file cannot be used.
    """
    fields.require("same_as")
    selection = read_selection(fields, STATE_GROUPS)
    same_as = fields.text("same_as")
    assert same_as is not None, "a required field is there"
    try:
        expected = lock_file.read(folder / same_as)
    except InvalidInput as refused:
        raise InvalidInput(f"{fields.where} same_as: {refused}") from None
    return SameSpecs(selection, same_as, expected)


def _split(array: LockedArray, mesh: LockedMesh | None) -> tuple[tuple[str, ...], ...] | None:
    """The mesh axes larger than 1 that split each dimension; None where spec or mesh are unknown."""
    if array.spec is None or mesh is None:
        return None
    larger = {axis.name for axis in mesh.axes if axis.size > 1}
    return tuple(tuple(axis for axis in axes or () if axis in larger) for axes in array.spec)
