"""Profiles in the form of TPUs: times as XProf's own converter has them, and no time at a wrong operation."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from inspector.machines import targets
from inspector.readers import profile
from inspector.records.snapshot import Program, Snapshot
from tests.readers.profiles import tpu_files
from tests.readers.profiles.tpu_files import PROGRAM, Operation, Profile, Run, usual, usual_run

pytestmark = pytest.mark.first_jax_is_enough

CONVERTED = """
import json, sys
from xprof.convert import raw_to_tool_data
stats, _ = raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], "hlo_stats", {})
tree, _ = raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], "op_profile", {})
table = json.loads(stats)
names = [column["id"] for column in table["cols"]]
rows = [dict(zip(names, (cell["v"] for cell in row["c"]))) for row in table["rows"]]
print(json.dumps([rows, json.loads(tree)["byProgram"]]))
"""


def read(written: Profile, folder: Path) -> Snapshot:
    written.write(folder / "plugins/profile/run/host.xplane.pb")
    return profile.read(folder, "trace")


def program_of(snapshot: Snapshot) -> Program:
    (program,) = snapshot.programs
    assert program.trace is not None
    return program


def microseconds(program: Program) -> dict[str, float]:
    assert program.trace is not None
    return {time.name: round(sum(time.by_device) * 1e6, 6) for time in program.trace.instructions}


def test_times_are_those_of_the_converter_of_xprof(tmp_path: Path) -> None:
    program = program_of(read(usual(), tmp_path / "ours"))
    file = usual().write(tmp_path / "theirs/host.xplane.pb")
    done = subprocess.run([sys.executable, "-c", CONVERTED, str(file)], capture_output=True, check=True)
    rows, tree = json.loads(done.stdout)
    assert {row["program_id"] for row in rows} == {str(PROGRAM)}
    theirs = {row["hlo_op_name"]: row for row in rows}
    assert program.trace is not None
    times = {time.name: time for time in program.trace.instructions}
    assert set(theirs) == set(times)
    for name, row in theirs.items():
        assert sum(times[name].by_device) * 1e6 == pytest.approx(row["total_time"], rel=0.01)
        assert times[name].events == row["occurrences"]
    # What an operation has without those inside of it, which is all but what a collective waits for.
    pairs = len(program.trace.devices) * program.trace.steps
    for name in ("product.1", "loop.3", "sine.5", "sum.6"):
        assert times[name].own * pairs * 1e6 == pytest.approx(theirs[name]["total_self_time"], rel=0.01)
    (main,) = [child for child in tree["children"] if child["name"] != "IDLE"][:1]
    leaves = {
        leaf["name"]: leaf["metrics"]["rawTime"] / 1e6
        for group in main["children"]
        for leaf in group["children"]
    }
    for name in ("product.1", "sine.5", "sum.6"):
        assert sum(times[name].by_device) * 1e6 == pytest.approx(leaves[name], rel=0.01)


def test_a_collective_has_its_time_and_the_part_that_is_not_hidden(tmp_path: Path) -> None:
    program = program_of(read(usual(), tmp_path))
    assert program.trace is not None and program.collectives is not None
    (collective,) = program.collectives
    own = [time for time in program.trace.instructions if time.collective == 0]
    assert {time.name for time in own} == {"all-reduce-start.4", "all-reduce-done.4"}
    (start,) = (time for time in own if time.name == collective.name)
    # The run in which it takes 91 µs is not one of the middle half.
    assert start.elapsed == pytest.approx(61e-6)
    # The sine hides 20 µs of it.
    assert sum(time.own for time in own) == pytest.approx(41e-6)


@pytest.mark.parametrize(
    ("missing", "products", "loops"),
    [
        ((), 2.0, 1.0),
        # A profile can lack an event of one run on one device: 23 of 24 events are 2 executions.
        ((("product.1", 0, 0),), 2.0, 1.0),
        ((("loop.3", 3, 2), ("product.1", 1, 1)), 2.0, 1.0),
        # A loop whose end depends on data has the mean.
        (tuple(("product.1", device, 1) for device in range(4)) + (("product.1", 0, 0),) * 2, 1.5, 1.0),
    ],
)
def test_executions_are_those_of_most_runs(
    missing: tuple[tuple[str, int, int], ...], products: float, loops: float, tmp_path: Path
) -> None:
    runs = {device: [usual_run(1000 * run, id=500 + run) for run in range(3)] for device in range(4)}
    for name, device, run in missing:
        events = list(runs[device][run].operations)
        events.remove(next(event for event in events if event.name == name))
        runs[device][run].operations = events
    program = program_of(read(Profile(runs), tmp_path))
    assert program.trace is not None
    executions = {time.name: time.executions for time in program.trace.instructions}
    assert (executions["product.1"], executions["loop.3"]) == (products, loops)
    assert all(program.trace.executions(time) == time.executions for time in program.trace.instructions)


def test_the_runs_and_the_chip_are_known(tmp_path: Path) -> None:
    snapshot = read(usual(), tmp_path)
    program = program_of(snapshot)
    assert program.stage == "measured" and program.seconds is not None
    assert program.seconds.steps == pytest.approx((240e-6, 270e-6, 240e-6))
    assert program.trace is not None and program.trace.pause == pytest.approx((760e-6 + 730e-6) / 2)
    assert program.trace.devices == ("0", "1", "2", "3")
    chip = targets.chip_of(snapshot)
    assert chip is not None and chip.name == "v5e"
    assert snapshot.mesh is not None and snapshot.mesh.size == 4


def test_the_module_around_an_operation_names_its_program(tmp_path: Path) -> None:
    with_id = microseconds(program_of(read(usual(), tmp_path / "with")))
    without = microseconds(program_of(read(usual(program_of_operations=False), tmp_path / "without")))
    assert with_id == without


def test_runs_are_found_without_the_line_of_modules(tmp_path: Path) -> None:
    program = program_of(read(usual(module_line=False), tmp_path))
    assert program.trace is not None and program.trace.steps == 3
    assert microseconds(program) == microseconds(program_of(read(usual(), tmp_path / "with")))


def test_instructions_of_two_programs_with_the_same_name_are_apart(tmp_path: Path) -> None:
    other = tpu_files.TEXT.replace("jit_step", "jit_eval").replace("sine(p)", "cosine(p)")
    runs = {
        number: [
            tpu_files.usual_run(0),
            Run(1000, 100, [Operation("sine.5", 10, 7, program=78)], program="jit_eval(78)"),
        ]
        for number in range(4)
    }
    snapshot = read(Profile(runs, {f"jit_step({PROGRAM})": tpu_files.TEXT, "jit_eval(78)": other}), tmp_path)
    times = {program.name: microseconds(program) for program in snapshot.programs}
    assert times["jit_step"]["sine.5"] == 80 and times["jit_eval"] == {"sine.5": 28}


def test_one_program_under_two_ids_is_one(tmp_path: Path) -> None:
    runs = {number: [tpu_files.usual_run(0)] for number in range(4)}
    for own in runs.values():
        again = tpu_files.usual_run(1000)
        for operation in again.operations:
            operation.program = 78
        own.append(Run(1000, 240, again.operations, program="jit_step(78)"))
    texts = {f"jit_step({PROGRAM})": tpu_files.TEXT, "jit_step(78)": tpu_files.TEXT}
    program = program_of(read(Profile(runs, texts), tmp_path))
    assert program.trace is not None and program.trace.steps == 2
    assert microseconds(program)["sine.5"] == 2 * 4 * 20


def test_an_id_without_hlo_gets_no_other_text_of_the_same_name(tmp_path: Path) -> None:
    runs = {number: [tpu_files.usual_run(0)] for number in range(4)}
    snapshot = read(Profile(runs, {"jit_step(99)": tpu_files.TEXT}), tmp_path)
    program = program_of(snapshot)
    assert program.collectives is None and snapshot.mesh is None
    assert {finding.code for finding in snapshot.findings} >= {profile.NO_HLO}
    assert program.trace is not None and {time.kind for time in program.trace.instructions} == {"other"}


def test_operations_that_the_hlo_lacks_are_listed_as_other(tmp_path: Path) -> None:
    runs = {number: [tpu_files.usual_run(0)] for number in range(4)}
    for own in runs.values():
        own[0] = Run(0, 400, [*own[0].operations, Operation("copy.99", 300, 100)])
    snapshot = read(Profile(runs), tmp_path)
    (finding,) = (one for one in snapshot.findings if one.code == profile.UNKNOWN_INSTRUCTIONS)
    assert "31.5%" in finding.message
    program = program_of(snapshot)
    assert program.trace is not None
    assert {time.name for time in program.trace.instructions if time.kind == "other"} == {"copy.99"}


def test_files_of_several_hosts_are_one_program_with_a_clock_for_each(tmp_path: Path) -> None:
    folder = tmp_path / "plugins/profile/run"
    usual(range(2)).write(folder / "host-a.xplane.pb")
    # Another clock, and other ids of its programs.
    shifted = Profile(
        {
            number: [
                Run(5_000_000 + run.start, run.microseconds, run.operations, run.asynchronous, run.id)
                for run in runs
            ]
            for number, runs in usual(range(2)).runs.items()
        }
    )
    shifted.write(folder / "host-b.xplane.pb")
    snapshot = profile.read(tmp_path, "trace")
    program = program_of(snapshot)
    assert program.trace is not None and program.seconds is not None
    assert program.trace.devices == ("host-a/0", "host-a/1", "host-b/0", "host-b/1")
    assert program.seconds.steps == pytest.approx((240e-6, 270e-6, 240e-6))
    assert profile.HOSTS_MISSING not in {finding.code for finding in snapshot.findings}


def test_hosts_that_miss_are_named(tmp_path: Path) -> None:
    snapshot = read(usual(range(2)), tmp_path)
    (finding,) = (one for one in snapshot.findings if one.code == profile.HOSTS_MISSING)
    assert "4 devices" in finding.message and "2 devices" in finding.message


def test_a_first_run_that_is_cut_does_not_count(tmp_path: Path) -> None:
    runs = {number: list(own) for number, own in usual().runs.items()}
    for own in runs.values():
        own[0] = Run(own[0].start, 40, own[0].operations[-1:], id=500)
    program = program_of(read(Profile(runs), tmp_path))
    assert program.trace is not None and program.trace.steps == 2
    # Of all events, as in the file.
    assert microseconds(program)["sum.6"] == 3 * 4 * 40
