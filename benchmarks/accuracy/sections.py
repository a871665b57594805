"""Sections about sweeps and trials of layouts."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.accuracy.layout_trials import Trials
from benchmarks.accuracy.review import Group
from benchmarks.accuracy.sweeps import Sweep
from inspector.answers.section import Block, Facts, Section, Table, text
from inspector.text.formatting import counted, share_text

LEADING = 3  # places of a ranking in which the fastest layout is looked for


def orders(swept: Sequence[Sweep]) -> tuple[Block, ...]:
    """Return whether predictions order the layouts of each sweep as measured."""
    known = [one for one in swept if one.pairs]
    right, pairs = sum(one.right for one in known), sum(one.pairs for one in known)
    if known:
        said = (
            f"{right} of {counted(pairs, 'pair')} in the right order, in {len(known)} of "
            f"{counted(len(swept), 'sweep')}. The others have no two layouts that are runs of this file "
            "and differ by more than 10%."
        )
    else:
        said = (
            "unknown, because no sweep has two layouts that are runs of this file and differ by more "
            "than 10%."
        )
    table = Table.of(
        "accuracy_sweeps",
        list(swept),
        {
            "Sweep": lambda one: one.name,
            "Layouts": lambda one: one.rows,
            "Runs of this file": lambda one: len(one.known),
            "Pairs": lambda one: one.pairs,
            "In the right order": lambda one: one.right if one.pairs else "–",
        },
    )
    return (text("Order within sweeps: ", said), table)


def review(found: Sequence[Group]) -> Section:
    """Return the median errors of a new table beside those of the one in the repository."""

    def percent(share: float | None) -> str:
        return "–" if share is None else f"{share:.1%}"

    table = Table.of(
        "accuracy_review",
        found,
        {
            "Runs of": lambda one: one.name,
            "Stage": lambda one: one.stage,
            "Runs": lambda one: one.runs,
            "Lost": lambda one: one.lost or "–",
            "Median error before": lambda one: percent(one.was),
            "Now": lambda one: percent(one.now),
            "Refused": lambda one: "yes" if one.refused else "–",
        },
    )
    return Section("accuracy_review", "The new table beside that of this version", (table,))


def trials(found: Trials) -> Section:
    """Return whether trials of layouts are predicted to fit, and in the right order."""
    sweeps = found.sweeps

    def counts(part: str, whole: str) -> str:
        one, other = (sum(getattr(each, name) for each in sweeps) for name in (part, whole))
        return f"{one} of {other}" + (f" ({share_text(one / other, 0)})" if other else "")

    leading = [each for each in sweeps if each.best is not None and each.best <= LEADING]
    ran = sum(each.ran > 0 for each in sweeps)
    shares = sorted({each.fragmentation for each in sweeps})
    lost = " to ".join(dict.fromkeys(f"{one:.0%}" for one in (shares[:1] + shares[-1:]))) or "–"
    facts = Facts.of(
        ("Fits or out of memory, as measured", counts("right", "known")),
        ("The same if JAX programs had run", counts("right_in_jax", "known")),
        ("Activations that PyTorch's allocator loses, fitted to other models", lost),
        ("Pairs in the right order", counts("ordered", "pairs")),
        ("Pairs that are called better or worse", counts("called", "all_pairs")),
        ("Those that were measured so", counts("called_right", "called")),
        (
            f"Sweeps whose fastest trial is among the first {LEADING} predicted to fit",
            f"{len(leading)} of {counted(ran, 'sweep')}",
        ),
    )
    table = Table.of(
        "layout_trials",
        list(sweeps),
        {
            "Sweep": lambda one: one.name,
            "Trials": lambda one: one.known,
            "Fit as measured": lambda one: one.right,
            "Pairs": lambda one: one.pairs,
            "In the right order": lambda one: one.ordered if one.pairs else "–",
            "Place of the fastest": lambda one: (
                "–" if one.ran == 0 else "does not fit" if one.best is None else one.best
            ),
        },
    )
    blocks: list[Block] = [facts, table]
    if found.others:
        listed = sorted(found.others.items(), key=lambda item: -item[1])
        blocks.append(
            Table.of(
                "other_trials",
                listed,
                {"Trials that are left out": lambda one: one[1], "Reason": lambda one: one[0]},
            )
        )
    return Section("layout_trials", "Trials of layouts, before a compile", tuple(blocks))
