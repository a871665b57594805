"""Map logical axes to mesh axes as Flax nnx does: the last rule for a name wins.

A name without a rule is taken as a mesh axis. nnx does not check the result: two dimensions may
get one mesh axis, and a name may not be a mesh axis, which JAX rejects when the array is created. This is
`flax.core.spmd.from_sharding_rules` as `flax.nnx.get_partition_spec` calls it, without JAX.
"""

from collections import Counter
from collections.abc import Sequence

from inspector.records.snapshot import Mesh, Spec
from inspector.sharding.rules.rule import Rule, Trial


def ledger(logical_axes: Sequence[str | None], rules: Sequence[Rule]) -> tuple[Trial, ...]:
    """Return the rules that name a dimension of the array, in order. The last rule for a name is taken.

    A name that occurs at two dimensions is looked up at both.
    """
    last = {name: number for number, (name, _) in enumerate(rules)}
    return tuple(
        Trial(number, dimension, number == last[name], None if number == last[name] else last[name])
        for number, (name, _) in enumerate(rules)
        for dimension, named in enumerate(logical_axes)
        if named == name
    )


def partition_spec(logical_axes: Sequence[str | None], rules: Sequence[Rule]) -> Spec:
    """Return the mesh axes of each dimension. A name without a rule is a mesh axis itself."""
    table = dict(rules)
    return tuple(None if name is None else table.get(name, (name,)) or None for name in logical_axes)


def refusals(spec: Spec, mesh: Mesh) -> tuple[str, ...]:
    """Return one sentence for each reason why JAX would reject this spec on this mesh."""
    used = Counter(axis for axes in spec for axis in axes or ())
    unknown = [axis for axis in used if axis not in mesh.axis_names]
    repeated = [axis for axis, count in used.items() if count > 1]
    return (
        *(f"{axis} is not an axis of the mesh, which JAX refuses" for axis in unknown),
        *(f"mesh axis {axis} would split two dimensions, which JAX refuses" for axis in repeated),
    )
