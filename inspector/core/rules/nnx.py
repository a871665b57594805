"""Logical axes to mesh axes as Flax nnx reads rules: a dictionary of names, in which the last rule wins.

A name that no rule has passes through as the name of a mesh axis. Nothing is checked: two dimensions may
get one mesh axis, and a name may be no mesh axis at all, which JAX refuses when the array is made. This is
`flax.core.spmd.from_sharding_rules` as `flax.nnx.get_partition_spec` calls it, without JAX.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from inspector.core.rules.rule import Rule, Trial
from inspector.core.snapshot import Mesh, Spec


def ledger(logical_axes: Sequence[str | None], rules: Sequence[Rule]) -> tuple[Trial, ...]:
    """Every rule that names a dimension of the array, in order: the last of a name is taken.

    A name that occurs at two dimensions is looked up at both.
    """
    last = {name: number for number, (name, _) in enumerate(rules)}
    return tuple(
        Trial(number, dimension, taken=True)
        if number == last[name]
        else Trial(number, dimension, taken=False, settled_by=last[name])
        for number, (name, _) in enumerate(rules)
        for dimension, named in enumerate(logical_axes)
        if named == name
    )


def partition_spec(logical_axes: Sequence[str | None], rules: Sequence[Rule]) -> Spec:
    """The mesh axes of each dimension; a name without a rule stands for itself."""
    table = dict(rules)
    return tuple(
        None if name is None else table.get(name, (name,)) or None for name in logical_axes
    )


def composed(context: Sequence[Rule], local: Sequence[Rule]) -> tuple[Rule, ...]:
    """The rules in force where both the context and the variable have some.

    Raises:
      ValueError: the two differ on a name, or `local` differs with itself, which nnx refuses then.
    """
    if not context or not local:
        return tuple(context or local)
    together = dict(context)
    for name, axes in local:
        if together.setdefault(name, axes) != axes:
            raise ValueError(f"the rules for {name} are inconsistent: {together[name]} and {axes}")
    return tuple(together.items())


def refusals(spec: Spec, mesh: Mesh) -> tuple[str, ...]:
    """Why JAX would refuse an array with this spec on this mesh, a sentence each; empty if it would not."""
    used = [axis for axes in spec for axis in axes or ()]
    said = [
        f"{axis} is no axis of the mesh, which JAX refuses"
        for axis in _distinct(used)
        if axis not in mesh.axis_names
    ]
    said += [
        f"mesh axis {axis} would split two dimensions, which JAX refuses"
        for axis in _distinct(used)
        if used.count(axis) > 1
    ]
    return tuple(said)


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
