"""HLO text as a Snapshot: one program a module, its collectives and its work; no arrays.

The text may be one module or many, cut off, packed with gzip, or a folder that XLA dumped into.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from inspector.compiled import hlo
from inspector.compiled.hlo.calls import runs
from inspector.compiled.hlo.module import Module
from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import counted
from inspector.core.snapshot import (
    Collective,
    Finding,
    Mesh,
    MeshAxis,
    Program,
    Snapshot,
    Source,
)
from inspector.layout.plan import now
from inspector.producers.readers import content, hlo_dump, limits

CUT = "file-cut"
MESH_UNKNOWN = "mesh-unknown"
# How texts begin that come before HLO, and that hold no collective that a compiler put in.
_STABLEHLO = re.compile(
    r"^\s*(?:#loc\b|module\s+(?:@|attributes\b|\{)|func\.func\b)|\bstablehlo\.", re.M
)
_JSON = re.compile(r"\s*[\[{]\s*[\"\[{\]}\d]")
_PROTO = re.compile(r"\s*(?:name|hlo_module)\s*[:{]")

Report = Callable[[int, int], None]


@dataclass(frozen=True)
class _Text:
    """One file's modules; `name` is what a module without a name is called."""

    name: str
    what: str
    modules: tuple[Module, ...]
    cut: str | None = None


def read(
    path: str | os.PathLike[str], what: str, report: Report = lambda done, of: None
) -> Snapshot:
    """The programs of a text, or the final ones of a folder of texts.

    Raises:
      InvalidInput: it is no HLO text, or none is in the folder.
    """
    findings: list[Finding] = []
    if Path(path).is_dir():
        texts = _of_folder(Path(path), what, findings, report)
    else:
        texts = [_read_text(path, what, Path(what).name)]
    modules = [(text, module) for text in texts for module in text.modules]
    if len(modules) > limits.MOST_PROGRAMS:
        raise InvalidInput(
            f"{what} holds {len(modules):,} programs, at most {limits.MOST_PROGRAMS:,} are read"
        )
    mesh = mesh_of([module for _, module in modules])
    for text in texts:
        if text.cut is not None:
            findings.append(Finding("warning", CUT, f"{text.cut}."))
    programs: list[Program] = []
    taken: dict[str, int] = {}
    for text, module in modules:
        name = module.name or text.name
        taken[name] = taken.get(name, 0) + 1
        if taken[name] > 1:
            name = f"{name} ({taken[name]})"
        programs.append(_program(name, module, mesh, findings))
    if mesh is None:
        findings.append(
            Finding(
                "note",
                MESH_UNKNOWN,
                "The text names no mesh: groups of devices are as it numbers them, and which mesh axes "
                "they are along is unknown, as are the arrays.",
            )
        )
    return Snapshot(
        source=Source("hlo", None, now(), extra={"file": what}),
        layout=None,
        mesh=mesh,
        arrays=(),
        programs=tuple(programs),
        findings=tuple(findings),
    )


def refuse_other_text(text: str, what: str) -> None:
    """Refuse text of another kind by its own name, which is of more use than the line where HLO ends.

    Raises:
      InvalidInput: it is StableHLO, JSON or a text proto.
    """
    if re.search(r"^\s*HloModule\s", text, re.M):
        return
    if _STABLEHLO.search(text[:100_000]):
        raise InvalidInput(
            f"{what} is StableHLO or another MLIR text, in which the compiler has not yet put any "
            "collective: give the compiled text, jitted.lower(…).compile().as_text()"
        )
    if _JSON.match(text):
        raise InvalidInput(f"{what} is JSON, but must be HLO text, which begins with HloModule")
    if _PROTO.match(text):
        raise InvalidInput(
            f"{what} is a text proto, but must be HLO text, which begins with HloModule"
        )


def _of_folder(path: Path, what: str, findings: list[Finding], report: Report) -> list[_Text]:
    """The final text of each program that XLA dumped, or each text of a folder of others."""
    chosen = hlo_dump.final_texts(path, what)
    texts: list[_Text] = []
    left = limits.MOST_TEXT_BYTES_TOGETHER
    refusals: list[str] = []
    for number, one in enumerate(chosen):
        report(number, len(chosen))
        called = str(one.path.relative_to(path))
        left -= one.path.stat().st_size
        if left < 0:
            raise InvalidInput(
                f"{what} holds more text than is read; give a folder of fewer programs"
            )
        try:
            texts.append(_read_text(one.path, called, one.program))
        except InvalidInput as refused:
            refusals.append(str(refused))
    if not texts:
        raise InvalidInput(f"{what} holds no HLO text that can be read: {refusals[0]}")
    if refusals:
        others = f", and {counted(len(refusals) - 1, 'other file')}" if len(refusals) > 1 else ""
        message = f"{refusals[0]}{others}: left out."
        findings.append(Finding("warning", "file-refused", message))
    return texts


def _read_text(path: str | os.PathLike[str], what: str, name: str) -> _Text:
    if what.lower().endswith((".pb", ".pb.gz")):
        raise InvalidInput(
            f"{what} is a binary proto, but must be HLO text, which begins with HloModule: "
            f"{hlo_dump.AS_TEXT}"
        )
    read_ = content.read_text(path, what)
    refuse_other_text(read_.text, what)
    try:
        modules = hlo.parse(read_.text)
    except InvalidInput as refused:
        raise InvalidInput(f"{what} is no HLO text: {refused}") from None
    return _Text(name, what, modules, read_.cut)


def _program(name: str, module: Module, mesh: Mesh | None, findings: list[Finding]) -> Program:
    """One program; what cannot be read of it is unknown, with a finding that says why."""
    called = shown(name, 120)
    if module.truncated is not None:
        findings.append(
            Finding(
                "warning",
                CUT,
                f"Program {called}: {module.truncated}, so that how often its collectives run and what "
                "it computes may be unknown.",
            )
        )
    collectives = work = None
    try:
        known = runs(module)
        # On a mesh of another size the groups would be counted wrongly.
        fits = mesh is not None and _devices(module) in (None, mesh.size)
        collectives = hlo.collectives(module, mesh if fits else None, known)
        if module.entry is not None and module.truncated is None:
            work = hlo.work(module, known)
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
    """For how many devices the program is, as its header says; None where it says nothing."""
    if module.partitions is None and module.replicas is None:
        return None
    return (module.partitions or 1) * (module.replicas or 1)


def _devices_in_groups(collectives: Iterable[Collective]) -> int | None:
    """The devices that the groups of every collective make together, for XLA has each in one group.

    None where no collective says it, or two say differently, as of replicas and of partitions.
    """
    made = {
        one.groups * one.group_size
        for one in collectives
        if one.source_target_pairs is None and one.groups is not None and one.group_size is not None
    }
    return made.pop() if len(made) == 1 else None


_MESH = re.compile(r"^mesh\[([^\]]*)\](?!.*device_ids)", re.S)
_AXIS = re.compile(r"['\"]([^'\"=]+)['\"]=(\d{1,9})")
_ANONYMOUS = re.compile(r"_?axis_\d+")


def mesh_of(modules: Iterable[Module]) -> Mesh | None:
    """The one mesh that all groups with named axes are written on; None where there is none, or several."""
    found: set[tuple[tuple[str, int], ...]] = set()
    for module in modules:
        for computation in module.computations:
            for instruction in computation.instructions:
                if "mesh[" not in instruction.attributes_text:
                    continue
                groups = instruction.attributes.get("replica_groups", "")
                match = _MESH.match(groups.strip())
                axes = _AXIS.findall(match[1]) if match else []
                if axes and not any(_ANONYMOUS.fullmatch(name) for name, _ in axes):
                    found.add(tuple((name, int(size)) for name, size in axes))
    if len(found) != 1:
        return None
    (axes,) = found
    size = math.prod(size for _, size in axes)
    names = {name for name, _ in axes}
    if not 0 < size <= limits.MOST_DEVICES or len(names) != len(axes):
        return None
    return Mesh(tuple(MeshAxis(name, one) for name, one in axes), tuple(range(size)))
