"""Name the source of a sharding: an array, or a sharding constraint with its line, and the rule behind it.

An all-reduce sums over a dimension whose shards came from such a source; any other collective moves shards
that came from one.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jax.extend.mlir import ir

from inspector.partition.history import NAME, AxisPath, History
from inspector.partition.shardings import MANUAL, axes_of_dimensions, sharding_of
from inspector.records.snapshot import Origin
from inspector.sharding.rules import Rule, rule_behind
from inspector.tracing.mlir.locations import called_at, named_at

LOGICAL_AXES = "mhlo.logical_axes"  # a dialect prefix that every module of JAX knows

# The primitives by which code asks for a sharding; others have the sharding of their type.
_CALLS = frozenset({"sharding_constraint", "reshard", "device_put"})
_ARGUMENT = re.compile(r"(input|output): (\d+)")


# The logical axis of each dimension; None for a dimension without one.
LogicalAxes = tuple[str | None, ...]


@dataclass(frozen=True)
class Constraint:
    """A sharding constraint: its line (see `called_at`), and its logical axes in a module with such axes.

    asked: whether code in this line asks for one by a call, not by the type of an operation on explicit axes.
    """

    place: str
    logical_axes: LogicalAxes
    asked: bool = True


@dataclass(frozen=True)
class Sources:
    """The sources of shardings in one program.

    Attributes:
      inputs, outputs: paths of the flattened arguments and results.
      constraints: each sharding constraint, by the name that Shardy gave it.
      logical_axes: names of the dimensions of each argument and result by its path. Empty if the module was
        lowered with mesh axes.
      rules: the layout's rules, which map logical axes to mesh axes.
      explicit: whether the mesh has explicit axes, for which JAX adds a constraint to each operation.
    """

    inputs: Sequence[str]
    outputs: Sequence[str]
    constraints: Mapping[str, Constraint]
    logical_axes: Mapping[str, LogicalAxes]
    rules: Sequence[Rule]
    explicit: bool = False

    def origin(self, axis: str, path: AxisPath | None) -> Origin | None:
        """Return the origin of a mesh axis, with the rule that put it there; None if it is unknown."""
        if path is None:
            return None
        constraint = self.constraints.get(path.source)
        source = self.named(path.source)
        names = constraint.logical_axes if constraint else self.logical_axes.get(source, ())
        return Origin(axis, source, rule_behind(names, axis, self.rules), path.steps)

    def named(self, source: str) -> str:
        """Return a source as a path, `constraint file.py:31`, or `explicit sharding file.py:31`."""
        argument = _ARGUMENT.fullmatch(source)
        if argument:
            paths = self.inputs if argument[1] == "input" else self.outputs
            place = int(argument[2])
            return paths[place] if place < len(paths) else source
        constraint = self.constraints.get(source)
        implied = self.explicit and constraint is not None and not constraint.asked
        return (
            f"{'explicit sharding' if implied else 'constraint'} {constraint.place if constraint else source}"
        )


def constraints_of(operations: Iterable[Any]) -> dict[str, Constraint]:
    """Return each named sharding constraint among these operations, and the specs of each `shard_map`."""
    constraints: dict[str, Constraint] = {}
    for operation in operations:
        if NAME not in operation.attributes:
            continue
        name = ir.StringAttr(operation.attributes[NAME]).value
        place = called_at(operation.location) or name
        if operation.name == "sdy.sharding_constraint":
            stack, _ = named_at(operation.location)
            asked = (stack or "").rpartition("/")[2].partition("(")[0] in _CALLS
            constraints[name] = Constraint(place, noted_axes(operation), asked)
        elif operation.name == MANUAL:
            for kind, values in (("input", operation.operands), ("output", operation.results)):
                for number in range(len(values)):
                    constraints[f"{name}_{kind}: {number}"] = Constraint(place, ())
    lines = {constraint.place for constraint in constraints.values() if constraint.asked}
    return {name: replace(one, asked=one.place in lines) for name, one in constraints.items()}


def note_axes(operation: ir.Operation, names: LogicalAxes) -> None:
    """Write logical axes at an operation, before they are replaced by mesh axes."""
    operation.attributes[LOGICAL_AXES] = ir.StringAttr.get(json.dumps(names))


def noted_axes(operation: ir.Operation) -> LogicalAxes:
    """Return the logical axes that `note_axes` wrote, or () if there are none."""
    if LOGICAL_AXES not in operation.attributes:
        return ()
    return tuple(json.loads(ir.StringAttr(operation.attributes[LOGICAL_AXES]).value))


def origins_of_value(value: ir.Value, history: History, sources: Sources) -> tuple[Origin, ...]:
    """Return where each mesh axis of a value's sharding came from."""
    sharding = sharding_of(value)
    if sharding is None:
        return ()
    axes = [name for axis in axes_of_dimensions(sharding) for name, _ in axis]
    return unique(sources.origin(axis, history.find(value, axis)) for axis in axes)


def unique(origins: Iterable[Origin | None]) -> tuple[Origin, ...]:
    """Return the known origins, each source of a mesh axis once."""
    first: dict[tuple[str, str], Origin] = {}
    for origin in origins:
        if origin is not None:
            first.setdefault((origin.mesh_axis, origin.from_), origin)
    return tuple(first.values())
