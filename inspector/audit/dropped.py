"""Two logical axes on one mesh axis: the second is left whole without a word.

The commonest costly mistake with logical axes: an array can use a mesh axis once, the rule that comes first
has it, and Flax Linen passes over the other silently.
"""

from __future__ import annotations

from collections import defaultdict

from inspector.audit.examined import Examined, finding, names_text, subject
from inspector.figures.folding import fold
from inspector.reasons import rule_words
from inspector.rules import Rule, Trial, ledger
from inspector.snapshot import Array, Finding
from inspector.wording import counted

WHAT = "a second logical axis on a mesh axis, which is silently left whole"

CODE = "dropped-logical-axis"


def findings(examined: Examined) -> list[Finding]:
    """A finding for each (rule that was passed over, rule that had its mesh axis), over all parameters.

    Only of parameters: in activations that share their names the batch is meant to come first.
    """
    rules = examined.rules
    if rules is None or examined.semantics != "linen":
        return []  # nnx gives both names the mesh axis, which JAX refuses
    together: dict[tuple[int, int, str], list[tuple[Array, Trial]]] = defaultdict(list)
    for array in examined.of_group("params"):
        for trial in _dropped(array, rules, examined):
            assert trial.busy_rule is not None and trial.busy_axis is not None
            together[trial.rule, trial.busy_rule, trial.busy_axis].append((array, trial))
    found = []
    for held in together.values():
        one = _finding(examined, rules, held)
        if one is not None:
            found.append(one)
    return found


def _dropped(array: Array, rules: tuple[Rule, ...], examined: Examined) -> list[Trial]:
    """For each dimension that no rule settled, the first rule that would have, but for another's axis."""
    if array.logical_axes is None:
        return []
    try:
        trials = ledger(array.logical_axes, rules)
    except ValueError:
        return []
    settled = {trial.dimension for trial in trials if trial.taken}
    first: dict[int, Trial] = {}
    for trial in trials:
        if trial.busy_axis is None or trial.dimension in settled:
            continue
        # Without a mesh axis that is larger than 1 nothing was lost.
        if not set(rules[trial.rule][1]) <= examined.trivial:
            first.setdefault(trial.dimension, trial)
    return list(first.values())


def _finding(
    examined: Examined, rules: tuple[Rule, ...], held: list[tuple[Array, Trial]]
) -> Finding | None:
    held = sorted(held, key=lambda one: -(one[0].bytes_per_device or 0))
    arrays = [array for array, _ in held]
    first, trial = held[0]
    assert first.logical_axes and trial.busy_dimension is not None and trial.busy_rule is not None
    touched = {array.path for array in arrays}
    moments = [
        moment
        for moment in examined.of_group("opt_state")
        if moment.path in examined.parameters and examined.parameters[moment.path].path in touched
    ]
    state = sum(array.bytes_per_device or 0 for array in (*arrays, *moments))
    if state < examined.least:
        return None
    saved = sum(examined.saved(array) for array in (*arrays, *moments))
    folds = fold(arrays)
    name, winner = first.logical_axes[trial.dimension], first.logical_axes[trial.busy_dimension]
    where = subject(folds[0])
    if len(folds) > 1:
        where += f" and {counted(len(arrays) - folds[0].count, 'more array')}"
    axes = examined.finest(first)[1]
    if axes:
        words = f"Give {name} a mesh axis of its own: {names_text(axes, 'or')} is free here."
        end = (
            f"Split over {names_text(axes)}, which is free here, parameters and their moments would take "
            f"{examined.amount(saved)} less of each device."
        )
    else:
        words = None
        end = (
            "No other mesh axis is free there that divides it, so on this mesh only one of the two can be "
            "split."
        )
    return finding(
        "warning" if saved >= examined.least else "note",
        CODE,
        f"{winner} and {name} both want mesh axis {trial.busy_axis}, and an array can use it only once. In "
        f"{where}, {rule_words(trial.busy_rule, rules)}, comes first, so "
        f"{rule_words(trial.rule, rules)}, is passed over without a word, and {name} "
        f"({first.shape[trial.dimension]} rows, dimension {trial.dimension}) stays whole. {end}",
        folds=folds,
        saved=saved if axes else None,
        remedy=words,
        axes=list(axes),
        rule=trial.rule,
        logical_axis=name,
    )
