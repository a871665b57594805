"""Two logical axes on one mesh axis: the second is left whole without a word.

The commonest costly mistake with logical axes: an array can use a mesh axis once, the rule that comes first
has it, and Flax Linen passes over the other silently.
"""

from __future__ import annotations

from collections import defaultdict

from inspector.checks.audit.examined import Examined, finding, names_text, subject
from inspector.core.folding import fold
from inspector.core.formatting import counted
from inspector.core.rules import Rule, Trial, ledger
from inspector.core.snapshot import Array, Finding
from inspector.layout.reasons import rule_words

WHAT = "a second logical axis on a mesh axis, which is silently left whole"

CODE = "dropped-logical-axis"


def findings(examined: Examined) -> list[Finding]:
    """A finding for each rule that was passed over for a mesh axis, over all parameters and whoever had it.

    Only of parameters: in activations that share their names the batch is meant to come first.
    """
    rules = examined.rules
    if rules is None or examined.semantics != "linen":
        return []  # nnx gives both names the mesh axis, which JAX refuses
    together: dict[tuple[int, str], list[tuple[Array, Trial]]] = defaultdict(list)
    for array in examined.of_group("params"):
        for trial in _dropped(array, rules, examined):
            assert trial.busy_axis is not None
            together[trial.rule, trial.busy_axis].append((array, trial))
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
    assert first.logical_axes
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
    name = first.logical_axes[trial.dimension]
    where = subject(folds[0])
    if len(folds) > 1:
        where += f" and {counted(len(arrays) - folds[0].count, 'more array')}"
    free = [axes for one in folds if (axes := examined.finest(one.first)[1])]
    axes = list(dict.fromkeys(axis for each in free for axis in each))
    if axes:
        are = "is" if len(axes) == 1 else "are"
        here = "here" if len(set(free)) == 1 and len(free) == len(folds) else "in some of them"
        words = f"Give {name} a mesh axis of its own: {names_text(axes, 'or')} {are} free {here}."
        end = (
            f"Split over {names_text(axes)}, which {are} free {here}, parameters and their moments would "
            f"take {examined.amount(saved)} less of each device."
        )
    else:
        words = None
        end = (
            "No other mesh axis is free there that divides it, so on this mesh only one of them can be "
            "split."
        )
    return finding(
        "warning" if saved >= examined.least else "note",
        CODE,
        f"{_contest(held, rules)}, and an array can use it only once. In {where}, "
        f"{_before(held, rules)} first, so "
        f"{rule_words(trial.rule, rules)}, is passed over without a word, and {name} "
        f"({first.shape[trial.dimension]} rows, dimension {trial.dimension}) stays whole. {end}",
        folds=folds,
        saved=saved if axes else None,
        remedy=words,
        axes=axes,
        rule=trial.rule,
        logical_axis=name,
    )


def _contest(held: list[tuple[Array, Trial]], rules: tuple[Rule, ...]) -> str:
    """Who wants the mesh axis: `hidden and embed both want mesh axis model`."""
    trial = held[0][1]
    name, winners = rules[trial.rule][0], [rules[number][0] for number in _winners(held)]
    winners = list(dict.fromkeys(winners))
    if len(winners) == 1:
        return f"{winners[0]} and {name} both want mesh axis {trial.busy_axis}"
    return f"{names_text([*winners, name])} all want mesh axis {trial.busy_axis}"


def _before(held: list[tuple[Array, Trial]], rules: tuple[Rule, ...]) -> str:
    """Which rules had it, up to the verb: `rule 1, hidden → model, comes`, `rules 1 and 2 come`."""
    winners = _winners(held)
    if len(winners) == 1:
        return f"{rule_words(winners[0], rules)}, comes"
    return f"rules {names_text([str(number + 1) for number in winners])} come"


def _winners(held: list[tuple[Array, Trial]]) -> list[int]:
    return sorted({trial.busy_rule for _, trial in held if trial.busy_rule is not None})
