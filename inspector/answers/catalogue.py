"""The sections of one Snapshot: a table that all media read.

A new section needs one entry here, which says where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from inspector.answers import (
    activations,
    arrays,
    assessed,
    collectives,
    expert_load,
    exposed,
    improvements,
    memory,
    partitioned_traffic,
    pipelines,
    program_run,
    reshards,
    sharding_errors,
    summary,
    time,
    verdict_bars,
)
from inspector.answers.section import Block, Section
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
      maps: the number of large shard maps of a report.
    """

    recorded: Snapshot
    chip: Chip | None
    snapshot: Snapshot
    run: ProgramRun | None = None
    maps: int = 0

    @classmethod
    def of(
        cls, snapshot: Snapshot, chip: Chip | None, run: ProgramRun | None = None, maps: int = 0
    ) -> Subject:
        """Return a Snapshot, with `chip` for one without."""
        chip = targets.chip_for(snapshot, chip)
        return cls(snapshot, chip, for_chip(snapshot, chip), run, maps)


_Make: TypeAlias = Callable[[Subject], Iterable[Block]]


@dataclass(frozen=True)
class SectionEntry:
    """A section, and where it is.

    Attributes:
      make: returns its blocks, none if it has nothing to say.
      report: returns the sections of the HTML report if those of `make` are others.
      facts: returns its keys in `show --json`; a key without a value is left out.
      tab: the tab of the dashboard that ends with its blocks; "" if none does.
    """

    make: _Make
    report: Callable[[Subject], Iterable[Section]] | None = None
    facts: Callable[[Subject], Mapping[str, object]] = lambda _: {}
    tab: str = ""


def blocks(about: Subject, keys: Iterable[str] = ()) -> list[Block]:
    """Return these sections, all if none is named."""
    return [block for key in keys or SECTIONS for block in SECTIONS[key].make(about)]


def of_tab(tab: str, about: Subject) -> list[Block]:
    """Return the sections with which a tab of the dashboard ends."""
    return [block for entry in SECTIONS.values() if entry.tab == tab for block in entry.make(about)]


def reported(about: Subject, keys: Iterable[str] = ()) -> list[Section]:
    """Return these sections of a report, all if none is named. The picture of the whole model is none."""
    made = [SECTIONS[key].report or SECTIONS[key].make for key in keys or SECTIONS]
    return [part for make in made for part in make(about) if isinstance(part, Section)]


def facts(about: Subject) -> dict[str, object]:
    """Return what the sections add to `show --json`."""
    every = [entry.facts(about) for entry in SECTIONS.values()]
    return {key: value for known in every for key, value in known.items() if value}


def _answers(about: Subject) -> Iterable[Block]:
    yield assessed.facts(about.recorded, about.chip)
    yield from verdict_bars.blocks(assess(about.recorded, about.chip), "verdict")


def _summary(about: Subject) -> Iterable[Section]:
    inside = assessed.facts(about.recorded, about.chip), summary.facts(about.snapshot)
    yield Section("summary", "Summary", inside)


def _arrays(about: Subject) -> Iterable[Block]:
    every = about.snapshot.arrays
    if every:
        yield from arrays.tree_texts(about.snapshot, every)
        yield from arrays.host_memory(every)
        yield from arrays.packed(every)


def _drawn_arrays(about: Subject) -> Iterable[Section]:
    yield arrays.tree(about.snapshot)
    yield arrays.maps(about.snapshot, about.maps)
    yield arrays.folded_table(about.snapshot)


def _findings(about: Subject) -> list[Section]:
    return [improvements.section(about.snapshot, about.chip)]


def _on_chip(section: Callable[[Subject], Block]) -> _Make:
    return lambda about: [section(about)] if about.snapshot.programs or about.chip is not None else []


# Each section by its name.
SECTIONS: dict[str, SectionEntry] = {
    "programs": SectionEntry(lambda about: [] if about.run is None else [program_run.section(about.run)]),
    "source": SectionEntry(lambda about: [summary.facts(about.snapshot)]),
    "answers": SectionEntry(_answers, _summary),
    "errors": SectionEntry(lambda about: sharding_errors.sections(about.snapshot)),
    "findings": SectionEntry(
        lambda about: _findings(about) if about.snapshot.findings or about.snapshot.effects else [], _findings
    ),
    "arrays": SectionEntry(_arrays, _drawn_arrays),
    "communication": SectionEntry(
        lambda about: [collectives.section(about.snapshot)] if about.snapshot.programs else [],
        facts=lambda about: exposed.json_of(about.recorded, about.chip),
    ),
    "experts": SectionEntry(
        lambda about: expert_load.section(about.snapshot),
        facts=lambda about: expert_load.json_of(about.recorded),
    ),
    "agreement": SectionEntry(
        lambda about: partitioned_traffic.sections(about.recorded), tab="Communication"
    ),
    "reshards": SectionEntry(
        lambda about: reshards.sections(about.snapshot, about.chip),
        facts=lambda about: {"reshards": reshards.plain(about.recorded, about.chip)},
        tab="Communication",
    ),
    "memory": SectionEntry(
        _on_chip(lambda about: memory.section(about.snapshot, about.chip)),
        facts=lambda about: {"activations": activations.to_json(about.recorded, about.chip)},
    ),
    "time": SectionEntry(
        _on_chip(lambda about: time.section(about.recorded, about.chip)),
        facts=lambda about: {"pipelines": pipelines.of_snapshot(about.recorded, about.chip)},
    ),
}
