"""Programs of public reports under `run`: arrays, programs and findings are what plain JAX says of each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jax
import pytest

from inspector import audit
from inspector.jobs.program_run import folder_snapshot
from inspector.records import program_run
from inspector.records.program_run import ProgramRun
from inspector.records.snapshot import Snapshot
from tests.jobs.program_run.test_program_run import RUN, call
from tests.paths import CASES, ROOT

pytestmark = pytest.mark.nightly

REPORTED = CASES / "reported"
MIB = 2**20


def held(snapshot: Snapshot) -> dict[str, tuple[int | None, object]]:
    return {array.path: (array.bytes, array.spec) for array in snapshot.arrays if array.program is None}


def codes(snapshot: Snapshot) -> dict[str, int | None]:
    return {finding.code: finding.bytes for finding in audit.audited(snapshot).findings}


def moments_move_the_parameters(run: ProgramRun, snapshot: Snapshot) -> None:
    assert [program.function for program in run.programs] == ["train_step"] * 2
    assert held(snapshot)["params/w"] == (256 * 512 * 4, (("x",), ("y",)))


def a_cast_uses_no_donated_buffer(run: ProgramRun, snapshot: Snapshot) -> None:
    """Of three donations, JAX aliases those of equal type; the bfloat16 one has 524,288 bytes on a device."""
    assert codes(snapshot)["donation-not-used"] == 524_288


def a_cache_is_gathered_for_each_token(run: ProgramRun, snapshot: Snapshot) -> None:
    (program,) = (program for program in snapshot.programs if program.name == "slice_")
    gathers = [collective for collective in program.collectives if collective.op == "all-gather"]
    assert sorted(gather.payload_bytes for gather in gathers)[-2:] == [2 * MIB, 2 * MIB]
    assert "cache-moved" in codes(snapshot)


def equal_layouts_compile_once(run: ProgramRun, snapshot: Snapshot) -> None:
    """JAX_LOG_COMPILES: `double` three times, `draw` once."""
    assert [program.function for program in run.programs] == ["double"] * 3 + ["draw"]


def a_dropped_constraint_is_named(run: ProgramRun, snapshot: Snapshot) -> None:
    assert held(snapshot)["keep/0/embed"] == (12_865_792, (None, None))
    assert "uneven-result-gathered" in codes(snapshot)


def an_array_without_a_program(run: ProgramRun, snapshot: Snapshot) -> None:
    assert not run.programs
    assert held(snapshot) == {"x": (4 * MIB, (("x",), None))}


def functions_of_libraries(run: ProgramRun, snapshot: Snapshot) -> None:
    assert [program.name for program in run.programs] == ["fft", "softmax", "<lambda>", "update_fn"]
    # XLA of JAX 0.12 transforms the rows of each device where they are.
    gathered = ["all-gather"] if jax.__version_info__ < (0, 12) else []
    assert [collective.op for collective in snapshot.program("fft").collectives] == gathered


def a_state_of_one_array(run: ProgramRun, snapshot: Snapshot) -> None:
    assert "optimizer-not-following" not in codes(snapshot)


def partial_sums(run: ProgramRun, snapshot: Snapshot) -> None:
    """`jax.typeof(c)` is float32[8@x,8]{U:y}."""
    assert "unreduced" in codes(snapshot) and "replicated-array" not in codes(snapshot)


def a_key_hides_no_finding(run: ProgramRun, snapshot: Snapshot) -> None:
    """Four devices hold the same 8 MiB of four parameters, with or without a key on one device.

    The arrays that the program calls `opt_state` are gradients, which have no role.
    """
    assert codes(snapshot)["state-repeated-over-axis"] == 6 * MIB


def a_mapped_step(run: ProgramRun, snapshot: Snapshot) -> None:
    assert {program.function for program in run.programs} == {"train_step"}
    assert held(snapshot)["w"][0] == 8 * 16 * 16 * 4


def halves_of_an_axis_repeat_the_work(run: ProgramRun, snapshot: Snapshot) -> None:
    """Each half of the batch is on half of the devices, so its products are computed twice."""
    (program,) = (program for program in snapshot.programs if program.name == "split_outer")
    assert {collective.axis_parts for collective in program.collectives} == {("data:(2)4",), ("data:(1)2",)}
    assert codes_of(snapshot, "split_outer") >= {"repeated-work"}
    assert "repeated-work" not in codes_of(snapshot, "split_inner")


def each_device_orthogonalizes_whole_matrices(run: ProgramRun, snapshot: Snapshot) -> None:
    (program,) = (program for program in snapshot.programs if program.name == "per_leaf")
    assert 8 * program.work.flops / program.ideal.flops == pytest.approx(3.33, rel=0.02)
    reduced = [collective for collective in program.collectives if collective.op == "all-reduce"]
    # The compiler merges some of the 40 of 256 KiB.
    assert sum(one.executions * one.payload_bytes for one in reduced) // (256 * 1024) == 40
    assert codes_of(snapshot, "per_leaf") >= {"repeated-work"}


def a_gradient_is_reduced_over_one_axis_after_the_other(run: ProgramRun, snapshot: Snapshot) -> None:
    (program,) = snapshot.programs
    assert sorted((collective.op, collective.mesh_axes) for collective in program.collectives) == [
        ("all-gather", ("fsdp",)),
        ("all-reduce", ("fsdp",)),
        ("all-reduce", ("replica",)),
    ]
    assert all(collective.origins for collective in program.collectives)


def codes_of(snapshot: Snapshot, program: str) -> set[str]:
    findings = audit.audited(snapshot).findings
    return {finding.code for finding in findings if finding.message.startswith(f"{program}:")}


PROGRAMS: dict[tuple[str, ...], Callable[[ProgramRun, Snapshot], None]] = {
    ("03-grad-accum/repro.py",): halves_of_an_axis_repeat_the_work,
    ("04-muon/repro.py",): each_device_orthogonalizes_whole_matrices,
    ("06-opt-flip/repro.py",): moments_move_the_parameters,
    ("07-donate/repro.py",): a_cast_uses_no_donated_buffer,
    ("17-kv-cache/repro.py",): a_cache_is_gathered_for_each_token,
    ("21-recompile/repro.py",): equal_layouts_compile_once,
    ("24-silent-replication/repro.py",): a_dropped_constraint_is_named,
    **{(f"27-noprog/{name}.py",): an_array_without_a_program for name in "abce"},
    ("28-jaxfun/repro.py",): functions_of_libraries,
    ("29-donation-name/same_name.py",): a_state_of_one_array,
    ("37-unreduced/repro.py",): partial_sums,
    ("audit_rng/train.py",): a_key_hides_no_finding,
    ("audit_rng/train.py", "key"): a_key_hides_no_finding,
    ("hybrid-gradient/repro.py",): a_gradient_is_reduced_over_one_axis_after_the_other,
    ("pmap/repro.py",): a_mapped_step,
}


@pytest.mark.skipif(not REPORTED.is_dir(), reason="needs ../shared/cases/reported")
@pytest.mark.parametrize("command", PROGRAMS, ids=" ".join)
def test_a_reported_program_has_the_answer_of_jax(command: tuple[str, ...], tmp_path: Path) -> None:
    script, *arguments = command
    # One of them calls this package.
    path = f"import sys; sys.path.append({str(ROOT)!r})\n"
    (tmp_path / "program.py").write_text(path + (REPORTED / script).read_text())
    ended = call(tmp_path, *RUN, "program.py", *arguments)
    assert ended.returncode == 0, ended.stderr
    folder = tmp_path / "recorded"
    PROGRAMS[command](program_run.read(folder), folder_snapshot.read(folder))
