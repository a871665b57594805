"""Verbs answer on one screen, whatever the program, and everything is a section."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from inspector.answers import screen as one_screen
from inspector.answers.catalogue import SECTIONS, Subject
from inspector.answers.programs import heading, once
from inspector.answers.section import Folded, Listing, Section, Table, columns, listing, more, text
from inspector.media.terminal import render
from inspector.records import snapshot as snapshots
from inspector.records.program_run import ProgramRun
from inspector.records.snapshot import Collective, Finding, Program, Seconds, Snapshot
from tests.figures import samples
from tests.media.terminal.command import inspector

# Whoever removes one says so in the changelog.
NAMES = {
    "programs", "source", "answers", "errors", "arrays", "communication", "experts", "agreement", "reshards",
    "memory", "time", "findings",
}  # fmt: skip


def large() -> Snapshot:
    """Return a Snapshot with more of everything than a screen has lines."""
    small = samples.snapshot()
    arrays = tuple(
        replace(small.arrays[0], path=f"{group}/{letter}/{'x' * length}/kernel", group=group)
        for group in ("params", "opt_state", "batch", "activation", "gradient", "output", "other")
        for length, letter in enumerate("abcdefghijklmnop", start=1)
    )
    collectives = tuple(
        Collective(
            op="all-gather",
            asynchronous=False,
            name=f"all-gather.{number}",
            computation="main",
            executions=1,
            conditional=False,
            mesh_axes=("model",),
            group_size=4,
            groups=2,
            payload_bytes=2**20 + number,
            wire_bytes_per_device=2**20,
            op_name=f"jit(f)/dot_general{number}",
            source=f"train.py:{number}",
        )
        for number in range(100)
    )
    programs = tuple(
        Program(
            f"step{number}", flops_per_device=1e9 + number, collectives=collectives[number:], stage="compiled"
        )
        for number in range(12)
    )
    warnings = tuple(
        Finding("warning", f"code-{number}", f"Finding {number}. " + "Many words say what is wrong. " * 30)
        for number in range(60)
    )
    return replace(small, arrays=arrays, programs=programs, findings=warnings)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("screen")
    found = []
    for name, snapshot in {"small": samples.snapshot(), "large": large()}.items():
        path = folder / f"{name}.json"
        snapshots.write(snapshot, path)
        found.append(str(path))
    return found


@pytest.mark.parametrize("chip", [(), ("--chip", "v5e")])
@pytest.mark.parametrize("verb", ["show", "audit", "explain", "predict", "compare"])
def test_a_verb_answers_on_one_screen(verb: str, chip: tuple[str, ...], paths: list[str]) -> None:
    for files in (paths, paths[::-1]) if verb == "compare" else ([paths[0]], [paths[1]]):
        done = inspector(verb, *files, *(() if verb == "audit" else chip))
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) <= render.MOST_LINES, done.stdout
        assert len(done.stdout.split()) <= render.MOST_WORDS, done.stdout
        assert "--all" in done.stdout and "--all" not in inspector(verb, *files, "--all").stdout


def test_every_section_can_be_asked_for(paths: list[str]) -> None:
    assert set(SECTIONS) == NAMES
    everything = inspector("show", paths[1], "--all").stdout
    for name in NAMES:
        printed = inspector("show", paths[1], "--section", name)
        assert printed.returncode == 0
        assert all(line in everything for line in printed.stdout.splitlines())
    assert inspector("show", paths[1], "--section", "communicatoin").stderr.count("communication") == 1
    named = inspector("show", paths[1]).stdout.splitlines()[-1]
    assert "communication" in named and "experts" not in named


@pytest.mark.parametrize("width", [None, 80, 120])
def test_the_longest_list_is_cut_and_says_so(width: int | None) -> None:
    rows = tuple((f"row {number}", "some words") for number in range(200))
    blocks = [
        text("first"),
        Section(
            "one", "Heading", (Table("table", columns("A", "B"), rows), Folded("more", (text("hidden"),)))
        ),
        listing(*(f"item {number}" for number in range(10))),
        text("last"),
    ]
    shown = render.fitting(blocks, lambda cut: render.text(cut, width))
    printed = render.text(shown, width).splitlines()
    assert len(printed) <= render.MOST_LINES
    assert printed[0] == "first" and printed[-1] == "last"
    assert sum(line.startswith("- item") for line in printed) == 10
    (more,) = (line for line in printed if line.strip().endswith("more"))
    assert int(more.split()[0]) == 200 - sum("row" in line for line in printed)
    assert "hidden" not in "".join(printed)


def test_a_list_that_is_cut_twice_says_one_number() -> None:
    items = tuple((f"item {number} " + "word " * 20,) for number in range(30))
    blocks = [Section("one", "Heading", (Listing(items), *more(4, "entry"))), text("last")]
    shown = render.fitting(blocks, lambda cut: render.text(cut, None))
    printed = render.text(shown, None).splitlines()
    (line,) = (line for line in printed if "more" in line)
    assert int(line.split()[0]) == 34 - sum(line.startswith("- item") for line in printed) > 4


def test_equal_programs_are_shown_once() -> None:
    first = Program("step", flops_per_device=2.0, fingerprint="same")
    second = Program("step (2)", flops_per_device=2.0, fingerprint="same")
    other = Program("other", flops_per_device=1.0, fingerprint="other")
    unknown = Program("unknown"), Program("unknown (2)")
    snapshot = replace(samples.snapshot(), programs=(other, first, second, *unknown))
    assert [heading(program, snapshot) for program in once(snapshot)] == [
        "step, 2 compiles", "other", "unknown", "unknown (2)",
    ]  # fmt: skip


def test_what_is_small_needs_all(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.json"
    found = tuple(
        Finding(level, f"{level}-{size}", f"A {level} about {size} bytes.", bytes=size)
        for level, size in (("error", 8), ("warning", 8), ("warning", 2**22))
    )
    snapshots.write(replace(samples.snapshot(), findings=found), path)
    shown = inspector("show", str(path)).stdout
    assert "A error about 8 bytes." in shown and f"A warning about {2**22} bytes." in shown
    assert "A warning about 8 bytes." not in shown
    assert "A warning about 8 bytes." in inspector("show", str(path), "--all").stdout


@pytest.mark.parametrize(("measured", "subject"), [(None, "rare"), (Seconds(steps=(1.0, 1.0)), "frequent")])
def test_the_subject_of_a_job_is_what_takes_longest_else_calls_are_not_counted(
    measured: Seconds | None, subject: str
) -> None:
    programs = (
        Program("rare", flops_per_device=2.0),
        Program("frequent", flops_per_device=1.0, seconds=measured),
    )
    snapshot = replace(samples.snapshot(), layout=None, programs=programs)
    about = Subject.of(snapshot, None, ProgramRun(("train.py",), "2026-11-29T00:00:00Z"))
    said = render.text(one_screen.of_snapshot(about)).splitlines()[1]
    assert said.startswith(f"Step and traffic are those of {subject}, of 2 programs")
    assert ("Calls are not counted: run --profile" in said) == (measured is None)
