"""Analyse a compiled program, compared with compiling it; and a text, compared with half of it.

The analysis finds the instructions, collectives and FLOPs in the text. Printing the text is not included.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

from benchmarks.pairing import Result, interleave, ratio_result
from benchmarks.plain_process import PlainProcess
from inspector import hlo
from inspector.hlo.work import work
from inspector.records.snapshot import Mesh, MeshAxis

PAIRS = 5
LIMIT = 0.10
LINEAR = 2.2  # twice the text takes twice the time, and 10% for a larger working set
LAYERS = 32
MEGABYTES = 25  # the size of the smaller text
MESH = Mesh((MeshAxis("data", 2), MeshAxis("model", 4)), tuple(range(8)))
LARGE_PROGRAM = Path(__file__).with_name("large_program.py")
_NAME = re.compile(r"%([\w.\-]+)")


def measure(pairs: int = PAIRS, layers: int = LAYERS, megabytes: float = MEGABYTES) -> list[Result]:
    """Analyse and compile two programs in turn, then analyse two long texts in turn."""
    with PlainProcess(MESH.size, LARGE_PROGRAM) as process:
        results = [
            _against_compiling(process, "mlp", "default MLP", 4, pairs),
            _against_compiling(process, "transformer", f"{layers} layers", layers, pairs),
        ]
        text = process.ask("compile", program="transformer", layers=min(layers, 4))["text"]
    return [*results, _against_half(text, megabytes, pairs)]


def _against_compiling(process: PlainProcess, program: str, title: str, layers: int, pairs: int) -> Result:
    text = process.ask("compile", program=program, layers=layers)["text"]
    taken = interleave(
        lambda: analysis_seconds(text),
        lambda: process.ask("compile", program=program, layers=layers)["seconds"],
        pairs,
    )
    return ratio_result(
        LIMIT,
        name=f"analysis, {title}",
        ours=f"analysis of the train step's text, {len(text) / 1e6:.2g} MB",
        baseline="compiling it",
        pairs=taken,
    )


def _against_half(text: str, megabytes: float, pairs: int) -> Result:
    half, whole = (repeated(text, int(times * megabytes * 1e6)) for times in (1, 2))
    taken = interleave(lambda: analysis_seconds(whole), lambda: analysis_seconds(half), pairs)
    return ratio_result(
        LINEAR,
        name="analysis, twice the text",
        ours=f"analysis of {len(whole) / 1e6:.2g} MB",
        baseline=f"analysis of {len(half) / 1e6:.2g} MB",
        pairs=taken,
    )


def analysis_seconds(text: str) -> float:
    """Return the seconds to read everything that a Snapshot needs from a text."""
    began = time.perf_counter()
    for module in hlo.parser.parse(text):
        hlo.collectives.collectives(module, MESH)
        work(module)
    return time.perf_counter() - began


def repeated(text: str, length: int) -> str:
    """Return a module of at least `length` characters that calls copies of a program in sequence."""
    header, _, rest = text.partition("\n")
    computations = rest[rest.index("\n%") :]  # tables of source lines come first
    entry = computations.index("\nENTRY ")
    main = _NAME.search(computations, entry)
    assert main is not None, "an entry has a name"
    # In a copy, the entry is an ordinary computation.
    copied = computations[:entry] + "\n" + computations[entry + len("\nENTRY ") :]
    copies = -(-length // len(copied))
    parts = [_NAME.sub(rf"%\1.{number}", copied) for number in range(copies)]
    calls = "".join(
        f"  %call.{number} = f32[] call(%start), to_apply=%{main[1]}.{number}\n" for number in range(copies)
    )
    last = f"  %start = f32[] parameter(0)\n{calls}  ROOT %end = f32[] negate(%start)\n"
    return f"{header}\n{''.join(parts)}\nENTRY %all {{\n{last}}}\n"
