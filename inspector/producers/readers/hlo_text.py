"""Read HLO text: one program per module with its collectives and its work, without arrays.

The text has one module or several, and may be cut off or gzip. A folder of texts is read too.

A folder that `--xla_dump_to` wrote has files named `module_0012.jit_step.cpu_after_optimizations.txt`:
number, program, stage. A timestamp can precede the name and the compiler's version can follow the program;
old versions omit the program.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from inspector.compiled import hlo
from inspector.compiled.hlo.analysis import Analysis
from inspector.compiled.hlo.module import Module
from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import counted, numbered
from inspector.core.snapshot import Collective, Finding, Mesh, MeshAxis, Program, Snapshot, Source
from inspector.layout.plan import now
from inspector.producers.readers import content, limits
from inspector.producers.readers.content import Report, Sample, no_report

CUT = "file-cut"
MESH_UNKNOWN = "mesh-unknown"
# Beginnings of MLIR text, which comes before HLO and has no collectives of the compiler.
_STABLEHLO = re.compile(
    r"^\s*(?:#loc\b|module\s+(?:@|attributes\b|\{)|func\.func\b)|\bstablehlo\.", re.M
)
_JSON = re.compile(r"\s*[\[{]\s*[\"\[{\]}\d]")
_PROTO = re.compile(r"\s*(?:name|hlo_module)\s*[:{]")
# `mesh['data'=2,'model'=4] {'model'}`. XLA invents axes named `axis_0`, which differ between instructions.
_MESH = re.compile(r"^mesh\[([^\]]*)\](?!.*device_ids)", re.S)
_AXIS = re.compile(r"['\"]([^'\"=]+)['\"]=(\d{1,9})")
_INVENTED_AXIS = re.compile(r"_?axis_\d+")
_DUMPED = re.compile(
    r"(?:\d+\.)?(?P<number>(?:module_)?\d+)\.(?:(?P<program>.+?)\.)?(?:cl_\d+\.)?"
    r"(?P<stage>(?:[\w.\-]*_)?(?:before|after)_[\w\-]+)\.(?:txt|hlo)(?:\.gz)?"
)
# Stages after the last optimization, the latest first.
_FINAL = (
    "after_codegen",
    "after_optimizations_after_buffer_assignment",
    "after_optimizations_before_buffer_assignment",
    "after_optimizations",
)
_AS_TEXT = "dump again with --xla_dump_hlo_as_text"
_TEXT_FILE = re.compile(r".+\.(?:hlo|txt)(?:\.gz)?", re.IGNORECASE)


@dataclass(frozen=True)
class _DumpedText:
    """A text file and the name of its program."""

    path: Path
    program: str


@dataclass(frozen=True)
class _Text:
    """The modules of one file. `name` is used for a module without a name."""

    name: str
    what: str
    modules: tuple[Module, ...]
    cut: str | None = None


def recognizes(sample: Sample) -> bool:
    """Return whether a file is gzip or text other than JSON, or a folder has files named like texts."""
    if sample.path.is_dir():
        return any(_TEXT_FILE.fullmatch(name) for name in sample.names or ())
    return not sample.is_json


def read(path: Path, what: str, step: int | None = None, report: Report = no_report) -> Snapshot:
    """Return a Snapshot of the programs of a text, or of the final texts of a folder."""
    findings: list[Finding] = []
    if path.is_dir():
        texts = _read_folder(path, what, findings, report)
    else:
        texts = [_read_text(path, what, Path(what).name)]
    modules = [(text, module) for text in texts for module in text.modules]
    if len(modules) > limits.MOST_PROGRAMS:
        raise InvalidInput(
            f"{what} contains {len(modules):,} programs, but at most {limits.MOST_PROGRAMS:,} are read"
        )
    mesh = mesh_of([module for _, module in modules])
    findings += [Finding("warning", CUT, f"{text.cut}.") for text in texts if text.cut is not None]
    names = numbered(module.name or text.name for text, module in modules)
    programs = [
        _program(name, module, mesh, findings)
        for name, (_, module) in zip(names, modules, strict=True)
    ]
    if mesh is None:
        note = (
            "The text has no mesh with named axes, so the mesh axes of the collectives are unknown."
        )
        findings.append(Finding("note", MESH_UNKNOWN, note))
    return Snapshot(
        source=Source("hlo", None, now(), extra={"file": what}),
        layout=None,
        mesh=mesh,
        arrays=(),
        programs=tuple(programs),
        findings=tuple(findings),
    )


def mesh_of(modules: Iterable[Module]) -> Mesh | None:
    """Return the mesh of all replica groups with named axes, None if there is none or several."""
    found: set[tuple[tuple[str, int], ...]] = set()
    for module in modules:
        for computation in module.computations:
            for instruction in computation.instructions:
                if "mesh[" not in instruction.attributes_text:
                    continue
                match = _MESH.match(instruction.attributes.get("replica_groups", "").strip())
                axes = _AXIS.findall(match[1]) if match else []
                if axes and not any(_INVENTED_AXIS.fullmatch(name) for name, _ in axes):
                    found.add(tuple((name, int(size)) for name, size in axes))
    if len(found) != 1:
        return None
    (named,) = found
    size = math.prod(size for _, size in named)
    if not 0 < size <= limits.MOST_DEVICES or len(dict(named)) != len(named):
        return None
    return Mesh(tuple(MeshAxis(name, one) for name, one in named), tuple(range(size)))


def refuse_other_text(text: str, what: str) -> None:
    """Raise InvalidInput if text is StableHLO, JSON or a text proto instead of HLO."""
    if re.search(r"^\s*HloModule\s", text, re.M):
        return
    if _STABLEHLO.search(text[:100_000]):
        raise InvalidInput(
            f"{what} is StableHLO or other MLIR text, which has no collectives of the compiler: give "
            "the compiled text, jitted.lower(…).compile().as_text()"
        )
    for kind, pattern in (("JSON", _JSON), ("a text proto", _PROTO)):
        if pattern.match(text):
            raise InvalidInput(f"{what} is {kind}, but must be HLO text that begins with HloModule")


def _read_folder(path: Path, what: str, findings: list[Finding], report: Report) -> list[_Text]:
    chosen = _final_texts(path, what)
    texts: list[_Text] = []
    left = limits.MOST_TEXT_BYTES_TOGETHER
    refusals: list[str] = []
    for number, one in enumerate(chosen):
        report(number, len(chosen))
        left -= one.path.stat().st_size
        if left < 0:
            raise InvalidInput(
                f"{what} has more than {limits.MOST_TEXT_BYTES_TOGETHER:,} bytes of text: give a folder "
                "of fewer programs"
            )
        try:
            texts.append(_read_text(one.path, str(one.path.relative_to(path)), one.program))
        except InvalidInput as refused:
            refusals.append(str(refused))
    if not texts:
        raise InvalidInput(f"{what} contains no HLO text that can be read: {refusals[0]}")
    if refusals:
        others = f", and {counted(len(refusals) - 1, 'other file')}" if len(refusals) > 1 else ""
        message = f"Skipped: {refusals[0]}{others}."
        findings.append(Finding("warning", "file-refused", message))
    return texts


def _read_text(path: Path, what: str, name: str) -> _Text:
    if what.lower().endswith((".pb", ".pb.gz")):
        raise InvalidInput(
            f"{what} is a binary proto, but must be HLO text that begins with HloModule: {_AS_TEXT}"
        )
    text = content.read_text(path, what)
    refuse_other_text(text.text, what)
    try:
        modules = hlo.parse(text.text)
    except InvalidInput as refused:
        raise InvalidInput(f"{what} is not HLO text: {refused}") from None
    return _Text(name, what, modules, text.cut)


def _program(name: str, module: Module, mesh: Mesh | None, findings: list[Finding]) -> Program:
    """Return one program. Add a finding for each part that cannot be read."""
    called = shown(name, 120)
    if module.truncated is not None:
        message = f"Program {called}: {module.truncated}. Executions and work may be unknown."
        findings.append(Finding("warning", CUT, message))
    collectives = work = None
    try:
        analysis = Analysis(module)
        # A mesh of another size would give wrong mesh axes.
        fits = mesh is not None and _devices(module) in (None, mesh.size)
        collectives = hlo.collectives(module, mesh if fits else None, analysis)
        if module.entry is not None and module.truncated is None:
            work = hlo.work(module, analysis)
    except InvalidInput as refused:
        findings.append(Finding("warning", "program-unreadable", f"Program {called}: {refused}."))
    devices = _devices(module) or _devices_in_groups(collectives or ())
    return Program(
        name,
        flops_per_device=None if work is None else work.flops,
        collectives=collectives,
        work=work,
        extra={} if devices is None else {"devices": devices},
    )


def _devices(module: Module) -> int | None:
    """Return the number of devices in the module's header, None if it has none."""
    if module.partitions is None and module.replicas is None:
        return None
    return (module.partitions or 1) * (module.replicas or 1)


def _devices_in_groups(collectives: Iterable[Collective]) -> int | None:
    """Return the number of devices in the groups of every collective, None if unknown or ambiguous."""
    counts = {
        one.groups * one.group_size
        for one in collectives
        if one.source_target_pairs is None and one.groups is not None and one.group_size is not None
    }
    return counts.pop() if len(counts) == 1 else None


def _final_texts(folder: Path, what: str) -> list[_DumpedText]:
    """Return the largest final text of each program of a dump, or all texts of another folder."""
    files = content.files_below(folder, what)
    dumped = [(path, found) for path in files if (found := _DUMPED.fullmatch(path.name))]
    final: dict[str, list[tuple[int, int, Path]]] = {}
    for path, found in dumped:
        rank = next((n for n, end in enumerate(_FINAL) if found["stage"].endswith(end)), None)
        if rank is not None:
            program = found["program"] or found["number"]
            final.setdefault(program, []).append((rank, -path.stat().st_size, path))
    if final:
        # Files are in the order of the dump, so a tie keeps the first one.
        return [
            _DumpedText(min(each, key=lambda one: one[:2])[2], program)
            for program, each in final.items()
        ]
    if dumped:
        raise InvalidInput(
            f"{what} is an XLA dump without text after optimizations: dump again, and let the compiler finish"
        )
    texts = [path for path in files if _TEXT_FILE.fullmatch(path.name)]
    if not texts:
        protos = any(path.name.endswith(".pb") for path in files)
        more = f", only protos; {_AS_TEXT}" if protos else ""
        raise InvalidInput(f"{what} contains no HLO text: no file ends in .hlo or .txt{more}")
    if len(texts) > limits.MOST_PROGRAMS:
        raise InvalidInput(
            f"{what} contains {len(texts):,} texts, but at most {limits.MOST_PROGRAMS:,} are read"
        )
    return [_DumpedText(path, path.name) for path in texts]
