"""The result of a search and its candidates, as records and as JSON."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from inspector.assessment import assess_candidate
from inspector.layout import Layout, from_json
from inspector.machines.hardware import Chip
from inspector.prediction.calibration import emulated_seconds
from inspector.records import typed_json
from inspector.records.assessment import Assessment
from inspector.records.snapshot import Mesh, Program
from inspector.records.typed_json import OMIT_DEFAULT, OMIT_NONE, FiniteFloat, NonNegativeInt, Record
from inspector.text.errors import InvalidInput

FORMAT = "sharding-search"
VERSION = 1
SCHEMA_PATH = Path(__file__).with_name("result.schema.json")
OBJECTIVES = ("time", "memory", "traffic")
Objective = Literal["time", "memory", "traffic"]
Stage = Literal["planned", "propagated", "compiled", "rejected"]


@dataclass(frozen=True)
class ProgramCost(Record):
    """The cost of one run of a program. None means unknown.

    Attributes:
      name: Of the program.
      seconds, low, high: Predicted seconds of one run with their interval.
      at_least: Seconds that it is predicted to take at least, before it is partitioned.
      peak_bytes: Memory of one device while it runs, with the arrays of the state that it does not use.
      assessment: The figures as all other places show them.
    """

    name: str
    seconds: FiniteFloat | None = None
    low: FiniteFloat | None = None
    high: FiniteFloat | None = None
    at_least: FiniteFloat | None = None
    peak_bytes: NonNegativeInt | None = None
    assessment: Assessment | None = None

    @property
    def least(self) -> float | None:
        """Seconds of one run, or their lower bound."""
        return self.at_least if self.seconds is None else self.seconds

    @property
    def is_bound(self) -> bool:
        """Whether one run can take longer than is known."""
        step = None if self.assessment is None else self.assessment.step
        return self.seconds is None or (step is not None and step.kind == "at least")

    def keeps(self, limit: float) -> bool | None:
        """Return whether one run takes at most `limit` seconds; None if the known facts do not decide it."""
        if self.least is not None and self.least > limit:
            return False
        return None if self.is_bound else True


@dataclass(frozen=True)
class Candidate(Record):
    """A layout of a search and its cost. None means unknown.

    Attributes:
      stage: How far the candidate came. A planned one was not partitioned, because it cannot be among the
        best, or because the search was stopped.
      reason: Why it was rejected, or why its step is unknown.
      fits: Whether it fits into the memory of a device, as in its assessment.
      seconds, low, high: Predicted seconds of one step with their interval. Of a search with weights, those
        of a round, in which each program runs as often as its weight says.
      state_bytes: Bytes of the train state and the batch on one device, a lower bound of the peak.
      peak_bytes: The compiler's peak on one device, or its estimate before a compile. The need of the program
        if the compiler rejected it.
      wire_bytes: Bytes that one device sends in one step, by mesh axes joined by commas.
      at_least: Seconds that the step is predicted to take at least, before the program is partitioned.
      measured: Median seconds of the measured steps on emulated devices.
      assessment: The figures as all other places show them. None for a rejected candidate.
      programs: The cost of each program of a search with weights.
      within: Whether the programs keep the limits of the search. None without limits, or if that is unknown.
      layout: The layout as JSON.
      pareto: Whether no other partitioned candidate is better in both time and memory. None if it was not
        partitioned, and its bounds do not decide it.
      current: Whether it is the layout that the search began with.
      partitioned_seconds: Predicted seconds before the compile.
      before: The figures before the compile. None if it was not compiled, or not partitioned before.
      tokens_per_second: Tokens that a machine with this layout generates in a second, if `decode` is the
        program of a step: all of its examples in each run. None if unknown, and for other programs.
      alike: Candidates with the same text have the same program, up to the names of mesh axes. None if that
        is unknown, and in a result.
    """

    stage: Stage
    reason: str | None = None
    fits: bool | None = None
    seconds: FiniteFloat | None = None
    low: FiniteFloat | None = None
    high: FiniteFloat | None = None
    state_bytes: NonNegativeInt | None = None
    peak_bytes: NonNegativeInt | None = None
    wire_bytes: dict[str, NonNegativeInt | None] | None = None
    at_least: FiniteFloat | None = None
    measured: FiniteFloat | None = None
    assessment: Assessment | None = None
    programs: tuple[ProgramCost, ...] = field(default=(), metadata=OMIT_DEFAULT)
    within: bool | None = field(default=None, metadata=OMIT_NONE)
    layout: dict[str, Any] | None = None
    pareto: bool | None = False
    current: bool = False
    partitioned_seconds: FiniteFloat | None = field(default=None, metadata={"key": "propagated_seconds"})
    tokens_per_second: FiniteFloat | None = field(default=None, metadata=OMIT_NONE)
    before: Assessment | None = field(default=None, metadata=OMIT_NONE)
    alike: str | None = field(default=None, metadata=OMIT_NONE)

    @property
    def allowed(self) -> bool:
        """Whether it can be the best layout, from the known facts: it fits, and keeps the limits."""
        return self.fits is not False and self.within is not False

    @property
    def step(self) -> float | None:
        """Seconds of one step: measured, or else predicted; None if unknown."""
        return self.seconds if self.measured is None else self.measured


@dataclass(frozen=True)
class Counts(Record):
    """Number of candidates by what happened to them.

    Attributes:
      considered: All.
      partitioned: Those that were partitioned, also if they were compiled later.
      excluded: Those that were not partitioned, because their bounds show that they cannot be among the best.
      estimated: Those of them whose bound is an estimate from programs with one and with two layers.
      compiled: Those that the compiler accepted or found too large.
      rejected: Those that cannot run.
    """

    considered: NonNegativeInt = 0
    partitioned: NonNegativeInt = field(default=0, metadata={"key": "propagated"})
    excluded: NonNegativeInt = 0
    estimated: NonNegativeInt = field(default=0, metadata=OMIT_DEFAULT)
    compiled: NonNegativeInt = 0
    rejected: NonNegativeInt = 0


@dataclass(frozen=True)
class SearchResult(Record):
    """The result of a search, perhaps an unfinished one.

    Attributes:
      target: The machine.
      chip: Name of the chip of predicted times.
      created: When the search ended, in ISO 8601.
      counts: The candidates by what happened to them.
      candidates: The best first: compiled, then partitioned, then not partitioned, then rejected ones.
      listed: So many of the partitioned candidates are the best of all candidates. None if that is not known,
        because the search was stopped.
      best: Index of the best compiled candidate that fits. If none was compiled, of the best partitioned one
        that will probably fit. None without any.
      objective: The quantity of which the best one has least.
      finished: Why the search ended; None if it was stopped.
      message: A message to the user: why there is no best layout, or that the search was stopped.
      weights: Runs of each program for one example, where the time of several programs counts. A program with
        weight 0 is predicted only.
      limits: The most seconds of one run of a program.
      unsafe_compiler_options: Options of XLA that only the command line takes, with which candidates were
        compiled: text for the reader. They are not part of the layouts. None without any.
    """

    target: str
    chip: str | None
    created: str
    counts: Counts
    candidates: tuple[Candidate, ...]
    best: NonNegativeInt | None
    objective: Objective = "time"
    finished: str | None = None
    message: str | None = None
    listed: NonNegativeInt | None = None
    weights: dict[str, FiniteFloat] | None = field(default=None, metadata=OMIT_NONE)
    limits: dict[str, FiniteFloat] | None = field(default=None, metadata=OMIT_NONE)
    unsafe_compiler_options: str | None = field(default=None, metadata=OMIT_NONE)

    @property
    def best_candidate(self) -> Candidate | None:
        """The best candidate that fits."""
        return None if self.best is None else self.candidates[self.best]

    @property
    def current(self) -> Candidate | None:
        """The layout that the search began with."""
        return next((candidate for candidate in self.candidates if candidate.current), None)


def layout_of(candidate: Candidate, what: str = "the candidate") -> Layout:
    """Return the layout of a candidate.

    Raises:
      InvalidInput: it has no valid layout.
    """
    return from_json(candidate.layout, what)


def of_program(
    program: Program, mesh: Mesh, chip: Chip | None, state_bytes: int | None, peak_bytes: int | None = None
) -> Candidate:
    """Return the cost of a candidate from its partitioned program on a mesh of such chips.

    chip: None for emulated devices, whose time before a run has no interval.
    """
    assessment = assess_candidate(program, mesh, chip, state_bytes, peak_bytes)
    cost = of_assessment(assessment, "propagated", state_bytes)
    return cost if chip is not None else replace(cost, seconds=emulated_seconds(program, mesh))


def of_assessment(assessment: Assessment, stage: Stage, state_bytes: int | None) -> Candidate:
    """Return the cost of a candidate with the figures of its assessment.

    state_bytes: bytes of the train state and the batch on one device; None if unknown.
    """
    step, need = assessment.step, assessment.memory
    return Candidate(
        stage=stage,
        reason=assessment.unknown_step if step is None and assessment.chip is not None else None,
        fits=None if need is None else need.fits,
        seconds=None if step is None else step.seconds,
        low=None if step is None else step.low,
        high=None if step is None else step.high,
        state_bytes=state_bytes,
        peak_bytes=None if need is None or need.at_least else need.peak_bytes,
        wire_bytes=sent_bytes(assessment),
        measured=step.seconds if step is not None and step.kind == "measured" else None,
        assessment=assessment,
    )


def sent_bytes(assessment: Assessment) -> dict[str, int | None] | None:
    """Return the bytes of an assessment's traffic, by mesh axes joined by commas."""
    sent = assessment.traffic
    return None if sent is None else {axes.replace("+", ","): size for axes, size in sent.by_axes.items()}


def together(costs: Mapping[str, Candidate], step: str) -> Candidate:
    """Return the cost of a candidate from those of its programs.

    step: the program of a step, whose figures are those of the candidate if it is among them. It fits only if
    all programs fit, and needs as much memory as the largest.
    """
    failed = next((cost for cost in costs.values() if cost.stage == "rejected"), None)
    if failed is not None:
        return failed
    main = costs.get(step) or next(iter(costs.values()))
    fits = [cost.fits for cost in costs.values()]
    largest = max(costs.values(), key=lambda cost: cost.peak_bytes or 0)
    assessment = main.assessment
    if assessment is not None and largest.assessment is not None:
        assessment = replace(assessment, memory=largest.assessment.memory)
    return replace(
        main,
        reason=next((cost.reason for cost in costs.values() if cost.reason), None),
        fits=False if False in fits else None if None in fits else True,
        peak_bytes=None if None in [cost.peak_bytes for cost in costs.values()] else largest.peak_bytes,
        assessment=assessment,
        programs=tuple(
            ProgramCost(
                name,
                cost.seconds,
                low=cost.low,
                high=cost.high,
                at_least=cost.at_least,
                peak_bytes=cost.peak_bytes,
                assessment=cost.assessment,
            )
            for name, cost in costs.items()
        ),
    )


def to_json(result: SearchResult) -> dict[str, Any]:
    """Return the result as JSON, the format and version first."""
    return typed_json.encode_file(result, FORMAT, VERSION)


def dumps(result: SearchResult) -> str:
    """Return the text of a result's file."""
    return json.dumps(to_json(result), allow_nan=False) + "\n"


def from_plain(value: Any, what: str) -> SearchResult:
    """Read a result from parsed JSON; errors call it `what`.

    Raises:
      InvalidInput: it is not a search result, or one of its layouts or its best index is not valid.
    """
    result = typed_json.decode_file(SearchResult, value, what, FORMAT, VERSION)
    if result.best is not None and result.best >= len(result.candidates):
        raise InvalidInput(
            f"{what}: best is {result.best}, but there are {len(result.candidates)} candidates"
        )
    for i, candidate in enumerate(result.candidates):
        layout_of(candidate, f"{what}: candidates[{i}].layout")
    return result


@dataclass(frozen=True)
class SearchProgress:
    """The state of a search at one moment.

    Attributes:
      phase: `bound` (compute bounds), `propagate` (partition the candidates that can be among the best),
        `improve` (change single rules of the best), `compile` or `done`.
      done, total: Tasks of this phase, and their largest possible number.
      seconds_left: Estimated seconds until the end of this phase; None before the first task ended.
    """

    phase: str
    done: int
    total: int
    counts: Counts
    seconds_left: float | None
    version: int
