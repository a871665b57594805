"""Profiles of emulated devices: times as JAX's own reader and XProf have them, facts as those of the HLO."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import pytest

from inspector import hlo
from inspector.compiled.measured_program import joined, with_trips_of
from inspector.readers import hlo_text, profile
from inspector.recording.capture import capture_compiled
from inspector.records.snapshot import Program, Snapshot
from inspector.text.errors import InvalidInput
from tests.paths import ROOT
from tests.readers.profiles import programs

pytestmark = pytest.mark.close_to_jax

Times = Counter[tuple[str, str]]  # microseconds by device and instruction

VIEWED = """
import collections, json, sys
from xprof.convert import raw_to_tool_data
paths, times = sys.argv[1:], []
for path in paths:
    text, _ = raw_to_tool_data.xspace_to_tool_data([path], "trace_viewer", {})
    own = collections.Counter()
    for event in json.loads(text)["traceEvents"]:
        given = event.get("args", {})
        if "hlo_op" in given:
            own[given["hlo_module"] + " " + given["device_ordinal"] + " " + given["hlo_op"]] += event["dur"]
    times.append(own)
print(json.dumps(times))
"""


@dataclass(frozen=True)
class Profiled:
    folder: Path
    text: str

    @property
    def file(self) -> Path:
        (file,) = self.folder.rglob("*.xplane.pb")
        return file


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Profiled]:
    profileds = {}
    for program in programs.PROGRAMS:
        folder = tmp_path_factory.mktemp(program.__name__)
        profileds[program.__name__] = Profiled(folder, programs.profiled(program, folder).as_text())
    return profileds


@pytest.fixture(scope="module")
def snapshots(profiles: dict[str, Profiled]) -> dict[str, Snapshot]:
    return {name: profile.read(profiled.folder, name) for name, profiled in profiles.items()}


def own_program(snapshot: Snapshot, text: str) -> Program:
    (module,) = hlo.parser.parse(text)
    (program,) = (program for program in snapshot.programs if program.name == module.name)
    return program


def times_of(program: Program) -> Times:
    assert program.trace is not None
    return Counter(
        {
            (device, time.name): seconds * 1e6
            for time in program.trace.instructions
            for device, seconds in zip(program.trace.devices, time.by_device, strict=True)
            if seconds
        }
    )


def read_by_jax(path: Path, module: str) -> tuple[Times, Counter[str]]:
    """Return microseconds by device and instruction, and the number of events by instruction."""
    times, events = Counter(), Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
            for event in (event for line in plane.lines for event in line.events):
                stats = dict(event.stats)
                if stats.get("hlo_module") == module:
                    times[str(stats["device_ordinal"]), stats["hlo_op"]] += event.duration_ns / 1e3
                    events[stats["hlo_op"]] += 1
    return times, events


@pytest.mark.parametrize("name", [program.__name__ for program in programs.PROGRAMS])
def test_time_by_instruction_and_device_is_that_of_jax(
    name: str, profiles: dict[str, Profiled], snapshots: dict[str, Snapshot]
) -> None:
    program = own_program(snapshots[name], profiles[name].text)
    times, events = read_by_jax(profiles[name].file, program.name)
    assert program.trace is not None and len(program.trace.devices) == 8
    assert times_of(program) == pytest.approx(times)
    assert {time.name: time.events for time in program.trace.instructions} == events


@pytest.mark.first_jax_is_enough
def test_time_by_instruction_and_device_is_that_of_xprof(
    profiles: dict[str, Profiled], snapshots: dict[str, Snapshot], tmp_path: Path
) -> None:
    files = []
    for name, profiled in profiles.items():  # XProf writes files beside those that it reads
        (tmp_path / name).mkdir()
        files.append(tmp_path / name / profiled.file.name)
        files[-1].write_bytes(profiled.file.read_bytes())
    done = subprocess.run([sys.executable, "-c", VIEWED, *map(str, files)], capture_output=True, check=True)
    for (name, profiled), viewed in zip(profiles.items(), json.loads(done.stdout), strict=True):
        program = own_program(snapshots[name], profiled.text)
        of_program = {
            (device, instruction): microseconds
            for (module, device, instruction), microseconds in (
                (tuple(key.split(" ")), value) for key, value in viewed.items()
            )
            if module == program.name
        }
        assert times_of(program) == pytest.approx(of_program, rel=0.01)


@pytest.mark.parametrize("name", ["mlp", "scan", "mixture_of_experts", "ring"])
def test_the_facts_are_those_of_the_hlo_text(
    name: str, profiles: dict[str, Profiled], snapshots: dict[str, Snapshot], tmp_path: Path
) -> None:
    (tmp_path / "program.hlo").write_text(profiles[name].text)
    (imported,) = hlo_text.read(tmp_path / "program.hlo", "program.hlo").programs
    measured = own_program(snapshots[name], profiles[name].text)
    assert measured.stage == "measured"
    for fact in ("collectives", "work", "schedule", "fingerprint", "flops_per_device", "devices", "platform"):
        assert getattr(measured, fact) == getattr(imported, fact), fact
    paths = [array.path for array in snapshots[name].arrays if array.path.startswith(measured.name)]
    assert len(paths) == len(measured.shardings) > 0


def test_runs_are_counted_and_their_parts_add_up(
    profiles: dict[str, Profiled], snapshots: dict[str, Snapshot]
) -> None:
    for name, profiled in profiles.items():
        program = own_program(snapshots[name], profiled.text)
        trace, seconds = program.trace, program.seconds
        assert trace is not None and seconds is not None
        assert trace.steps == len(seconds.steps) == programs.STEPS
        assert trace.seconds == pytest.approx(sum(seconds.steps))
        assert sum(time.own for time in trace.instructions) == pytest.approx(trace.busy)
        assert trace.busy is not None and trace.span is not None
        assert trace.busy <= trace.span * (1 + 1e-9) <= max(seconds.steps) * (1 + 1e-9)
        for time in trace.instructions:
            median, low, high = time.seconds
            assert low <= median <= high


def test_each_collective_has_its_time(profiles: dict[str, Profiled], snapshots: dict[str, Snapshot]) -> None:
    for name in ("mlp", "scan", "ring", "all_to_all", "fsdp"):
        program = own_program(snapshots[name], profiles[name].text)
        assert program.trace is not None and program.collectives
        times = {time.collective: time for time in program.trace.instructions if time.collective is not None}
        for place, collective in enumerate(program.collectives):
            assert collective.executions is not None
            assert times[place].name == collective.name
            assert times[place].events == collective.executions * 8 * programs.STEPS
            elapsed = times[place].elapsed
            assert elapsed is not None and times[place].own <= elapsed * (1 + 1e-9)


def test_an_operation_does_not_last_beyond_those_that_use_it(
    profiles: dict[str, Profiled], snapshots: dict[str, Snapshot]
) -> None:
    """A thread that ends an operation first runs the next ones, such as a collective that waits."""
    for name in ("mlp", "scan", "inference_loop"):
        program = own_program(snapshots[name], profiles[name].text)
        assert program.trace is not None
        for time in program.trace.instructions:
            if time.kind in ("dot", "fusion", "copy"):
                assert time.own * len(program.trace.devices) <= program.trace.seconds


def test_a_joined_snapshot_has_the_paths_of_one_and_the_times_of_the_other(
    profiles: dict[str, Profiled], snapshots: dict[str, Snapshot], tmp_path: Path
) -> None:
    function, arguments = programs.mlp()
    known = capture_compiled(jax.jit(function).lower(*arguments).compile())
    result = joined(snapshots["mlp"], known, "step.json")
    (program,) = result.programs
    measured = own_program(snapshots["mlp"], profiles["mlp"].text)
    assert program.stage == "measured" and program.trace == measured.trace
    assert program.seconds is not None and program.seconds.steps == measured.seconds.steps  # type: ignore[union-attr]
    assert [array.path for array in result.arrays] == [array.path for array in known.arrays]
    assert [axis.name for axis in result.mesh.axes] == ["data", "model"]  # type: ignore[union-attr]
    assert [own.mesh_axes for own in program.collectives or ()] == [
        own.mesh_axes for own in known.programs[0].collectives or ()
    ]
    with pytest.raises(InvalidInput, match=r"step\.json has no program"):
        joined(snapshots["ring"], known, "step.json")


def test_a_trace_that_begins_in_the_middle_of_a_run_counts_complete_runs(tmp_path: Path) -> None:
    function, arguments = programs.inference_loop()
    executable = jax.jit(function).lower(*arguments).compile()
    jax.block_until_ready(executable(*arguments))
    first = executable(*arguments)
    with jax.profiler.trace(tmp_path):
        results: list[Any] = [executable(*arguments) for _ in range(4)]
        jax.block_until_ready((first, results))
    program = own_program(profile.read(tmp_path, "trace"), executable.as_text())
    assert program.trace is not None and program.trace.steps in (4, 5)


LARGE = """
import resource, sys, time
from pathlib import Path
from inspector.readers import profile
started = time.process_time()
(program,) = profile.read(Path(sys.argv[1]), "large").programs
# `ru_maxrss` begins with the memory of the process that started this one.
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(time.process_time() - started, int(peak.split()[1]) * 1024)
print(sum(own.events for own in program.trace.instructions), program.trace.steps)
"""


@pytest.mark.nightly
@pytest.mark.first_jax_is_enough
def test_a_million_events_take_at_most_30_seconds_and_2_gigabytes(tmp_path: Path) -> None:
    text = """planes { id: 1 name: "/host:CPU"
      stat_metadata { key: 1 value { id: 1 name: "hlo_op" } }
      stat_metadata { key: 2 value { id: 2 name: "run_id" } }
      stat_metadata { key: 3 value { id: 3 name: "device_ordinal" } }
      stat_metadata { key: 4 value { id: 4 name: "dot.1" } }
      event_metadata { key: 1 value { id: 1 name: "dot.1" } }
      lines { id: 1 name: "thread" timestamp_ns: 10 EVENTS } }"""
    event = (
        "events { metadata_id: 1 offset_ps: %d duration_ps: 500000 stats { metadata_id: 1 ref_value: 4 } "
        "stats { metadata_id: 2 int64_value: %d } stats { metadata_id: 3 int64_value: %d } }"
    )
    events = " ".join(
        event % (number * 1_000_000, number // 10_000, number % 8) for number in range(1_000_000)
    )
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(jax.profiler.ProfileData.text_proto_to_serialized_xspace(text.replace("EVENTS", events)))
    done = subprocess.run(
        [sys.executable, "-c", LARGE, str(path)], capture_output=True, check=True, text=True, cwd=ROOT
    )
    seconds, memory, count, steps = map(float, done.stdout.split())
    assert (count, steps) == (1_000_000, 100)
    assert seconds < 30 and memory < 2e9


def test_the_trip_counts_of_a_profile_are_those_that_the_text_lacks(tmp_path: Path) -> None:
    text = programs.profiled(programs.generation, tmp_path / "trace").as_text()
    (tmp_path / "text.hlo").write_text(text)
    known = hlo_text.read(tmp_path / "text.hlo", "text.hlo")
    (before,) = known.programs
    assert before.collectives and all(own.executions is None for own in before.collectives)
    (choice,) = (choice for choice in before.open_choices if choice.kind == "loop")
    imported = profile.read(tmp_path / "trace", "trace")
    measured = own_program(imported, text)
    for program in (measured, joined(imported, known, "text").programs[0]):
        assert program.open_choices == () and program.collectives
        counts = {own.executions for own in program.collectives}
        assert counts == {programs.GENERATED * programs.LAYERS}
        assert any("as measured" in clause and choice.label in clause for clause in program.assumptions)
        assert program.trace is not None and program.schedule is not None
        loops = [
            own for computation in program.schedule.computations for own in computation.operations if own.runs
        ]
        assert {own.times for own in loops if own.opcode == "while"} == {programs.GENERATED, programs.LAYERS}
    # The partitioned program has the same line, and another text.
    (record,) = with_trips_of([replace(before, schedule=None, stage="partitioned")], before, imported)
    assert choice.source is not None and record.open_choices == () and record.collectives
    assert {own.executions for own in record.collectives} == counts
