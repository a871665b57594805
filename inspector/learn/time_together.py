"""Run several layouts in turn on the same emulated devices, and time every run."""

import functools
import gc
import time
from typing import Any

import jax

from inspector import layout as layouts
from inspector.compare import paired_times
from inspector.compare.paired_times import PairedTimes, Turn, Untimed
from inspector.compiling.compiled_program import CompiledProgram
from inspector.jobs.engine import environment
from inspector.layout import Layout, emulation
from inspector.layout.plan import now
from inspector.model import PyTree
from inspector.records.job_report import JobReport
from inspector.text.errors import InvalidInput
from inspector.tracing.model.abstract import versions
from inspector.tracing.model.build import build_model, first_inputs, make_mesh, signatures, tracing

# Rounds that do not count: the first runs allocate memory that later ones reuse.
WARM_UP_ROUNDS = 2


def time_together(payload: dict[str, Any], report: JobReport) -> dict[str, Any]:
    """Worker job: return the PairedTimes of several layouts as JSON.

    Keys of the payload: `layouts` [[number, layout]], the baseline first, so that it fits in memory;
    `untimed` [[number, reason]]; `rounds`; `memory` as in `run_job`.
    """
    return time_layouts(
        {number: layouts.from_json(plain) for number, plain in payload["layouts"]},
        payload["rounds"],
        report,
        untimed=tuple(Untimed(number, reason) for number, reason in payload["untimed"]),
        memory=payload.get("memory"),
    ).to_json()


def time_layouts(
    wanted: dict[int, Layout],
    rounds: int,
    report: JobReport,
    untimed: tuple[Untimed, ...] = (),
    memory: int | None = None,
) -> PairedTimes:
    """Compile all layouts, warm them up, and run them in turn: in each round train steps, then inferences.

    A layout that cannot be built, compiled or run, or does not fit in memory, is left out with the reason.

    Raises:
      InvalidInput: fewer than two layouts remain.
    """
    available = environment.available_bytes() if memory is None else memory
    ready: dict[int, _Runner] = {}
    reasons = list(untimed)
    for place, (number, layout) in enumerate(wanted.items()):
        of_this = functools.partial(report, done=place, of=len(wanted))
        of_this("build")
        try:
            runner = _Runner(layout, of_this)
            emulation.refuse_too_large(
                sum(other.bytes for other in ready.values()) + runner.bytes,
                available,
                "this layout as compiled, together with those before it,",
            )
            runner.first()
        except InvalidInput as refused:
            reasons.append(Untimed(number, str(refused)))
        except Exception as error:  # JAX raises many types; the other layouts can still be timed
            reasons.append(Untimed(number, _sentence(error)))
        else:
            ready[number] = runner
    if len(ready) < 2:
        why = "; ".join(f"layout {reason.layout + 1}: {reason.reason}" for reason in reasons)
        raise InvalidInput(f"timing needs at least two layouts that run: {why}")
    return PairedTimes(
        turns=tuple(_timed(ready, rounds, report)),
        untimed=tuple(sorted(reasons, key=lambda reason: reason.layout)),
        layouts=len(wanted) + len(untimed),
        rounds=rounds,
        devices=jax.device_count(),
        created=now(),
        versions=versions(),
    )


class _Runner:
    """The compiled programs of a layout and its current train state."""

    def __init__(self, layout: Layout, report: JobReport) -> None:
        self.layout = layout
        self.programs: dict[str, CompiledProgram] = {}
        self._state: PyTree = None
        self._batch: PyTree = None
        model = build_model(layout)
        self._mesh = mesh = make_mesh(layout)
        with tracing(layout, mesh):
            of_init, *others = signatures(model, layout, mesh)
            for signature in (of_init, *others):
                program = self.programs[signature.name] = CompiledProgram(signature.name, report)
                program.lower(signature)
                program.compile()
            self._init = self.programs.pop("init")
        # The memory is checked before these are created.
        self._first_inputs = functools.partial(first_inputs, model, of_init)

    @property
    def bytes(self) -> int:
        """Bytes of its largest program on all devices together."""
        largest = max(program.bytes_per_device() for program in self.programs.values())
        return largest * self.layout.devices

    def first(self) -> None:
        """Initialize the train state, and run each program for the first time."""
        with tracing(self.layout, self._mesh):
            key, self._batch = self._first_inputs()
        self._state = self._init.first(key, self._batch)
        for program in self.programs.values():
            result = program.first(self._state, self._batch)
            if program.changes_state:
                self._state, _ = result

    def run(self, program: str) -> float:
        """Run a program once, and return the seconds until its result is ready."""
        chosen = self.programs[program]
        result = chosen.run(self._state, self._batch)
        if chosen.changes_state:
            self._state, _ = result
        assert chosen.last_seconds is not None  # it has run
        return chosen.last_seconds


def _timed(ready: dict[int, _Runner], rounds: int, report: JobReport) -> list[Turn]:
    orders = paired_times.orders(tuple(ready), WARM_UP_ROUNDS + rounds)
    turns = []
    last: float | None = None  # seconds of the last round, for an estimate of the remaining time
    collects = gc.isenabled()
    gc.disable()  # as `timeit` does, so that no layout pays for the garbage of another
    try:
        for number, order in enumerate(orders, -WARM_UP_ROUNDS):
            if number < 0:
                report("warm up", done=number + WARM_UP_ROUNDS, of=WARM_UP_ROUNDS)
            else:
                report("rounds", done=number, of=rounds, last=last)
            started = time.perf_counter()
            for program in paired_times.PROGRAMS:
                for layout in order:
                    if program in ready[layout].programs:
                        turns.append(Turn(number, layout, program, ready[layout].run(program)))
            last = time.perf_counter() - started
    finally:
        if collects:
            gc.enable()
    return [turn for turn in turns if turn.round >= 0]


def _sentence(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"JAX raises {type(error).__name__}: {lines[0] if lines else ''}"
