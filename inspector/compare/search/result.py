"""The result of a search, as a record and as JSON."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from inspector.compare.search.evaluated import Evaluated
from inspector.core import output, strict_json, typed_json
from inspector.core.assessment import Assessment
from inspector.core.errors import InvalidInput
from inspector.core.typed_json import OMIT_NONE, FiniteFloat, NonNegativeInt, Record
from inspector.layout import Layout, from_json

FORMAT = "sharding-search"
VERSION = 1
SCHEMA_PATH = Path(__file__).with_name("result.schema.json")
OBJECTIVES = ("time", "memory", "traffic")
Objective = Literal["time", "memory", "traffic"]


@dataclass(frozen=True)
class Candidate(Evaluated):
    """One candidate: its layout and its cost.

    Attributes:
      layout: The layout as JSON.
      pareto: Whether no other partitioned candidate is better in both time and memory. None if it was not
        partitioned, and its bounds do not decide it.
      current: Whether it is the layout that the search began with.
      partitioned_seconds: Predicted seconds before the compile.
      before: The figures before the compile. None if it was not compiled, or not partitioned before.
      tokens_per_second: Tokens that a machine with this layout generates in a second, if `decode` is the
        program of a step: all of its examples in each run. None if unknown, and for other programs.
    """

    layout: dict[str, Any] | None = None
    pareto: bool | None = False
    current: bool = False
    partitioned_seconds: FiniteFloat | None = field(default=None, metadata={"key": "propagated_seconds"})
    tokens_per_second: FiniteFloat | None = field(default=None, metadata=OMIT_NONE)
    before: Assessment | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class Counts(Record):
    """Number of candidates by what happened to them.

    Attributes:
      considered: All.
      partitioned: Those that were partitioned, also if they were compiled later.
      excluded: Those that were not partitioned, because their bounds show that they cannot be among the best.
      compiled: Those that the compiler accepted or found too large.
      rejected: Those that cannot run.
    """

    considered: NonNegativeInt = 0
    partitioned: NonNegativeInt = field(default=0, metadata={"key": "propagated"})
    excluded: NonNegativeInt = 0
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


def candidate(
    layout: Layout,
    cost: Evaluated,
    partitioned: Evaluated | None,
    pareto: bool | None,
    current: bool,
    tokens_per_second: float | None = None,
) -> Candidate:
    """Return a candidate with its best known cost, and its time before a compile."""
    return Candidate(
        **{name: getattr(cost, name) for name in Evaluated.__dataclass_fields__},
        layout=layout.to_json(),
        pareto=pareto,
        current=current,
        partitioned_seconds=None if partitioned is None else partitioned.seconds,
        tokens_per_second=tokens_per_second,
        before=None if partitioned is None or partitioned is cost else partitioned.assessment,
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


def read(path: str | os.PathLike[str]) -> SearchResult:
    """Read a result from a file.

    Raises:
      InvalidInput: the file cannot be read or is not a search result.
    """
    return from_plain(strict_json.read(path), str(path))


def write(result: SearchResult, path: str | os.PathLike[str]) -> None:
    """Write a result to a file.

    Raises:
      InvalidInput: the file cannot be written.
    """
    output.write_text(dumps(result), path)


def layout_of(candidate: Candidate, what: str = "the candidate") -> Layout:
    """Return the layout of a candidate.

    Raises:
      InvalidInput: it has no valid layout.
    """
    return from_json(candidate.layout, what)


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
