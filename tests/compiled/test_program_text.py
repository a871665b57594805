"""Facts from a program's text match the compiler's analysis; invalid text has no facts."""

from __future__ import annotations

import pytest

from inspector import layout as layouts
from inspector.compiled import program_text
from inspector.compiled.program_text import ProgramFacts
from inspector.compiling.run_layout import run_layout
from inspector.records.snapshot import Program, Snapshot

pytestmark = pytest.mark.close_to_jax

SMALL = {"depth": "64", "batch": "16", "layers": "3", "steps": "1"}


def run(fields: dict[str, str]) -> Snapshot:
    return run_layout(layouts.parse(SMALL | fields).unwrap(), lambda *_, **__: None)


def products(program: Program) -> tuple[float, float]:
    """Return the FLOPs of matrix products on one device, and before partitioning."""
    return sum(one.flops for one in program.work.matmul), sum(one.flops for one in program.ideal.matmul)


# A step has three products of batch × depth × depth per weight, except the gradient of the first input.
WRITTEN = 2 * 16 * 64 * 64 * (3 * 6 - 1)


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(
    ("rules", "repeats", "scan"),
    [
        ("batch=data,hidden=model", 1, "false"),
        ("batch=data,hidden=model", 1, "true"),
        ("batch=data", 4, "false"),  # the 4 devices along `model` compute the same
        ("hidden=model", 2, "true"),
        ("", 8, "false"),
    ],
)
def test_devices_repeat_work_by_the_layout(rules: str, repeats: int, scan: str) -> None:
    snapshot = run({"rules": rules, "scan": scan})
    step = snapshot.program("train_step")
    each, written = products(step)
    # A scanned block computes the gradient of its input in every iteration, including the first.
    assert written == WRITTEN + (2 * 16 * 64 * 64 if scan == "true" else 0)
    assert each * snapshot.mesh.size == repeats * written
    assert step.flops_per_device == step.work.flops >= each
    assert step.ideal.bytes_accessed is None


@pytest.mark.parametrize("text", [None, "", "no program", "HloModule m\n\nENTRY e {\n"])
def test_invalid_text_has_no_facts(text: str | None) -> None:
    mesh = layouts.parse({}).unwrap().mesh()
    facts = program_text.read(text, mesh)
    assert facts == ProgramFacts() or facts.collectives == ()
    assert facts.work is None or facts.work.flops is None
    ideal = program_text.ideal_work(text)
    assert ideal is None or ideal.flops is None


def test_several_programs_have_no_facts() -> None:
    one = "HloModule m\n\nENTRY e {\n  ROOT p = f32[4]{0} parameter(0)\n}\n"
    mesh = layouts.parse({}).unwrap().mesh()
    assert program_text.read(one, mesh).collectives == ()
    assert program_text.read(one + "\n" + one, mesh) == ProgramFacts()


def test_a_program_without_values_in_memory_has_no_record_of_it() -> None:
    """Such as that of `jax.jit(lambda x: ())`. A record without any group is refused when it is read."""
    module = program_text.parsed(
        "HloModule jit_f, is_scheduled=true\n\nENTRY main {\n  ROOT tuple = () tuple()\n}\n"
    )
    assert module is not None
    facts = program_text.read_module(module, None)
    assert facts.problem is None and facts.memory_use is None
