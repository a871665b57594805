"""Two logical axes mapped to one mesh axis: the second is silently replicated.

This is the most common costly mistake with logical axes. An array can use a mesh axis once. The first rule
takes it, and Flax Linen skips the other without a warning.
"""

from collections import defaultdict
from collections.abc import Iterator

from inspector.checks.audit.context import AuditContext, finding, fold_text
from inspector.core.folding import fold
from inspector.core.formatting import and_text, counted
from inspector.core.rules import Rule, Trial, ledger
from inspector.core.rules.rule import rule_words
from inspector.core.snapshot import Array, Finding

CODE = "dropped-logical-axis"


def findings(context: AuditContext) -> Iterator[Finding]:
    """Yield one finding per skipped rule and mesh axis, over all parameters.

    Activations are left out, because their batch dimension is expected to take the mesh axis first.
    """
    rules = context.rules
    if rules is None or context.semantics != "linen":
        return  # nnx uses the mesh axis twice, which JAX rejects
    by_rule: dict[tuple[int, str | None], list[tuple[Array, Trial]]] = defaultdict(list)
    for array in context.of_group("params"):
        for trial in _skipped(array, rules, context.trivial):
            by_rule[trial.rule, trial.busy_axis].append((array, trial))
    for dropped in by_rule.values():
        if (fault := _finding(context, rules, dropped)) is not None:
            yield fault


def _skipped(array: Array, rules: tuple[Rule, ...], trivial: frozenset[str]) -> list[Trial]:
    """Return, for each unsharded dimension, the first rule that was skipped for a busy mesh axis."""
    try:
        trials = ledger(array.logical_axes or (), rules)
    except ValueError:
        return []
    taken = {trial.dimension for trial in trials if trial.taken}
    first: dict[int, Trial] = {}
    for trial in trials:
        if trial.busy_axis is None or trial.dimension in taken:
            continue
        # A rule to mesh axes of size 1 would not have sharded anything.
        if not set(rules[trial.rule][1]) <= trivial:
            first.setdefault(trial.dimension, trial)
    return list(first.values())


def _finding(
    context: AuditContext, rules: tuple[Rule, ...], dropped: list[tuple[Array, Trial]]
) -> Finding | None:
    """Return the finding about parameters whose dimension a rule would shard if its mesh axis were free."""
    dropped = sorted(dropped, key=lambda pair: -(pair[0].bytes_per_device or 0))
    arrays = [array for array, _ in dropped]
    paths = {array.path for array in arrays}
    moments = [
        moment
        for moment in context.of_group("opt_state")
        if moment.path in context.parameters and context.parameters[moment.path].path in paths
    ]
    if sum(array.bytes_per_device or 0 for array in (*arrays, *moments)) < context.least:
        return None
    saved = sum(context.saved(array) for array in (*arrays, *moments))
    folds = fold(arrays)
    first, trial = dropped[0]
    name = (first.logical_axes or ())[trial.dimension] or ""
    where = fold_text(folds[0])
    if len(folds) > 1:
        where += f" and {counted(len(arrays) - folds[0].count, 'more array')}"
    winners = sorted({trial.busy_rule for _, trial in dropped if trial.busy_rule is not None})
    names = list(dict.fromkeys([*(rules[number][0] for number in winners), name]))
    comes = rule_words(winners[0], rules) + ", comes"
    if len(winners) > 1:
        comes = f"rules {and_text([str(number + 1) for number in winners])} come"
    free = [more for fold in folds if (more := context.finest(fold.first)[1])]
    axes = list(dict.fromkeys(axis for split in free for axis in split))
    end = "No other mesh axis is free that divides it."
    if axes:
        some = "" if len(free) == len(folds) else " in some of them"
        end = (
            f"Mesh axis {and_text(axes, 'or')} is free{some}: sharding over it saves "
            f"{context.amount(saved)} of parameters and optimizer state per device."
        )
    return finding(
        "warning" if saved >= context.least else "note",
        CODE,
        f"Logical axes {and_text(names)} are mapped to mesh axis {trial.busy_axis}, but an array can use "
        f"it only once. In {where}, {comes} first. Flax skips {rule_words(trial.rule, rules)}, so {name} "
        f"(dimension {trial.dimension}, size {(first.shape or ())[trial.dimension]}) is not sharded. {end}",
        folds=folds,
        saved=saved if axes else None,
        remedy=f"Map {name} to {and_text(axes, 'or')}." if axes else None,
        axes=tuple(axes),
        rule=trial.rule,
        logical_axis=name,
    )
