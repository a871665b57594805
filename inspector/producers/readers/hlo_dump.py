"""Choose the texts of a folder that `--xla_dump_to` wrote, and the facts about each from its neighbors.

Files are named `module_0012.jit_step.cpu_after_optimizations.txt`: number, program, stage. A timestamp can
precede the name and the compiler's version can follow the program; old versions omit the program.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from inspector.core.errors import InvalidInput
from inspector.producers.readers import content, limits

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
    """Return the largest final text of each program of a dump, or all texts of another folder."""
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
