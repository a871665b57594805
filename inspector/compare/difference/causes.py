"""Why an array differs between two Snapshots: the mesh, a rule, a size or another field of the layout.

Where both Snapshots have their layouts, causes are read off these. Where not, as in checkpoints and
goldens, only the mesh can be named, and what is left is told by the logical axes themselves.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from inspector.compare.difference.array_differences import ONLY_AFTER, ONLY_BEFORE, ArrayDifference
from inspector.compare.difference.layout_change import (  # fmt: skip
    LayoutChange,
    layout_change,
    rule_text,
    sizes_clause,
)
from inspector.compare.difference.mesh_change import MeshChange, mesh_change
from inspector.compare.difference.rule_causes import RuleCauses
from inspector.core.formatting import and_text
from inspector.core.rules.recorded import semantics
from inspector.core.snapshot import Array, Snapshot

_SPLIT_FACTS = ("spec", "placement", "bytes per device", "replicas")


@dataclass(frozen=True)
class Causes:
    """The causes that two Snapshots have between them, each the beginning of a sentence."""

    mesh: MeshChange
    layout: LayoutChange
    rules: RuleCauses

    @functools.cached_property
    def every(self) -> tuple[str, ...]:
        """Every clause, whether an array follows from it or not."""
        each = (
            *(self.model, self.sizes, self.dtype, self.optimizer, self.mesh.clause),
            *(*self.rules.every, self.specs, self.unconstrained, self.donation),
        )
        return tuple(dict.fromkeys(clause for clause in each if clause))

    def of(self, one: ArrayDifference) -> tuple[str, ...]:
        """The clauses of what made this array differ; empty if none is known."""
        found = {clause for clause in self._of(one) if clause}
        return tuple(clause for clause in self.every if clause in found)

    def _of(self, one: ArrayDifference) -> Iterator[str]:
        layout = self.layout
        if one.changed in ((ONLY_BEFORE,), (ONLY_AFTER,)):
            yield (
                self.model
                or (self.optimizer if one.either.group == "opt_state" else "")
                or self.sizes
            )
            return
        if "shape" in one.changed:
            yield self.model or self.sizes
        before, after = one.before, one.after
        if before is None or after is None:
            return
        if (before.dtype, after.dtype) == layout.dtype:
            yield self.dtype
        if not set(one.changed) & set(_SPLIT_FACTS):
            return
        changed = list(split_dimensions(one))
        for dimension in changed:
            yield from self._of_dimension(dimension, before, after)
        if not changed and ("placement" in one.changed or "replicas" in one.changed):
            yield self.mesh.clause if self.mesh.moves else ""

    def _of_dimension(self, dimension: int, before: Array, after: Array) -> Iterator[str]:
        axes = after.logical_axes or ()
        named = dimension < len(axes) and axes[dimension] is not None
        if self.mesh.clause and self.mesh.explains(dimension, before, after):
            ruled = named and self._needs_new_rules(dimension, after)
            clauses = self.rules.of(dimension, before, after) if ruled else ()
            yield from clauses or (self.mesh.clause,)
            if clauses and self.mesh.moves:
                yield self.mesh.clause
            return
        clauses = self.rules.of(dimension, before, after) if named else ()
        if clauses:
            yield from clauses
            return
        yield self.unconstrained if after.group == "activation" else self.specs

    def _needs_new_rules(self, dimension: int, after: Array) -> bool:
        """Whether the old rules on the new mesh would not split the dimension as it is.

        A rule to an axis that only the new mesh has comes with the mesh, and yet not by the mesh.
        """
        mesh = self.mesh.after
        if not (self.layout.rules or self.rules.reading) or mesh is None or after.spec is None:
            return False
        would = self.rules.would_split(dimension, after, mesh)
        split = {axis.name for axis in mesh.axes if axis.size > 1}
        is_now = tuple(axis for axis in after.spec[dimension] or () if axis in split)
        return would is not None and would != is_now

    @property
    def idle_rules(self) -> dict[str, tuple[str, ...]]:
        """The rules that went with all mesh axes that they named, and these axes."""
        if self.mesh.after is None:
            return {}
        gone = [
            one.gone[0] for one in self.layout.rules.values() if len(one.gone) == 1 and not one.new
        ]
        left = self.mesh.after.axis_names
        return {
            rule_text(rule): rule[1] for rule in gone if rule[1] and not set(rule[1]) & set(left)
        }

    @property
    def model(self) -> str:
        models = self.layout.model
        return f"The model is {models[1]} in place of {models[0]}" if models else ""

    @property
    def sizes(self) -> str:
        return sizes_clause(self.layout.sizes) if self.layout.sizes else ""

    @property
    def optimizer(self) -> str:
        pair = self.layout.optimizer
        return f"The optimizer is {pair[1]} in place of {pair[0]}" if pair else ""

    @property
    def dtype(self) -> str:
        pair = self.layout.dtype
        return f"The dtype is {pair[1]} in place of {pair[0]}" if pair else ""

    @property
    def specs(self) -> str:
        places = self.layout.specs
        if not places:
            return ""
        noun = "PartitionSpec" if len(places) == 1 else "PartitionSpecs"
        verb = "differs" if len(places) == 1 else "differ"
        return f"The {noun} of {and_text(places)} {verb}"

    @property
    def unconstrained(self) -> str:
        pair = self.layout.unconstrained
        if not pair:
            return ""
        off = [name for name in pair[1] if name not in pair[0]]
        on = [name for name in pair[0] if name not in pair[1]]
        said = [
            f"the sharding constraint on {and_text(names)} is {what}"
            for names, what in ((off, "off"), (on, "on"))
            if names
        ]
        return _sentence_start(" and ".join(said))

    @property
    def donation(self) -> str:
        if self.layout.donate is None:
            return ""
        if self.layout.donate:
            return "The train state is now donated, so that a step may write over it"
        return (
            "The train state is no longer donated, so that a step needs room for both old and new"
        )


def causes(before: Snapshot, after: Snapshot) -> Causes:
    """What differs between two Snapshots besides their arrays."""
    mesh = mesh_change(before.mesh, after.mesh)
    layout = layout_change(before, after, mesh)
    return Causes(mesh, layout, RuleCauses(layout, (semantics(before), semantics(after))))


def split_dimensions(one: ArrayDifference) -> Iterator[int]:
    """The dimensions that other mesh axes split, or the same ones in another number of parts."""
    was, becomes = one.split_before, one.split_after
    if was is None or becomes is None or ("shape" in one.changed and len(was) != len(becomes)):
        return
    # One may lack the whole dimensions at its end.
    for dimension, (old, new) in enumerate(itertools.zip_longest(was, becomes, fillvalue=())):
        if old != new:
            yield dimension


def by_parameter(found: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The causes by path, with those of a parameter for its gradient where that has none of its own."""
    told = dict(found)
    for path, clauses in found.items():
        kind, _, rest = path.partition("/")
        if not clauses and kind == "gradient":
            told[path] = found.get(f"params/{rest}", ())
    return told


def _sentence_start(text: str) -> str:
    return text[:1].upper() + text[1:]
