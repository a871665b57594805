"""The sections of one Snapshot: a table that `show` and the reports read.

A new section needs one entry here. `show --section KEY` prints it, and `show --all` prints all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from inspector.answers import (
    arrays,
    assessed,
    collectives,
    expert_load,
    improvements,
    memory,
    partitioned_traffic,
    program_run,
    reshards,
    sharding_errors,
    summary,
    time,
    verdict_bars,
)
from inspector.answers.section import Block
from inspector.assessment import assess
from inspector.machines import targets
from inspector.machines.hardware import Chip
from inspector.prediction.evidence import for_chip
from inspector.records.program_run import ProgramRun
from inspector.records.snapshot import Snapshot


@dataclass(frozen=True)
class Subject:
    """The subject of the sections.

    Attributes:
      recorded: the Snapshot as it was recorded.
      chip: its chip, or the chosen one. None if there is none.
      snapshot: the Snapshot with the programs that count on the chip.
      run: the record of the program that `run` started. None for other Snapshots.
    """

    recorded: Snapshot
    chip: Chip | None
    snapshot: Snapshot
    run: ProgramRun | None = None

    @classmethod
    def of(cls, snapshot: Snapshot, chip: Chip | None, run: ProgramRun | None = None) -> Subject:
        """Return a Snapshot, with `chip` for one without."""
        chip = targets.chip_for(snapshot, chip)
        return cls(snapshot, chip, for_chip(snapshot, chip), run)


_Make: TypeAlias = Callable[[Subject], Iterable[Block]]


def _arrays(about: Subject) -> Iterable[Block]:
    every = about.snapshot.arrays
    if every:
        yield from arrays.tree_texts(about.snapshot, every)
        yield from arrays.host_memory(every)
        yield from arrays.packed(every)


def _findings(about: Subject) -> Iterable[Block]:
    if about.snapshot.findings or about.snapshot.effects is not None:
        yield improvements.section(about.snapshot, about.chip)


def _answers(about: Subject) -> Iterable[Block]:
    yield assessed.facts(about.recorded, about.chip)
    yield from verdict_bars.blocks(assess(about.recorded, about.chip), "verdict")


def _with_programs(section: _Make) -> _Make:
    return lambda about: section(about) if about.snapshot.programs else ()


def _on_chip(section: Callable[[Subject], Block]) -> _Make:
    return lambda about: [section(about)] if about.snapshot.programs or about.chip is not None else []


def blocks(about: Subject, keys: Iterable[str] = ()) -> list[Block]:
    """Return these sections, all if none is named."""
    return [block for key in keys or SECTIONS for block in SECTIONS[key](about)]


# The blocks of each section by its name; none if it has nothing to say.
SECTIONS: dict[str, _Make] = {
    "programs": lambda about: [] if about.run is None else [program_run.section(about.run)],
    "source": lambda about: [summary.facts(about.snapshot)],
    "answers": _answers,
    "errors": lambda about: sharding_errors.sections(about.snapshot),
    "arrays": _arrays,
    "communication": _with_programs(lambda about: [collectives.section(about.snapshot, listed=True)]),
    "experts": _with_programs(lambda about: expert_load.section(about.snapshot)),
    "agreement": _with_programs(lambda about: partitioned_traffic.sections(about.recorded)),
    "reshards": lambda about: reshards.sections(about.snapshot, about.chip),
    "memory": _on_chip(lambda about: memory.section(about.snapshot, about.chip)),
    "time": _on_chip(lambda about: time.section(about.recorded, about.chip)),
    "findings": _findings,
}
