"""`predict` and `accuracy` on the command line: a compiled program, its timeline file, and bad input."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from inspector.answers import prediction
from inspector.answers.section import plain
from inspector.compare.measured import accuracy, published_runs
from inspector.machines import hardware
from inspector.media.terminal import main, options
from inspector.prediction.predicted import predicted_in
from inspector.prediction.step_program import step_program
from inspector.records import snapshot
from inspector.records.snapshot import (
    Collective,
    MatmulFlops,
    Mesh,
    MeshAxis,
    Program,
    ScheduledOperation,
    Snapshot,
    Source,
    Work,
)
from tests.prediction.schedules import schedule


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A Snapshot of a TPU program: an all-reduce of 10 ms beside a product of 4 ms."""
    wire = 450_000_000  # two links of a ring, 45 GB/s each way
    operations = (
        ScheduledOperation("r", "all-reduce-start", collective=0, begins=True),
        ScheduledOperation(
            "p",
            "fusion",
            cycles=6_000_000,
            flops=1e12,
            dtype="bf16",
            op_name="jit(step)/jvp(Transformer)/blocks_3/feed_forward/dot_general",
        ),
        ScheduledOperation("d", "all-reduce-done", awaits=0),
    )
    program = Program(
        "train_step",
        collectives=(Collective("all-reduce", True, "r", "main", 1, False, ("data",), 16, 1, wire, wire),),
        schedule=schedule(*operations),
        stage="compiled",
    )
    mesh = Mesh((MeshAxis("data", 16),), devices=tuple(range(16)), device_kind="TPU v5 lite")
    result = Snapshot(Source("hlo", None, "2026-01-01T00:00:00Z", {}), None, mesh, (), programs=(program,))
    file = tmp_path / "s.json"
    file.write_text(snapshot.dumps(result))
    return str(file)


def printed(capsys, *arguments: str) -> dict:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_prediction_and_its_timeline(path, tmp_path, capsys):
    trace = tmp_path / "trace.json"
    result = printed(capsys, "predict", path, "--trace", str(trace))
    assert (result["chip"], result["program"]) == ("v5e", "train_step")
    assert result["seconds"] == pytest.approx(result["compute"] + result["exposed"]["data"])
    assert 0.002 < result["compute"] < 0.005 < result["seconds"]
    modules = result["by_module"]
    assert modules["blocks_*/feed_forward"] == {"forward": pytest.approx(result["compute"])}
    assert modules[""] == {"unknown": pytest.approx(result["exposed"]["data"])}
    events = [one for one in json.loads(trace.read_text())["traceEvents"] if one["ph"] == "X"]
    assert {event["name"] for event in events} == {"r", "p", "wait for d"}
    assert max(event["ts"] + event["dur"] for event in events) == pytest.approx(result["seconds"] * 1e6)


def test_an_operation_of_the_timeline_has_its_facts(path):
    result = snapshot.read(path)
    program = result.program("train_step")
    step = predicted_in(result, program, hardware.chip("v5e"))
    _, facts = prediction.operation_blocks(step, program, "main 1")
    said = " ".join(plain(item) for item in facts.items)
    assert "feed_forward" in said and "1.00 TFLOP" in said
    _, facts = prediction.operation_blocks(step, program, "main 0")
    assert "all-reduce over data" in " ".join(plain(item) for item in facts.items)
    for unknown in ("", "main 7", "main", "<b>", "0 main"):
        assert prediction.operation_blocks(step, program, unknown) == ()


@pytest.mark.parametrize(("count", "rest"), [(1, 0), (8, 0), (11, 3)])
def test_an_operation_names_the_arrays_of_its_collective(path, count, rest):
    result = snapshot.read(path)
    program = result.program("train_step")
    names = tuple(f"params/w{number}" for number in range(count))
    moved = tuple(replace(collective, arrays=names) for collective in program.collectives)
    program = replace(program, collectives=moved)
    step = predicted_in(result, program, hardware.chip("v5e"))
    _, facts = prediction.operation_blocks(step, program, "main 0")
    (said,) = [text for item in facts.items if "params/w" in (text := plain(item))]
    assert [name for name in names if name in said] == list(names[: count - rest])
    assert ("more" in said) == bool(rest) and "-" not in said and (not rest or f"{rest} more" in said)


def test_the_text_names_the_parts(path, capsys):
    assert main(["predict", path]) == 0
    text = capsys.readouterr().out
    assert "matrix products" in text and "█" in text
    assert main(["show", path, "--section", "time"]) == 0
    assert "Predicted on 16 devices of TPU v5e" in capsys.readouterr().out
    # It was compiled for a v5e, and says nothing about another chip.
    for verb in ("show", "predict"):
        assert main([verb, path, "--chip", "v5e"]) == 0
        capsys.readouterr()
        assert main([verb, path, "--chip", "v5p"]) == 2
        assert "--chip is 'v5p'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [("--program", "nothing"), ("--chip", "abacus"), ("--trace", "/dev/null/trace.json")],
)
def test_bad_input(path, arguments, capsys):
    assert main(["predict", path, *arguments]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_accuracy_of_this_version(capsys):
    result = printed(capsys, "accuracy")
    table = accuracy.shipped()
    assert len(result["rows"]) == len(table.rows)
    assert result["reproduced"] == len(table.errors)
    assert main(["accuracy"]) == 0


def test_runs_that_cannot_be_reproduced_are_not_compiled(tmp_path, capsys):
    runs = tmp_path / "runs.json"
    runs.write_text(json.dumps({"rows": [{"id": "a", "measured": {"step_seconds": 1}}]}))
    result = printed(capsys, "accuracy", "--runs", str(runs))
    assert (result["reproduced"], result["rows"][0]["measured"]) == (0, 1)
    assert result["rows"][0]["reason"]
    assert main(["accuracy", "--runs", str(tmp_path / "missing.json")]) == 2
    assert main(["accuracy", "--snapshots", str(tmp_path)]) == 2
    assert main(["accuracy", "--runs", str(runs), "--snapshots", str(runs)]) == 2


@pytest.mark.nightly
def test_a_run_with_a_snapshot_in_the_folder_is_not_compiled(path, tmp_path, capsys):
    row = {
        "id": "a/run",
        "hardware": {"chip": "v5e", "topology": "4x4", "chips": 16, "devices": 16},
        "model": {"layers": 1, "d_model": 128, "heads": 1, "d_ff": 128, "vocab": "1024"},
        "seq": 128,
        "layout": {"axes": {"data": 16}},
        "batch": {"global_sequences": 16},
        "remat": {"policy": "none"},
        "measured": {"step_seconds": 0.02},
    }
    runs, folder = tmp_path / "runs.json", tmp_path / "kept"
    runs.write_text(json.dumps({"rows": [row]}))
    folder.mkdir()
    command = ("accuracy", "--runs", str(runs), "--snapshots", str(folder), "--no-compile")
    (before,) = printed(capsys, *command)["rows"]
    assert before["predicted"] is None and before["reason"]
    (run,) = published_runs.read(runs)
    result = replace(snapshot.read(path), layout=run.layout.to_json())
    kept = folder / "a_run.json"
    kept.write_text(snapshot.dumps(result))
    (after,) = printed(capsys, *command)["rows"]
    # With the programs before the compile, as a Snapshot of a compile has them.
    with options.workers() as service:
        kept.write_text(snapshot.dumps(service.with_programs(result, run.layout)))
    assert after["predicted"] == printed(capsys, "predict", str(kept))["seconds"]
    assert after["error"] == after["predicted"] / 0.02 - 1


@pytest.mark.parametrize("stage", ["propagated", "compiled"])
def test_a_program_without_a_schedule_has_no_timeline_file(path, tmp_path, capsys, stage):
    """A partitioned program has predicted seconds, a compiled one without a schedule has none."""
    result = snapshot.read(path)
    work = Work(1e12, (MatmulFlops("bf16", 1e12),), 1e9)
    program = replace(result.programs[0], stage=stage, schedule=None, work=work)
    file, trace = tmp_path / "plain.json", tmp_path / "trace.json"
    file.write_text(snapshot.dumps(replace(result, programs=(program,))))
    known = printed(capsys, "predict", str(file))["seconds"] is not None
    assert known == (stage == "propagated")
    assert main(["predict", str(file), "--chip", "v5e", "--trace", str(trace)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "--trace" in error and "unexpected" not in error
    assert not trace.exists()


def test_the_program_is_that_of_show_and_has_its_name_beside_others(path, capsys):
    result = snapshot.read(path)
    (program,) = result.programs
    others = [replace(program, name=name, fingerprint=name) for name in ("evaluate", "train")]
    for several in ([program], others):
        written = replace(result, programs=tuple(several))
        Path(path).write_text(snapshot.dumps(written))
        assert main(["predict", path]) == 0
        first = capsys.readouterr().out.splitlines()[0]
        chosen = step_program(written)
        assert (chosen.name in first) == (len(several) > 1)
