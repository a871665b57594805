"""What only one of two Snapshots can tell, because the other was not compiled or is of other programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from inspector.compare.difference.array_differences import ArrayDifference
from inspector.core.formatting import and_text, counted
from inspector.core.snapshot import Snapshot

# Of what a program does before the first step, no layout is chosen.
PROGRAMS_ASIDE = ("init",)
# What lies in a step between its arguments and its outputs: nobody knows where before it is compiled.
_WITHIN_A_STEP = ("activation", "gradient")


def arrays_of_one_sentence(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """That one tells of no array at all, as a compiled program's text: those of the other are not new."""
    counts = len(before.arrays), len(after.arrays)
    if (counts[0] == 0) != (counts[1] == 0):
        which = ("first", "second") if counts[0] == 0 else ("second", "first")
        yield (
            f"The {which[0]} tells of no arrays: the {counted(max(counts), 'array')} of the {which[1]} "
            "can be held against none."
        )


def only_of_compiled(
    differences: Sequence[ArrayDifference], before: Snapshot, after: Snapshot
) -> list[ArrayDifference]:
    """The activations and gradients of one, where the other has neither them nor a program to have them."""
    blind = [
        not found.programs and all(array.group not in _WITHIN_A_STEP for array in found.arrays)
        for found in (before, after)
    ]
    return [
        one
        for one in differences
        if one.either.group in _WITHIN_A_STEP
        and ((one.before is None and blind[0]) or (one.after is None and blind[1]))
    ]


def only_of_compiled_sentence(aside: Sequence[ArrayDifference]) -> Iterator[str]:
    """That they are known of one of the two only, which is no difference between the layouts."""
    if not aside:
        return
    kinds = [
        counted(count, kind)
        for kind in _WITHIN_A_STEP
        if (count := sum(one.either.group == kind for one in aside))
    ]
    which = ("second", "first") if aside[0].before is None else ("first", "second")
    are = "is" if len(aside) == 1 else "are"
    yield (
        f"{and_text(kinds)} {are} known of the {which[0]} only: "
        f"the {which[1]} has no compiled program that would say where they lie."
    )


def programs_sentence(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """The programs that only one of them has, if both have some."""
    if not before.programs or not after.programs:
        return
    names = [
        list(dict.fromkeys(one.name for one in found.programs if one.name not in PROGRAMS_ASIDE))
        for found in (before, after)
    ]
    said = []
    for which, own, others in (("first", *names), ("second", *reversed(names))):
        only = [name for name in own if name not in others]
        if only:
            said.append(f"{and_text(only)} {'is' if len(only) == 1 else 'are'} only in the {which}")
    if said:
        yield f"They have other programs: {and_text(said)}."
