"""Arrays that Flax nnx and Flax Linen would shard differently by the same rules."""

from __future__ import annotations

import functools
from collections import defaultdict

from inspector.checks.audit.context import AuditContext, finding, names_text
from inspector.core.folding import fold
from inspector.core.formatting import counted
from inspector.core.rules.disagreement import EXPLANATIONS, disagreements
from inspector.core.snapshot import Array, Finding

CODE = "linen-and-nnx-disagree"

_MOST_NAMES = 4


def findings(context: AuditContext) -> list[Finding]:
    """Return one note per cause, over all arrays that it affects."""
    rules = context.rules
    if rules is None:
        return []
    differing = functools.cache(lambda names: disagreements(names, rules))
    names: dict[str, dict[str, None]] = defaultdict(dict)
    arrays: dict[str, dict[str, Array]] = defaultdict(dict)
    for array in context.snapshot.arrays:
        for one in differing(array.logical_axes) if array.logical_axes is not None else ():
            names[one.cause][one.logical_axis] = None
            arrays[one.cause][array.path] = array
    other = "nnx" if context.semantics == "linen" else "Linen"
    return [
        finding(
            "note",
            CODE,
            f"Flax {other} would shard {counted(len(affected), 'array')} differently by these rules: "
            f"{EXPLANATIONS[cause]}. Logical axes: {_names_text(list(names[cause]))}.",
            folds=fold(affected.values()),
            cause=cause,
        )
        for cause, affected in arrays.items()
    ]


def _names_text(names: list[str]) -> str:
    if len(names) <= _MOST_NAMES:
        return names_text(names)
    return f"{', '.join(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES} more"
