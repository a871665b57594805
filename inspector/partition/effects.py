"""Worker job: the cost of changes of a layout, without a compile."""

import contextlib
import os
import threading
from collections.abc import Collection, Iterator, Sequence
from concurrent import futures
from dataclasses import replace
from typing import Any

from cachetools import LRUCache

from inspector.assessment import assess_candidate
from inspector.compare.ratio import ratio_of
from inspector.jobs.agreement import refuse_indivisible
from inspector.layout import Layout, from_json
from inspector.layout.changes import both, changes, more_chips, offloaded
from inspector.layout.plan import plan, programs_key, rejection
from inspector.machines import hardware
from inspector.machines.hardware import Chip
from inspector.partition import shardy
from inspector.partition.amounts import amounts_of
from inspector.partition.partition_layout import Setting, partitioned_totals
from inspector.partition.rewritable import RewritableModule
from inspector.partition.template import Lowered, Template, template_key, template_of, template_of_program
from inspector.prediction.memory import STATE_AND_BATCH, fit
from inspector.records import typed_json
from inspector.records.assessment import Assessment
from inspector.records.job_report import JobReport
from inspector.records.snapshot import Change, Effects, LayoutCost, Program
from inspector.records.snapshot.effects import KINDS, UNKNOWN_AXES, by_effect
from inspector.search.bounds import ProgramAmounts, alike_key, least_seconds
from inspector.search.result import sent_bytes
from inspector.sharding.sharding_text import refusal_text
from inspector.sharding.totals import state_totals, totals
from inspector.text.errors import InvalidInput, shown
from inspector.tracing.model.abstract import cached_state

# Threads that partition variants. XLA takes most of the time and needs no lock of Python.
_THREADS = min(2, os.cpu_count() or 1)
# Changes that can save memory in addition to another one.
_SAVING = ("donation", "optimizer", "microbatches", "rematerialization", "offload")
# A partitioned program and its peak; None if the train state alone does not fit.
_Partitioned = tuple[Program, int | None] | None
_PROGRAMS: LRUCache[tuple[str, ...], _Partitioned] = LRUCache(128)
# Positions of the sharding constraints that the program of the current layout has and a changed one lacks.
# None if the changed layout needs a separate trace.
_Removed = tuple[int, ...] | None
_Variant = tuple[Change, _Removed]


def effects(payload: dict[str, Any], report: JobReport) -> dict[str, Any]:
    """Worker job: a layout as JSON in, its `Effects` as JSON out. Needs no particular devices.

    The payload has the `program`, the name of the `chip`, which may be None, and the `kinds` of changes, all
    if none are named. Progress has the effects `found` so far.
    """
    layout = from_json(payload["layout"])
    chip = None if payload["chip"] is None else hardware.chip(payload["chip"])
    kinds = payload.get("kinds", ())
    with shardy.paused():
        return typed_json.encode(layout_effects(layout, payload["program"], chip, report, kinds))


def layout_effects(
    layout: Layout, program: str, chip: Chip | None, report: JobReport, kinds: Collection[str] = ()
) -> Effects:
    """Partition the program under the layout and under each change of it.

    The changes with the largest effect on the bounds of the step come first, those of a layout that does not
    fit from the smallest on. If none of them makes it fit, two changes at once are tried, and more devices.
    A change that shards no array in another way, or all of them as another change does, is not partitioned
    again.

    Args:
      kinds: kinds of changes that are tried; all if it is empty.

    Raises:
      InvalidInput: the layout itself is not valid, or it has no such program.
    """
    report("lower")
    template = template_of(layout, (program,))
    if program not in template.names:
        names = ", ".join(template_of(layout).names)
        raise InvalidInput(f"program is {shown(program)}, but must be one of {names}")
    evaluator = _Evaluator(layout, program, chip)
    proposed, left_out = evaluator.changes(kinds)
    tried: list[Change] = []

    def known() -> Effects:
        name = None if chip is None else chip.name
        return Effects(program, name, evaluator.current, by_effect(evaluator.current, tried), left_out)

    def show(of: int) -> None:
        report("effects", done=len(tried), of=of, found=typed_json.encode(known()))

    def attempt(variants: Sequence[_Variant]) -> None:
        of = len(tried) + len(variants)
        for change in evaluator.evaluated(variants):
            tried.append(change)
            show(of)

    show(len(proposed))
    attempt(proposed)
    if evaluator.is_too_large and known().fitting is None:
        attempt([(change, None) for change in (*offloaded(layout), *_two_at_once(known().closest))])
    if evaluator.is_too_large and known().fitting is None:
        closest = known().closest
        start = layout if closest is None else from_json(closest.layout)
        further = more_chips(start)
        attempt([(change if closest is None else both(closest, change), None) for change in further])
    return known()


def _two_at_once(first: Change | None) -> Iterator[Change]:
    """Yield a change together with each other one that saves memory on the same devices."""
    if first is not None and first.layout is not None:
        layout = from_json(first.layout)
        for second in (*changes(layout)[0], *offloaded(layout)):
            if second.kind in _SAVING and second.kind != first.kind:
                yield both(first, second)


@contextlib.contextmanager
def _pool() -> Iterator[futures.ThreadPoolExecutor]:
    """Return threads that partition variants. They start no more after an error, as of a cancelled job."""
    with futures.ThreadPoolExecutor(_THREADS) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _Evaluator:
    """The cost of variants of one layout, from their partitioned programs. Several threads may ask for them.

    Each thread writes the shardings of its variant into a copy of the program that no other thread uses, in
    a separate MLIR context.
    """

    def __init__(self, layout: Layout, program: str, chip: Chip | None) -> None:
        self._layout = layout
        self._program = program
        self._chip = chip
        self._lock = threading.Lock()  # of caches, traces, and the context of the current program
        self._copies: list[RewritableModule] = []  # of the current program, unused now
        self._before: Assessment | None = None
        try:
            partitioned = self._partitioned(layout, ())
        except InvalidInput:
            partitioned = None  # XLA refuses some programs that are far too large
            planned = plan(layout, cached_state(layout))
            if chip is None or rejection(planned) or fit(planned, chip).fits is not False:
                raise
        self.current = self._cost(layout, partitioned)

    @property
    def is_too_large(self) -> bool:
        """Whether the layout does not fit."""
        return self.current.fits is False

    def changes(self, kinds: Collection[str]) -> tuple[list[_Variant], int]:
        """Return the changes of the layout, in the order of the tries, and the number of those left out."""
        layout = self._layout
        template = template_of(layout, (self._program,))
        lowered = next((known for known in template.programs if known.name == self._program), None)
        proposed, left_out = changes(layout)
        found = [
            (change, self._removed(change, lowered))
            for change in proposed
            if not kinds or change.kind in kinds
        ]
        if not layout.entry.constraints and lowered is not None and (not kinds or "constraint" in kinds):
            found += [
                (Change("constraint", f"Remove constraint {place}", None), tuple(positions))
                for place, positions in lowered.constraints_by_line.items()
            ]
        if self.is_too_large:
            return sorted(found, key=lambda variant: KINDS.index(variant[0].kind)), left_out
        amounts = amounts_of(template, layout, self._program)
        return sorted(found, key=lambda variant: self._place(variant[0], amounts)), left_out

    def evaluated(self, variants: Sequence[_Variant]) -> Iterator[Change]:
        """Yield the changes with their cost, or with the reason why they are not valid."""
        started: dict[tuple[str, ...], futures.Future[_Partitioned]] = {}
        with _pool() as pool:
            waiting: list[tuple[Change, Layout | str, tuple[str, ...]]] = []
            for change, removed in variants:
                try:
                    layout = self._changed(change)
                    key = self._key(layout, removed)
                except InvalidInput as error:
                    waiting.append((change, str(error), ()))
                    continue
                waiting.append((change, layout, key))
                if key not in started:
                    started[key] = pool.submit(self._partitioned, layout, removed)
            for change, changed, key in waiting:
                if isinstance(changed, str):
                    yield replace(change, reason=changed)
                    continue
                try:
                    yield replace(change, cost=self._cost(changed, started[key].result()))
                except InvalidInput as error:
                    yield replace(change, reason=str(error))

    def _changed(self, change: Change) -> Layout:
        return self._layout if change.layout is None else from_json(change.layout)

    def _removed(self, change: Change, lowered: Lowered | None) -> _Removed:
        try:
            changed = self._changed(change)
        except InvalidInput:
            return None
        if change.kind != "constraint":
            return () if template_key(changed) == template_key(self._layout) else None
        fewer = set(changed.unconstrained) - set(self._layout.unconstrained)
        named = {} if lowered is None else lowered.constraints_by_name
        return tuple(sorted(n for name in fewer for n in named[name])) if fewer <= named.keys() else None

    def _place(self, change: Change, amounts: ProgramAmounts | None) -> tuple[bool, float]:
        """Return a key that is small if a change moves the bound of the step, or the state, far.

        Constraints come last, because their effects are not bounded.
        """
        try:
            both = [
                (least_seconds(amounts, layout, self._chip, state := _state(layout)), float(state or 0))
                for layout in (self._layout, self._changed(change))
            ]
        except InvalidInput:
            return False, 0.0
        pairs = zip(*both, strict=True)
        share = max((abs(new - old) / old for old, new in pairs if old), default=0.0)
        return change.kind == "constraint", -share

    def _key(self, layout: Layout, removed: _Removed) -> tuple[str, ...]:
        """Return a key that variants share if their programs are equal, with the names of mesh axes."""
        alike, current = None, self._layout
        with self._lock:
            if template_key(layout) == template_key(current):
                template = template_of(current, (self._program,))
                alike = alike_key(amounts_of(template, current, self._program), layout)
        if alike is not None:
            sizes = zip(layout.axis_names, layout.mesh_shape, strict=True)
            alike += repr([name for name, size in sizes if size > 1])
        return (
            alike or programs_key(layout),
            repr(removed),
            self._program,
            repr(self._chip and self._chip.name),
        )

    def _partitioned(self, layout: Layout, removed: _Removed) -> _Partitioned:
        """Return the partitioned program and its peak, from the cache if they are known.

        A layout whose train state alone does not fit is not partitioned, unless it is the current one.

        Raises:
          InvalidInput: JAX or XLA refuses it, or its layout cannot shard one of its arrays.
        """
        key = self._key(layout, removed)
        with self._lock:
            planned = plan(layout, cached_state(layout))
            refuse_indivisible(planned)
            if key in _PROGRAMS:
                return _PROGRAMS[key]
            if layout != self._layout and self._chip and fit(planned, self._chip).fits is False:
                return None
            like = layout if removed is None else self._layout
            template = template_of_program(self._layout, like, self._program)
            lowered = _named(template, self._program)
            if removed is None:
                copy = lowered.without_names  # of a template that no other variant has
            elif removed or not self._copies:
                copy = lowered.apart(removed)
            else:
                copy = self._copies.pop()
        setting = replace(Setting.of(layout), watched=None)
        partitioned = partitioned_totals(lowered, setting, template.logical, copy=copy)
        with self._lock:
            _PROGRAMS[key] = partitioned
            if removed == ():
                self._copies.append(copy)
        return partitioned

    def _cost(self, layout: Layout, partitioned: _Partitioned) -> LayoutCost:
        held = totals(plan(layout, cached_state(layout)), STATE_AND_BATCH).per_device
        if partitioned is None:
            return LayoutCost(_state(layout), {UNKNOWN_AXES: None}, None, fits=False)
        program, peak = partitioned
        peak = None if peak is None else max(peak, held or 0)
        assessment = assess_candidate(program, layout.mesh(), self._chip, held, peak)
        self._before = self._before or assessment
        ratio = ratio_of(self._before, assessment)
        wire = sent_bytes(assessment)
        return LayoutCost(
            _state(layout),
            {UNKNOWN_AXES: None} if wire is None else wire,
            flops=program.work.matmul_flops if program.work else None,
            seconds=None if assessment.step is None else assessment.step.seconds,
            peak_bytes=peak,
            fits=None if assessment.memory is None else assessment.memory.fits,
            answer=None if ratio is None else ratio.answer,
            low=None if ratio is None else ratio.low,
            high=None if ratio is None else ratio.high,
        )


def _state(layout: Layout) -> int | None:
    """Return the bytes of the train state on one device."""
    return state_totals(plan(layout, cached_state(layout))).per_device


def forget() -> None:
    """Empty the caches of partitioned programs and abstract arrays."""
    _PROGRAMS.clear()
    cached_state.cache_clear()


def _named(template: Template, program: str) -> Lowered:
    for refused in template.refused:
        if refused.sharding_error is not None and refused.name in (program, "init"):
            raise InvalidInput(refusal_text(refused.sharding_error))
    return next(lowered for lowered in template.programs if lowered.name == program)
