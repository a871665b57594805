"""Rules about whole Snapshots, and about the memory and the traffic of compiled programs."""

from collections.abc import Sequence

from inspector.audit import audited, lock_file
from inspector.audit.lock_file import LockedArray, LockedMesh
from inspector.audit.policy.array_rules import read_selection
from inspector.audit.policy.fields import Check, PolicyTable, Violation, check_known, name, unknown_text
from inspector.prediction import memory
from inspector.records.collectives import OPS
from inspector.records.snapshot import Collective, Program, Snapshot
from inspector.sharding.sharding_text import spec_text
from inspector.sharding.totals import STATE_GROUPS
from inspector.sharding.traffic import Traffic, parts_of, total_of_taken, traffic
from inspector.text.errors import InvalidInput
from inspector.text.formatting import and_text, counted, exact_bytes_text, mesh_axes_text

LEVELS = ("note", "warning", "error")  # the least serious first


def findings(fields: PolicyTable) -> Check:
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


def specs(fields: PolicyTable) -> Check:
    """Check that each selected array has the same spec and explicit shards as in the file `same_as`.

    By default, the arrays of the train state are selected. An array that only one side has is a violation.
    Mesh axes of size 1 are ignored. Meshes, shapes and dtypes are not compared. The path is relative to the
    policy file; raise InvalidInput if it has no Snapshot.
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


# `peak`: the most that is alive at one time with the code, as everywhere else; of a plan the interval of its
# estimate. `total`: arguments, outputs and temporaries without aliased bytes, plus code in device memory.
FIGURES = ("peak", "total")
_READ = {"peak": "needed", "total": "total"}
_STEP = "train_step"
_MOST_NAMED = 3  # arrays of the collectives of a kind


def program_memory(fields: PolicyTable) -> Check:
    """A program takes at most `most` bytes on one device. Without `program`, every program does."""
    most = fields.size("most", required=True) or 0
    figure = fields.choice("figure", FIGURES) or "peak"
    wanted = fields.text("program")

    def check(snapshot: Snapshot) -> tuple[list[Violation], str | None]:
        violations, unknown = [], []
        for program in _programs(snapshot, wanted):
            parts = memory.breakdown(snapshot, program)
            if parts is None and figure == "peak":
                low, high = memory.estimated_interval(snapshot, program) or (None, None)
            else:
                low = high = None if parts is None else getattr(parts, _READ[figure])
            taken = low
            if taken is None or high is None or taken <= most < high:
                unknown.append(name(program.name))
            elif taken > most:
                violations.append(
                    Violation(
                        f"{name(program.name)}: {figure} memory {exact_bytes_text(taken)} per device "
                        f"(limit {exact_bytes_text(most)})"
                    )
                )
        return violations, f"unknown {figure} memory of {', '.join(unknown)}" if unknown else None

    return check


def collectives(fields: PolicyTable) -> Check:
    """A program has no such collectives, or they move at most this many bytes in one run.

    A collective runs over an axis if the axis is one of its `mesh_axes`. Collectives in branches count;
    those with 0 executions do not. The limits are for the sums over executions on one device. With
    `larger_than`, only those count that send an array whose payload of one execution is larger. Arrays of a
    combined collective are not added up, as the compiler decides which to combine. Without `program`, the
    train step is checked, or the only program.
    """
    op, axis, larger_than = fields.choice("op", OPS), fields.text("axis"), fields.size("larger_than")
    given = fields.text("program")
    limits = [
        ("wire_bytes_per_device", "on the wire per device", fields.size("most_wire_bytes")),
        ("payload_bytes", "of payload per device", fields.size("most_payload_bytes")),
    ]
    selection = f"{op or 'collectives'} over {name(axis) if axis else 'any axis'}"

    def check(snapshot: Snapshot) -> tuple[list[Violation], str | None]:
        only = snapshot.programs[0].name if len(snapshot.programs) == 1 else _STEP
        wanted = given or only
        (program,) = _programs(snapshot, wanted)
        mesh = snapshot.mesh_of(program)
        if axis is not None and mesh is not None:
            check_known(axis, mesh.axis_names, "axis")
        if program.collectives is None:
            return [], f"unknown collectives of {name(program.name)}"
        selected, missing = _selected(program.collectives, op, axis, larger_than)
        missing = missing and f"{missing} in {name(wanted)}"
        if all(limit is None for _, _, limit in limits):
            return [_forbidden(row, wanted, selected, larger_than) for row in traffic(selected)], missing
        violations, unknown = [], None
        for field, words, limit in limits:
            if limit is None:
                continue
            known = [
                collective
                for collective in selected
                if None not in (collective.executions, getattr(collective, field))
            ]
            total = total_of_taken(
                [(one.within, (one.executions or 0) * getattr(one, field)) for one in known], 0, max
            )
            others = [collective for collective in selected if collective not in known]
            if total > limit:
                up_to = "up to " if any(collective.conditional for collective in known) else ""
                least = "at least " if others else ""
                violations.append(
                    Violation(
                        f"{selection} in {name(wanted)}: {least}{up_to}{exact_bytes_text(total)} {words} "
                        f"in one run (limit {exact_bytes_text(limit)})"
                    )
                )
            elif others:
                unknown = f"unknown executions or bytes of {_first_name(others)} in {name(wanted)}"
        return violations, missing if violations else unknown or missing

    return check


def _selected(
    collectives: Sequence[Collective], op: str | None, axis: str | None, larger_than: int | None
) -> tuple[list[Collective], str | None]:
    """Return the collectives that a rule is about, and which ones are unknown to be among them."""
    of_op = [
        collective
        for collective in collectives
        if op in (None, collective.op)
        and collective.executions != 0
        and _larger(collective, larger_than) != []
    ]
    unplaced = [collective for collective in of_op if collective.mesh_axes is None and axis is not None]
    selected = [collective for collective in of_op if axis is None or axis in (collective.mesh_axes or ())]
    missing = f"unknown mesh axes of {_first_name(unplaced)}" if unplaced else None
    unsized = [collective for collective in selected if _larger(collective, larger_than) is None]
    if unsized:
        missing = f"unknown payload of {_first_name(unsized)}"
        selected = [collective for collective in selected if collective not in unsized]
    return selected, missing


def _larger(collective: Collective, than: int | None) -> list[Collective] | None:
    """Return the parts with a larger payload, each array of a combined collective alone; None if unknown."""
    parts = parts_of(collective)
    if than is None:
        return list(parts)
    larger = [part for part in parts if part.payload_bytes is not None and part.payload_bytes > than]
    return larger if larger or all(part.payload_bytes is not None for part in parts) else None


def _first_name(collectives: Sequence[Collective]) -> str:
    return f"{name(collectives[0].name)} ({name(collectives[0].op)})"


def _forbidden(
    row: Traffic, program: str, collectives: Sequence[Collective], larger_than: int | None
) -> Violation:
    executions = "unknown executions"
    if row.executions is not None:
        executions = f"{counted(row.executions, 'execution')} per run"
        executions = f"up to {executions} (in a branch)" if row.conditional else executions
    paths = dict.fromkeys(
        path
        for collective in collectives
        if (collective.op, collective.mesh_axes) == (row.op, row.mesh_axes)
        for part in _larger(collective, larger_than) or ()
        for path in part.arrays or ()
    )
    arrays = [name(path) for path in paths]
    if (more := len(arrays) - _MOST_NAMED) > 0:
        arrays = [*arrays[:_MOST_NAMED], f"{more} more"]
    of_arrays = f" for {and_text(arrays)}" if arrays else ""
    allowed = "" if larger_than is None else f" with a payload over {exact_bytes_text(larger_than)}"
    return Violation(
        f"{name(row.op)} over {mesh_axes_text(row.mesh_axes, name)} in {name(program)}: "
        f"{counted(row.instructions, 'instruction')}, {executions}, "
        f"{exact_bytes_text(row.wire_bytes_per_device)} on the wire per device{of_arrays} "
        f"(none{allowed} allowed)"
    )


def _programs(snapshot: Snapshot, wanted: str | None) -> tuple[Program, ...]:
    if not snapshot.programs:
        raise InvalidInput("the Snapshot has no program: make it with `inspect`, `run` or `import hlo`")
    if wanted is None:
        return snapshot.programs
    check_known(wanted, [program.name for program in snapshot.programs], "program")
    return tuple(program for program in snapshot.programs if program.name == wanted)[:1]
