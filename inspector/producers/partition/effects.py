"""Worker job: the effect of each rule, sharding constraint and mesh axis of a layout, without a compile."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass
from typing import Any

from cachetools import LRUCache

from inspector.compare.search.bounds import Amounts, alike_key, least_seconds
from inspector.compare.search.evaluated import wire_bytes_of
from inspector.core import typed_json
from inspector.core.errors import InvalidInput, shown
from inspector.core.job_report import JobReport
from inspector.core.sharding_errors import sentence
from inspector.core.snapshot import Program
from inspector.core.snapshot.effects import (
    UNKNOWN_AXES,
    ChangeKind,
    Effect,
    Effects,
    LayoutCost,
    by_effect,
)
from inspector.core.totals import state_totals
from inspector.layout import Layout, from_json
from inspector.layout.changes import Change, changes
from inspector.layout.plan import plan, programs_key
from inspector.machines import hardware
from inspector.machines.hardware import Chip
from inspector.machines.prediction.predicted import predicted
from inspector.producers.model.abstract import cached_state
from inspector.producers.partition.amounts import amounts_of
from inspector.producers.partition.partition_layout import Setting, partitioned_totals
from inspector.producers.partition.rewritable import RewritableModule
from inspector.producers.partition.template import (
    Lowered,
    Template,
    template_key,
    template_of,
    template_of_program,
)
from inspector.service.agreement import refuse_indivisible

# Threads that partition variants. XLA takes most of the time and needs no lock of Python.
_THREADS = min(2, os.cpu_count() or 1)
_PROGRAMS: LRUCache[tuple[str, ...], Program] = LRUCache(128)


def effects(payload: dict[str, Any], report: JobReport) -> dict[str, Any]:
    """Worker job: a layout as JSON in, its `Effects` as JSON out. Needs no particular devices.

    The payload has the `program` and the name of the `chip`, which may be None. Progress has the effects
    `found` so far.
    """
    layout = from_json(payload["layout"])
    chip = None if payload["chip"] is None else hardware.chip(payload["chip"])
    return typed_json.encode(layout_effects(layout, payload["program"], chip, report))


@dataclass(frozen=True)
class _Variant:
    """A changed layout, or a change of the lowered program if `layout` is None.

    Attributes:
      removed: positions of the sharding constraints that the program of the current layout has and this one
        lacks. None if the changed layout needs a trace of its own.
    """

    kind: ChangeKind
    label: str
    layout: Layout | None
    removed: tuple[int, ...] | None = ()


def layout_effects(layout: Layout, program: str, chip: Chip | None, report: JobReport) -> Effects:
    """Partition the program under the layout and under each change of it.

    The changes with the largest effect on the bounds of the step come first. A change that shards no array in
    another way, or all of them as another change does, is not partitioned again.

    Raises:
      InvalidInput: the layout itself is not valid, or it has no such program.
    """
    report("lower")
    template = template_of(layout, (program,))
    if program not in template.names:
        names = ", ".join(template_of(layout).names)
        raise InvalidInput(f"program is {shown(program)}, but must be one of {names}")
    partitioned = _Partitioned(layout, program)
    current = _cost(partitioned.program_of(_Variant("rule", "", layout)), layout, chip)
    variants, left_out = _variants(layout, program)
    amounts = amounts_of(template, layout, program)
    # Constraints come last, because their effects are not bounded.
    variants.sort(
        key=lambda variant: (
            variant.kind == "constraint",
            -_least_effect(variant.layout or layout, layout, amounts, chip),
        )
    )
    name = None if chip is None else chip.name
    tried: list[Effect] = []

    def known_effects() -> Effects:
        return Effects(program, name, current, by_effect(current, tried), left_out)

    def show() -> None:
        report("effects", done=len(tried), of=len(variants), found=typed_json.encode(known_effects()))

    show()
    with _pool() as pool:
        started: dict[tuple[str, ...], futures.Future[Program]] = {}
        for variant in variants:
            key = partitioned.key(variant)
            if key not in started:
                started[key] = pool.submit(partitioned.program_of, variant)
        for variant in variants:
            cost, reason = None, None
            try:
                propagated = started[partitioned.key(variant)].result()
                cost = _cost(propagated, variant.layout or layout, chip)
            except InvalidInput as error:
                reason = str(error)
            changed = None if variant.layout is None else variant.layout.to_json()
            tried.append(Effect(variant.kind, variant.label, changed, cost, reason))
            show()
    return known_effects()


@contextlib.contextmanager
def _pool() -> Iterator[futures.ThreadPoolExecutor]:
    """Return threads that partition variants. They start no more after an error, as of a cancelled job."""
    with futures.ThreadPoolExecutor(_THREADS) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _variants(layout: Layout, program: str) -> tuple[list[_Variant], int]:
    """Return the changes of a layout, and how many more there are."""
    template = template_of(layout, (program,))
    lowered = next((known for known in template.programs if known.name == program), None)
    named = {} if lowered is None else lowered.constraints_by_name

    def removed(change: Change) -> tuple[int, ...] | None:
        if change.kind != "constraint":
            return () if template_key(change.layout) == template_key(layout) else None
        fewer = set(change.layout.unconstrained) - set(layout.unconstrained)
        if not fewer <= named.keys():
            return None
        return tuple(sorted(n for name in fewer for n in named[name]))

    proposed, left_out = changes(layout)
    variants = [_Variant(change.kind, change.label, change.layout, removed(change)) for change in proposed]
    if not layout.entry.constraints and lowered is not None:
        variants += [
            _Variant("constraint", f"Remove constraint {place}", None, tuple(positions))
            for place, positions in lowered.constraints_by_line.items()
        ]
    return variants, left_out


class _Partitioned:
    """The partitioned programs of variants of one layout. Several threads may ask for them.

    Each thread writes the shardings of its variant into a copy of the program that no other thread uses, in
    an MLIR context of its own.
    """

    def __init__(self, current: Layout, program: str) -> None:
        self._current = current
        self._program = program
        self._lock = threading.Lock()  # of caches, traces, and the context of the current program
        self._copies: list[RewritableModule] = []  # of the current program, unused now

    def key(self, variant: _Variant) -> tuple[str, ...]:
        """Return a key that variants share if their programs are equal, with the names of mesh axes."""
        with self._lock:
            return _key(variant, self._current, self._program)

    def program_of(self, variant: _Variant) -> Program:
        """Return the partitioned program, from the cache if it is known.

        Raises:
          InvalidInput: JAX or XLA refuses it, or its layout cannot shard one of its arrays.
        """
        layout = variant.layout or self._current
        with self._lock:
            planned = plan(layout, cached_state(layout))
            refuse_indivisible(planned)
            key = _key(variant, self._current, self._program)
            if key in _PROGRAMS:
                return _PROGRAMS[key]
            like = layout if variant.removed is None else self._current
            template = template_of_program(self._current, like, self._program)
            lowered = _named(template, self._program)
            if variant.removed is None:
                copy = lowered.without_names  # of a template that no other variant has
            elif variant.removed or not self._copies:
                copy = lowered.apart(variant.removed)
            else:
                copy = self._copies.pop()
        program = partitioned_totals(lowered, Setting.of(layout), template.logical, False, copy)[0]
        with self._lock:
            _PROGRAMS[key] = program
            if variant.removed == ():
                self._copies.append(copy)
        return program


def _cost(partitioned: Program, layout: Layout, chip: Chip | None) -> LayoutCost:
    wire = wire_bytes_of(partitioned)
    return LayoutCost(
        _state(layout),
        {UNKNOWN_AXES: None} if wire is None else wire,
        partitioned.work.matmul_flops if partitioned.work else None,
        None if chip is None else predicted(partitioned, layout.mesh(), chip).seconds,
    )


def _state(layout: Layout) -> int | None:
    """Return the bytes of the train state on one device."""
    return state_totals(plan(layout, cached_state(layout))).per_device


def _least_effect(changed: Layout, layout: Layout, amounts: Amounts | None, chip: Chip | None) -> float:
    """Return the share by which a change moves the bound of the step or the state of a device."""
    before, after = (_least(each, amounts, chip) for each in (layout, changed))
    return max((abs(new - old) / old for old, new in zip(before, after, strict=True) if old), default=0.0)


def _least(layout: Layout, amounts: Amounts | None, chip: Chip | None) -> tuple[float, float]:
    state = _state(layout)
    return least_seconds(amounts, layout, chip, state), float(state or 0)


def _key(variant: _Variant, current: Layout, program: str) -> tuple[str, ...]:
    layout = variant.layout or current
    alike = None
    if template_key(layout) == template_key(current):
        alike = alike_key(amounts_of(template_of(current, (program,)), current, program), layout)
    if alike is not None:
        sizes = zip(layout.axis_names, layout.mesh_shape, strict=True)
        alike += repr([name for name, size in sizes if size > 1])
    return alike or programs_key(layout), repr(variant.removed), program


def forget() -> None:
    """Empty the caches of partitioned programs and abstract arrays."""
    _PROGRAMS.clear()
    cached_state.cache_clear()


def _named(template: Template, program: str) -> Lowered:
    for refused in template.refused:
        if refused.sharding_error is not None and refused.name in (program, "init"):
            raise InvalidInput(sentence(refused.sharding_error))
    return next(lowered for lowered in template.programs if lowered.name == program)
