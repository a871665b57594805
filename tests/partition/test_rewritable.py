"""One template, whose shardings are written for one layout after the other."""

from __future__ import annotations

from dataclasses import replace

from inspector import layout as layouts
from inspector.layout import Layout
from inspector.partition.partition_layout import Setting, partitioned_programs
from inspector.partition.template import template_of

SMALL = {
    "model": "transformer",
    "layers": "1",
    "seq": "16",
    "embed": "32",
    "mlp": "64",
    "vocab": "64",
}


def layout(mesh: str, rules: str) -> Layout:
    return layouts.parse({**SMALL, "mesh": mesh, "axes": "data,model", "rules": rules}).unwrap()


def test_nothing_of_the_layout_before_remains() -> None:
    first = layout("2x4", "batch=data,mlp=model,heads=model")
    second = layout("4x2", "batch=data+model,embed=model")
    step = template_of(first, ("train_step",))
    assert step.names == ("train_step",) and step is template_of(second, ("train_step",))
    template = template_of(first)
    assert template is template_of(second) and template.logical
    assert template.names == ("init", "train_step", "apply")
    assert template.programs[1] is step.programs[0], "each program is lowered once"
    lowered = next(program for program in template.programs if program.name == "train_step")
    for module in (lowered.numbered, lowered.for_partitioner, lowered.without_names):
        before = str(module.restore())
        fresh = str(Setting.of(second).written(module, lowered, logical=True))
        other = str(Setting.of(first).written(module, lowered, logical=True))
        again = str(Setting.of(second).written(module, lowered, logical=True))
        assert again == fresh != other
        assert '"data"=4' in fresh and '"data"=2' in other
        assert str(module.restore()) == before


def test_totals_are_those_of_the_whole_answer() -> None:
    reported = []
    answer = partitioned_programs(layout("2x4", "batch=data,mlp=model"), report=reported.append)
    assert len(reported) == len(answer.programs)
    for totals, program in zip(reported, answer.programs, strict=True):
        bare = tuple(replace(c, origins=None) for c in program.collectives or ())
        assert replace(program, collectives=bare, conflicts=None) == totals.program
        assert totals.arrays == ()
    assert any(c.origins for program in answer.programs for c in program.collectives or ())
