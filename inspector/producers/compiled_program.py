"""One program on its way from a function to measured runs, and what the compiler says of it."""

from __future__ import annotations

import itertools
import math
import statistics
import time
import timeit
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, Literal, TypeVar

import jax
from jax.sharding import NamedSharding

from inspector.compiled import program_text
from inspector.core.snapshot import (
    Mesh,
    Program,
    ProgramArray,
    Seconds,
    Timeit,
    Trace,
    Work,
)
from inspector.models.watching import Watched, listening
from inspector.producers import profile
from inspector.producers.build import Signature
from inspector.producers.distributed import agreed
from inspector.producers.leaves import leaves_of
from inspector.producers.records import memory_of, spec_of

Report = Callable[..., None]

# The arguments of the next call, from those of the last one and its result.
Following = Callable[[tuple[Any, ...], Any], tuple[Any, ...]]

TIMEIT_RUNS = 7  # as `%%timeit` has it
TRACED_STEPS = 3  # reading one takes longer than running it
TIMEIT_LEAST = 0.2  # seconds of one loop, as `timeit.autorange` has it


class _Calls:
    """Calls of one executable, each with the arguments that the one before it leaves."""

    def __init__(
        self, executable: Any, arguments: tuple[Any, ...], following: Following | None
    ) -> None:
        self.arguments = arguments
        self._executable = executable
        self._following = following

    def next(self) -> Any:
        """The result of the next call; it may not be ready yet."""
        result = self._executable(*self.arguments)
        if self._following is not None:
            self.arguments = self._following(self.arguments, result)
        return result


class CompiledProgram:
    """A jitted function, lowered and compiled once, with the seconds that each stage took."""

    def __init__(self, name: str, report: Report) -> None:
        self.name = name
        self._report = report
        self._seconds: dict[str, float] = {}
        self._measured: list[float] = []
        self._losses: list[float | None] = []
        self._timeit: Timeit | None = None
        self._trace: Trace | None = None
        self._signature: Signature
        self._lowered: Any = None
        self._executable: Any = None
        self._shardings: tuple[ProgramArray, ...] = ()
        self._ideal: Work | None = None
        self._said = program_text.ProgramFacts()

    def lower(self, signature: Signature) -> None:
        """Lower a function for its abstract arguments and the shardings asked of them."""
        self._signature = signature
        inputs, wanted = signature.inputs, tuple(signature.outputs.values())
        jitted = jax.jit(
            signature.function,
            in_shardings=tuple(asked for _, asked in inputs.values()),
            out_shardings=wanted[0] if len(wanted) == 1 else wanted,
            donate_argnums=tuple(n for n, name in enumerate(inputs) if name in signature.donated),
        )
        self._report("lower", program=self.name)
        started = time.perf_counter()
        self._lowered = jitted.lower(*signature.arguments)
        self._seconds["lower"] = time.perf_counter() - started

    def compile(self) -> None:
        """Compile what was lowered.

        The name `state` stands before no path, so that its leaves are called as everywhere.
        """
        inputs, outputs = self._signature.inputs, self._signature.outputs
        self._report("compile", program=self.name)
        started = time.perf_counter()
        self._executable = self._lowered.compile()
        self._seconds["compile"] = time.perf_counter() - started
        given, _ = self._executable.input_shardings
        made, results = self._executable.output_shardings, self._lowered.out_info
        wanted = outputs.values()
        if len(wanted) == 1:
            made, results = (made,), (results,)
        asked = (each for _, each in inputs.values())
        self._shardings = (
            *_compare("input", inputs.keys(), self._signature.arguments, asked, given),
            *_compare("output", outputs.keys(), results, wanted, made),
        )

    def read_lowered(self) -> None:
        """Read the work of what was lowered, before anything was partitioned or optimized."""
        self._ideal = program_text.ideal_work(self._lowered.as_text(dialect="hlo"))

    def read_compiled(self, mesh: Mesh) -> None:
        """Read what the compiled program's text says, its collectives in terms of this mesh."""
        self._said = program_text.read(self._executable.as_text(), mesh, self._shardings)

    def first(self, *arguments: Any) -> Any:
        """Run it for the first time."""
        self._report("first run", program=self.name)
        started = time.perf_counter()
        result = jax.block_until_ready(self._executable(*arguments))
        self._seconds["first"] = time.perf_counter() - started
        return result

    def steps(self, count: int) -> Iterator[int]:
        """Count the measured runs, saying how far along they are."""
        for step in range(count):
            # From the last step whoever waits can tell how long the others will take.
            last = self._measured[-1] if self._measured else None
            self._report("steps", program=self.name, done=step, of=count, last=last)
            yield step

    def run(self, *arguments: Any) -> Any:
        """Run it once, measured from the call until every array that it returns is ready."""
        started = time.perf_counter()
        result = jax.block_until_ready(self._executable(*arguments))
        self._measured.append(time.perf_counter() - started)
        return result

    def keep_losses(self, losses: list[jax.Array]) -> None:
        """Keep the losses of the steps; read only now, so that no step waited for it.

        A loss that has become infinite or no number is None: JSON has no word for it.
        """
        values = [float(loss) for loss in losses]
        self._losses = [value if math.isfinite(value) else None for value in values]

    def time_it(self, *arguments: Any, following: Following | None = None) -> tuple[Any, ...]:
        """Time repeated loops of a call as `%%timeit` does: each loop's mean, over seven loops.

        Every call takes the same arguments, or those that `following` makes of the ones before and of their
        result; given back are those that one more call would take.
        """
        self._report("timeit", program=self.name)
        calls = _Calls(self._executable, arguments, following)
        timer = timeit.Timer(lambda: jax.block_until_ready(calls.next()))
        # Every process must do as many, because each one waits for the others in the collectives.
        loops = next(n for n in _loops() if agreed(timer.timeit(n)) >= TIMEIT_LEAST)
        means = []
        for run in range(TIMEIT_RUNS):
            self._report("timeit", program=self.name, done=run, of=TIMEIT_RUNS)
            means.append(timer.timeit(loops) / loops)
        # Population deviation, as IPython prints it.
        self._timeit = Timeit(statistics.fmean(means), statistics.pstdev(means), TIMEIT_RUNS, loops)
        return calls.arguments

    def watch(self, *arguments: Any, following: Following | None = None) -> tuple[Any, ...]:
        """Have the profiler watch some calls, with arguments and given back as in `time_it`."""
        self._report("trace", program=self.name)
        calls = _Calls(self._executable, arguments, following)
        self._trace = profile.traced(calls.next, TRACED_STEPS, self._executable.as_text())
        return calls.arguments

    def record(self) -> Program:
        """What a Snapshot keeps of it."""
        said = self._said
        return Program(
            self.name,
            flops_per_device=None if said.work is None else said.work.flops,
            memory=memory_of(self._executable),
            collectives=said.collectives,
            seconds=Seconds(**self._seconds, steps=tuple(self._measured), timeit=self._timeit),
            losses=tuple(self._losses),
            shardings=self._shardings,
            work=said.work,
            ideal=self._ideal,
            trace=self._trace,
        )

    def bytes_per_device(self) -> int:
        """What one run holds on one device, by the compiler's own count."""
        memory = memory_of(self._executable)
        if memory is None:
            return 0
        return memory.arguments + memory.outputs + memory.temporaries - memory.aliased


def _compare(
    role: Literal["input", "output"],
    names: Iterable[str],
    values: Iterable[Any],
    asked: Iterable[Any],
    got: Iterable[Any],
) -> Iterator[ProgramArray]:
    """Leaf by leaf, the sharding asked for and the one that the compiled program has."""
    for name, value, wanted, given in zip(names, values, asked, got, strict=True):
        # What was asked may be a prefix of the tree, and None where the compiler is to choose; what
        # was got is None where the program does not use an input.
        all_wanted = jax.tree_util.tree_broadcast(wanted, value, is_leaf=_is_none)
        for leaf, want, have in zip(
            leaves_of(value),
            jax.tree.leaves(all_wanted, is_leaf=_is_none),
            jax.tree.leaves(given, is_leaf=_is_none),
            strict=True,
        ):
            rank = len(leaf.value.shape)
            comparable = want is not None and have is not None
            yield ProgramArray(
                role=role,
                path="/".join(part for part in (name, leaf.path) if part not in ("state", "")),
                requested=_spec(want, rank),
                compiled=_spec(have, rank),
                same=have.is_equivalent_to(want, rank) if comparable else None,
                used=have is not None,
            )


def _loops() -> Iterator[int]:
    """1, 2, 5, 10, 20, 50 … as `timeit.autorange` tries them."""
    for power in itertools.count():
        for digit in (1, 2, 5):
            yield digit * 10**power


def _is_none(leaf: Any) -> bool:
    return leaf is None


def _spec(sharding: Any, rank: int) -> Any:
    return spec_of(sharding.spec, rank) if isinstance(sharding, NamedSharding) else None


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
