"""Ask about layouts: one service that the pages and the command line share.

It keeps the workers, knows which questions they have answered, and never imports JAX itself.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from inspector.compare import paired_times
from inspector.compare.paired_times import PairedTimes
from inspector.compare.paired_times import candidates as time_together
from inspector.compare.paired_times.candidates import Candidates
from inspector.core import snapshot, strict_json, typed_json
from inspector.core.abstract import AbstractState
from inspector.core.errors import InvalidInput
from inspector.core.formatting import counted
from inspector.core.snapshot import Array, Finding, Snapshot
from inspector.core.totals import STATE_GROUPS
from inspector.guides.assembly import Assembled, Assembly
from inspector.guides.processes import Exchanged, HostLocal
from inspector.guides.restore.restoration import Outcome, Restoration
from inspector.guides.tutorials import Walk, Walked
from inspector.layout import Layout
from inspector.layout import emulation as machine
from inspector.layout.plan import INDIVISIBLE, plan
from inspector.machines import targets
from inspector.machines.targets import Target
from inspector.producers.readers import checkpoint_folder
from inspector.producers.readers.guess import FileKind
from inspector.service import compile_cache as answers
from inspector.service.compile_cache import CompileCache
from inspector.service.engine import Environment, Job, Pool

RUN_TIMEOUT = 900.0  # seconds; the default layout takes three
COMPILE_TIMEOUT = 3600.0  # seconds; an 8B model for 64 TPUs takes about half a minute
ASSEMBLY_TIMEOUT = 120.0  # seconds; at most 4,096 elements, so that it takes less than one
EXCHANGE_TIMEOUT = 120.0  # seconds; most of what it takes is four processes importing JAX
TIMING_TIMEOUT = 3600.0  # seconds; two default layouts in 15 rounds take about ten
WALK_TIMEOUT = 300.0  # seconds; 64 emulated devices take about ten
IMPORT_TIMEOUT = 300.0  # seconds; 128 MiB of HLO text take about 30
ABSTRACT_TIMEOUT = 120.0  # seconds; 1,024 layers in a Python loop take about ten
# Abstract states are small (a few hundred bytes an array) and cost a trace each.
REMEMBERED_STATES = 64
REMEMBERED_DURATIONS = 1024
REMEMBERED_WALKS = 32  # some 100 kB each

# What a compiled Snapshot does not depend on.
_ONLY_OF_RUNS = ("steps", "timeit", "trace", "processes")
# Packages that decide what comes out of a compiler.
_COMPILING = (
    *("jax", "jaxlib", "flax", "optax", "numpy", "libtpu"),
    *("jax-cuda13-plugin", "jax-cuda13-pjrt"),
)

NOT_AS_PLANNED = "not-as-planned"
CHOSEN_BY_THE_COMPILER = ("activation", "gradient")

# Shapes do not depend on devices, so one worker with one device answers for every mesh.
_PLANNER = Environment(devices=1)


class Inspection:
    """CompileCache questions about layouts with worker processes.

    `run_workers` bounds the processes that run layouts; one more, with a single device, reads shapes, so
    that the preview never waits for a run. `memory` is how many bytes of this machine a run may count
    on, None to ask the machine each time. `kept` holds what compilers answered, also in earlier lives.
    """

    def __init__(
        self,
        run_workers: int | None = None,
        memory: int | None = None,
        kept: CompileCache | None = None,
    ) -> None:
        self.kept = kept or CompileCache()
        self._runs = Pool(run_workers or min(2, os.cpu_count() or 1))
        self._shapes = Pool(1)
        self._imports = Pool(1)
        self._memory = memory
        self._states: OrderedDict[str, AbstractState] = OrderedDict()
        self._durations: OrderedDict[str, float] = OrderedDict()
        self._walked: OrderedDict[str, Walked] = OrderedDict()
        self._lock = threading.Lock()

    def warm(self, layout: Layout | None = None) -> None:
        """Start what the first question will need: the planner, and a worker of the layout's size."""
        self._shapes.warm(_PLANNER)
        if layout is not None:
            self._runs.warm(_environment(layout))

    def known_state(self, layout: Layout) -> AbstractState | None:
        """The layout's abstract arrays if they have been asked for before."""
        with self._lock:
            key = _state_key(layout)
            if key in self._states:
                self._states.move_to_end(key)
            return self._states.get(key)

    def ask_state(self, layout: Layout) -> Job:
        """Have the layout's abstract arrays read; give the finished job to `take_state`."""
        return self._shapes.submit(
            "abstract", {"layout": layout.to_json()}, _PLANNER, timeout=ABSTRACT_TIMEOUT
        )

    def take_state(self, layout: Layout, job: Job) -> AbstractState:
        """The abstract arrays that a finished job found.

        Raises:
          InvalidInput: the job did not end well; its sentence.
        """
        state = typed_json.decode(AbstractState, _result(job), "the worker's answer")
        with self._lock:
            self._states[_state_key(layout)] = state
            while len(self._states) > REMEMBERED_STATES:
                self._states.popitem(last=False)
        return state

    def plan(self, layout: Layout) -> Snapshot:
        """The planned Snapshot, waiting for the shapes if they are not known yet.

        Raises:
          InvalidInput: the model cannot be traced at these sizes.
        """
        state = self.known_state(layout) or self.take_state(layout, self.ask_state(layout).wait())
        return plan(layout, state)

    def start_run(self, layout: Layout, planned: Snapshot) -> Job:
        """Have the layout built and run, or compiled for its target; give the finished job to `take_run`.

        Raises:
          InvalidInput: the plan does not fit the mesh or this machine, or the target's compiler is missing.
        """
        refuse_indivisible(planned)
        if layout.machine is not None:
            return self._start_compile(layout, layout.machine)
        if (reason := machine.why_not_emulated(layout.devices)) is not None:
            raise InvalidInput(reason)
        available = machine.available_bytes() if self._memory is None else self._memory
        machine.refuse_too_large(
            machine.state_bytes_in_a_step(planned), available, "a train step of this layout"
        )
        payload = {"layout": layout.to_json(), "memory": self._memory}
        return self._runs.submit("run", payload, _environment(layout), RUN_TIMEOUT)

    def _start_compile(self, layout: Layout, target: Target) -> Job:
        missing = targets.missing_compiler(target)
        if missing is not None:
            raise InvalidInput(missing)
        # Nothing is allocated on the one emulated device that such a worker has.
        environment = Environment(1, targets.environment(target))
        payload: dict[str, Any] = {"layout": layout.to_json()}
        if (known := self.known_state(layout)) is not None:
            payload["state"] = typed_json.encode(known)
        return self._runs.submit("compile", payload, environment, COMPILE_TIMEOUT)

    def kept_answer(self, layout: Layout) -> Snapshot | None:
        """What compiling exactly this layout gave before, here or in another process; None if unknown."""
        if layout.machine is None:
            return None  # a run measures time, and another one measures it anew
        text = self.kept.get(_answer_key(layout))
        try:
            return (
                None if text is None else snapshot.from_json(strict_json.parse(text, "the answer"))
            )
        except InvalidInput:
            return None

    def last_seconds(self, layout: Layout) -> float | None:
        """How long the last run of exactly this layout took here, None if there was none."""
        with self._lock:
            return self._durations.get(layout.key())

    def take_run(self, layout: Layout, job: Job, planned: Snapshot) -> Snapshot:
        """The Snapshot of a finished run, with a finding for each array that is not where planned.

        Raises:
          InvalidInput: the job did not end well; its sentence.
        """
        found = snapshot.from_json(_result(job), "the worker's answer")
        if layout.machine is not None:
            self.kept.put(_answer_key(layout), snapshot.dumps(found))
        with self._lock:
            self._durations[layout.key()] = job.elapsed
            while len(self._durations) > REMEMBERED_DURATIONS:
                self._durations.popitem(last=False)
        return replace(found, findings=found.findings + disagreements(planned, found))

    def start_restoration(
        self, saved_layout: Layout, layout: Layout, saved_plan: Snapshot, planned: Snapshot
    ) -> Restoration:
        """Have the train state saved under one layout and restored under another.

        Raises:
          InvalidInput: the two have different train states, or one does not fit its mesh or this machine.
        """
        # One process saves and one restores, however many the layouts are run by.
        saved_layout, layout = (replace(one, processes=1) for one in (saved_layout, layout))
        planned = replace(planned, mesh=layout.mesh())
        available = machine.available_bytes() if self._memory is None else self._memory
        for one in (saved_plan, planned):
            refuse_indivisible(one)
            machine.refuse_too_large(
                machine.state_bytes_in_a_step(one), available, "a train step of this layout"
            )
        return Restoration(self._runs, saved_layout, layout, planned, self._memory)

    def start_assembly(self, assembly: Assembly) -> Job:
        """Have an array made by hand; give the finished job to `take_assembly`."""
        payload = {"assembly": assembly.to_json()}
        environment = Environment(assembly.devices)
        return self._runs.submit("assemble", payload, environment, ASSEMBLY_TIMEOUT)

    def take_assembly(self, job: Job) -> Assembled:
        """What JAX made of it, or said to it.

        Raises:
          InvalidInput: the job did not end well; its sentence.
        """
        return typed_json.decode(Assembled, _result(job), "the worker's answer")

    def take_restoration(self, restoration: Restoration) -> Outcome:
        """What came of a finished restoration, with a finding for each array that is not where planned.

        Raises:
          InvalidInput: it did not end well; its sentence.
        """
        outcome = restoration.outcome()
        state = [one for one in restoration.planned.arrays if one.group in STATE_GROUPS]
        planned = replace(restoration.planned, arrays=tuple(state))
        found = outcome.snapshot
        findings = found.findings + disagreements(planned, found)
        return replace(outcome, snapshot=replace(found, findings=findings))

    def start_exchange(self, host_local: HostLocal) -> Job:
        """Have host-local arrays made a global one in real processes; for `take_exchange`."""
        environment = Environment(host_local.devices, processes=host_local.processes)
        payload = {"host_local": host_local.to_json()}
        return self._runs.submit("exchange", payload, environment, EXCHANGE_TIMEOUT)

    def take_exchange(self, job: Job) -> Exchanged:
        """What JAX made of it, or said to it.

        Raises:
          InvalidInput: the job did not end well; its sentence.
        """
        return typed_json.decode(Exchanged, _result(job), "the worker's answer")

    def known_walk(self, walk: Walk) -> Walked | None:
        """What came of this walk if it was taken before."""
        with self._lock:
            if walk.key() in self._walked:
                self._walked.move_to_end(walk.key())
            return self._walked.get(walk.key())

    def start_walk(self, walk: Walk) -> Job:
        """Have a guide's code run step by step; give the finished job to `take_walk`."""
        environment = Environment(walk.devices)
        return self._runs.submit("walk", {"walk": walk.to_json()}, environment, WALK_TIMEOUT)

    def take_walk(self, walk: Walk, job: Job) -> Walked:
        """The steps that were taken; remembered unless one of them failed.

        Raises:
          InvalidInput: the job did not end well; its sentence.
        """
        walked = typed_json.decode(Walked, _result(job), "the worker's answer")
        if walked.complete:
            with self._lock:
                self._walked[walk.key()] = walked
                while len(self._walked) > REMEMBERED_WALKS:
                    self._walked.popitem(last=False)
        return walked

    def timing_candidates(self, snapshots: Sequence[Snapshot], baseline: int = 0) -> Candidates:
        """Which of these layouts can be timed together here, and why the others cannot."""
        available = machine.available_bytes() if self._memory is None else self._memory
        return time_together.candidates(snapshots, baseline, available)

    def start_timing(self, snapshots: Sequence[Snapshot], rounds: int, baseline: int = 0) -> Job:
        """Have the layouts of these run in turn in one process; give the finished job to `take_timing`.

        Raises:
          InvalidInput: fewer than two of them can be, or the number of rounds is not allowed.
        """
        time_together.refuse_rounds(rounds)
        found = self.timing_candidates(snapshots, baseline)
        time_together.refuse_too_few(found)
        # Where memory is short, those that come first are timed.
        in_order = sorted(found.layouts.items(), key=lambda one: one[0] != baseline)
        payload = {
            "layouts": [[number, one.to_json()] for number, one in in_order],
            "untimed": [[one.layout, one.reason] for one in found.untimed],
            "rounds": rounds,
            "memory": self._memory,
        }
        environment = Environment(found.devices)
        return self._runs.submit("time_together", payload, environment, TIMING_TIMEOUT)

    def take_timing(self, job: Job) -> PairedTimes:
        """What came of it; layouts have the numbers that they had among the Snapshots.

        Raises:
          InvalidInput: the job did not end well; its sentence.
        """
        return paired_times.from_json(_result(job), "the worker's answer")

    def start_import(
        self,
        path: str | os.PathLike[str],
        name: str,
        kind: FileKind | None = None,
        step: int | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> Job:
        """Have a file or folder on this machine read; give the finished job to `take_import`.

        `name` is how it is called in sentences; without a `kind` it is told by the content. `step` is that
        of a checkpoint of several. A zip file is unpacked into `folder`, and refused without one.
        """
        payload = {"path": os.fspath(path), "name": name, "kind": kind, "step": step}
        payload["folder"] = None if folder is None else os.fspath(folder)
        return self._imports.submit("import", payload, _PLANNER, IMPORT_TIMEOUT)

    def take_import(self, job: Job) -> Snapshot:
        """The Snapshot of what was read.

        Raises:
          InvalidInput: the job did not end well; its sentence.
        """
        return snapshot.from_json(_result(job), "the worker's answer")

    def close(self) -> None:
        """Stop all workers."""
        self._runs.close()
        self._shapes.close()
        self._imports.close()


@functools.cache
def shared() -> Inspection:
    """The one service of this process."""
    checkpoint_folder.remove_stale()
    return Inspection()


def refuse_indivisible(planned: Snapshot) -> None:
    """Refuse a plan with a dimension that its mesh axes do not divide, as JAX would.

    Raises:
      InvalidInput: the sentence of the first one, and how many more there are.
    """
    uneven = [finding for finding in planned.findings if finding.code == INDIVISIBLE]
    if uneven:
        more = f" (and {counted(len(uneven) - 1, 'more array')})" if len(uneven) > 1 else ""
        raise InvalidInput(uneven[0].message + more)


def disagreements(planned: Snapshot, found: Snapshot) -> tuple[Finding, ...]:
    """A finding for every array that is not where it was planned, and one for the mesh if it is not.

    Activations and gradients are the compiler's to place, and no plan says where.
    """
    asked = {array.path: _placement(array) for array in planned.arrays}
    got = {
        array.path: _placement(array)
        for array in found.arrays
        if array.group not in CHOSEN_BY_THE_COMPILER
    }
    findings = []
    if not _same_mesh(planned, found):
        message = "the mesh was planned and found differently: " + _difference(
            typed_json.encode(planned.mesh), typed_json.encode(found.mesh)
        )
        findings.append(Finding("error", NOT_AS_PLANNED, message))
    for path in sorted(asked.keys() | got.keys()):
        if asked.get(path) != got.get(path):
            difference = _difference(asked.get(path), got.get(path))
            message = f"{path} was planned and found differently: {difference}"
            findings.append(Finding("error", NOT_AS_PLANNED, message, array=path))
    return tuple(findings)


def _same_mesh(planned: Snapshot, found: Snapshot) -> bool:
    if found.source.kind not in targets.KINDS or not planned.mesh or not found.mesh:
        return planned.mesh == found.mesh
    # Which device stands where in a machine, its compiler says.
    return planned.mesh.axes == found.mesh.axes


def _placement(array: Array) -> dict[str, Any]:
    """What a plan says of an array; what only a live one has is left out."""
    plain = typed_json.encode(array)
    return {key: plain[key] for key in plain if key not in ("box", "facts", "program")}


def _difference(asked: dict[str, Any] | None, got: dict[str, Any] | None) -> str:
    if not asked or not got:
        return "planned only" if not got else "found only"
    return "; ".join(
        f"{key} {json.dumps(asked[key])} became {json.dumps(got.get(key))}"
        for key in asked
        if asked[key] != got.get(key)
    )


def _environment(layout: Layout) -> Environment:
    return Environment(layout.devices, processes=layout.processes)


def _answer_key(layout: Layout) -> str:
    plain = {key: value for key, value in layout.to_json().items() if key not in _ONLY_OF_RUNS}
    return answers.key_of({"layout": plain, "versions": _versions()})


@functools.cache
def _versions() -> dict[str, str]:
    found = {}
    for package in _COMPILING:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def _result(job: Job) -> dict:
    if job.state != "done":
        raise InvalidInput(job.error or "the job has not finished")
    return job.result


def _state_key(layout: Layout) -> str:
    plain = layout.to_json()
    # Names at parameters are mesh axes there, so that the trace depends on mesh and specs too; and a
    # person's own code may do anything with mesh and rules.
    kept = (
        ("model", "sizes")
        if layout.entry.has_rules and not layout.entry.own
        else ("model", "sizes", "mesh", "axes", "rules", "specs")
    )
    return json.dumps({key: plain[key] for key in kept if key in plain}, sort_keys=True)
