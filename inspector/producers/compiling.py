"""All programs of a layout, lowered and compiled, and their texts read while the compiler is at work."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TypeVar

from inspector.core.snapshot import Mesh
from inspector.models.watching import Watched, listening
from inspector.producers.compiled_program import CompiledProgram
from inspector.producers.signatures import Signature

_Program = TypeVar("_Program", bound=CompiledProgram)


def compile_all(
    signatures: Iterable[Signature],
    program_of: Callable[[str], _Program],
    mesh: Mesh,
    watched: list[Watched],
) -> tuple[_Program, ...]:
    """Compile one program after the other; to be called within `tracing`.

    The compiler needs no Python: while it is at a program, another thread reads the text of the one
    before. Lowering does need it, so that all of it comes first.

    Args:
      program_of: makes a program of a name.
      mesh: in whose terms collectives are told.
      watched: gets the values that are marked inside of the train step.
    """
    programs = []
    with ThreadPoolExecutor(max_workers=1) as reader:
        for signature in signatures:
            program = program_of(signature.name)
            with listening(watched.append) if signature.name == "train_step" else nullcontext():
                program.lower(signature)
            programs.append(program)
        # MLIR is not to be read and compiled at once: the first program's, which is compiled at once, later.
        lowered = [reader.submit(program.read_lowered) for program in programs[1:]]
        read = []
        for place, program in enumerate(programs):
            if place:
                lowered[place - 1].result()
            program.compile()
            if not place:
                read.append(reader.submit(program.read_lowered))
            read.append(reader.submit(program.read_compiled, mesh))
        for each in read:
            each.result()
    return tuple(programs)
