"""Map logical axes to mesh axes as Flax Linen does, with the reason for each step.

Rules are tried in order; a rule is taken if its logical axis is a dimension of the array that no earlier
rule has settled and all of its mesh axes are still free in that array. A rule to no mesh axis settles its
dimension as unsharded. A dimension that no rule settles is unsharded. This is
`flax.linen.logical_to_mesh_axes`, without JAX.
"""

import functools
from collections.abc import Sequence

from inspector.records.snapshot import Spec
from inspector.sharding.rules.rule import Rule, Trial, rule_text


def ledger(logical_axes: Sequence[str | None], rules: Sequence[Rule]) -> tuple[Trial, ...]:
    """Return the outcome of each rule that names a dimension of the array, in order.

    Raises:
      ValueError: a logical axis occurs twice in the array, which Linen does not support.
    """
    named = [name for name in logical_axes if name is not None]
    if len(set(named)) != len(named):
        raise ValueError(f"a logical axis occurs twice in {tuple(logical_axes)}")
    position = {name: place for place, name in enumerate(logical_axes) if name is not None}
    settled: dict[int, int] = {}  # dimension -> rule
    holder: dict[str, tuple[int, int]] = {}  # mesh axis -> (dimension, rule)
    trials = []
    for number, (name, axes) in enumerate(rules):
        if name not in position:
            continue
        dimension = position[name]
        busy = next((axis for axis in axes if axis in holder), None)
        if dimension in settled:
            trials.append(Trial(number, dimension, False, settled_by=settled[dimension]))
        elif busy is not None:
            trials.append(Trial(number, dimension, False, None, busy, *holder[busy]))
        else:
            settled[dimension] = number
            holder |= dict.fromkeys(axes, (dimension, number))
            trials.append(Trial(number, dimension, True))
    return tuple(trials)


def partition_spec(logical_axes: Sequence[str | None], rules: Sequence[Rule]) -> Spec:
    """Return the mesh axes of each dimension of an array with these logical axes.

    Raises:
      ValueError: a logical axis occurs twice in the array, which Linen does not support.
    """
    return _partition_spec(tuple(logical_axes), tuple(rules))


@functools.lru_cache(maxsize=4096)
def _partition_spec(logical_axes: tuple[str | None, ...], rules: tuple[Rule, ...]) -> Spec:
    axes_of = {trial.dimension: rules[trial.rule][1] for trial in ledger(logical_axes, rules) if trial.taken}
    return tuple(axes_of.get(dimension) or None for dimension in range(len(logical_axes)))


def rule_behind(logical_axes: Sequence[str | None], mesh_axis: str, rules: Sequence[Rule]) -> str | None:
    """Return the rule that shards one of these dimensions over a mesh axis: `embed → fsdp`.

    Return None if there is none, or if a logical axis occurs twice.
    """
    return _rule_behind(tuple(logical_axes), mesh_axis, tuple(rules))


@functools.lru_cache(maxsize=1024)
def _rule_behind(logical_axes: tuple[str | None, ...], mesh_axis: str, rules: tuple[Rule, ...]) -> str | None:
    try:
        spec = partition_spec(logical_axes, rules)
    except ValueError:
        return None
    for name, axes in zip(logical_axes, spec, strict=True):
        if name is not None and axes and mesh_axis in axes:
            return rule_text((name, axes))
    return None
