"""`run`: a program behaves as without it, and what it compiles and holds is recorded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from inspector.jobs.program_run import folder_snapshot, records
from inspector.records import program_run, snapshot
from inspector.records.program_run import CompileReason, ProgramRun
from inspector.records.snapshot import Snapshot
from inspector.sharding import placement as sharding
from tests.jobs.program_run import programs
from tests.paths import ROOT

pytestmark = pytest.mark.close_to_jax

DEVICES = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8"}
RUN = ("-m", "inspector", "run", "-o", "recorded")
# Without the package's folder, so that it is only found because `run` knows where it is.
PLAIN = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


def call(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = PLAIN | DEVICES
    if arguments[0] == "-m":  # the command line itself
        arguments = ("-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); "
                     "from inspector.media.terminal import main; sys.exit(main(sys.argv[1:]))",
                     *arguments[2:])  # fmt: skip
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=variables, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The same program directly and under `run`."""
    folder = tmp_path_factory.mktemp("trains")
    (folder / "train.py").write_text(programs.TRAINS)
    (folder / "inspector.py").write_text("MINE = 'a module of the program'\n")
    return SimpleNamespace(
        folder=folder / "recorded",
        direct=call(folder, "train.py", "--flag"),
        recorded=call(folder, *RUN, "train.py", "--flag"),
        run=program_run.read(folder / "recorded"),
        snapshot=snapshot.read(folder / "recorded" / program_run.SNAPSHOT),
    )


def test_the_program_behaves_as_without_a_recorder(trained: Any) -> None:
    direct, recorded = trained.direct, trained.recorded
    assert direct.returncode == recorded.returncode == 3, direct.stderr + recorded.stderr
    assert recorded.stdout == direct.stdout
    *own, line = recorded.stderr.splitlines(keepends=True)
    assert "".join(own) == direct.stderr
    assert line.startswith("sharding-inspector: ")


def test_bytes_that_are_alive_between_moves_do_not_depend_on_a_timer(tmp_path: Path) -> None:
    """The program compiles nothing while it keeps results, and frees them at once."""
    (tmp_path / "keeps.py").write_text(programs.KEEPS)
    kept = int(call(tmp_path, *RUN, "keeps.py").stdout)
    most = snapshot.read(tmp_path / "recorded" / program_run.SNAPSHOT).most_alive_bytes
    assert most is not None and kept <= most <= 1.1 * kept


@pytest.mark.nightly
def test_compiled_text_names_the_lines_of_the_program_as_without_a_recorder(tmp_path: Path) -> None:
    (tmp_path / "prints.py").write_text(programs.PRINTS_TEXT)
    direct = call(tmp_path, "prints.py")
    recorded = call(tmp_path, *RUN, "prints.py")
    assert "prints.py" in direct.stdout
    assert recorded.stdout == direct.stdout


@pytest.mark.nightly
def test_operations_outside_of_jit_are_the_compiles_that_are_not_recorded(tmp_path: Path) -> None:
    """Counted again in the log of JAX."""
    script = (
        "import jax, jax.numpy as jnp\n"
        "jax.config.update('jax_log_compiles', True)\n"
        "x = jax.jit(lambda x: x + 1)(jnp.arange(8.0))\n"
        "print(x.mean(), jnp.sort(x))\n"
    )
    (tmp_path / "eager.py").write_text(script)
    compiles = call(tmp_path, "eager.py").stderr.count("Finished XLA compilation of")
    ended = call(tmp_path, *RUN, "eager.py")
    run = program_run.read(tmp_path / "recorded")
    assert len(run.programs) == 1 and run.operations == compiles - 1 > 1
    assert f"; {compiles - 1} compiled operations outside of jit are not recorded" in ended.stderr
    assert replace(run, operations=0).not_recorded == ()


def test_live_arrays_are_those_of_jax(trained: Any) -> None:
    said = json.loads(trained.direct.stdout.splitlines()[0])
    snapshot: Snapshot = trained.snapshot
    for path, places in said["places"].items():
        shards = sharding.shards(snapshot.array(path), snapshot.mesh)
        assert {str(shard.device): [list(part) for part in shard.index] for shard in shards} == places
    assert snapshot.array("state/params/w").group == "params"
    assert sum(trained.run.live.names.values()) == len(said["live"]) == len(snapshot.arrays)
    assert trained.run.live.when == "at the end"


def test_every_style_of_compile_is_recorded(trained: Any) -> None:
    run: ProgramRun = trained.run
    text = programs.TRAINS.splitlines()
    lines = [number for number, line in enumerate(text, 1) if "jit(lambda" in line]
    assert [program.name for program in run.programs] == [
        "train_step", "train_step (2)", f"<lambda> at train.py:{lines[0]}", "tanh",
        f"<lambda> at train.py:{lines[1]}",
    ]  # fmt: skip
    assert [program.ahead_of_time for program in run.programs] == [False, False, False, True, True]
    assert run.operations > 0  # `jnp.ones` and the like
    for compiled_record in run.programs:
        alone = snapshot.read(trained.folder / compiled_record.file)
        # So that `compare` finds the arrays of `train_step` in `train_step (2)`.
        assert [program.name for program in alone.programs] == [compiled_record.function]
        assert {array.program for array in alone.arrays} == {compiled_record.function}
        assert compiled_record.compile > 0 and compiled_record.lower > 0
    step = trained.snapshot.program("train_step")
    assert {c.op for c in step.collectives} == {"all-reduce"}
    assert {c.mesh_axes for c in step.collectives} == {("data",), ("model",)}
    inputs = {sharding.path: sharding for sharding in step.shardings if sharding.role == "input"}
    assert inputs.keys() == {"state/params/w", "state/step", "train_step/input/batch"}
    assert inputs["state/params/w"].donated


def test_a_second_compile_has_its_reasons(trained: Any) -> None:
    first, second = trained.run.programs[:2]
    assert first.reasons == ()
    assert CompileReason("shape", "batch", "[4, 16]", "[2, 16]") in second.reasons
    assert CompileReason("static", "scale", None, "2") in second.reasons


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["cycle", "slowly", "returns", "killed"])
def test_state_of_a_short_program_is_captured_or_named_as_missing(tmp_path: Path, how: str) -> None:
    (tmp_path / "main.py").write_text(programs.TRAINS_IN_MAIN)
    call(tmp_path, *RUN, "main.py", how)
    run = program_run.read(tmp_path / "recorded")
    snapshot = folder_snapshot.read(tmp_path / "recorded")
    assert run.problems == ()
    (missing,) = [
        finding
        for finding in snapshot.findings
        if finding.code == records.MISSING and "step" in finding.message
    ] or [None]
    totals = [array for array in snapshot.arrays if array.shape == () and array.dtype == "float32"]
    captured = [array for array in snapshot.arrays if array.shape == (64, 64)]
    if how == "cycle":
        assert run.live.when == "at the end" and len(captured) == 2 and missing is None
    elif how == "slowly":
        outputs = {"step/output/0/w", "step/output/1/w"}
        assert missing is None and outputs <= {array.path for array in captured}
    else:  # at least the arguments of the step
        assert {(64, 64), (128, 64)} <= {array.shape for array in snapshot.arrays}
        assert not totals and missing is not None
        assert missing.program == "step" and "step/output/2/w" in missing.message


@pytest.mark.nightly
def test_a_later_phase_with_fewer_arrays_replaces_an_earlier_one(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(programs.TRAINS_IN_MAIN)
    call(tmp_path, *RUN, "main.py", "phases")
    run = program_run.read(tmp_path / "recorded")
    snapshot = folder_snapshot.read(tmp_path / "recorded")
    # The cache of the first phase is gone, and the state is that of the second phase.
    assert (128, 64) not in {array.shape for array in snapshot.arrays}
    assert [array.shape for array in snapshot.arrays].count((64, 64)) >= 2
    assert run.live.when == "while the program ran" and run.live.at > 4


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(
    ("how", "status", "ended"),
    [
        ("plain", 1, "exit 1"),
        ("fork", 0, "exit 0"),
        ("kill", -signal.SIGKILL, "signal SIGKILL"),
        ("terminate", 5, "exit 5"),
        ("raise", 1, "exit 1"),
    ],
)
def test_whatever_ends_the_program_the_rest_is_kept(
    tmp_path: Path, how: str, status: int, ended: str
) -> None:
    (tmp_path / "ends.py").write_text(programs.ENDS)
    done = call(tmp_path, *RUN, "ends.py", how)
    assert done.returncode == status, done.stderr
    assert done.stderr.count("sharding-inspector: ") == 1
    run = program_run.read(tmp_path / "recorded")
    assert (run.ended, run.problems) == (ended, ())
    if how == "plain":
        assert (run.programs, run.live) == ((), None)
        return
    assert done.stdout == ("0\n" if how == "fork" else "")
    assert [program.function for program in run.programs] == ["<lambda>"]
    # The program frees its arrays when `main` ends; those of the compile are kept.
    result = snapshot.read(tmp_path / "recorded" / program_run.SNAPSHOT)
    assert result.array("weights").shape == (64, 64)
    if how == "raise":
        assert "hook.py" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("absent.py",),
        ("--devices", "many", "ends.py"),
        ("--target", "tpu:v99:1x1", "ends.py"),
        ("-o", ".", "ends.py"),
    ],
)
def test_bad_arguments_start_nothing(tmp_path: Path, arguments: tuple[str, ...], capsys) -> None:
    from inspector.media.terminal import main

    (tmp_path / "ends.py").write_text("raise SystemExit(9)")
    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        assert main(["run", *arguments]) == 2
    finally:
        os.chdir(before)
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["ends.py"]


@pytest.mark.nightly
def test_functions_of_libraries_are_programs_if_the_user_jits_them(tmp_path: Path) -> None:
    (tmp_path / "libraries.py").write_text(programs.USES_LIBRARIES)
    done = call(tmp_path, *RUN, "libraries.py")
    assert done.returncode == 0, done.stderr
    run = program_run.read(tmp_path / "recorded")
    assert run.problems == ()
    # The second call of `double` needs no compile.
    assert [program.name for program in run.programs] == ["train_step", "fft", "double", "double (2)"]
    assert [reason.kind for reason in run.programs[-1].reasons] == ["shape"]
    step, *_, again = (snapshot.read(tmp_path / "recorded" / program.file) for program in run.programs)
    inputs = {sharding.path for sharding in step.programs[0].shardings if sharding.role == "input"}
    assert inputs == {"train_step/input/state/w", "train_step/input/batch"}
    assert {collective.op for collective in step.programs[0].collectives} == {"all-reduce"}
    assert {array.path for array in again.arrays} == {"double/input/x", "double/output"}
    # `pmap` gives each of 8 devices a matrix of 16 × 16.
    live = snapshot.read(tmp_path / "recorded" / program_run.SNAPSHOT)
    assert live.array("state/w").bytes == 8 * 16 * 16 * 4


@pytest.mark.first_jax_is_enough
def test_arrays_of_a_program_that_compiles_nothing_are_recorded_without_views(
    tmp_path: Path,
) -> None:
    (tmp_path / "places.py").write_text(programs.ONLY_PLACES)
    assert call(tmp_path, *RUN, "places.py").returncode == 0
    result = snapshot.read(tmp_path / "recorded" / program_run.SNAPSHOT)
    assert {array.path: array.bytes for array in result.arrays} == {"x": 4096, "copied": 512, "one": 512}


@pytest.mark.nightly
def test_a_run_for_a_target_has_its_figures_and_names_what_asked_for_the_platform(
    tmp_path: Path,
) -> None:
    (tmp_path / "asks.py").write_text(programs.ASKS)
    done = call(tmp_path, *RUN[:-2], "--target", "tpu:v5e:2x2", *RUN[-2:], "asks.py")
    assert done.returncode == 0, done.stderr
    run = program_run.read(tmp_path / "recorded")
    assert run.problems == ()
    assert [place.rpartition("/")[2] for place in run.questions] == ["asks.py:10"]
    assert "asks.py:10" in done.stderr
    here = snapshot.read(tmp_path / "recorded" / program_run.SNAPSHOT)
    result = folder_snapshot.read(tmp_path / "recorded")
    assert (here.source.kind, result.source.kind) == ("capture", "tpu")
    assert {program.name.partition(" ")[0] for program in result.programs} == {"<lambda>"}
    assert len({program.name for program in result.programs}) == 2
    assert all(program.memory.capacity for program in result.programs)
    # The live arrays, as the program named them, on the devices of the target.
    assert {array.path for array in result.arrays} == {array.path for array in here.arrays}
    assert result.mesh.device_kind.startswith("TPU")
    (first, *_) = result.programs[0].shardings
    assert first.path == "w"
