"""Plan, run and compile layouts in worker processes: the service of the pages and the command line.

It owns the worker processes and never imports JAX itself. What takes long is a `Request`, which knows its
result or starts a job; results have the types of this project.
"""

import contextlib
import copy
import functools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from cachetools import LRUCache

from inspector.compare import board as boards
from inspector.compare import paired_times
from inspector.compare.board import Board
from inspector.compare.paired_times import Candidates, PairedTimes
from inspector.files import strict_json, temporary_folder
from inspector.guides.assembly import Assembled, Assembly
from inspector.guides.processes import Exchanged, HostLocal
from inspector.guides.tutorials import TutorialRequest, TutorialRun
from inspector.jobs import compile_cache, lanes, opened_files, serving
from inspector.jobs.agreement import disagreements, refuse_indivisible
from inspector.jobs.compile_cache import CompileCache
from inspector.jobs.engine import LOCAL, Environment, Job, Requester
from inspector.jobs.engine.environment import available_bytes, of_parsing
from inspector.jobs.engine.pool import Event, unreported
from inspector.jobs.engine.process import canonical
from inspector.jobs.own_model_registration import IMPORT_TIMEOUT
from inspector.jobs.request import Request, subject_of
from inspector.layout import Layout, emulation
from inspector.layout.plan import (
    not_partitioned,
    plan,
    programs_key,
    state_key,
    unmatched_paths,
    with_programs,
)
from inspector.layout.rule_files import RuleFile
from inspector.machines import compiler_options, targets
from inspector.machines.compiler_options import Options
from inspector.machines.hardware import Kind
from inspector.machines.targets import KINDS
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.records import snapshot, typed_json
from inspector.records.snapshot import Effects, Snapshot
from inspector.records.typed_json import Record
from inspector.sharding.abstract import AbstractState, PartitionedPrograms
from inspector.text.errors import InvalidInput


@dataclass(frozen=True)
class JobKind:
    """The jobs of one name among those of the producers.

    Attributes:
      lane: the lane of their workers.
      seconds: the most that a job may take.
      record: the type of their results, if results are kept.
      kept: the number of results that are kept.
      parses: whether they only parse what users give, in less memory than their worker may have.
    """

    lane: str
    seconds: float
    record: type[Record] = Record
    kept: int = 64
    parses: bool = False


JOB_KINDS = {
    "abstract": JobKind(lanes.SHAPES, 60.0, AbstractState),  # 1,024 layers in a Python loop take about ten
    "partition": JobKind(lanes.SHAPES, 120.0, PartitionedPrograms, 128),  # 32 scanned layers take one
    "effects": JobKind(lanes.EFFECTS, 1800.0, Effects),  # experts in four layers in a loop take about 40
    "run": JobKind(lanes.RUNS, 900.0),  # the default layout takes three
    "compile": JobKind(lanes.RUNS, 3600.0),  # an 8B model for 64 TPUs takes about half a minute
    "time_together": JobKind(lanes.RUNS, 3600.0),  # two default layouts in 15 rounds take about ten
    "assemble": JobKind(lanes.RUNS, 120.0, Assembled),  # at most 4,096 elements take less than one
    "exchange": JobKind(lanes.RUNS, 120.0, Exchanged),  # four processes that import JAX
    "tutorial": JobKind(lanes.RUNS, 300.0, TutorialRun, 32),  # 64 devices take about ten; 100 kB each
    "board": JobKind(lanes.FILES, 300.0, parses=True),
    "rules": JobKind(lanes.FILES, 60.0, RuleFile, 8, parses=True),  # the largest file takes about five
    "import": JobKind(lanes.FILES, 300.0, parses=True),  # 128 MiB of HLO text take about 30
}


def _timeout(kind: str, payload: dict[str, Any]) -> float:
    """Return the seconds that a job may take, with those to import the module of a user's model."""
    layout = payload.get("layout")
    entry = CATALOGUE.get(layout.get("model", "")) if isinstance(layout, dict) else None
    return JOB_KINDS[kind].seconds + (IMPORT_TIMEOUT if entry is not None and entry.own else 0.0)


# Only shapes are read here, so one worker with one device serves every mesh.
_PLANNER = Environment(devices=1)


class Inspection:
    """Answer requests for layouts with worker processes.

    `run_workers` bounds the processes that run layouts; no other job waits for a run (`lanes`). `memory` is
    the bytes of this machine for a run; None measures it before each run. `on_event` is called for all runs.

    An Inspection starts jobs for the command line. `of` returns the same service for another requester.
    """

    def __init__(
        self,
        run_workers: int | None = None,
        memory: int | None = None,
        compiled: CompileCache | None = None,
        on_event: Callable[[Event], None] = unreported,
    ) -> None:
        self.compiled = compiled or CompileCache()
        self.requester = LOCAL
        self.pool = lanes.pool(run_workers, on_event)
        self._memory = memory
        self._known = {kind: LRUCache[str, Any](work.kept) for kind, work in JOB_KINDS.items()}
        self._lock = threading.Lock()  # guards the results and the durations
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

    def state(self, layout: Layout) -> Request[AbstractState]:
        """Read the abstract arrays of the layout."""
        key, topic = state_key(layout), _topic(layout)
        return self._request("abstract", {"layout": layout.to_json()}, key=key, layout=layout, topic=topic)

    def plan(self, layout: Layout) -> Snapshot:
        """Return the planned Snapshot; wait for the shapes if they are not known.

        Raises:
          InvalidInput: the model cannot be traced at these sizes.
        """
        return plan(layout, self.state(layout).answer())

    def programs(
        self,
        layout: Layout,
        only: Sequence[str] = (),
        now: bool = True,
        platforms: Sequence[Kind] = KINDS,
    ) -> Request[PartitionedPrograms]:
        """Partition the layout's programs.

        Where shardings come from is recorded, too, unless that fails: it can end the worker process for some
        programs. If only the train step is asked, its totals are known before the rest.

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
        key = programs_key(layout, platforms)
        asked = self._request(
            *("partition", payload),
            key=f"{key} {sorted(only)}" if only else key,
            layout=layout,
            topic=_topic(layout),
            lane=lanes.SHAPES if now else lanes.REST,
            otherwise=payload | {"origins": False},
        )
        if not only:
            return asked
        alone = tuple(only) == (layout.step_program,)
        return replace(
            asked,
            known=lambda: self._result("partition", key) or asked.known(),
            so_far=_totals if alone else asked.so_far,
        )

    def with_programs(self, snapshot: Snapshot, layout: Layout) -> Snapshot:
        """Return a plan, or compiled programs, with the partitioned ones; wait if they are not known.

        If they cannot be partitioned, a plan has a note with the reason instead.
        """
        try:
            return with_programs(snapshot, self.programs(layout).answer())
        except InvalidInput as error:
            return not_partitioned(snapshot, str(error))

    def effects(
        self, layout: Layout, program: str, chip: str | None, kinds: Sequence[str] = ()
    ) -> Request[Effects]:
        """Partition a program under each change of the layout.

        Args:
          chip: the name of the chip of predicted times, or None.
          kinds: kinds of changes that are tried; all if it is empty.
        """
        payload = {"layout": layout.to_json(), "program": program, "chip": chip, "kinds": list(kinds)}
        return self._request("effects", payload, layout=layout)

    # --- Runs ------------------------------------------------------------------------------------

    def run(self, layout: Layout, planned: Snapshot | None = None, unsafe: Options = ()) -> Request[Snapshot]:
        """Build and run the layout, or compile it for its target.

        The result has a finding for each array that is not placed as planned. Only a compile can be known,
        by any process: a run measures times, and another run measures other times.

        Args:
          planned: its plan, if it is known.
          unsafe: options of the compiler from the command line, which may start programs and write files.
            Programs compiled with them are not cached, because the cache knows layouts alone.
        """

        def known() -> Snapshot | None:
            if layout.machine is None or unsafe:
                return None
            return compile_cache.read(self.compiled, compile_cache.key_of_layout(layout))

        def start() -> Job[Snapshot]:
            return self._run(layout, planned or self.plan(layout), unsafe)

        return Request(layout.key(), start, known, layout=layout)

    def why_not_run(self, layout: Layout, planned: Snapshot) -> str | None:
        """Return why this machine cannot run or compile the layout, or None if it can."""
        if layout.machine is not None:
            return targets.missing_compiler(layout.machine)
        if layout.is_local:
            return None  # the worker knows the memory of local devices
        return emulation.why_not_emulated(layout.devices) or emulation.why_too_large(
            emulation.state_bytes_in_a_step(planned), self._available(), "A train step of this layout"
        )

    def _run(self, layout: Layout, planned: Snapshot, unsafe: Options) -> Job[Snapshot]:
        """Start a run or compile.

        Raises:
          InvalidInput: the plan does not fit the mesh or this machine, or a compiler is missing.
        """
        refuse_indivisible(planned)
        payload: dict[str, Any] = {"layout": layout.to_json()}
        variables = compiler_options.unsafe_variables(unsafe)
        if (reason := self.why_not_run(layout, planned)) is not None:
            raise InvalidInput(reason)
        if layout.machine is not None:
            if (state := self.state(layout).known()) is not None:
                payload["state"] = typed_json.encode(state)
            # A compile allocates nothing on its one emulated device.
            environment = Environment(1, (*targets.environment(layout.machine), *variables))
        else:
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
            return replace(found, findings=own + unmatched_paths(planned))

        kind = "run" if layout.machine is None else "compile"
        job = self._start(kind, payload, environment)
        return job.decoded(remember)

    def last_seconds(self, layout: Layout) -> float | None:
        """Return how long the last run of this layout took in this process; None if there was none."""
        with self._lock:
            return self._durations.get(layout.key())

    def timing_candidates(self, snapshots: Sequence[Snapshot], baseline: int = 0) -> Candidates:
        """Return which of these layouts can be timed together, and why the others cannot."""
        return paired_times.candidates(snapshots, baseline, self._available())

    def timing(self, snapshots: Sequence[Snapshot], rounds: int, baseline: int = 0) -> Request[PairedTimes]:
        """Run the layouts in turn in one process. Layouts are numbered as in `snapshots`.

        It cannot start if fewer than two of them can run, or the number of rounds is not allowed.
        """

        def start() -> Job[PairedTimes]:
            paired_times.refuse_rounds(rounds)
            candidates = self.timing_candidates(snapshots, baseline)
            paired_times.refuse_too_few(candidates)
            # If memory is short, the first ones are timed.
            in_order = sorted(candidates.layouts.items(), key=lambda item: item[0] != baseline)
            payload = {
                "layouts": [[number, layout.to_json()] for number, layout in in_order],
                "untimed": [[untimed.layout, untimed.reason] for untimed in candidates.untimed],
                "rounds": rounds,
                "memory": self._memory,
            }
            job = self._start("time_together", payload, Environment(candidates.devices))
            return job.decoded(lambda result: paired_times.from_json(result, "the worker's answer"))

        asked = {"layouts": [made.layout for made in snapshots], "rounds": rounds, "baseline": baseline}
        return Request(canonical(asked), start)

    # --- Guides ----------------------------------------------------------------------------------

    def assembly(self, assembly: Assembly) -> Request[Assembled]:
        """Assemble an array from pieces."""
        return self._request("assemble", {"assembly": assembly.to_json()}, Environment(assembly.devices))

    def exchange(self, host_local: HostLocal) -> Request[Exchanged]:
        """Make a global array of host-local arrays, in several processes."""
        environment = Environment(host_local.devices, processes=host_local.processes)
        return self._request("exchange", {"host_local": host_local.to_json()}, environment)

    def tutorial(self, tutorial: TutorialRequest) -> Request[TutorialRun]:
        """Run the code of a tutorial step by step. A run whose step failed is not kept."""
        payload, environment = {"tutorial": tutorial.to_json()}, Environment(tutorial.devices)
        return self._request("tutorial", payload, environment, lasting=lambda run: run.complete)

    # --- Files -----------------------------------------------------------------------------------

    def file(
        self,
        path: str | os.PathLike[str],
        name: str,
        kind: str | None = None,
        step: int | None = None,
        folder: str | os.PathLike[str] | None = None,
        mesh: Sequence[tuple[str, int]] | None = None,
    ) -> Request[Snapshot]:
        """Read a file or folder on this machine.

        Errors call it `name`. Without a `kind`, the content decides. `step` chooses among the steps of a
        checkpoint. A zip file is unpacked into `folder`; without one it is refused. `mesh` has the name and
        size of each axis, for files that name no mesh.
        """
        payload = {
            "path": os.fspath(path),
            "name": name,
            "kind": kind,
            "step": step,
            "mesh": None if mesh is None else list(mesh),
            "folder": None if folder is None else os.fspath(folder),
        }

        def decode(result: dict[str, Any]) -> Snapshot:
            text = result["snapshot"]
            with self._room(len(text), name) as opened:
                found = snapshot.from_json(strict_json.parse(text, name), name)
                opened.append(found)
            return found

        return Request(canonical(payload), lambda: self._start("import", payload).decoded(decode))

    def board(self, path: str | os.PathLike[str], name: str) -> Request[Board]:
        """Read a Board file, or a Snapshot file as a Board. Errors call it `name`."""
        payload = {"path": os.fspath(path), "name": name}

        def decode(result: dict[str, Any]) -> Board:
            text = result["board"]
            with self._room(len(text), name) as opened:
                board = boards.from_json(strict_json.parse(text, name), "the worker's answer")
                opened += [pin.snapshot for pin in board.pins]
            return board

        return Request(canonical(payload), lambda: self._start("board", payload).decoded(decode))

    def rules(self, text: str, name: str) -> Request[RuleFile]:
        """Read the lists of rules in the text of a file; the suffix of its `name` decides the format."""
        payload = {"text": text, "name": name}
        return self._request("rules", payload, key=compile_cache.key_of(payload))

    def _room(self, size: int, name: str) -> contextlib.AbstractContextManager[list[Snapshot]]:
        """Reserve room for the files of a browser session. A command ends with its files."""
        if self.requester.session is None:
            return contextlib.nullcontext([])
        return opened_files.shared().room(size, self.requester, name)

    # --- Jobs ------------------------------------------------------------------------------------

    def _request(
        self,
        kind: str,
        payload: dict[str, Any],
        environment: Environment = _PLANNER,
        key: str | None = None,
        layout: Layout | None = None,
        lasting: Callable[[Any], bool] = lambda result: True,
        **settings: Any,
    ) -> Request[Any]:
        """Return the request of a job whose result is kept if it is `lasting`."""
        key = key or canonical(payload)

        def decode(answer: dict[str, Any]) -> Any:
            result = typed_json.decode(JOB_KINDS[kind].record, answer, "the worker's answer")
            if lasting(result):
                with self._lock:
                    self._known[kind][key] = result
            return result

        def start() -> Job[Any]:
            return self._start(kind, payload, environment, **settings).decoded(decode)

        return Request(key, start, lambda: self._result(kind, key), layout=layout)

    def _result(self, kind: str, key: str) -> Any:
        with self._lock:
            return self._known[kind].get(key)

    def _start(
        self,
        kind: str,
        payload: dict[str, Any],
        environment: Environment = _PLANNER,
        lane: str | None = None,
        topic: str | None = None,
        otherwise: dict[str, Any] | None = None,
    ) -> Job[dict[str, Any]]:
        """Start a job of the producers."""
        # A profile can be larger than other files, and the command line reads the user's own.
        own_profile = self.requester.session is None and payload.get("kind") == "profile"
        return self.pool.submit(
            *(kind, payload, environment, _timeout(kind, payload), self.requester, subject_of(payload)),
            topic=topic,
            memory=of_parsing() if JOB_KINDS[kind].parses and not own_profile else None,
            lane=lane or JOB_KINDS[kind].lane,
            otherwise=otherwise,
        )

    def _available(self) -> int:
        return available_bytes() if self._memory is None else self._memory


@functools.cache
def shared() -> Inspection:
    """Return the one service of this process."""
    temporary_folder.remove_stale()
    return Inspection(on_event=serving.shared().job)


def _snapshot(result: dict[str, Any]) -> Snapshot:
    return snapshot.from_json(result, "the worker's answer")


def _totals(progress: Mapping[str, Any]) -> PartitionedPrograms | None:
    """Return the totals that a propagation has reported."""
    totals = progress.get("totals")
    return None if totals is None else typed_json.decode(PartitionedPrograms, totals, "the worker's progress")


def _topic(layout: Layout) -> str:
    """Return what the layouts share that use the same traced model, if mesh and rules do not change it."""
    return layout.key("model", "sizes", "unconstrained")
