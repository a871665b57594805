"""Arrays that Flax nnx would lay out otherwise by the same rules than Flax Linen does."""

from __future__ import annotations

from collections import defaultdict

from inspector.checks.audit.examined import Examined, finding, names_text
from inspector.core.folding import fold
from inspector.core.formatting import counted
from inspector.core.rules import Rule
from inspector.core.rules.disagreement import EXPLANATIONS, disagreements
from inspector.core.snapshot import Array, Finding

WHAT = "rules that Linen and nnx read differently"

CODE = "linen-and-nnx-disagree"

_MOST_NAMES = 4  # in a sentence


def findings(examined: Examined) -> list[Finding]:
    """One for each cause, over all arrays that it concerns."""
    rules = examined.rules
    if rules is None:
        return []
    other = "nnx" if examined.semantics == "linen" else "Linen"
    names: dict[str, dict[str, None]] = defaultdict(dict)
    arrays: dict[str, list[Array]] = defaultdict(list)
    for array, differing in _differing(examined, rules):
        for cause, name in differing:
            names[cause][name] = None
            if not arrays[cause] or arrays[cause][-1] is not array:
                arrays[cause].append(array)
    return [
        finding(
            "note",
            CODE,
            f"Flax {other} would read these rules otherwise in {counted(len(held), 'array')}: "
            f"{EXPLANATIONS[cause]}. It concerns {_names_text(list(names[cause]))}.",
            folds=fold(held),
            cause=cause,
        )
        for cause, held in arrays.items()
    ]


def _differing(examined: Examined, rules: tuple[Rule, ...]):
    """(array, [(cause, logical axis)]); equal names are asked once."""
    known: dict[tuple[str | None, ...], list[tuple[str, str]]] = {}
    for array in examined.found.arrays:
        if array.logical_axes is None:
            continue
        if array.logical_axes not in known:
            known[array.logical_axes] = [
                (one.cause, one.logical_axis) for one in disagreements(array.logical_axes, rules)
            ]
        if known[array.logical_axes]:
            yield array, known[array.logical_axes]


def _names_text(names: list[str]) -> str:
    if len(names) <= _MOST_NAMES:
        return names_text(names)
    return f"{', '.join(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES} more"
