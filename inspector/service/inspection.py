"""Plan, run and compile layouts in worker processes: the service of the pages and the command line.

It owns the worker processes and never imports JAX itself. Each `start_*` method returns a Job at once; its
`answer()` is the result in the types of this project.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Generic, Self, TypeVar

from cachetools import LRUCache

from inspector.compare import board as boards
from inspector.compare import paired_times
from inspector.compare.board import Board
from inspector.compare.paired_times import PairedTimes
from inspector.compare.paired_times import candidates as paired
from inspector.compare.paired_times.candidates import Candidates
from inspector.core import snapshot, strict_json, temporary_folder, typed_json
from inspector.core.abstract import AbstractState, PropagatedPrograms
from inspector.core.errors import InvalidInput
from inspector.core.remedies import Remedies
from inspector.core.snapshot import Effects, Snapshot
from inspector.core.typed_json import AnyRecord
from inspector.guides.assembly import Assembled, Assembly
from inspector.guides.processes import Exchanged, HostLocal
from inspector.guides.tutorials import TutorialRequest, TutorialRun
from inspector.layout import Layout, emulation
from inspector.layout.plan import (
    not_propagated,
    plan,
    programs_key,
    state_key,
    unmatched_paths,
    with_programs,
    with_propagated,
)
from inspector.layout.rule_files import RuleFile
from inspector.machines import compiler_options, targets
from inspector.machines.compiler_options import Options
from inspector.machines.hardware import Kind
from inspector.machines.targets import KINDS
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.service import (
    audit_log,
    compile_cache,
    known_results,
    lanes,
    opened_files,
    serving,
)
from inspector.service.agreement import disagreements, refuse_indivisible
from inspector.service.compile_cache import CompileCache
from inspector.service.engine import (
    LOCAL,
    Environment,
    Job,
    Limits,
    Requester,
    memory_limit,
)
from inspector.service.engine.pool import Event, unreported
from inspector.service.engine.requester import NO_LIMITS
from inspector.service.history import History
from inspector.service.own_model_registration import IMPORT_TIMEOUT
from inspector.service.restoration import Restoration
from inspector.service.subject import subject_of

# Seconds that a job may take, by its name among the producers' jobs.
TIMEOUTS = {
    "abstract": 60.0,  # 1,024 layers in a Python loop take about ten
    "propagate": 120.0,  # a transformer of 32 scanned layers takes one
    "remedies": 900.0,  # a dozen models, each traced and partitioned in a few seconds
    "effects": 1800.0,  # a mixture of experts with four layers in a loop takes about 40
    "run": 900.0,  # the default layout takes three
    "compile": 3600.0,  # an 8B model for 64 TPUs takes about half a minute
    "time_together": 3600.0,  # two default layouts in 15 rounds take about ten
    "assemble": 120.0,  # at most 4,096 elements take less than one
    "exchange": 120.0,  # four processes that import JAX
    "tutorial": 300.0,  # 64 emulated devices take about ten
    "board": 300.0,
    "rules": 60.0,  # the largest file takes about five
    "import": 300.0,  # 128 MiB of HLO text take about 30
}


# Jobs that only parse what users give, so they have a smaller limit of memory than their worker.
PARSERS = frozenset({"import", "board", "rules"})


def _timeout(kind: str, payload: dict[str, Any]) -> float:
    """Return the seconds that a job may take, with those to import the module of a user's model."""
    layout = payload.get("layout")
    entry = CATALOGUE.get(layout.get("model", "")) if isinstance(layout, dict) else None
    return TIMEOUTS[kind] + (IMPORT_TIMEOUT if entry is not None and entry.own else 0.0)


# Only shapes are read here, so one worker with one device serves every mesh.
_PLANNER = Environment(devices=1)

Answer = TypeVar("Answer")


class _Results(Generic[AnyRecord]):
    """The last results of one kind of request, by key. Any thread can read and add them."""

    def __init__(self, kind: type[AnyRecord], most: int) -> None:
        self._decode = _decoded(kind)
        self._known: LRUCache[str, AnyRecord] = LRUCache(most)
        self._lock = threading.Lock()

    def get(self, key: str) -> AnyRecord | None:
        with self._lock:
            return self._known.get(key)

    def keep(
        self, key: str, lasting: Callable[[AnyRecord], bool] = lambda result: True
    ) -> Callable[[dict[str, Any]], AnyRecord]:
        """Return a function that decodes a worker's answer, and keeps it if it is `lasting`."""

        def decode(answer: dict[str, Any]) -> AnyRecord:
            result = self._decode(answer)
            if lasting(result):
                with self._lock:
                    self._known[key] = result
            return result

        return decode


class Inspection:
    """Answer requests for layouts with worker processes.

    `run_workers` bounds the processes that run layouts; no other job waits for a run (`lanes`). `memory` is
    how many bytes of this machine a run may use; None measures it before each run. `limits` bounds the runs
    of one owner; `on_event` is called for all of them. `history` gets the finished runs and compiles.

    An Inspection starts jobs for the command line. `of` returns the same service for another requester.
    """

    def __init__(
        self,
        run_workers: int | None = None,
        memory: int | None = None,
        compiled: CompileCache | None = None,
        limits: Limits = NO_LIMITS,
        on_event: Callable[[Event], None] = unreported,
        history: History | None = None,
    ) -> None:
        self.compiled = compiled or CompileCache()
        self.requester = LOCAL
        self._history = history
        self.pool = lanes.pool(run_workers, limits, on_event)
        self._memory = memory
        self._states = _Results(AbstractState, 64)  # a trace each
        self._programs = _Results(PropagatedPrograms, 64)
        self._some_programs = _Results(PropagatedPrograms, 64)
        self._known_effects = _Results(Effects, 64)
        self._known_remedies = _Results(Remedies, 64)
        self._tutorials = _Results(TutorialRun, 32)  # about 100 kB each
        self._lock = threading.Lock()  # guards the durations
        self._durations: LRUCache[str, float] = LRUCache(1024)

    def warm(self) -> None:
        """Start the worker that reads shapes, which the first plan needs."""
        self.pool.warm(_PLANNER, lanes.SHAPES)

    def of(self, requester: Requester) -> Self:
        """Return this service for another requester. Both share workers and results."""
        other = copy.copy(self)
        other.requester = requester
        return other

    def close(self) -> None:
        """Stop all workers."""
        self.pool.close()

    def cancel(self, number: int) -> None:
        """Cancel a job of this requester.

        Raises:
          InvalidInput: the job has ended, or belongs to others.
        """
        self.pool.cancel(number, self.requester.owner)

    def is_ready(self) -> bool:
        """Return whether a worker has started. If there is none, start one, for a later call."""
        workers = self.pool.workers(lanes.SHAPES)
        if not workers:
            with contextlib.suppress(RuntimeError):  # closed
                self.warm()
        return any(worker.answered for worker in workers)

    # --- Plans -----------------------------------------------------------------------------------

    def known_state(self, layout: Layout) -> AbstractState | None:
        """Return the abstract arrays of the layout if they were read before."""
        return self._states.get(state_key(layout))

    def start_state(self, layout: Layout) -> Job[AbstractState]:
        """Read the abstract arrays of the layout."""
        payload = {"layout": layout.to_json()}
        keep = self._states.keep(state_key(layout))
        return self._start(lanes.SHAPES, "abstract", payload, _PLANNER, keep, _topic(layout))

    def plan(self, layout: Layout) -> Snapshot:
        """Return the planned Snapshot; wait for the shapes if they are not known.

        Raises:
          InvalidInput: the model cannot be traced at these sizes.
        """
        return plan(layout, self.known_state(layout) or self.start_state(layout).wait().answer())

    def known_programs(
        self, layout: Layout, only: Sequence[str] = (), platforms: Sequence[Kind] = KINDS
    ) -> PropagatedPrograms | None:
        """Return the partitioned programs of the layout, or else at least those in `only`.

        The arguments are those of `start_propagation`.
        """
        known = self._programs.get(programs_key(layout, platforms))
        if known is not None or not only:
            return known
        return self._some_programs.get(_some_key(layout, only, platforms))

    def start_propagation(
        self,
        layout: Layout,
        only: Sequence[str] = (),
        now: bool = True,
        platforms: Sequence[Kind] = KINDS,
    ) -> Job[PropagatedPrograms]:
        """Propagate shardings through the layout's programs.

        Where shardings come from is recorded, too, unless that fails: it can end the worker process for some
        programs.

        Args:
          only: the names of the programs that are needed now; all if it is empty.
          now: use a process that reads shapes, which has traced the model. Otherwise use another process, so
            that the next layout does not wait: random numbers of init take seconds.
          platforms: the kinds of machines on which its step can be assessed, if the layout names none.
        """
        payload = {
            "layout": layout.to_json(),
            "origins": True,
            "only": sorted(only),
            "platforms": sorted(platforms),
        }
        keep = (
            self._some_programs.keep(_some_key(layout, only, platforms))
            if only
            else self._programs.keep(programs_key(layout, platforms))
        )
        lane = lanes.SHAPES if now else lanes.REST
        without = payload | {"origins": False}
        return self._start(lane, "propagate", payload, _PLANNER, keep, _topic(layout), without)

    def known_effects(self, layout: Layout, program: str, chip: str | None) -> Effects | None:
        """Return the effects of changes of the layout on a program if they are known."""
        return self._known_effects.get(_effects_key(layout, program, chip))

    def start_effects(self, layout: Layout, program: str, chip: str | None) -> Job[Effects]:
        """Propagate a program under each change of one rule, constraint or mesh axis of the layout.

        Args:
          chip: the name of the chip of predicted times, or None.
        """
        payload = {"layout": layout.to_json(), "program": program, "chip": chip}
        keep = self._known_effects.keep(_effects_key(layout, program, chip))
        return self._start(lanes.EFFECTS, "effects", payload, _PLANNER, keep)

    def known_remedies(self, layout: Layout, chip: str) -> Remedies | None:
        """Return what makes a layout fit into the memory of a chip, if it is known."""
        return self._known_remedies.get(f"{layout.key()} {chip}")

    def start_remedies(self, layout: Layout, chip: str) -> Job[Remedies]:
        """Look for the smallest change with which the layout fits into the memory of a chip."""
        payload = {"layout": layout.to_json(), "chip": chip}
        keep = self._known_remedies.keep(f"{layout.key()} {chip}")
        return self._start(lanes.EFFECTS, "remedies", payload, _PLANNER, keep)

    def with_programs(self, planned: Snapshot, layout: Layout) -> Snapshot:
        """Return a plan with its propagated programs; wait for them if they are not known.

        If they cannot be propagated, the plan has a note with the reason instead.
        """
        try:
            programs = self.known_programs(layout) or self.start_propagation(layout).wait().answer()
        except InvalidInput as error:
            return not_propagated(planned, str(error))
        return with_programs(planned, programs)

    def with_propagated(self, compiled: Snapshot, layout: Layout) -> Snapshot:
        """Return a Snapshot of compiled programs with the propagated ones, if they are known."""
        programs = self.known_programs(layout)
        return compiled if programs is None else with_propagated(compiled, programs)

    def propagate(self, layout: Layout) -> None:
        """Wait until the propagated programs of the layout are known, or known to fail."""
        with contextlib.suppress(InvalidInput):
            if self.known_programs(layout) is None:
                self.start_propagation(layout).wait().answer()

    # --- Runs ------------------------------------------------------------------------------------

    def start_run(self, layout: Layout, planned: Snapshot, unsafe: Options = ()) -> Job[Snapshot]:
        """Build and run the layout, or compile it for its target.

        The answer has a finding for each array that is not placed as planned.

        Args:
          unsafe: options of the compiler from the command line, which may start programs and write files.
            What is compiled with them is neither cached nor in the history, which know layouts alone.

        Raises:
          InvalidInput: the plan does not fit the mesh or this machine, or a compiler is missing.
        """
        refuse_indivisible(planned)
        payload: dict[str, Any] = {"layout": layout.to_json()}
        variables = compiler_options.unsafe_variables(unsafe)
        if layout.machine is not None:
            if (missing := targets.missing_compiler(layout.machine)) is not None:
                raise InvalidInput(missing)
            if (state := self.known_state(layout)) is not None:
                payload["state"] = typed_json.encode(state)
            # A compile allocates nothing on its one emulated device.
            environment = Environment(1, (*targets.environment(layout.machine), *variables))
        else:
            if (reason := emulation.why_not_emulated(layout.devices)) is not None:
                raise InvalidInput(reason)
            if not layout.is_local:  # the worker knows the memory of local devices
                self._refuse_too_large(planned)
            payload["memory"] = self._memory
            environment = Environment(layout.devices, variables, layout.processes, local=layout.is_local)

        def remember(result: dict[str, Any]) -> Snapshot:
            found = _snapshot(result)
            if layout.machine is not None and not unsafe:
                self.compiled.put(compile_cache.key_of_layout(layout), snapshot.dumps(found))
            if not unsafe:
                with self._lock:
                    self._durations[layout.key()] = job.status().elapsed
            own = found.findings + disagreements(planned, found)
            found = replace(found, findings=own + unmatched_paths(planned))
            if self._history is not None and not recorded and not unsafe:
                recorded.append(True)  # also if the answer is read twice
                self._history.record_answer(layout, found, self.requester)
            return found

        recorded: list[bool] = []
        kind = "run" if layout.machine is None else "compile"
        job = self._start(lanes.RUNS, kind, payload, environment, remember)
        return job

    def cached_compile(self, layout: Layout) -> Snapshot | None:
        """Return the Snapshot of an earlier compile of this layout, by any process.

        Return None for a target that runs, for a layout that is not in the cache, and for an invalid entry.
        """
        if layout.machine is None:
            return None  # a run measures times, and another run measures other times
        return known_results.read(self.compiled, compile_cache.key_of_layout(layout))

    def known_result(self, layout: Layout) -> Snapshot | None:
        """Return the Snapshot of an earlier compile, or what a search compiled or measured."""
        return known_results.of_search(layout, self.compiled)

    def last_seconds(self, layout: Layout) -> float | None:
        """Return how long the last run of this layout took in this process; None if there was none."""
        with self._lock:
            return self._durations.get(layout.key())

    def timing_candidates(self, snapshots: Sequence[Snapshot], baseline: int = 0) -> Candidates:
        """Return which of these layouts can be timed together, and why the others cannot."""
        return paired.candidates(snapshots, baseline, self._available())

    def start_timing(self, snapshots: Sequence[Snapshot], rounds: int, baseline: int = 0) -> Job[PairedTimes]:
        """Run the layouts in turn in one process. Layouts are numbered as in `snapshots`.

        Raises:
          InvalidInput: fewer than two of them can run, or the number of rounds is not allowed.
        """
        paired.refuse_rounds(rounds)
        candidates = self.timing_candidates(snapshots, baseline)
        paired.refuse_too_few(candidates)
        # If memory is short, the first ones are timed.
        in_order = sorted(candidates.layouts.items(), key=lambda item: item[0] != baseline)
        payload = {
            "layouts": [[number, layout.to_json()] for number, layout in in_order],
            "untimed": [[untimed.layout, untimed.reason] for untimed in candidates.untimed],
            "rounds": rounds,
            "memory": self._memory,
        }
        environment = Environment(candidates.devices)
        return self._start(
            lanes.RUNS,
            "time_together",
            payload,
            environment,
            lambda result: paired_times.from_json(result, "the worker's answer"),
        )

    # --- Guides ----------------------------------------------------------------------------------

    def start_restoration(
        self, saved_layout: Layout, layout: Layout, saved_plan: Snapshot, planned: Snapshot
    ) -> Restoration:
        """Save the train state under one layout and restore it under another.

        Raises:
          InvalidInput: the two train states differ, or one does not fit its mesh or this machine.
        """
        # One process saves and one restores, whatever the layouts say.
        saved_layout, layout = (replace(side, processes=1) for side in (saved_layout, layout))
        planned = replace(planned, mesh=layout.mesh())
        for side in (saved_plan, planned):
            refuse_indivisible(side)
            self._refuse_too_large(side)
        return Restoration(self.pool, saved_layout, layout, planned, self._memory, self.requester)

    def start_assembly(self, assembly: Assembly) -> Job[Assembled]:
        """Assemble an array from pieces."""
        payload = {"assembly": assembly.to_json()}
        environment = Environment(assembly.devices)
        return self._start(lanes.RUNS, "assemble", payload, environment, _decoded(Assembled))

    def start_exchange(self, host_local: HostLocal) -> Job[Exchanged]:
        """Make a global array of host-local arrays, in several processes."""
        payload = {"host_local": host_local.to_json()}
        environment = Environment(host_local.devices, processes=host_local.processes)
        return self._start(lanes.RUNS, "exchange", payload, environment, _decoded(Exchanged))

    def known_tutorial(self, request: TutorialRequest) -> TutorialRun | None:
        """Return the steps of this tutorial if it was completed before."""
        return self._tutorials.get(request.key())

    def start_tutorial(self, request: TutorialRequest) -> Job[TutorialRun]:
        """Run the code of a tutorial step by step."""
        payload = {"tutorial": request.to_json()}
        keep = self._tutorials.keep(request.key(), lambda run: run.complete)
        return self._start(lanes.RUNS, "tutorial", payload, Environment(request.devices), keep)

    # --- Files -----------------------------------------------------------------------------------

    def start_import(
        self,
        path: str | os.PathLike[str],
        name: str,
        kind: str | None = None,
        step: int | None = None,
        folder: str | os.PathLike[str] | None = None,
        mesh: Sequence[tuple[str, int]] | None = None,
    ) -> Job[Snapshot]:
        """Read a file or folder on this machine.

        Errors call it `name`. Without a `kind`, the content decides. `step` chooses among the steps of a
        checkpoint. A zip file is unpacked into `folder`; without one it is refused. `mesh` has the name and
        size of each axis, for files that name no mesh.
        """
        payload: dict[str, Any] = {
            "path": os.fspath(path),
            "name": name,
            "kind": kind,
            "step": step,
        }
        payload["mesh"] = None if mesh is None else list(mesh)
        payload["folder"] = None if folder is None else os.fspath(folder)
        return self._start(
            lanes.FILES,
            "import",
            payload,
            _PLANNER,
            functools.partial(self._opened_snapshot, name),
        )

    def start_board(self, path: str | os.PathLike[str], name: str) -> Job[Board]:
        """Read a Board file, or a Snapshot file as a Board. Errors call it `name`."""
        payload = {"path": os.fspath(path), "name": name}
        return self._start(
            lanes.FILES,
            "board",
            payload,
            _PLANNER,
            functools.partial(self._opened_board, name),
        )

    def start_rules(self, text: str, name: str) -> Job[RuleFile]:
        """Read the lists of rules in the text of a file; the suffix of its `name` decides the format."""
        payload = {"text": text, "name": name}
        return self._start(lanes.FILES, "rules", payload, _PLANNER, _decoded(RuleFile))

    def _opened_snapshot(self, name: str, result: dict[str, Any]) -> Snapshot:
        text = result["snapshot"]
        with self._room(len(text), name) as opened:
            found = snapshot.from_json(strict_json.parse(text, name), name)
            opened.append(found)
        return found

    def _opened_board(self, name: str, result: dict[str, Any]) -> Board:
        text = result["board"]
        with self._room(len(text), name) as opened:
            board = boards.from_json(strict_json.parse(text, name), "the worker's answer")
            opened += [pin.snapshot for pin in board.pins]
        return board

    def _room(self, size: int, name: str) -> contextlib.AbstractContextManager[list[Snapshot]]:
        """Reserve room for what a browser session opens. The command line ends with what it opens."""
        if self.requester.session is None:
            return contextlib.nullcontext([])
        return opened_files.shared().room(size, self.requester, name)

    def _start(
        self,
        lane: str,
        kind: str,
        payload: dict[str, Any],
        environment: Environment,
        decode: Callable[[dict[str, Any]], Answer],
        topic: str | None = None,
        otherwise: dict[str, Any] | None = None,
    ) -> Job[Answer]:
        job = self.pool.submit(
            kind,
            payload,
            environment,
            _timeout(kind, payload),
            self.requester,
            subject_of(payload),
            topic,
            memory_limit.of_parsing() if kind in PARSERS else None,
            lane,
            otherwise,
        )
        return job.decoded(decode)

    def _available(self) -> int:
        return memory_limit.available_bytes() if self._memory is None else self._memory

    def _refuse_too_large(self, planned: Snapshot) -> None:
        needed = emulation.state_bytes_in_a_step(planned)
        emulation.refuse_too_large(needed, self._available(), "a train step of this layout")


@functools.cache
def shared() -> Inspection:
    """Return the one service of this process."""
    temporary_folder.remove_stale()
    settings = serving.current()
    return Inspection(limits=settings.limits, on_event=audit_log.shared().job, history=History())


def _decoded(kind: type[AnyRecord]) -> Callable[[dict[str, Any]], AnyRecord]:
    return lambda result: typed_json.decode(kind, result, "the worker's answer")


def _snapshot(result: dict[str, Any]) -> Snapshot:
    return snapshot.from_json(result, "the worker's answer")


def _effects_key(layout: Layout, program: str, chip: str | None) -> str:
    return f"{layout.key()} {program} {chip}"


def _topic(layout: Layout) -> str:
    """Return what the layouts share that use the same traced model, if mesh and rules do not change it."""
    return layout.key("model", "sizes", "unconstrained")


def _some_key(layout: Layout, only: Sequence[str], platforms: Sequence[Kind]) -> str:
    return f"{programs_key(layout, platforms)} {sorted(only)}"
