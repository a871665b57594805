"""What `--xla_dump_to` leaves in a folder: which of its texts is the final one of each program.

Files are called `module_0012.jit_step.cpu_after_optimizations.txt`; the middle names the program, the end
the stage. A time may stand before it and the compiler's version within it, and old versions leave the program
out. XLA writes others beside them (buffer assignments, thunks, protos), which are left alone.
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
# The stages after which a compiler is done with a program's text, the last one first.
_FINAL = (
    "after_codegen",
    "after_optimizations_after_buffer_assignment",
    "after_optimizations_before_buffer_assignment",
    "after_optimizations",
)
# How to have text of what was dumped as protos alone.
AS_TEXT = "dump again with --xla_dump_hlo_as_text"
_TEXT = re.compile(r".+\.(?:hlo|txt)(?:\.gz)?", re.IGNORECASE)


@dataclass(frozen=True)
class DumpedText:
    """One file to be read, and the name of its program."""

    path: Path
    program: str


def final_texts(folder: Path, what: str) -> list[DumpedText]:
    """The largest final text of each program of a dump; of any other folder every text.

    Raises:
      InvalidInput: there is none.
    """
    files = content.files_below(folder, what)
    dumped = [(path, found) for path in files if (found := _DUMPED.fullmatch(path.name))]
    final: dict[str, list[tuple[int, int, Path]]] = {}
    for path, found in dumped:
        rank = _rank(found["stage"])
        if rank is not None:
            # Of as large ones that which was dumped first: files are in order.
            program = found["program"] or found["number"]
            final.setdefault(program, []).append((rank, -path.stat().st_size, path))
    if final:
        return [
            DumpedText(min(each, key=lambda one: one[:2])[2], program)
            for program, each in final.items()
        ]
    if dumped:
        raise InvalidInput(
            f"{what} is an XLA dump without any text after optimizations: dump again, and let the "
            "compiler come to its end"
        )
    texts = [path for path in files if _TEXT.fullmatch(path.name)]
    if not texts:
        protos = any(path.name.endswith(".pb") for path in files)
        more = f", only protos; {AS_TEXT}" if protos else ""
        raise InvalidInput(f"{what} holds no HLO text: no file in it ends in .hlo or .txt{more}")
    if len(texts) > limits.MOST_PROGRAMS:
        raise InvalidInput(
            f"{what} holds {len(texts):,} texts, at most {limits.MOST_PROGRAMS:,} are read"
        )
    return [DumpedText(path, path.name) for path in texts]


def _rank(stage: str) -> int | None:
    """The place of a stage among the final ones; None where it is not one."""
    return next((rank for rank, end in enumerate(_FINAL) if stage.endswith(end)), None)
