"""The service that pages and command line ask, with its real workers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from inspector import layout as layouts
from inspector.jobs import inspection
from inspector.jobs.agreement import disagreements
from inspector.jobs.compile_cache import CompileCache
from inspector.jobs.inspection import Inspection
from inspector.layout import Layout
from inspector.layout import emulation as machine
from inspector.layout.plan import plan
from inspector.machines import targets
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.text.errors import InvalidInput
from inspector.tracing.model.abstract import abstract_state


@pytest.fixture(scope="module")
def service() -> Iterator[Inspection]:
    with contextlib.closing(Inspection(run_workers=2)) as service:
        yield service


def small(**fields: str) -> Layout:
    return layouts.parse({"layers": "2", "depth": "32", "steps": "2"} | fields).unwrap()


def test_a_plan_needs_one_trace_for_every_mesh_and_rule(service: Inspection) -> None:
    first = small()
    assert service.state(first).known() is None
    service.plan(first)
    for other in (small(mesh="4x2"), small(rules="embed=data"), small(mesh="8", axes="x")):
        assert service.state(other).known() is not None
    assert service.state(small(depth="64")).known() is None


def test_every_field_that_changes_a_program_is_propagated_again(service: Inspection) -> None:
    known = small()
    service.programs(known).answer()
    before = service.programs(known).known()
    assert before is not None and service.programs(small(steps="3")).known() is before
    for changed in (small(optimizer_axes="data"), small(donate="true")):
        assert service.programs(changed).known() is None
        service.programs(changed).answer()
        assert service.programs(changed).known() != before


def test_some_programs_are_known_before_the_others(service: Inspection) -> None:
    layout = small(batch="32")
    service.programs(layout, only=("apply",)).answer()
    (program,) = service.programs(layout, ("apply",)).known().programs
    assert program.name == "apply"
    assert service.programs(layout, ("train_step",)).known() is None
    assert service.programs(layout).known() is None


def test_device_axes_are_traced_again_for_other_specs(service: Inspection) -> None:
    first = small(model="mlp")
    service.plan(first)
    other = small(model="mlp", specs="W1=data.model")
    assert service.state(other).known() is None
    kernel = service.plan(other).array("params/DotReluDot_0/Dense_0/kernel")
    assert kernel.spec == (("data",), ("model",))


def test_a_run_agrees_with_its_plan_and_its_duration_is_kept(service: Inspection) -> None:
    layout = small()
    assert service.last_seconds(layout) is None
    planned = service.plan(layout)
    snapshot = service.run(layout, planned).answer()
    assert snapshot.findings == ()
    assert {a.path for a in planned.arrays} <= {a.path for a in snapshot.arrays}
    assert service.last_seconds(layout) > 0


def test_a_disagreement_names_the_array_and_both_figures(service: Inspection) -> None:
    planned = service.plan(small())
    path = "params/DotReluDot_0/W2"
    wrong = tuple(
        replace(a, spec=(None, None), replicas=8) if a.path == path else a for a in planned.arrays[1:]
    )
    messages = disagreements(planned, replace(planned, arrays=wrong))
    assert [finding.array for finding in messages] == ["batch/x", path]
    assert "planned only" in messages[0].message
    assert 'spec [["model"], null] became [null, null]' in messages[1].message
    assert "replicas 2 became 8" in messages[1].message


def test_a_plan_that_does_not_divide_is_not_run(service: Inspection) -> None:
    layout = small(mesh="2x3")
    with pytest.raises(InvalidInput, match=r"hidden of size 32 is not divisible by 3 .* more arrays"):
        service.run(layout).start()


def test_too_large_a_state_is_refused_with_estimate_and_limit() -> None:
    service = Inspection(memory=1_000_000)
    try:
        layout = small(depth="256")
        # 4 matrices of 256² float32 are 1 MiB; with both moments 3 MiB, in 2 copies, before and after
        # a step, 12 MiB; 2 MiB of gradients.
        with pytest.raises(InvalidInput, match=r"needs about 14\.1 MiB .* at most 781 KiB is allowed"):
            service.run(layout, plan(layout, abstract_state(layout))).start()
    finally:
        service.close()


def test_too_many_devices_are_refused_without_a_worker() -> None:
    service = Inspection()
    try:
        layout = small(mesh="32x32", target="plan", batch="32")
        with pytest.raises(InvalidInput, match=r"At most 512 devices can be emulated"):
            service.run(layout, plan(layout, abstract_state(layout))).start()
    finally:
        service.close()


def test_the_estimate_is_at_least_what_the_compiler_counts_for_the_state(
    service: Inspection,
) -> None:
    layout = small(depth="256")
    planned = service.plan(layout)
    snapshot = service.run(layout, planned).answer()
    memory = snapshot.program("train_step").memory
    state_in_and_out = (memory.arguments + memory.outputs) * 8
    assert machine.state_bytes_in_a_step(plan(layout, service.state(layout).known())) >= state_in_and_out


def test_a_target_is_compiled_for_once_and_remembered(tmp_path: Path) -> None:
    layout = small(target="tpu:v5e:2x4", rules="batch=data")
    missing = targets.missing_compiler(layout.machine)
    if missing is not None:
        pytest.skip(missing)
    kept = CompileCache(tmp_path / "compiled.sqlite3")
    service = Inspection(run_workers=1, compiled=kept)
    try:
        planned = service.plan(layout)
        assert service.run(layout).known() is None
        snapshot = service.run(layout, planned).answer()
    finally:
        service.close()
    assert (snapshot.source.kind, snapshot.source.target) == ("tpu", "tpu:v5e:2x4")
    assert snapshot.findings == ()  # the run agrees with the plan
    assert kept.usage().count == 1
    # Another process, later: the same question, and questions that are not the same.
    later = Inspection(compiled=CompileCache(tmp_path / "compiled.sqlite3"))
    assert later.run(layout).known() == snapshot
    assert later.run(replace(layout, steps=7)).known() == snapshot, "nothing of it was run"
    assert later.run(replace(layout, donate=True)).known() is None
    assert later.run(replace(layout, target="tpu:v6e:2x4")).known() is None
    later.close()


def test_a_missing_compiler_is_refused_with_what_installs_it(
    service: Inspection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "_COMPILERS", {"gpu": ("no_such_package", "cuda13-local")})
    layout = small(target="gpu:h100:8")
    with pytest.raises(InvalidInput, match=r"pip install .jax\[cuda13-local\]"):
        service.run(layout).start()


def test_a_layout_that_memory_cannot_hold_is_refused_before_a_worker_starts(monkeypatch) -> None:
    layout = small()
    with contextlib.closing(Inspection(run_workers=1)) as service:
        planned = service.plan(layout)
        needed = machine.state_bytes_in_a_step(planned)
        for available, fits in ((needed / machine.USABLE_SHARE + 1, True), (needed, False)):
            monkeypatch.setattr(service, "_available", lambda available=available: available)
            assert (service.why_not_run(layout, planned) is None) == fits
        with pytest.raises(InvalidInput, match="replicate less"):
            service.run(layout, planned).start()


def test_a_run_is_never_answered_from_what_was_kept(service: Inspection) -> None:
    assert service.run(small()).known() is None


def test_a_job_has_time_to_import_the_module_of_a_users_model(monkeypatch) -> None:
    built_in = CATALOGUE["mlp"]
    monkeypatch.setitem(CATALOGUE, "theirs:build", replace(built_in, name="theirs:build", own=True))

    def seconds(model: str) -> float:
        return inspection._timeout("abstract", {"layout": {"model": model}})

    # The import of MaxText's modules alone has taken 124 s.
    assert seconds("mlp") < 124 < seconds("theirs:build")
    assert inspection._timeout("board", {"path": "x"}) == inspection.JOB_KINDS["board"].seconds
