"""Each reason of a difference between partitioned and compiled collectives, from small records."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from inspector.answers import partitioned_traffic
from inspector.compare.partitioned_traffic import MEANINGS, Reason, compared, not_compared, pairs
from inspector.media.terminal import render
from inspector.records.collectives import OPERATIONS
from inspector.records.snapshot import Collective, Program, Snapshot, Source
from tests.figures.samples import mesh

DOT = "jit(step)/jvp(MLP)/Dense_0/dot_general"
OTHER = "jit(step)/jvp(MLP)/Dense_1/dot_general"
BACKWARD = "jit(step)/transpose(jvp(MLP))/Dense_0/dot_general"
MERGED = "jit(step)/jvp(MLP)/(Dense_0/dot_general:Dense_1/dot_general)"


def collective(
    op: str = "all-gather",
    payload: int = 4096,
    name: str = DOT,
    axes: tuple[str, ...] | None = ("fsdp",),
    executions: int = 1,
    arrays: tuple[str, ...] = (),
) -> Collective:
    wire = OPERATIONS[op].wire_bytes(payload, 4)
    return Collective(
        op,
        False,
        f"{op}.1",
        "main",
        executions,
        False,
        axes,
        4,
        1,
        payload,
        wire,
        name,
        arrays=arrays,
    )


def reasons(before: list[Collective], after: list[Collective], op: str, axes=("fsdp",)):
    rows = compared(
        [Program("train_step", collectives=tuple(before), stage="propagated")],
        [Program("train_step", collectives=tuple(after))],
    )
    return next(row.reasons for row in rows if (row.op, row.mesh_axes) == (op, axes))


def test_equal_collectives_have_no_reason() -> None:
    assert reasons([collective()], [collective()], "all-gather") == ()


def test_unknown_bytes_are_no_agreement() -> None:
    unknown = replace(collective(), wire_bytes_per_device=None)
    rows = compared(
        [Program("apply", collectives=(collective(),))], [Program("apply", collectives=(unknown,))]
    )
    (pair,) = pairs(rows)
    assert (pair.compiled, pair.agrees, pair.known) == (None, False, False)
    # Nothing is known to differ either.
    assert (rows[0].reasons, pair.reasons) == ((), ())
    assert "Each compiled program" not in str(partitioned_traffic.headline([pair], True))


def test_each_program_sends_what_was_expected_only_if_each_is_compared() -> None:
    """A program whose partitioned collectives are unknown is named as not compared."""
    on = mesh(fsdp=8)
    same = Program("apply", collectives=(collective(),))
    for unread in (False, True):
        other = Program("merge", collectives=None if unread else (collective(),))
        every = tuple(replace(one, stage="propagated") for one in (same, other))
        snapshot = Snapshot(Source("run", "cpu", ""), on, None, (), (same, other), partitioned=every)
        said = render.text(
            [block for section in partitioned_traffic.sections(snapshot) for block in section.blocks]
        )
        assert ("Each compiled program sends" in said) is not unread
        assert ("The sums that are known are what was expected" in said) is unread
        assert ("Not compared" in said) is unread


@pytest.mark.parametrize(
    ("before", "after", "op", "reason"),
    [
        (
            [collective("all-reduce"), collective("all-reduce", name=OTHER)],
            [collective("all-reduce", 8192, MERGED)],
            "all-reduce",
            "combined",
        ),
        (
            [collective()],
            [collective(payload=2048), collective(payload=2048)],
            "all-gather",
            "split",
        ),
        (
            [collective("all-reduce")],
            [collective("reduce-scatter")],
            "all-reduce",
            "reduce-scatter",
        ),
        ([collective("reduce-scatter")], [collective("all-reduce")], "all-reduce", "all-reduce"),
        (
            [collective()],
            [collective("collective-permute", 1024, executions=3)],
            "collective-permute",
            "ring",
        ),
        (
            [collective("all-reduce"), collective("all-reduce")],
            [collective("all-reduce")],
            "all-reduce",
            "reassociated",
        ),
        ([collective()], [collective(payload=2048)], "all-gather", "narrower"),
        # XLA for CPUs computes in a larger type, and combines: twice the bytes in half as many.
        ([collective(executions=8)], [collective(payload=16384, executions=4)], "all-gather", "wider"),
        ([collective(), collective()], [collective()], "all-gather", "xla"),
        ([collective(executions=8)], [collective()], "all-gather", "out-of-loop"),
        (
            [collective(arrays=("params/w",))],
            [collective(arrays=("params/w",)), collective(name=BACKWARD, arrays=("params/w",))],
            "all-gather",
            "gathered-again",
        ),
        ([collective(axes=("data",))], [collective()], "all-gather", "other-axes"),
        ([collective()], [], "all-gather", "removed"),
        ([collective()], [collective("all-to-all")], "all-to-all", "moved"),
        ([], [collective("all-to-all")], "all-to-all", "xla"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_reason(before, after, op, reason) -> None:
    assert reason in reasons(before, after, op)


def test_an_instruction_named_after_one_of_its_parts_is_combined() -> None:
    before = [collective("all-reduce"), collective("all-reduce", name=OTHER)]
    after = [collective("all-reduce", 8192, OTHER)]
    assert reasons(before, after, "all-reduce") == ("combined",)


def test_pairs_sum_operations_over_the_same_mesh_axes() -> None:
    before = [collective("all-reduce"), collective(name=OTHER), collective(axes=("tensor",))]
    after = [collective("all-reduce"), collective(name=OTHER)]
    rows = compared(
        [Program("train_step", collectives=tuple(before))],
        [Program("train_step", collectives=tuple(after))],
    )
    found = {pair.mesh_axes: (pair.agrees, pair.reasons) for pair in pairs(rows)}
    assert found == {("fsdp",): (True, ()), ("tensor",): (False, ("other-axes",))}


def test_every_reason_has_a_meaning() -> None:
    assert set(MEANINGS) == set(get_args(Reason))


def test_several_all_reduces_become_one_reduce_scatter() -> None:
    before = [collective("all-reduce"), collective("all-reduce", name=OTHER)]
    after = [collective("reduce-scatter", 8192, BACKWARD)]
    assert reasons(before, after, "all-reduce") == ("reduce-scatter",)
    assert reasons(before, after, "reduce-scatter") == ("reduce-scatter",)


def test_programs_without_propagation_are_named() -> None:
    step = Program("train_step", collectives=(collective(),))
    both = Snapshot(
        source=Source("cpu", "cpu", "now"),
        layout=None,
        mesh=None,
        arrays=(),
        programs=(step, Program("apply", collectives=()), Program("init", collectives=())),
        partitioned=(step, Program("init", collectives=None)),
    )
    assert not_compared(both) == ("apply", "init")
    assert not_compared(replace(both, programs=(step,))) == ()
