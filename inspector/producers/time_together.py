"""Run several layouts in turn on the emulated devices of one process, and time every run."""

from __future__ import annotations

import functools
import gc
import time
from typing import Any

import jax

from inspector import layout as layouts
from inspector.compare import paired_times
from inspector.compare.paired_times import PairedTimes, Turn, Untimed
from inspector.core.errors import InvalidInput
from inspector.layout import Layout
from inspector.layout import emulation as machine
from inspector.layout.plan import now
from inspector.producers.abstract import versions
from inspector.producers.build import build_model, make_mesh, signatures, tracing
from inspector.producers.compiled_program import CompiledProgram, Report

# Rounds that are not counted: the first runs of a program allocate what the later ones use again.
WARM_UP_ROUNDS = 2


def time_together(payload: dict[str, Any], report: Report) -> dict[str, Any]:
    """Worker job: layouts by their number and a number of rounds in, PairedTimes as JSON out.

    payload: `layouts` [[number, layout]], the baseline first where memory may be short; `untimed`
    [[number, reason]]; `count` of both; `rounds`; `memory` as in `emulate`.
    """
    return run(
        {number: layouts.from_json(plain) for number, plain in payload["layouts"]},
        payload["rounds"],
        report,
        untimed=tuple(Untimed(number, reason) for number, reason in payload["untimed"]),
        memory=payload.get("memory"),
    ).to_json()


def run(
    wanted: dict[int, Layout],
    rounds: int,
    report: Report,
    untimed: tuple[Untimed, ...] = (),
    memory: int | None = None,
) -> PairedTimes:
    """Compile all layouts, warm them up, and run them in turn: train steps, then inferences, every round.

    A layout that cannot be compiled or does not fit beside the others is left out, with the reason.

    Raises:
      InvalidInput: fewer than two are left.
    """
    available = machine.available_bytes() if memory is None else memory
    ready: dict[int, _Runner] = {}
    reasons = list(untimed)
    for place, (number, layout) in enumerate(wanted.items()):
        of_this = functools.partial(report, done=place, of=len(wanted))
        of_this("build")
        try:
            runner = _Runner(layout, of_this)
            machine.refuse_too_large(
                sum(one.bytes for one in ready.values()) + runner.bytes,
                available,
                "this layout as compiled, together with those before it,",
            )
            runner.first()
        except InvalidInput as refused:
            reasons.append(Untimed(number, str(refused)))
        except Exception as error:  # JAX refuses in many ways; the other layouts can still be timed
            reasons.append(Untimed(number, _sentence(error)))
        else:
            ready[number] = runner
    if len(ready) < 2:
        why = "; ".join(f"layout {one.layout + 1}: {one.reason}" for one in reasons)
        raise InvalidInput(f"to be timed together, two layouts or more must run; not so {why}")
    turns = _timed(ready, rounds, report)
    return PairedTimes(
        turns=tuple(turns),
        untimed=tuple(sorted(reasons, key=lambda one: one.layout)),
        layouts=len(wanted) + len(untimed),
        rounds=rounds,
        devices=jax.device_count(),
        created=now(),
        versions=versions(),
    )


class _Runner:
    """A layout's two programs, compiled, with the train state that they carry on."""

    def __init__(self, layout: Layout, report: Report) -> None:
        self.layout = layout
        self.programs: dict[str, CompiledProgram] = {}
        self._state: Any = None
        self._batch: Any = None
        model = build_model(layout)
        self._mesh = mesh = make_mesh(layout)
        with tracing(layout, mesh):
            of_init, *others = signatures(model, layout, mesh)
            self._init = CompiledProgram("init", report)
            self._init.lower(of_init)
            self._init.compile()
            for signature in others:
                program = self.programs[signature.name] = CompiledProgram(signature.name, report)
                program.lower(signature)
                program.compile()
            self._key = jax.device_put(jax.random.key(0), of_init.sharding("key"))
        self._new_batch = lambda: jax.device_put(model.batch(self._key), of_init.sharding("batch"))

    @property
    def bytes(self) -> int:
        """What its largest program holds on all devices together."""
        held = max(program.bytes_per_device() for program in self.programs.values())
        return held * self.layout.devices

    def first(self) -> None:
        """Make the train state, and run each program for the first time."""
        with tracing(self.layout, self._mesh):
            self._batch = self._new_batch()
        self._state = self._init.first(self._key, self._batch)
        self._state, _ = self.programs["train_step"].first(self._state, self._batch)
        if "apply" in self.programs:
            self.programs["apply"].first(self._state, self._batch)

    def run(self, program: str) -> float:
        """The seconds of one run, until all that it returns is ready."""
        started = time.perf_counter()
        result = self.programs[program].run(self._state, self._batch)
        seconds = time.perf_counter() - started
        if program == "train_step":
            self._state, _ = result
        return seconds


def _timed(ready: dict[int, _Runner], rounds: int, report: Report) -> list[Turn]:
    orders = paired_times.orders(tuple(ready), WARM_UP_ROUNDS + rounds)
    turns = []
    last: float | None = (
        None  # seconds of the round before, by which whoever waits can tell how long it takes
    )
    collects = gc.isenabled()
    gc.disable()  # as `timeit` does: no layout is to pay for another one's garbage
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
                        seconds = ready[layout].run(program)
                        turns.append(Turn(number, layout, program, seconds))
            last = time.perf_counter() - started
    finally:
        if collects:
            gc.enable()
    return [turn for turn in turns if turn.round >= 0]


def _sentence(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"JAX refuses it: {type(error).__name__}: {lines[0] if lines else ''}"
