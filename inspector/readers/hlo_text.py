"""Read HLO text: one program per module with its collectives, its work, its inputs and its outputs.

The text has one module or several, and may be cut off or gzip. A folder of texts is read too, such as one
that `--xla_dump_to` wrote.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from inspector import hlo
from inspector.compiled import program_text
from inspector.compiled.donation import with_donation
from inspector.hlo import entry
from inspector.hlo.module import Module, platform_of
from inspector.hlo.shardings import NamedMesh
from inspector.layout.plan import now
from inspector.readers import content, limits, stablehlo
from inspector.readers.content import Report, Sample, no_report
from inspector.readers.hlo_mesh import FoundMesh, HloArrays, ProgramText, devices_of, find_mesh
from inspector.records.snapshot import Collective, Finding, Program, ProgramArray, Snapshot, Source
from inspector.sharding.array_groups import with_roles
from inspector.sharding.sharding_text import mesh_text
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import counted, numbered

# Choose the texts of a folder that `--xla_dump_to` wrote, and the facts about each from its neighbors.
#
# Files are named `module_0012.jit_step.cpu_after_optimizations.txt`: number, program, stage. A timestamp can
# precede the name and the compiler's version can follow the program; old versions omit the program.


_DUMPED = re.compile(
    r"(?P<module>(?:\d+\.)?(?P<number>(?:module_)?\d+)\.(?:(?P<program>.+?)\.)?)(?:cl_\d+\.)?"
    r"(?P<stage>(?:[\w.\-]*_)?(?:before|after)_[\w\-]+)\.(?:txt|hlo)(?:\.gz)?"
)
_BEFORE = "before_optimizations"
# Stages after the last optimization, the latest first.
_FINAL = (
    "after_codegen",
    "after_optimizations_after_buffer_assignment",
    "after_optimizations_before_buffer_assignment",
    "after_optimizations",
)
AS_TEXT = "dump again with --xla_dump_hlo_as_text"
TEXT_FILE = re.compile(r".+\.(?:hlo|txt)(?:\.gz)?", re.IGNORECASE)
_OPTIONS = "compile_options.textproto"
_ASSIGNMENT = re.compile(r"\bdevice_assignment\s*+\{")
_DEVICE_ID = re.compile(r"\breplica_device_ids\s*+:\s*+(\d{1,9})\b")
_MOST_OPTIONS_BYTES = 32 * 1024**2  # a device has about 60 bytes


@dataclass(frozen=True)
class DumpedText:
    """A text file, the name of its program, and its neighbors.

    Attributes:
      before: the text of the same program before optimizations. None if there is none.
      options: the compile options of the same program. None if there are none.
    """

    path: Path
    program: str
    before: Path | None = None
    options: Path | None = None


def final_texts(folder: Path, what: str) -> list[DumpedText]:
    """Return the largest final text of each program of a dump, or all texts of another folder.

    Raise InvalidInput if there are none, or too many.
    """
    files = content.files_below(folder, what)
    dumped = [(path, match) for path in files if (match := _DUMPED.fullmatch(path.name))]
    final: dict[str, list[tuple[int, int, Path]]] = {}
    for path, match in dumped:
        rank = next((n for n, end in enumerate(_FINAL) if match["stage"].endswith(end)), None)
        if rank is not None:
            program = match["program"] or match["number"]
            final.setdefault(program, []).append((rank, -path.stat().st_size, path))
    if final:
        # Files are in the order of the dump, so a tie keeps the first one.
        return [
            _with_neighbors(min(ranked, key=lambda text: text[:2])[2], program, files)
            for program, ranked in final.items()
        ]
    if dumped:
        raise InvalidInput(
            f"{what} is an XLA dump without text after optimizations: dump again, and let the compiler finish"
        )
    texts = [path for path in files if TEXT_FILE.fullmatch(path.name)]
    if not texts:
        protos = any(path.name.endswith(".pb") for path in files)
        more = f", only protos; {AS_TEXT}" if protos else ""
        raise InvalidInput(f"{what} contains no HLO text: no file ends in .hlo or .txt{more}")
    if len(texts) > limits.MOST_PROGRAMS:
        raise InvalidInput(
            f"{what} contains {len(texts):,} files of HLO text, but at most {limits.MOST_PROGRAMS:,} are read"
        )
    return [DumpedText(path, path.name) for path in texts]


def with_neighbors(path: Path, program: str) -> DumpedText:
    """Return one file with the neighbors in its folder, which is a dump if the file is named so."""
    match = _DUMPED.fullmatch(path.name)
    if match is None or match["stage"].endswith(_BEFORE):
        return DumpedText(path, program)
    options = path.parent / match["module"].rstrip(".") / _OPTIONS
    near = [path.parent / f"{match['module']}{_BEFORE}{end}" for end in (".txt", ".txt.gz")]
    return _with_neighbors(path, program, [file for file in (*near, options) if file.is_file()])


def device_assignment(path: Path | None) -> tuple[int, ...] | None:
    """Return the device id of each position from compile options, None if they have none or are too large."""
    if path is None:
        return None
    try:
        written = content.read_bytes(path, _MOST_OPTIONS_BYTES, path.name).decode("utf-8", "replace")
    except InvalidInput:
        return None
    start = _ASSIGNMENT.search(written)
    if start is None:
        return None
    ids = tuple(map(int, _DEVICE_ID.findall(written[start.end() :])))
    return ids if 0 < len(ids) <= limits.MOST_DEVICES and len(set(ids)) == len(ids) else None


def _with_neighbors(path: Path, program: str, files: Iterable[Path]) -> DumpedText:
    match = _DUMPED.fullmatch(path.name)
    module = match["module"] if match else ""
    before = options = None
    for other in files:
        if other.parent == path.parent and other.name.startswith(module):
            named = _DUMPED.fullmatch(other.name)
            if named and named["module"] == module and named["stage"] == _BEFORE:
                before = other
        elif other.name == _OPTIONS and other.parent == path.parent / module.rstrip("."):
            options = other
    return DumpedText(path, program, before, options)


CUT = "file-cut"
MESH_UNKNOWN = "mesh-unknown"
MESH_DERIVED = "mesh-derived"
MESH_NOT_USED = "mesh-not-used"
ABSTRACT_MESH = "abstract-mesh"
_JSON = re.compile(r"\s*[\[{]\s*[\"\[{\]}\d]")
_PROTO = re.compile(r"\s*(?:name|hlo_module)\s*[:{]")


@dataclass(frozen=True)
class ModuleText:
    """The modules of one file. `name` is used for a module without a name.

    before: the module before optimizations, if the file has a single module and the dump contains it.
    assignment: the device id of each position, if the dump contains it.
    """

    name: str
    what: str
    modules: tuple[Module, ...]
    cut: str | None = None
    before: Module | None = None
    assignment: tuple[int, ...] | None = None


def recognizes(sample: Sample) -> bool:
    """Return whether a file is gzip or text other than JSON, or a folder has files named like texts."""
    if sample.path.is_dir():
        return any(TEXT_FILE.fullmatch(name) for name in sample.names or ())
    return not sample.is_json


def read(
    path: Path, what: str, step: int | None = None, report: Report = no_report, mesh: NamedMesh | None = None
) -> Snapshot:
    """Return a Snapshot of the programs of a text, or of the final texts of a folder.

    Args:
      mesh: the mesh of programs whose text names none.

    Raises:
      InvalidInput: the text cannot be read, or `mesh` has another number of devices.
    """
    if stablehlo.recognizes(Sample(path, what)):
        return stablehlo.read(path, what, mesh=mesh)
    findings: list[Finding] = []
    if path.is_dir():
        texts = _read_folder(path, what, findings, report)
    else:
        texts = [_read_text(with_neighbors(path, Path(what).name), what)]
    findings += [Finding("warning", CUT, f"{text.cut}.") for text in texts if text.cut is not None]
    return snapshot_of(texts, Source("hlo", None, now(), file=what), mesh, findings)


def snapshot_of(
    texts: Sequence[ModuleText], source: Source, mesh: NamedMesh | None, findings: list[Finding]
) -> Snapshot:
    """Return a Snapshot of the programs of some texts, in their order.

    Args:
      mesh: the mesh of programs whose text names none.
      findings: further findings of the Snapshot.

    Raises:
      InvalidInput: there are too many programs, or `mesh` has another number of devices.
    """
    modules = [(text, module) for text in texts for module in text.modules]
    if len(modules) > limits.MOST_PROGRAMS:
        raise InvalidInput(
            f"{source.file} contains {len(modules):,} programs, but at most {limits.MOST_PROGRAMS:,} are read"
        )
    names = numbered(module.name or text.name for text, module in modules)
    programs = [
        ProgramText(name, module, text.before) for name, (text, module) in zip(names, modules, strict=True)
    ]
    found_mesh = find_mesh(
        [module for program in programs for module in program.modules],
        mesh,
        [text.assignment for text in texts if text.assignment is not None],
    )
    arrays = HloArrays(found_mesh)
    room = hlo.replica_groups.Room()
    records = [_program(program, found_mesh, arrays, findings, room) for program in programs]
    findings += [*arrays.findings(), *_about_mesh(found_mesh, mesh)]
    snapshot = with_roles(
        Snapshot(
            source=source,
            layout=None,
            mesh=None if found_mesh is None else found_mesh.record,
            arrays=arrays.arrays,
            programs=tuple(records),
            findings=tuple(findings),
        )
    )
    return with_donation(snapshot)


def _about_mesh(mesh: FoundMesh | None, given: NamedMesh | None) -> Iterable[Finding]:
    """Yield the unknown facts about the mesh."""
    if mesh is None:
        note = "The text names no mesh, so mesh axes are unknown. --mesh and --axes give them."
        yield Finding("note", MESH_UNKNOWN, note)
        return
    if mesh.how == "derived":
        note = (
            f"The text names no mesh. {mesh_text(mesh.record)} follows from its shardings; "
            "--mesh and --axes give the program's own axes."
        )
        yield Finding("note", MESH_DERIVED, note)
    if mesh.how == "named" and given is not None and given.axes != mesh.mesh.axes:
        note = f"--mesh is not used, because the text names the mesh {mesh_text(mesh.record)}."
        yield Finding("warning", MESH_NOT_USED, note)
    if not mesh.numbered:
        note = "The text has no device ids, so devices are numbered in the order of the program."
        yield Finding("note", ABSTRACT_MESH, note)


def refuse_other_text(text: str, what: str) -> None:
    """Raise InvalidInput if text is StableHLO, JSON or a text proto instead of HLO."""
    if re.search(r"^\s*HloModule\s", text, re.M):
        return
    if stablehlo.TEXT.search(text[:100_000]):
        raise InvalidInput(
            f"{what} is StableHLO or other MLIR text, which has no collectives of the compiler: give "
            "the compiled text, jitted.lower(…).compile().as_text()"
        )
    for kind, pattern in (("JSON", _JSON), ("a text proto", _PROTO)):
        if pattern.match(text):
            raise InvalidInput(f"{what} is {kind}, but must be HLO text that begins with HloModule")


def _read_folder(path: Path, what: str, findings: list[Finding], report: Report) -> list[ModuleText]:
    chosen = final_texts(path, what)
    texts: list[ModuleText] = []
    left = limits.MOST_TEXT_BYTES_TOGETHER
    refusals: list[str] = []
    for number, text in enumerate(chosen):
        report(number, len(chosen))
        left -= text.path.stat().st_size
        if left < 0:
            raise InvalidInput(
                f"{what} has more than {limits.MOST_TEXT_BYTES_TOGETHER:,} bytes of text: give a folder "
                "of fewer programs"
            )
        try:
            texts.append(_read_text(text, str(text.path.relative_to(path))))
        except InvalidInput as refused:
            refusals.append(str(refused))
    if not texts:
        raise InvalidInput(f"{what} contains no HLO text that can be read: {refusals[0]}")
    if refusals:
        others = f", and {counted(len(refusals) - 1, 'other file')}" if len(refusals) > 1 else ""
        findings.append(Finding("warning", "file-refused", f"Skipped: {refusals[0]}{others}."))
    return texts


def _read_text(dumped: DumpedText, what: str) -> ModuleText:
    if what.lower().endswith((".pb", ".pb.gz")):
        raise InvalidInput(
            f"{what} is a binary proto, but must be HLO text that begins with HloModule: {AS_TEXT}"
        )
    text = content.read_text(dumped.path, what)
    refuse_other_text(text.text, what)
    try:
        modules = hlo.parser.parse(text.text)
    except InvalidInput as refused:
        raise InvalidInput(f"{what} is not HLO text: {refused}") from None
    before = _before(dumped.before) if len(modules) == 1 else None
    assignment = device_assignment(dumped.options)
    return ModuleText(dumped.program, what, modules, text.cut, before, assignment)


def _before(path: Path | None) -> Module | None:
    """Return the module before optimizations. It only adds to the other text, so it may be unreadable."""
    if path is None:
        return None
    try:
        modules = hlo.parser.parse(content.read_text(path, path.name).text)
    except InvalidInput:
        return None
    return modules[0] if len(modules) == 1 and modules[0].truncated is None else None


def _program(
    text: ProgramText,
    found_mesh: FoundMesh | None,
    arrays: HloArrays,
    findings: list[Finding],
    room: hlo.replica_groups.Room,
) -> Program:
    """Return one program. Add its arrays, and a finding for each part that cannot be read."""
    name, module = text.name, text.module
    called = shown(name, 120)
    if module.truncated is not None:
        message = f"Program {called}: {module.truncated}. Executions and work may be unknown."
        findings.append(Finding("warning", CUT, message))
    devices = devices_of(module)
    # A mesh of another size would give wrong mesh axes.
    fits = found_mesh is not None and devices in (None, found_mesh.mesh.size)
    shardings: tuple[ProgramArray, ...] = ()
    if fits or found_mesh is None:
        shardings = arrays.add(text, found_mesh.mesh.size if fits and found_mesh is not None else devices)
    mesh = found_mesh.record if fits and found_mesh is not None and found_mesh.mesh.order is None else None
    facts = program_text.read_module(module, mesh, shardings, room=room)
    if facts.problem is not None:
        findings.append(Finding("warning", "program-unreadable", f"Program {called}: {facts.problem}."))
    devices = devices or _devices_in_groups(facts.collectives or ())
    if not entry.is_partitioned(module):
        used = program_text.with_uses(shardings, facts.uses, facts.gradients, None)
        return Program(name, shardings=used, ideal=facts.ideal, devices=devices)
    program = Program(
        name,
        shardings=program_text.with_uses(shardings, facts.uses, facts.gradients, facts.reused),
        memory=program_text.memory_of(module, facts.memory_use),
        stage="compiled",
        platform=platform_of(module),
        devices=devices,
    )
    return facts.added_to(program)


def _devices_in_groups(collectives: Iterable[Collective]) -> int | None:
    """Return the number of devices in the groups of every collective, None if unknown or ambiguous."""
    counts = {
        collective.groups * collective.group_size
        for collective in collectives
        if collective.source_target_pairs is None
        and collective.groups is not None
        and collective.group_size is not None
    }
    return counts.pop() if len(counts) == 1 else None
