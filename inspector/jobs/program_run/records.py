"""Turn the raw records of a running or ended program into Snapshots, and keep `run.json` up to date."""

import contextlib
import functools
import re
import shutil
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from inspector.files import output, strict_json
from inspector.guides.transfer import moving_elements
from inspector.layout.plan import CAUSES_UNKNOWN
from inspector.records import program_run, renamed_paths, snapshot, typed_json
from inspector.records.program_run import (
    LOWERED,
    CompiledRecord,
    CompileReason,
    LiveRecord,
    LostSharding,
    ProgramRun,
    ReasonKind,
    RunError,
    when_compiled,
)
from inspector.records.snapshot import (
    Array,
    Finding,
    Mesh,
    MeshAxis,
    Program,
    ProgramArray,
    Reshard,
    ReshardedArrays,
    Seconds,
    Shard,
    Snapshot,
    Spec,
)
from inspector.sharding import placement as sharding
from inspector.sharding.array_groups import with_roles
from inspector.sharding.meshes import MeshKey, MeshList, mesh_key
from inspector.sharding.placement import Placement
from inspector.sharding.traffic import wire_bytes_of_run
from inspector.text.errors import InvalidInput
from inspector.text.formatting import and_text, bytes_text, counted
from inspector.text.printable import file_name, one_line

_MOST_LINE = 200  # characters


@dataclass(frozen=True)
class _Side:
    """The place of an array before or after a move.

    Attributes:
      mesh: its mesh, None without a NamedSharding.
      spec: the PartitionSpec on it, None without a NamedSharding.
      on: the mesh that `placement` refers to. Without a NamedSharding it has a single axis.
      placement: the shard of each device, None if unknown.
    """

    mesh: Mesh | None
    spec: Spec | None
    on: Mesh
    placement: Placement | None


def read_reshards(path: Path) -> tuple[Reshard, ...]:
    """Return the moves in a file that the recorder wrote, those with the most bytes first.

    Moves that change neither devices nor shards, for example to another kind of memory, are left out.
    """
    written = strict_json.read(path)
    meshes = [typed_json.decode(Mesh, mesh, "mesh") for mesh in written["meshes"]]
    reshards = [reshard for move in written["moves"] for reshard in _reshards(move, meshes)]
    return tuple(sorted(reshards, key=lambda reshard: -reshard.executions * (reshard.moved or 0)))


def _reshards(move: Mapping[str, Any], meshes: list[Mesh]) -> list[Reshard]:
    """Return one record for each pair of source and target of the arrays that one line moves."""
    groups: dict[Any, list[tuple[ReshardedArrays, _Side, _Side]]] = {}
    for arrays in move["arrays"]:
        shape = tuple(arrays["shape"])
        before, after = (_side(arrays[key], shape, meshes) for key in ("source", "target"))
        if before.on.devices == after.on.devices and _same(before.placement, after.placement):
            continue
        size = int(np.prod(shape, dtype=float)) * arrays["itemsize"]
        record = ReshardedArrays(arrays["count"], shape, arrays["dtype"], size, before.spec, after.spec)
        key = (before.mesh, before.on.devices, after.mesh, after.on.devices)
        groups.setdefault(key, []).append((record, before, after))
    return [
        Reshard(
            operation=move["operation"],
            line=_line(move["place"]),
            executions=max(move["executions"], 1),
            source_devices=old,
            target_devices=new,
            source_mesh=source_mesh,
            target_mesh=target_mesh,
            arrays=tuple(record for record, _, _ in group),
            routes=_routes(group),
        )
        for (source_mesh, old, target_mesh, new), group in groups.items()
    ]


def _side(written: Mapping[str, Any], shape: tuple[int, ...], meshes: list[Mesh]) -> _Side:
    if "spec" in written:
        mesh = meshes[written["mesh"]]
        spec = tuple(None if axes is None else tuple(axes) for axes in written["spec"])
        array = Array("", "other", shape, "", spec=spec)
        return _Side(mesh, spec, mesh, sharding.place_array(array, mesh))
    shards = tuple(
        Shard(device, tuple((start, stop) for start, stop in index), 0)
        for device, index in written.get("shards", ())
    )
    devices = tuple(shard.device for shard in shards) or tuple(written["devices"])
    on = Mesh((MeshAxis("device", len(devices)),), devices)
    array = Array("", "other", shape, "", shards=shards)
    return _Side(None, None, on, sharding.place_array(array, on) if shards else None)


def _same(before: Placement | None, after: Placement | None) -> bool:
    """Return whether devices in the same order hold the same index ranges."""
    if before is None or after is None:
        return False
    return np.array_equal(before.starts, after.starts) and np.array_equal(before.stops, after.stops)


def _routes(
    group: list[tuple[ReshardedArrays, _Side, _Side]],
) -> tuple[tuple[int, int, int], ...] | None:
    """Return the bytes of one execution between different devices, None if a placement is unknown."""
    sent: Counter[tuple[int, int]] = Counter()
    for record, before, after in group:
        if before.placement is None or after.placement is None:
            return None
        elements = int(np.prod(record.shape, dtype=float))
        if not elements:
            continue
        matrix = moving_elements(before.placement, after.placement, before.on, after.on)
        bytes_of_copy = record.count * (record.bytes // elements)
        for row, column in np.argwhere(matrix).tolist():
            source, target = before.on.devices[row], after.on.devices[column]
            if source != target:
                sent[source, target] += int(matrix[row, column]) * bytes_of_copy
    return tuple((source, target, size) for (source, target), size in sorted(sent.items()))


# The fields of an input and the names of their differences.
_FIELDS: dict[str, ReasonKind] = {
    "shape": "shape",
    "dtype": "dtype",
    "weak": "weak type",
    "sharding": "sharding",
}


def reasons(metas: Sequence[Mapping[str, Any]]) -> tuple[CompileReason, ...]:
    """Return why the last compile of a function was needed. Compared with the most similar earlier one.

    Args:
      metas: all compiles of one function, in order, as the recorder writes them.
    """
    *earlier, last = metas
    if not earlier:
        return ()
    reasons = min((tuple(_differences(one, last)) for one in reversed(earlier)), key=len)
    # JAX compiles another object even for equal arguments.
    return ((CompileReason("function"),) if last["new_function"] else ()) + reasons or (
        CompileReason("unknown"),
    )


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[CompileReason]:
    inputs, now = ({one["name"]: one for one in meta["inputs"]} for meta in (before, after))
    for name in inputs.keys() | now.keys():
        if name not in now:
            yield CompileReason("argument", name, before=_type(inputs[name]))
        elif name not in inputs:
            yield CompileReason("argument", name, after=_type(now[name]))
    for name in now:
        if name in inputs:
            for field, kind in _FIELDS.items():
                old, new = inputs[name][field], now[name][field]
                if old != new:
                    yield CompileReason(kind, name, _text(old), _text(new))
    if before.get("devices") != after.get("devices"):
        yield CompileReason("devices", None, *(_text(meta["devices"]) for meta in (before, after)))
    trees, now_trees = before.get("structures", {}), after.get("structures", {})
    for name in trees.keys() & now_trees.keys() if inputs.keys() == now.keys() else ():
        if trees[name] != now_trees[name]:
            yield CompileReason("structure", name)
    static, current = before["static"], after["static"]
    for name in static.keys() | current.keys():
        old, new = static.get(name), current.get(name)
        if old != new:
            yield CompileReason(
                "static", name, None if old is None else old[0], None if new is None else new[0]
            )


def _type(value: Mapping[str, Any]) -> str:
    return f"{value['dtype']}{_text(value['shape'])}"


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "weakly typed" if value else "not weakly typed"
    return f"[{', '.join(map(str, value))}]"


# Adds the causes of the collectives of the only program of a Snapshot, from its lowered module.
FindCauses = Callable[[Snapshot, bytes], Snapshot]
# Reads the profile of the steps.
FindTimes = Callable[[], Snapshot]
# Compiles a lowered module for the target of the run: the program's Snapshot, the module, its settings.
CompileForTarget = Callable[[Snapshot, bytes, dict[str, Any]], Snapshot]

_QUESTIONS = "questions.txt"  # the recorder writes it
_MOST_ERROR = 400  # characters
FREED = "freed-before-the-end"
MISSING = "results-not-captured"
_MOST_NAMED = 3
_MOST_COMPARED = 50  # compiles of one function


@dataclass
class _Read:
    """A program that was read: its record, and what to compare later compiles with."""

    meta: dict[str, Any]
    record: CompiledRecord
    program: Program
    mesh: snapshot.Mesh | None
    values: dict[str, Array]  # its inputs and outputs by path
    for_target: Callable[[CompiledRecord], CompiledRecord] | None = None
    lowered: Path | None = None
    partitioned: tuple[Program, ...] = ()
    notes: tuple[Finding, ...] = ()  # why causes are unknown


class RunFolder:
    """The folder of one run: `run.json`, `snapshot.json`, and a Snapshot per program in `programs`.

    The program writes to `raw`; a raw record is deleted when its Snapshot is written.
    """

    def __init__(
        self,
        path: Path,
        run: ProgramRun,
        for_target: CompileForTarget | None = None,
    ) -> None:
        self.path = path
        self._for_target = for_target
        self._find_causes: FindCauses | None = None
        self.run = run
        self._raw = path / "raw"
        self._read: list[_Read] = []
        # The last ones of each function: one that is compiled in each step has thousands.
        self._compiles: dict[tuple[str, str], deque[dict[str, Any]]] = defaultdict(
            lambda: deque(maxlen=_MOST_COMPARED)
        )
        self._live: Snapshot | None = None
        self._own_names: dict[str, str] = {}  # of live arrays -> the names that a library gives them
        self._changed = False

    def create(self) -> None:
        """Create the folder, or empty the folder of an earlier run.

        Raises:
          InvalidInput: it cannot be created, or contains something else.
        """
        try:
            if self.path.exists():
                self._empty()
            (self.path / "programs").mkdir(parents=True)
            self._raw.mkdir()
        except OSError as error:
            raise InvalidInput(f"{self.path} cannot be created: {error.strerror}") from None
        program_run.write(self.run, self.path)

    def update(self) -> None:
        """Read new raw records, and write their Snapshots and `run.json`."""
        for path in sorted(self._raw.glob("[0-9]*.json")):
            self._changed = True
            self._read.append(self._program(path))
        self._read_live()
        self._read_moves()
        self._count_operations()
        self._read_questions()
        if self._changed:
            functions = [(entry.record.function, entry.record.place) for entry in self._read]
            for entry, name in zip(self._read, program_run.unique_names(functions), strict=True):
                entry.record = replace(entry.record, name=name)
            self.run = replace(self.run, programs=tuple(entry.record for entry in self._read))
            self._write_snapshot()
            program_run.write(self.run, self.path)
            self._changed = False

    def end(
        self,
        ended: str,
        seconds: float,
        find_causes: FindCauses | None = None,
        find_times: FindTimes | None = None,
    ) -> None:
        """Read the last raw records, compile for the target, and write how the program ended.

        find_causes: finds the causes of the collectives of a program. An interrupt by the keyboard ends only
          this part.
        find_times: reads the profile of its steps.
        """
        started = time.monotonic()
        self.update()
        taken = self._taken("error")
        if taken is not None and ended != "exit 0":
            error = typed_json.decode(RunError, strict_json.read(taken), "the error")
            self.run = replace(self.run, error=error)
        self._find_causes = find_causes
        if find_causes is not None:
            with contextlib.suppress(KeyboardInterrupt):
                self._add_causes(find_causes)
        if find_times is not None:
            with contextlib.suppress(InvalidInput):
                self._add_times(find_times())
        for entry in self._read:
            if entry.for_target is not None:
                entry.record = entry.for_target(entry.record)
        self.run = replace(self.run, programs=tuple(entry.record for entry in self._read))
        problems = self.path / "problems.txt"
        lines = problems.read_text(errors="replace").splitlines() if problems.exists() else []
        self.run = replace(self.run, ended=ended, seconds=seconds, problems=tuple(lines[:1] + lines[-2:-1]))
        if self.run.live is not None and self.run.live.when != "at the end":
            self._write_snapshot()
        self.run = replace(self.run, analysis_seconds=time.monotonic() - started)
        program_run.write(self.run, self.path)
        shutil.rmtree(self._raw, ignore_errors=True)
        (self.path / _QUESTIONS).unlink(missing_ok=True)

    def _add_causes(self, find_causes: FindCauses) -> None:
        """Write the causes of collectives, those of the programs that send most first."""
        waiting = []
        for entry in self._read:
            if entry.lowered is not None:
                found = snapshot.read(self.path / entry.record.file)
                waiting.append((sends(found), entry, found))
        for _, entry, found in sorted(waiting, key=lambda each: -each[0]):
            assert entry.lowered is not None
            known = find_causes(found, entry.lowered.read_bytes())
            _write(known, self.path / entry.record.file)
            entry.program, entry.partitioned = known.programs[0], known.partitioned or ()
            entry.notes = tuple(note for note in known.findings if note.code == CAUSES_UNKNOWN)
            entry.lowered.unlink(missing_ok=True)
        if waiting:
            self._write_snapshot()

    def _add_times(self, profile: Snapshot) -> None:
        """Write the times that a profile has of the programs."""
        from inspector.compiled.measured_program import with_times, with_trips_of

        for entry in self._read:
            timed = with_times(entry.program, profile)
            if timed is None:
                continue
            found = snapshot.read(self.path / entry.record.file)
            own = tuple(
                program for program in (with_times(program, profile) for program in found.programs) if program
            )
            known = with_trips_of(found.partitioned or (), entry.program, profile)
            found = replace(found, programs=own or found.programs, partitioned=known or found.partitioned)
            _write(found, self.path / entry.record.file)
            entry.partitioned = with_trips_of(entry.partitioned, entry.program, profile)
            entry.program = timed
        self._write_snapshot()

    @property
    def programs(self) -> tuple[Program, ...]:
        """The compiled programs that were read, in order."""
        return tuple(replace(entry.program, name=entry.record.name) for entry in self._read)

    def _empty(self) -> None:
        program_run_file = self.path / program_run.FILE
        if self.path.is_dir() and not any(self.path.iterdir()):
            self.path.rmdir()
            return
        if not program_run_file.is_file():
            raise InvalidInput(f"{self.path} exists already and is not the folder of an earlier run")
        program_run.read(self.path)
        shutil.rmtree(self.path)

    def _program(self, path: Path) -> _Read:
        plain = strict_json.read(path)
        meta, found = plain["meta"], snapshot.from_json(plain["snapshot"], str(path))
        same = self._compiles[meta["name"], meta["source"]]
        same.append(meta)
        number = len(self._read) + 1
        file = f"programs/{number:03d}-{file_name(meta['name'])}.json"
        seconds = meta["seconds"]
        record = CompiledRecord(
            meta["name"],
            meta["name"],
            source=meta["source"],
            file=file,
            at=meta["at"],
            trace=seconds["trace"],
            lower=seconds["lower"],
            compile=seconds["compile"],
            inputs=len(meta["inputs"]),
            devices=len(meta["devices"]),
            ahead_of_time=meta["ahead_of_time"],
            reasons=reasons(same),
            called=_line(meta["called"]),
        )
        text = path.with_suffix(".hlo")
        hlo = text.read_text() if text.exists() else None
        if len(meta["devices"]) == 1:
            (program,) = found.programs
            found = replace(found, programs=(replace(program, device=meta["devices"][0]),))
        found = _with_constants(_completed(found, record, hlo), meta["constants"])
        _write(found, self.path / file)
        module = path.with_suffix(".mlirbc")
        later = None
        if self._for_target is not None and "target" in meta:
            later = functools.partial(
                self._compiled_for_target, found=found, settings=meta["target"], module=module
            )
        for done in (path, text):
            done.unlink(missing_ok=True)
        program = found.programs[0]
        lowered = path.with_name(f"{path.stem}{LOWERED}")
        return _Read(
            meta,
            record,
            program=program,
            mesh=found.mesh_of(program),
            values={array.path: array for array in found.arrays},
            for_target=later,
            lowered=lowered if lowered.exists() else None,
        )

    def _compiled_for_target(
        self, record: CompiledRecord, found: Snapshot, settings: dict[str, Any], module: Path
    ) -> CompiledRecord:
        """Compile a program for the target, and write its Snapshot. Return the record with its file."""
        assert self._for_target is not None
        if "error" in settings:
            return replace(record, target_error=one_line(settings["error"])[:_MOST_ERROR])
        file = record.file.removesuffix(".json") + "-target.json"
        try:
            for_target = self._for_target(found, module.read_bytes(), settings)
            if self._find_causes is not None and len(settings["devices"]) > 1:
                for_target = self._find_causes(for_target, module.read_bytes())
        except InvalidInput as error:
            return replace(record, target_error=one_line(str(error))[:_MOST_ERROR])
        _write(for_target, self.path / file)
        return replace(record, target_file=file)

    def _taken(self, name: str) -> Path | None:
        """Rename a file of the recorder, which may write the next one. Return None if there is none."""
        path = self._raw / f"{name}.json"
        if not path.exists():
            return None
        return path.replace(path.with_name(f"{name}-read.json"))

    def _read_live(self) -> None:
        taken = self._taken("arrays")
        if taken is None:
            return
        plain = strict_json.read(taken)
        meta = plain["meta"]
        live_arrays = snapshot.from_json(plain["snapshot"], str(taken))
        source = replace(live_arrays.source, devices=meta["devices"])
        self._live = replace(live_arrays, source=source, most_alive_bytes=meta["alive"])
        names = meta["names"]
        self._own_names, self._outputs = names["own"], names["outputs"]
        live = LiveRecord(meta["when"], meta["at"], meta["bytes"], names["counts"])
        self.run = replace(self.run, live=live)
        self._changed = True

    def _read_moves(self) -> None:
        taken = self._taken("moves")
        if taken is None:
            return
        self.run = replace(self.run, reshards=read_reshards(taken))
        self._changed = True

    def _count_operations(self) -> None:
        path = self._raw / "operations.jsonl"
        if not path.exists():
            return
        times, lost = [], []
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(InvalidInput, KeyError, TypeError):  # a line cut by SIGKILL
                operation = strict_json.parse(line, str(path))
                times.append(float(operation["seconds"]))
                if "lost" in operation:
                    lost.append(_lost_sharding(operation["name"], operation["lost"]))
        if len(times) != self.run.operations:
            self.run = replace(
                self.run,
                operations=len(times),
                operation_seconds=sum(times),
                lost_shardings=_largest_of_each_line(lost),
            )
            self._changed = True

    def _read_questions(self) -> None:
        path = self.path / _QUESTIONS
        if path.exists():
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            questions = tuple(one_line(line)[:_MOST_ERROR] for line in lines)
            if questions != self.run.questions:
                self.run = replace(self.run, questions=questions)
                self._changed = True

    def _write_snapshot(self) -> None:
        """Write the live arrays with all programs, if there are live arrays."""
        if self._live is None:
            return
        meshes = MeshList(self._live.meshes)
        paths = live_paths(self._live, self._outputs)
        by_live_paths: list[Program] = []
        partitioned: list[Program] = []
        notes: list[Finding] = []
        for entry in self._read:
            renamed = paths(entry.program, entry.mesh, entry.values)
            name, mesh = entry.record.name, meshes.index_of(entry.mesh)
            # The program before a compile has the same paths.
            live, *before = (
                replace(with_paths(program, renamed), name=name, mesh=mesh)
                for program in (entry.program, *entry.partitioned)
            )
            by_live_paths.append(live)
            partitioned += before
            notes += (replace(note, program=name) for note in entry.notes)
        found = replace(
            self._live,
            mesh=meshes.mesh,
            other_meshes=meshes.other_meshes,
            programs=tuple(by_live_paths),
            partitioned=tuple(partitioned) or None,
            findings=(*self._live.findings, *notes, *self._notes(by_live_paths)),
            reshards=self.run.reshards,
        )
        own = self._own_names
        _write(
            renamed_paths.in_snapshot(found, lambda path: own.get(path, path)),
            self.path / program_run.SNAPSHOT,
        )

    def _notes(self, programs: Sequence[Program]) -> tuple[Finding, ...]:
        """Return which arrays are missing if the last capture was before the end.

        Args:
          programs: all programs, with the paths of the live arrays.
        """
        live = self.run.live
        if live is None or self.run.ended is None or live.when == "at the end":
            return ()
        message = (
            f"These arrays were captured {live.when}, {live.at:.1f} s after the start. When the program "
            "ended, it had freed more than half of their bytes, or Python called no exit functions."
        )
        notes = [Finding("note", FREED, message)]
        assert self._live is not None
        captured = {array.path for array in self._live.arrays}
        for entry, program in zip(self._read, programs, strict=True):
            if not self._ran_later(entry.record, live):
                continue
            missing = [
                before.path
                for before, after in zip(entry.program.shardings, program.shardings, strict=True)
                if before.role == "output" and after.path not in captured
            ]
            if missing:
                notes.append(_missing(entry, missing))
        return tuple(notes)

    def _ran_later(self, record: CompiledRecord, live: LiveRecord) -> bool:
        """Return whether a program can only have run after the live arrays were captured."""
        compiled = [entry.record for entry in self._read if entry.record.at <= live.at]
        last = bool(compiled) and record is compiled[-1]
        return record.at > live.at or (last and live.when == when_compiled(record.function))


def _missing(read: _Read, paths: Sequence[str]) -> Finding:
    """Return a finding that names results of a program which are not among the live arrays."""
    sizes = [read.values[path].bytes if path in read.values else None for path in paths]
    size = "" if None in sizes else f", {bytes_text(sum(filter(None, sizes)))}"
    named = and_text([*paths[:_MOST_NAMED], *(["more"] if len(paths) > _MOST_NAMED else [])])
    message = (
        f"{read.record.name} can only have run after that, so {counted(len(paths), 'result')} of it{size}, "
        f"{'is' if len(paths) == 1 else 'are'} not among these arrays: {named}."
    )
    return Finding("note", MISSING, message, program=read.record.name)


def _lost_sharding(operation: str, written: dict[str, Any]) -> LostSharding:
    written = dict(written)
    place = written.pop("place")
    known = {"operation": one_line(operation).lstrip("_"), "line": _line(place)}
    return typed_json.decode(LostSharding, written | known, "lost")


def _line(place: Sequence[Any] | None) -> str | None:
    """Return `train.py:31` for a file and a line of the program."""
    return None if place is None else one_line(f"{Path(place[0]).name}:{place[1]}")[-_MOST_LINE:]


def _largest_of_each_line(lost: Sequence[LostSharding]) -> tuple[LostSharding, ...]:
    ranked = sorted(lost, key=lambda loss: -loss.bytes)
    by_line = {(loss.operation, loss.line): loss for loss in reversed(ranked)}
    return tuple(loss for loss in ranked if by_line[loss.operation, loss.line] is loss)


def _write(found: Snapshot, path: Path) -> None:
    """Write a Snapshot with the findings of the audit."""
    from inspector import audit  # imported while the program runs, not before it starts

    output.write_text(snapshot.dumps(audit.audited(with_roles(found))), path)


def sends(snapshot: Snapshot) -> int:
    """Return the bytes that a device sends in one run of the only program; 0 if they are unknown."""
    (program,) = snapshot.programs
    return wire_bytes_of_run(*(program.collectives or ())) or 0


def _completed(snapshot: Snapshot, record: CompiledRecord, hlo: str | None) -> Snapshot:
    """Return the Snapshot with the facts of the compiled text, and the times.

    A function that is compiled again has the same name and paths, so that its programs can be compared.
    """
    # Imported while the program runs.
    from inspector.compiled import program_text
    from inspector.compiled.donation import with_donation

    (program,) = snapshot.programs
    facts = program_text.read(hlo, snapshot.mesh_of(program), program.shardings, program.memory, local=True)
    known = [seconds for seconds in (record.trace, record.lower) if seconds is not None]
    program = replace(
        facts.added_to(program),
        devices=record.devices,
        shardings=program_text.with_uses(program.shardings, facts.uses, facts.gradients, facts.reused),
        seconds=Seconds(lower=sum(known) if known else None, compile=record.compile),
    )
    completed = replace(
        snapshot,
        programs=(program,),
        arrays=tuple(replace(array, program=program.name) for array in snapshot.arrays),
    )
    return with_donation(with_roles(completed))


def _with_constants(found: Snapshot, variables: Mapping[str, Sequence[str]]) -> Snapshot:
    """Return the Snapshot of one program with the variables that its large constants are.

    Args:
      variables: names of the arrays around the function, by type and shape as NumPy writes them.
    """
    from inspector.hlo import shapes

    (program,) = found.programs
    constants = []
    for constant in program.large_constants or ():
        shape = shapes.parse(constant.shape)
        type_text = shape and f"{shapes.jax_dtype(shape.dtype)}{list(shape.dimensions)}"
        names = variables.get(type_text or "", ())
        constants.append(replace(constant, variable=names[0]) if len(names) == 1 else constant)
    known = {constant.name: constant.variable for constant in constants if constant.variable}
    used = program.memory_use
    if used is not None:
        values = (replace(value, name=known.get(value.name, value.name)) for value in used.values)
        used = replace(used, values=tuple(values))
    if program.large_constants is not None:
        program = replace(program, large_constants=tuple(constants), memory_use=used)
    return replace(found, programs=(program,))


def with_paths(program: Program, paths: Mapping[str, str]) -> Program:
    return renamed_paths.in_program(program, lambda path: paths.get(path, path))


def live_paths(
    live: Snapshot, outputs: Mapping[str, str] | None = None
) -> Callable[[Program, snapshot.Mesh | None, Mapping[str, Array]], dict[str, str]]:
    """Return a function from a program, its mesh and its values by path, to the paths of live arrays.

    It returns the path of the live array that an input or output is, by its path in the program. Such an
    array is on the same mesh, and has the shape, dtype and sharding of the value. Of arrays with one name,
    `w` and `w (2)`, it is the first, or else the only one.

    Args:
      outputs: the paths of live arrays by that of the output that they are, if it is known.
    """
    keys = {id(mesh): mesh_key(mesh) for mesh in live.meshes}
    own = [(array, keys.get(id(live.mesh_of(array)))) for array in live.arrays]

    @functools.cache
    def on_mesh(key: MeshKey | None) -> tuple[dict[str, Array], dict[str, list[str]], dict[str, list[str]]]:
        arrays = {array.path: array for array, its in own if array.spec is None or its is None or its == key}
        below, numbered = defaultdict(list), defaultdict(list)
        for path in arrays:
            below[path.partition("/")[2] or path].append(path)
            numbered[re.sub(r" \(\d+\)$", "", path)].append(path)
        return arrays, below, numbered

    def paths(program: Program, mesh: snapshot.Mesh | None, values: Mapping[str, Array]) -> dict[str, str]:
        arrays, below, numbered = on_mesh(None if mesh is None else mesh_key(mesh))

        def is_value(path: str, placed: ProgramArray) -> bool:
            array, value = arrays.get(path), values.get(placed.path)
            same = array and value and (array.shape, array.dtype) == (value.shape, value.dtype)
            return bool(same) and array is not None and array.spec == placed.compiled

        renamed: dict[str, str] = {}
        prefix = f"{program.name}/input/"
        taken = {placed.path.removeprefix(prefix) for placed in program.shardings}
        for placed in program.shardings:
            path = placed.path.removeprefix(f"{program.name}/{placed.role}/")
            if placed.role == "output":
                # A train step returns the state that it takes: output `0/params/w` is `state/params/w`.
                found = below.get(path) or below.get(path.partition("/")[2]) or []
                if placed.use == "gradient":  # it has the path of its parameter below another variable
                    found = [one for one in found if one not in taken and is_value(one, placed)]
                path = found[0] if len(found) == 1 else (outputs or {}).get(placed.path, "")
            same = [one for one in numbered.get(path, (path,)) if is_value(one, placed)]
            if path in same or len(same) == 1:
                renamed[placed.path] = path if path in same else same[0]
        return renamed

    return paths
