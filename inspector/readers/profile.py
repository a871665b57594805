"""Read a profile of JAX: a program for each HLO module that ran, with measured times of its instructions.

A profile is a folder that `jax.profiler.trace` or XProf wrote, with one file `*.xplane.pb` for each host of
each run, or one such file. Its HLO gives the mesh, the arrays and the collectives as HLO text does.
"""

import importlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from inspector import hlo
from inspector.compiled.measured_program import with_trips
from inspector.files.sources import PROFILE_ENDING
from inspector.hlo.module import Module
from inspector.hlo.shardings import NamedMesh
from inspector.layout.plan import now
from inspector.readers import content, hlo_text, limits
from inspector.readers.content import Report, Sample, no_report
from inspector.readers.hlo_mesh import devices_of
from inspector.readers.hlo_text import ModuleText
from inspector.readers.profiles import kinds, planes
from inspector.readers.profiles.events import Collector, ProgramKey, Recorded
from inspector.readers.profiles.kinds import Kinds
from inspector.readers.profiles.planes import File
from inspector.readers.profiles.times import Times
from inspector.records.snapshot import Finding, Program, Seconds, Snapshot, Source
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import and_text, counted, share_text

CUT, NO_TIMES, NO_HLO = "profile-cut", "profile-without-times", "profile-without-hlo"
OTHER_RUNS, HOSTS_MISSING = "profile-other-runs", "profile-hosts-missing"
UNKNOWN_INSTRUCTIONS, COMMAND_BUFFERS = "profile-unknown-instructions", "profile-command-buffers"

_PRODUCER = "inspector.jax_private.hlo_conversion"
_HLO_MODULE = 1  # the field of an HloProto
_ASSIGNMENT = 15  # of an HloModuleProto
_REPLICAS, _PARTITIONS, _DEVICES, _DEVICE_IDS = 1, 2, 3, 1  # of a DeviceAssignmentProto, and of its devices
# A process lists each program that it has compiled, and JAX compiles one for each operation outside of jit.
_MOST_PROGRAMS = 10_000
# Less time of unknown instructions than this is that of instructions which a backend adds.
_MOST_UNKNOWN = 0.005
_KEEP_COMMANDS = "--xla_gpu_enable_command_buffer="
# XProf's names of chips that differ from those of JAX's devices.
_DEVICE_KINDS = {
    "TPU v5e": "TPU v5 lite",
    "TPU v5 Lite": "TPU v5 lite",
    "TPU v5p": "TPU v5",
    "TPU v6e": "TPU v6 lite",
    "TPU v6 Lite": "TPU v6 lite",
    "TPU v7x": "TPU7x",
}


@dataclass(frozen=True)
class _Program:
    """One program, which can have an id in each of several processes.

    Attributes:
      keys: all of its ids.
      text: its HLO. None if the profile lacks it.
    """

    name: str
    keys: tuple[ProgramKey, ...]
    text: ModuleText | None


def recognizes(sample: Sample) -> bool:
    """Return whether a file is named as a profile, or a folder has such files."""
    return any(name.endswith(PROFILE_ENDING) for name in sample.names or (sample.path.name,))


def read(
    path: Path,
    what: str,
    step: int | None = None,
    report: Report = no_report,
    mesh: NamedMesh | None = None,
) -> Snapshot:
    """Return a Snapshot of the programs that ran, with measured times.

    Args:
      mesh: the mesh of programs whose HLO names none.

    Raises:
      InvalidInput: no file can be read, or `mesh` has another number of devices.
    """
    findings: list[Finding] = []
    files = _files(path, what, findings)
    recorded = _recorded(files, report, findings)
    programs = _programs(recorded)
    snapshot = hlo_text.snapshot_of(
        [program.text for program in programs if program.text is not None],
        Source("profile", None, now(), file=what, processes=len(recorded.hosts)),
        mesh,
        findings,
    )
    if all(program.text is None for program in programs):  # then it is not the text that lacks a mesh
        kept = (finding for finding in snapshot.findings if finding.code != hlo_text.MESH_UNKNOWN)
        snapshot = replace(snapshot, findings=tuple(kept))
    # The programs with HLO are in the order of `programs`.
    with_hlo = iter(snapshot.programs)
    records = [Program(program.name) if program.text is None else next(with_hlo) for program in programs]
    measured = list(_measured(recorded, programs, records))
    mesh_of_hlo, kind = snapshot.mesh, _device_kind(recorded)
    return replace(
        snapshot,
        source=snapshot.source if mesh_of_hlo else replace(snapshot.source, device_kind=kind),
        mesh=mesh_of_hlo and replace(mesh_of_hlo, device_kind=kind),
        programs=tuple(measured),
        findings=(*snapshot.findings, *_missing(recorded, programs, measured)),
    )


def complete_runs(path: Path) -> int:
    """Return the complete runs in a profile of the program that took the most time; 0 without any.

    Raises:
      InvalidInput: the file cannot be read.
    """
    collector = Collector()
    collector.add(File(path, path.name))
    recorded = collector.finish()
    if recorded.events is None:
        return 0
    numbers: dict[ProgramKey, list[int]] = defaultdict(list)
    for number, (key, _) in enumerate(recorded.instructions):
        numbers[key].append(number)
    times = Times(recorded, [None] * len(recorded.instructions))
    traces = [times.of(own).trace for own in numbers.values()]
    return max(traces, key=lambda trace: trace.seconds).steps


# --- Files -----------------------------------------------------------------------------------------------


def _files(path: Path, what: str, findings: list[Finding]) -> list[tuple[Path, str]]:
    """Return the files of one run with their names; of several runs, those of the newest."""
    if not path.is_dir():
        return [(path, Path(what).name)]
    files = [file for file in content.files_below(path, what) if file.name.endswith(PROFILE_ENDING)]
    if not files:
        raise InvalidInput(
            f"{what} contains no file *{PROFILE_ENDING}: give the folder that jax.profiler.trace wrote, and "
            "stop the trace before the program ends"
        )
    runs = sorted({file.parent for file in files})
    if len(runs) > 1:
        others = and_text([shown(run.name, 40) for run in runs[:-1]][-3:])
        message = (
            f"{what} contains {len(runs)} profiles. This is {runs[-1].name}, the newest; "
            f"give the folder of another one to read it: {others}."
        )
        findings.append(Finding("note", OTHER_RUNS, message))
    chosen = [file for file in files if file.parent == runs[-1]]
    if len(chosen) > limits.MOST_PROFILES:
        raise InvalidInput(
            f"{what} has the files of {len(chosen):,} hosts, but at most {limits.MOST_PROFILES:,} are read"
        )
    return [(file, file.name.removesuffix(PROFILE_ENDING)) for file in chosen]


def _recorded(files: Sequence[tuple[Path, str]], report: Report, findings: list[Finding]) -> Recorded:
    collector = Collector()
    refusals: list[str] = []
    for number, (path, name) in enumerate(files):
        report(number, len(files))
        try:
            collector.add(File(path, name))
        except InvalidInput as refused:
            if len(files) == 1:
                raise
            refusals.append(str(refused))
    recorded = collector.finish()
    if not recorded.hosts:
        raise InvalidInput(f"no file of the profile can be read: {refusals[0]}")
    findings += [Finding("warning", CUT, f"Skipped: {refusal}.") for refusal in refusals]
    for name in recorded.cut:
        message = (
            f"{name} is damaged or ends early, so events and programs are missing. Copy the file again, or "
            "wait until the program has ended."
        )
        findings.append(Finding("warning", CUT, message))
    return recorded


# --- Programs --------------------------------------------------------------------------------------------


def _programs(recorded: Recorded) -> list[_Program]:
    """Return the programs that ran, or all of the profile if it has no events.

    The same program has another id in each process, and after it was compiled again.
    """
    ran = list(dict.fromkeys(key for key, _ in recorded.instructions)) or list(recorded.hlo)
    by_id: dict[tuple[int, int | None], dict[str, bytes]] = defaultdict(dict)
    by_name: dict[tuple[int, str], set[bytes]] = defaultdict(set)
    for (host, number, own_name), serialized in recorded.hlo.items():
        by_id[host, number].setdefault(own_name, serialized)
        by_name[host, own_name].add(serialized)

    def hlo_of(key: ProgramKey) -> bytes | None:
        """Return the HLO with the id of a program, or the only one with its name if it has no id."""
        if key.id is None:
            named = by_name.get((key.host, key.name), set())
            return next(iter(named)) if len(named) == 1 else None
        own = by_id.get((key.host, key.id), {})
        return own.get(key.name) if key.name else next(iter(own.values()), None)

    texts: dict[bytes, ModuleText | None] = {}
    programs: dict[object, tuple[str, ModuleText | None, list[ProgramKey]]] = {}
    for key in ran:
        proto = hlo_of(key)
        text = None
        if proto is not None:
            if proto not in texts:
                texts[proto] = _text(proto, key.name)
            text = texts[proto]
        name = key.name if text is None else text.modules[0].name or key.name
        same: object = (key.host, key.id, name) if text is None else _identity(text.modules[0])
        programs.setdefault(same, (name or "program", text, []))[2].append(key)
        if len(programs) > _MOST_PROGRAMS:
            raise InvalidInput(
                f"the profile has more than {_MOST_PROGRAMS:,} programs, the most that are read"
            )
    return [_Program(name, tuple(keys), text) for name, text, keys in programs.values()]


def _text(proto: bytes, name: str) -> ModuleText | None:
    """Return the text of an HloProto, None if it cannot be read."""
    text_of: Callable[[bytes], str] = importlib.import_module(_PRODUCER).text_of
    try:
        module = next(
            proto[part.value : part.end]
            for part in planes.fields(proto, 0, len(proto))
            if part.number == _HLO_MODULE and part.wire == planes.LENGTH
        )
        replicas, partitions, assignment = _device_assignment(module)
        modules = hlo.parser.parse(_with_counts(text_of(module), replicas, partitions))
    except (StopIteration, planes.Damaged, RuntimeError, ValueError, InvalidInput):
        return None
    return ModuleText(name, name, modules, assignment=assignment) if len(modules) == 1 else None


def _with_counts(text: str, replicas: int, partitions: int) -> str:
    """Return a text with the numbers of replicas and partitions, which a serialized module lacks."""
    header, rest = text.split("\n", 1)
    for name, count in (("replica_count", replicas), ("num_partitions", partitions)):
        if count > 1 and f"{name}=" not in header:
            header += f", {name}={count}"
    return f"{header}\n{rest}"


def _device_assignment(module: bytes) -> tuple[int, int, tuple[int, ...] | None]:
    """Return replicas, partitions and the device id of each position from a serialized module.

    Without an assignment, they are 0, 0 and None.
    """
    replicas = partitions = 0
    ids: list[int] = []
    for assignment in planes.fields(module, 0, len(module)):
        if assignment.number != _ASSIGNMENT or assignment.wire != planes.LENGTH:
            continue
        for part in planes.fields(module, assignment.value, assignment.end):
            if part.number == _REPLICAS and part.wire == planes.VARINT:
                replicas = part.value
            elif part.number == _PARTITIONS and part.wire == planes.VARINT:
                partitions = part.value
            elif part.number == _DEVICES and part.wire == planes.LENGTH:
                ids += _integers(module, part.value, part.end)
    return replicas, partitions, tuple(ids) if ids and len(set(ids)) == len(ids) else None


def _integers(data: bytes, begin: int, end: int) -> Iterator[int]:
    """Yield the device ids of a partition, which are packed or not."""
    for part in planes.fields(data, begin, end):
        if part.number != _DEVICE_IDS:
            continue
        if part.wire == planes.VARINT:
            yield part.value
            continue
        at = part.value
        while at < part.end:
            value, at = planes.varint(data, at, part.end)
            yield value


def _identity(module: Module) -> object:
    """Return a value that is equal for programs whose instructions of the same name are the same."""
    return (
        module.name,
        *(
            (instruction.name, instruction.opcode, instruction.shape_text)
            for computation in module.computations
            for instruction in computation.instructions
        ),
    )


# --- Times -----------------------------------------------------------------------------------------------


def _measured(
    recorded: Recorded, programs: Sequence[_Program], records: Sequence[Program]
) -> Iterator[Program]:
    """Yield the records with their measured times, and those without events as they are."""
    if recorded.events is None:
        yield from records
        return
    times, numbers = times_of(recorded, programs, records)
    for record, own in zip(records, numbers, strict=True):
        measured = times.of(own)
        seconds = Seconds(steps=measured.runs)
        yield with_trips(replace(record, stage="measured", seconds=seconds, trace=measured.trace))


def times_of(
    recorded: Recorded, programs: Sequence[_Program], records: Sequence[Program]
) -> tuple[Times, list[list[int]]]:
    """Return the times of a profile, and the numbers of the instructions of each program."""
    of_key: dict[ProgramKey, tuple[int, Kinds | None]] = {}
    for place, (program, record) in enumerate(zip(programs, records, strict=True)):
        own = None
        if program.text is not None:
            own = kinds.of_program(program.text.modules[0], record.collectives or ())
        of_key |= dict.fromkeys(program.keys, (place, own))
    numbers: list[list[int]] = [[] for _ in programs]
    for number, (key, _) in enumerate(recorded.instructions):
        numbers[of_key[key][0]].append(number)
    return Times(recorded, [of_key[key][1] for key, _ in recorded.instructions]), numbers


def _device_kind(recorded: Recorded) -> str | None:
    """Return the kind of the devices, if the profile names one or has its figures."""
    if len(recorded.device_kinds) == 1:
        (written,) = recorded.device_kinds
        return _DEVICE_KINDS.get(written, written)
    return "cpu" if {device.platform for device in recorded.devices} == {"cpu"} else None


# --- Missing parts ------------------------------------------------------------------------------------------


def _missing(
    recorded: Recorded, programs: Sequence[_Program], measured: Sequence[Program]
) -> Iterator[Finding]:
    """Yield the missing parts, why, and what to do."""
    unnamed, kernels = recorded.without_instruction
    if unnamed:
        yield Finding(
            "warning",
            COMMAND_BUFFERS,
            f"{unnamed:,} of {kernels:,} kernels name no instruction, so their time is in no operation. "
            f"Command buffers and libraries launch such kernels: run with XLA_FLAGS={_KEEP_COMMANDS} and "
            "profile again.",
        )
    if recorded.events is None:
        yield Finding(
            "warning",
            NO_TIMES,
            "The profile has no operation of a device, so no time is known. Run the program between "
            "jax.profiler.start_trace and stop_trace, wait for its result before the end, and profile with "
            "ProfileOptions.host_tracer_level of at least 1 and device_tracer_level of 1.",
        )
    lacking = [program for program in programs if program.text is None]
    if lacking:
        names = and_text([shown(program.name, 60) for program in lacking[:3]])
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        yield Finding(
            "warning",
            NO_HLO,
            f"The profile has no HLO of {names}{more}, so mesh, arrays and collectives are unknown. Profile "
            "with ProfileOptions.enable_hlo_proto, and compile the program before the profile begins.",
        )
    for program, record in zip(programs, measured, strict=True):
        yield from _missing_of(program, record)


def _missing_of(program: _Program, record: Program) -> Iterator[Finding]:
    trace = record.trace
    if trace is None or program.text is None:
        return
    devices = devices_of(program.text.modules[0])
    if devices is not None and len(trace.devices) < devices:
        yield Finding(
            "warning",
            HOSTS_MISSING,
            f"{shown(record.name, 60)} runs on {devices:,} devices, but the profile has "
            f"{counted(len(trace.devices), 'device')}: put those of all hosts into one folder.",
            program=record.name,
        )
    busy = trace.busy or 0.0
    unknown = sum(time.own for time in trace.instructions if time.kind == kinds.OTHER)
    if busy and unknown / busy > _MOST_UNKNOWN:
        yield Finding(
            "warning",
            UNKNOWN_INSTRUCTIONS,
            f"{share_text(unknown / busy)} of the time of {shown(record.name, 60)} belongs to instructions "
            "that its HLO does not have. It is listed as other.",
            program=record.name,
        )
