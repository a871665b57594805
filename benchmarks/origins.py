"""Whether the rule named as the origin of a collective causes it: without the rule, compile again.

For collectives of several models, the layout is compiled for emulated devices with all rules, without the
rule behind the collective, and without an unrelated rule. Without the rule behind it, the compiled
collectives of its source line and mesh axes must change. Without the unrelated rule, they must stay.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from cachetools import cached

from inspector import layout as layouts
from inspector.jobs.inspection import Inspection
from inspector.layout import Layout
from inspector.records.snapshot import Collective, Program
from inspector.sharding.rules.rule import rule_text
from inspector.text.formatting import mesh_axes_text

COUNT = 20
LEAST = 19
SMALL = {
    "batch": "8", "seq": "32", "embed": "64", "mlp": "128", "vocab": "256", "layers": "2", "steps": "1",
}  # fmt: skip
TENSOR = "vocab=tensor,mlp=tensor,heads=tensor,kv_heads=tensor"
LAYOUTS: tuple[dict[str, str], ...] = (
    {"mesh": "2x4", "depth": "64", "steps": "1"},
    {
        "mesh": "2x4", "axes": "fsdp,tensor", "rules": "batch=fsdp,embed=fsdp,hidden=tensor",
        "depth": "64", "batch": "512", "steps": "1",
    },
    {"model": "transformer", "mesh": "8", "axes": "fsdp", "rules": "batch=fsdp,embed=fsdp", **SMALL},
    {
        "model": "transformer", "mesh": "2x4", "axes": "data,tensor", "rules": f"{TENSOR},batch=data",
        **SMALL,
    },
    {
        "model": "transformer", "mesh": "2x4", "axes": "data,tensor", "scan": "true",
        "rules": f"{TENSOR},batch=data,seq=tensor", **SMALL,
    },
    {
        "model": "moe", "mesh": "2x4", "axes": "data,expert", "scan": "true",
        "rules": "expert=expert,batch=data", **SMALL,
    },
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One collective of a layout, the rule behind it, and an unrelated rule if there is one."""

    layout: Layout
    collective: Collective
    rule: int
    unrelated: int | None


def report(cases: int | None = None) -> str:
    """Return how often the rule behind a collective is its cause, and how often an unrelated rule is."""
    count = min(cases or COUNT, COUNT)
    service = Inspection(run_workers=1)
    try:
        lines = [_line(case, service) for case in chosen(service, count)]
    finally:
        service.close()
    caused = sum(changed for changed, _, _ in lines)
    controls = [kept for _, kept, _ in lines if kept is not None]
    head = (
        f"origins: without the rule behind it, {caused} of {len(lines)} collectives change or disappear "
        f"(target {LEAST} of {COUNT}); without an unrelated rule, {sum(controls)} of {len(controls)} stay"
    )
    return "\n".join([head, *(text for _, _, text in lines)])


def chosen(service: Inspection, count: int) -> list[Case]:
    """Return `count` collectives with different lines and mesh axes, in turn from each layout."""
    found = [list(_cases(layouts.parse(fields).unwrap(), service)) for fields in LAYOUTS[:count]]
    mixed = [case for row in itertools.zip_longest(*found) for case in row if case is not None]
    return mixed[:count]


def _cases(layout: Layout, service: Inspection) -> Iterator[Case]:
    partitioned = service.programs(layout).answer()
    step = next(each for each in partitioned.programs if each.name == "train_step")
    compiled = _compiled(layout, service)
    seen = set()
    for each in step.collectives or ():
        rule = _rule_behind(each, layout)
        known = (each.mesh_axes, each.source, each.op)
        if rule is None or known in seen or not _alike(compiled, each):
            continue
        seen.add(known)
        yield Case(layout, each, rule, _unrelated(each, layout))


def _rule_behind(collective: Collective, layout: Layout) -> int | None:
    named = [rule_text(rule) for rule in layout.rules]
    for origin in collective.origins or ():
        if origin.rule in named:
            return named.index(origin.rule)
    return None


def _unrelated(collective: Collective, layout: Layout) -> int | None:
    """Return a rule of other mesh axes that is no origin of the collective."""
    behind = {origin.rule for origin in collective.origins or ()}
    for number, rule in enumerate(layout.rules):
        if rule_text(rule) not in behind and not set(rule[1]) & set(collective.mesh_axes or ()):
            return number
    return None


def _line(case: Case, service: Inspection) -> tuple[bool, bool | None, str]:
    before = _alike(_compiled(case.layout, service), case.collective)
    changed = _alike(_compiled(_without(case.layout, case.rule), service), case.collective) != before
    kept = None
    if case.unrelated is not None:
        after = _alike(_compiled(_without(case.layout, case.unrelated), service), case.collective)
        kept = {op for op, _ in after} == {op for op, _ in before}
    one = case.collective
    text = (
        f"  {'yes' if changed else 'NO '}  {case.layout.model} {one.op} over "
        f"{mesh_axes_text(one.mesh_axes)} at {one.source}: {rule_text(case.layout.rules[case.rule])}"
    )
    if case.unrelated is not None:
        name = rule_text(case.layout.rules[case.unrelated])
        text += f"; without {name} it {'stays' if kept else 'CHANGES'}"
    print(text, file=sys.stderr, flush=True)
    return changed, kept, text


def _alike(program: Program, collective: Collective) -> Counter[tuple[str, int | None]]:
    """Return the operation and payload of each compiled collective of this line and these mesh axes."""
    return Counter(
        (each.op, each.payload_bytes)
        for each in program.collectives or ()
        if (each.mesh_axes, each.source) == (collective.mesh_axes, collective.source)
        for _ in range(each.executions or 1)
    )


def _without(layout: Layout, number: int) -> Layout:
    return replace(layout, rules=(*layout.rules[:number], *layout.rules[number + 1 :]))


@cached({}, key=lambda layout, _: layout.key())
def _compiled(layout: Layout, service: Inspection) -> Program:
    snapshot = service.run(layout).answer()
    step = snapshot.program("train_step")
    assert step is not None
    return step
