"""Find the final text of each program in a folder that `--xla_dump_to` wrote.

A file is named `module_0012.jit_step.cpu_after_optimizations.txt`: number, program, stage. A timestamp can
precede the name and the compiler's version can follow the program; old versions omit the program.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from inspector.core.errors import InvalidInput
from inspector.producers.readers import content, limits

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
AS_TEXT = "dump again with --xla_dump_hlo_as_text"
TEXT = re.compile(r".+\.(?:hlo|txt)(?:\.gz)?", re.IGNORECASE)


@dataclass(frozen=True)
class DumpedText:
    """A text file and the name of its program."""

    path: Path
    program: str


def final_texts(folder: Path, what: str) -> list[DumpedText]:
    """Return the largest final text of each program of a dump, or all texts of another folder.

    Raises:
      InvalidInput: there is none.
    """
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
            DumpedText(min(each, key=lambda one: one[:2])[2], program)
            for program, each in final.items()
        ]
    if dumped:
        raise InvalidInput(
            f"{what} is an XLA dump without text after optimizations: dump again, and let the compiler finish"
        )
    texts = [path for path in files if TEXT.fullmatch(path.name)]
    if not texts:
        protos = any(path.name.endswith(".pb") for path in files)
        more = f", only protos; {AS_TEXT}" if protos else ""
        raise InvalidInput(f"{what} contains no HLO text: no file ends in .hlo or .txt{more}")
    if len(texts) > limits.MOST_PROGRAMS:
        raise InvalidInput(
            f"{what} contains {len(texts):,} texts, but at most {limits.MOST_PROGRAMS:,} are read"
        )
    return [DumpedText(path, path.name) for path in texts]
