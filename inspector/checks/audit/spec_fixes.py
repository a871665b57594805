"""Changes of PartitionSpecs that may fix a finding, in a model with device axes.

A change affects one partition, or one dimension of each of two parameters, or, as a rule would, one logical
axis wherever it has the same mesh axes.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from inspector.checks.audit.array_names import STACK, Place, naming_of
from inspector.checks.audit.rule_fixes import Candidate, axis_choices
from inspector.core import sharding
from inspector.core.formatting import and_text
from inspector.core.sharding_text import spec_text
from inspector.core.snapshot import Finding, Snapshot, Spec
from inspector.core.totals import STATE_GROUPS
from inspector.layout import Layout

# (partition, dimension) → its new mesh axes.
_Entries = Mapping[tuple[str, int], tuple[str, ...]]


def candidates(now: Snapshot, finding: Finding, layout: Layout) -> Iterator[Candidate]:
    """Yield every change of specs that may fix the finding and keeps equal activations equal."""
    search = _Search(now, finding, layout)
    seen = set()
    for entries in search.changes():
        specs = _changed(layout, entries)
        key = tuple(specs.items())
        if key in seen or specs == dict(layout.specs):
            continue
        seen.add(key)
        changed = replace(layout, specs=specs)
        if search.concerns(changed) and search.allows(changed):
            yield _candidate(layout, changed)


class _Search:
    """The possible changes of a layout's specs for one finding. A spot is a partition and a dimension."""

    def __init__(self, now: Snapshot, finding: Finding, layout: Layout) -> None:
        assert now.mesh is not None
        self._layout, self._mesh, self._finding = layout, now.mesh, finding
        self._choices = list(axis_choices(finding, layout))
        self._sizes: dict[str, int] = {}  # by logical axis
        self._parameters: dict[str, None] = {}
        self._places: dict[str, None] = {}
        self._about: tuple[str, ...] | None = None  # partitions of the finding's array
        for array in now.arrays:
            naming = naming_of(array, layout)
            if array.path == finding.array:
                self._about = ()
            if not isinstance(naming, Place):
                continue
            stack = (STACK,) if naming.stacked else ()
            names = [name for place in (*stack, naming.name) for name in self._names(place)]
            self._sizes |= dict(zip(names, array.shape or (), strict=True))
            self._places |= dict.fromkeys((*stack, naming.name))
            if array.path == finding.array:
                self._about = (*stack, naming.name)
            if array.group in STATE_GROUPS:
                self._parameters |= dict.fromkeys((*stack, naming.name))
        self._activations = [
            place for place in layout.entry.partitions if place not in self._parameters and place != STACK
        ]

    def changes(self) -> Iterator[_Entries]:
        """Yield spots with new mesh axes, changes of fewer partitions first."""
        for place in self._places:
            spots = [(place, at) for at in range(len(self._names(place)))]
            for axes in itertools.product(*([self._now(spot), *self._other(spot)] for spot in spots)):
                yield dict(zip(spots, axes, strict=True))
        for parameter, other in itertools.combinations(self._parameters, 2):
            for pair in itertools.product(
                *([(place, at) for at in range(len(self._names(place)))] for place in (parameter, other))
            ):
                for axes in itertools.product(*map(self._other, pair)):
                    yield dict(zip(pair, axes, strict=True))
        for equal in self._equal():
            yield from (dict.fromkeys(equal, other) for other in self._other(equal[0]))

    def concerns(self, changed: Layout) -> bool:
        """Return whether the change affects the finding's array."""
        return self._about is None or any(
            changed.specs[place] != self._layout.specs[place] for place in self._about
        )

    def allows(self, changed: Layout) -> bool:
        """Return whether the specs are valid, pad no more activations, and keep equal ones equal."""
        for spec in changed.specs.values():
            used = [axis for axes in spec or () for axis in axes or ()]
            if len(set(used)) != len(used):
                return False
        together = [[spot for spot in equal if spot[0] in self._activations] for equal in self._equal()]
        if any(len({_entry(changed, spot) for spot in spots}) > 1 for spots in together):
            return False
        return all(
            self._fits(place, changed)
            or (self._finding.level != "error" and not self._fits(place, self._layout))
            for place in self._activations
        )

    def _fits(self, place: str, layout: Layout) -> bool:
        """Return whether the mesh axes divide the dimensions of known size, so nothing is padded."""
        if place in layout.unconstrained:
            return True
        # A size of 0 is unknown, and any number of devices divides it.
        sizes = [self._sizes.get(name, 0) for name in self._names(place)]
        return not any(sharding.indivisible(sizes, layout.specs[place] or (), self._mesh))

    def _equal(self) -> Iterator[list[tuple[str, int]]]:
        """Yield lists of spots with the same logical axis and, at present, the same mesh axes."""
        spots: dict[tuple[str | None, tuple[str, ...]], list[tuple[str, int]]] = defaultdict(list)
        for place in self._layout.entry.partitions:
            for at, name in enumerate(self._names(place)):
                spots[name, self._now((place, at))].append((place, at))
        yield from spots.values()

    def _other(self, spot: tuple[str, int]) -> Iterator[tuple[str, ...]]:
        """Yield other mesh axes for a spot: others, more, or, to fix an error, fewer."""
        now = self._now(spot)
        more = [axes for choice in self._choices for axes in (choice, (*now, *choice))]
        if self._finding.level == "error":
            more += [axes for n in range(len(now)) for axes in itertools.combinations(now, n)]
        for axes in dict.fromkeys(more):
            if axes != now and len(set(axes)) == len(axes):
                yield axes

    def _names(self, place: str) -> tuple[str, ...]:
        return self._layout.entry.partitions[place]

    def _now(self, spot: tuple[str, int]) -> tuple[str, ...]:
        return _entry(self._layout, spot)


def _entry(layout: Layout, spot: tuple[str, int]) -> tuple[str, ...]:
    return (layout.specs[spot[0]] or ())[spot[1]] or ()


def _changed(layout: Layout, entries: _Entries) -> dict[str, Spec]:
    return {
        place: tuple((entries.get((place, at), axes or ()) or None) for at, axes in enumerate(spec or ()))
        for place, spec in layout.specs.items()
    }


def _candidate(layout: Layout, changed: Layout) -> Candidate:
    changed_specs = [
        (place, old or (), changed.specs[place] or ())
        for place, old in layout.specs.items()
        if old != changed.specs[place]
    ]
    texts = [f"of {place} from {spec_text(old)} to {spec_text(new)}" for place, old, new in changed_specs]
    entries = [
        axes or () for _, old, new in changed_specs for was, axes in zip(old, new, strict=True) if was != axes
    ]
    words = f"change the PartitionSpec{'s' if len(texts) > 1 else ''} {and_text(texts)}"
    return Candidate(changed, words, len(texts), (len(entries), sum(map(len, entries))))
