"""Compare partitioned with compiled collectives of random layouts, on CPU, TPUs, two TPU slices and GPUs.

A partitioned program is XLA's own after its partitioner, with the passes of the target's compiler that
change what is sent. A pair is a program and one set of mesh axes,
with the bytes on the wire of all executions. For each target, the report has the number of pairs whose bytes
agree, the traffic between slices, and a line with reasons for each other pair. Layouts that JAX or a
compiler refuses are not compared. Compiled results stay in the user's cache. Targets without their compiler
are left out.

`python -m benchmarks.agreement passes` leaves out each of these passes in turn, and prints what that changes
in the train steps, as a table in Markdown. It compiles nothing, and compares with what is compiled.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

from benchmarks.before_compile import COMPILED
from benchmarks.random_layouts import USERS_MODELS, random_layouts
from inspector import layout as layouts
from inspector.compare.partitioned_traffic import TrafficPair, compared, pairs
from inspector.hlo import later_passes
from inspector.hlo.later_passes import gathers, reductions, slices
from inspector.jobs import compile_cache
from inspector.jobs.inspection import Inspection
from inspector.jobs.own_model_registration import register_own
from inspector.layout import Layout
from inspector.machines import targets
from inspector.prediction.predicted import before_compile
from inspector.records.snapshot import Collective, Mesh, Program, Snapshot
from inspector.sharding.meshes import DCN, crossing_axes, slices_of
from inspector.sharding.traffic import wire_bytes_of_run
from inspector.text.errors import InvalidInput
from inspector.text.formatting import mesh_axes_text

SEED = 1
# Layouts by target.
TARGETS = {"cpu": 60, "tpu:v5e:2x4": 20, "tpu:v5e:2x4*2": 20, "gpu:h100:8": 20}
# Difference of bytes that counts as agreement, and the share of the pairs that should agree.
CPU = (0.01, 1.0)
ACCELERATOR = (0.05, 0.9)


def _returns(result: bool | None) -> Callable[..., Any]:
    return lambda *_: result


# The passes after the partitioner, in their order: the place of each, and what leaves it out.
PASSES: Mapping[str, tuple[ModuleType, str, Callable[..., Any]]] = {
    name: (module, attribute, _returns(result))
    for name, module, attribute, result in (
        ("copies of collectives are removed", later_passes, "_remove_copy", None),
        ("all-reduces over several axes become one", reductions, "fold", None),
        ("all-gathers along several dimensions become one", gathers, "fold_gathers", None),
        ("a sum of all-reduces becomes one", reductions, "reassociate", None),
        ("conversions move to the other side of a collective", gathers, "narrow_around_conversion", None),
        ("all-reduce and slice become reduce-scatter", reductions, "scatter", None),
        ("… only if tiles are whole", reductions, "has_whole_tiles", True),
        ("… also between slices", slices, "scatter_between_slices", None),
        ("a broadcast follows an all-gather", gathers, "gather_before_broadcast", None),
        ("arrays are gathered again", gathers, "gather_again", None),
        ("all-reduces in slices and between", slices, "reduce_in_slices", None),
        ("all-gathers between slices and inside", slices, "gather_in_slices", None),
        ("permutes between slices apart from those inside", slices, "permute_in_slices", None),
        ("float32 operands of products move as bfloat16", gathers, "narrow_for_products", None),
        ("… in the narrower type before a conversion", gathers, "_before_widening", None),
        ("sums between slices are sent in whole tiles", slices, "send_tiles", None),
        ("equal collectives are merged", gathers, "merge_equal", None),
    )
}
_STEP = "train_step"
BETWEEN_SLICES = 0.1  # difference of the traffic between slices that counts as agreement


@dataclass
class Agreement:
    """The pairs of one target, and the layouts that could not be compared.

    between_slices: the name of each layout on several slices, and the bytes that a device sends between them,
      partitioned and compiled.
    """

    target: str
    pairs: list[tuple[str, TrafficPair]] = field(default_factory=list)
    between_slices: list[tuple[str, int, int]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    @property
    def goal(self) -> tuple[float, float]:
        return CPU if self.target == "cpu" else ACCELERATOR

    def agrees(self, pair: TrafficPair) -> bool:
        return _close(pair.partitioned, pair.compiled, self.goal[0])


def report(cases: int | None = None, layouts_of: Mapping[str, int] = TARGETS) -> str:
    """Return the agreement of all targets as text, of at most `cases` layouts of each."""
    for name in USERS_MODELS:
        register_own(name)
    service = Inspection(run_workers=1)
    try:
        measured = [
            measure(target, min(count, cases or count), service) for target, count in layouts_of.items()
        ]
    finally:
        service.close()
    return "\n\n".join(map(text, measured))


def measure(
    target: str,
    count: int,
    service: Inspection,
    only: Sequence[str] = (),
) -> Agreement:
    """Partition and compile the first layouts of a target. The users' models must be registered.

    only: the names of the programs to compare; all if it is empty.
    """
    result = Agreement(target)
    machine = layouts.parse({"target": target}).unwrap().machine
    if machine and (lacking := targets.missing_compiler(machine)):
        result.failed.append(lacking)
        return result
    for name, layout in itertools.islice(random_layouts(target, SEED), count):
        print(f"  {target}: {name}", file=sys.stderr, flush=True)
        try:
            partitioned = service.programs(layout).answer()
            compiled = service.run(layout).answer()
        except InvalidInput as error:
            result.failed.append(f"{name}: {error}")
            continue
        programs = [one for one in partitioned.programs if not only or one.name in only]
        add(result, name, programs, compiled)
    return result


def add(
    result: Agreement,
    name: str,
    programs: Sequence[Program],
    compiled: Snapshot,
) -> None:
    """Add the pairs of one layout."""
    mesh = compiled.mesh
    names = {one.name for one in programs}
    same = [one for one in compiled.programs if one.name in names]
    result.pairs += [(name, pair) for pair in pairs(compared(programs, same))]
    if mesh is not None and slices_of(mesh) is not None:
        sent = [
            sum(_between_slices(one.collectives or (), mesh) for one in either) for either in (programs, same)
        ]
        result.between_slices.append((name, sent[0], sent[1]))


def _between_slices(collectives: Iterable[Collective], mesh: Mesh) -> int:
    """Return the bytes of collectives whose groups have devices of several slices."""
    return sum(
        (one.wire_bytes_per_device or 0) * (one.executions or 0)
        for one in collectives
        if one.network == DCN or _crosses(one, mesh)
    )


def _crosses(collective: Collective, mesh: Mesh) -> bool:
    slices = slices_of(mesh)
    groups = collective.device_groups or collective.source_target_pairs
    if slices is None or groups is None:
        return bool(set(collective.mesh_axes or ()) & set(crossing_axes(mesh)))
    return any(len({int(slices[device]) for device in group}) > 1 for group in groups)


def text(result: Agreement) -> str:
    """Return the counts of one target, and a line for each pair that differs."""
    tolerance, share = result.goal
    total = len(result.pairs)
    agreeing = sum(result.agrees(pair) for _, pair in result.pairs)
    lines = [f"{result.target}: {agreeing} of {total} pairs agree within {tolerance:.0%}"]
    if total:
        verdict = "pass" if agreeing >= share * total else "under"
        lines[0] += f" ({agreeing / total:.0%}), target at least {share:.0%}: {verdict}"
    if result.between_slices:
        near = sum(_close(sent[1], sent[2], BETWEEN_SLICES) for sent in result.between_slices)
        lines.append(
            f"  between slices: {near} of {len(result.between_slices)} layouts within {BETWEEN_SLICES:.0%}"
        )
        lines += [
            f"  {name}, between slices: {partitioned:,} → {compiled:,} bytes"
            for name, partitioned, compiled in result.between_slices
            if not _close(partitioned, compiled, BETWEEN_SLICES)
        ]
    for name, pair in result.pairs:
        if not result.agrees(pair):
            axes = "unknown axes" if pair.mesh_axes is None else mesh_axes_text(pair.mesh_axes)
            sent = ["unknown" if one is None else f"{one:,}" for one in (pair.partitioned, pair.compiled)]
            lines.append(
                f"  {name}, {pair.program}, {axes}: {sent[0]} → {sent[1]} bytes ({', '.join(pair.reasons)})"
            )
    return "\n".join([*lines, *(f"  not compared: {each}" for each in result.failed)])


# --- Passes left out ----------------------------------------------------------------------------


class Figures(NamedTuple):
    """What is said of a partitioned train step.

    sent: by the sets of mesh axes, partitioned and compiled bytes; empty without a compile.
    amounts: the seconds, the peak of its memory and the bytes that it sends; None if unknown.
    """

    sent: Mapping[tuple[str, ...] | None, tuple[int | None, int | None]]
    amounts: tuple[float | None, ...]


def passes() -> str:
    """Return a table of what each pass changes in the train steps of all layouts, in Markdown.

    Pairs are those of the random layouts that `report` has compiled. Amounts are those of all, and of the
    layouts of `before_compile`.
    """
    for name in USERS_MODELS:
        register_own(name)
    random = [
        layout
        for target, count in TARGETS.items()
        if target != "cpu"
        for _, layout in itertools.islice(random_layouts(target, SEED), count)
    ]
    published = [
        layouts.from_json(row["layout"]) for row in json.loads(COMPILED.read_text(encoding="utf-8"))["rows"]
    ]
    steps = [_partitioned(layout, compile_cache.compiled(layout)) for layout in random]
    steps += [_partitioned(layout, None) for layout in published]
    whole = [figures() for figures in steps]
    sent = [both for figures in whole for both in figures.sent.values()]
    lines = [
        f"{len(steps)} train steps. {sum(map(_agree, sent))} of {len(sent)} pairs agree.",
        "",
        "| without | steps | pairs | agree no more | agree only then | time | memory | bytes sent |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, (module, attribute, replacement) in PASSES.items():
        with mock.patch.object(module, attribute, replacement):
            left_out = [figures() for figures in steps]
        lines.append(f"| {name} | {' | '.join(changes(whole, left_out))} |")
    return "\n".join(lines)


def _partitioned(layout: Layout, compiled: Snapshot | None) -> Callable[[], Figures]:
    """Partition the train step of a layout, and return what reads it with the present passes."""
    # Only this needs JAX in the process.
    from inspector.partition import partition_layout
    from inspector.partition.template import template_of

    print(f"  {layout.target}, {layout.model}", file=sys.stderr, flush=True)
    machine, template = layout.machine, template_of(layout, (_STEP,))
    assert machine is not None
    setting = partition_layout.Setting.of(layout)
    (lowered,) = (program for program in template.programs if program.name == _STEP)
    module, mesh = partition_layout.partitioned_module(lowered, setting, template.logical)

    def figures() -> Figures:
        _, program = partition_layout.read_program(module, mesh, lowered, setting)
        sums = pairs(compared([program], compiled.programs if compiled else ()))
        return Figures(
            {pair.mesh_axes: (pair.partitioned, pair.compiled) for pair in sums},
            (
                before_compile(program, setting.mesh, machine.chip).seconds,
                program.memory_use.peak_bytes if program.memory_use else None,
                wire_bytes_of_run(*program.collectives or ()),
            ),
        )

    return figures


def changes(whole: Sequence[Figures], left_out: Sequence[Figures]) -> Iterator[str]:
    """Yield the cells of a row: the steps and pairs that change without a pass, and the largest changes."""
    both = list(zip(whole, left_out, strict=True))
    nothing = (0, 0)
    sent = [
        (with_pass.sent.get(axes, nothing), without.sent.get(axes, nothing))
        for with_pass, without in both
        for axes in {**with_pass.sent, **without.sent}
    ]
    yield str(sum(with_pass.amounts != without.amounts for with_pass, without in both))
    yield str(sum(with_pass[0] != without[0] for with_pass, without in sent))
    yield str(sum(_agree(with_pass) and not _agree(without) for with_pass, without in sent))
    yield str(sum(_agree(without) and not _agree(with_pass) for with_pass, without in sent))
    for number in range(3):
        ratios = [
            other / amount - 1
            for with_pass, without in both
            if (amount := with_pass.amounts[number]) and (other := without.amounts[number]) is not None
        ]
        yield f"{max(ratios, key=abs):+.1%}"


def _agree(sent: tuple[int | None, int | None]) -> bool:
    return _close(*sent, ACCELERATOR[0])


def _close(partitioned: int | None, compiled: int | None, tolerance: float) -> bool:
    if partitioned is None or compiled is None:
        return False
    return abs(partitioned - compiled) <= tolerance * max(partitioned, compiled)


if __name__ == "__main__":
    print(passes() if sys.argv[1:] == ["passes"] else report())
