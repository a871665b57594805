"""Raise the sizes of a model that mesh axes do not divide to the next multiple."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from inspector.checks.audit.array_names import axes_of
from inspector.checks.audit.rule_fixes import Candidate
from inspector.core import sharding
from inspector.core.formatting import and_text
from inspector.core.snapshot import Array, Finding, Snapshot
from inspector.layout import Layout
from inspector.layout.plan import INDIVISIBLE
from inspector.model import SizeValue

_ROWS = "batch"  # the only size that is not part of the model


def candidates(now: Snapshot, finding: Finding, layout: Layout) -> Iterator[Candidate]:
    """Yield the layout with every size raised that mesh axes do not divide.

    Yield nothing if the finding has another code, a dimension is not a size of the model, or a size would
    be too large or no multiple of another one, as the model needs it.
    """
    if finding.code != INDIVISIBLE:
        return
    multiples = _multiples(now, layout)
    if multiples is None:
        return
    sizes = dict(layout.sizes)
    # A size that another one must be a multiple of is raised first.
    for name, multiple in sorted(multiples.items(), key=lambda pair: pair[0] in layout.entry.multiples):
        known, base = layout.entry.size(name), sizes.get(layout.entry.multiples.get(name, ""), 1)
        size = sizes[name]
        assert isinstance(size, int)
        step = math.lcm(multiple, base) if isinstance(base, int) else multiple
        raised = -(-size // step) * step
        if known is None or raised > (known.most or math.inf):
            return
        sizes[name] = raised
    for name, base_name in layout.entry.multiples.items():
        whole, part = sizes.get(name), sizes.get(base_name)
        if isinstance(whole, int) and isinstance(part, int) and part and whole % part:
            return
    words = and_text([f"{name} from {layout.sizes[name]} to {sizes[name]}" for name in multiples])
    changed = "" if set(multiples) == {_ROWS} else ", which changes the model"
    yield Candidate(replace(layout, sizes=sizes), f"raise {words}{changed}", 0, ())


def resized(array: Array, before: Mapping[str, SizeValue], layout: Layout) -> tuple[int, ...]:
    """Return the shape of an array after a change of the sizes from `before` to those of the layout.

    A dimension without a logical axis keeps its length.
    """
    assert array.shape is not None
    names = (None if axis is None else _size_name(axis, layout) for axis in axes_of(array, layout))
    return tuple(
        layout.sizes[name] if name is not None and before[name] == length else length  # type: ignore[misc]
        for name, length in zip(names, array.shape, strict=True)
    )


def _multiples(now: Snapshot, layout: Layout) -> dict[str, int] | None:
    """Return what each size must be a multiple of. None if a dimension has not the length of a size."""
    assert now.mesh is not None
    multiples: dict[str, int] = {}
    for array in now.arrays:
        for uneven in sharding.indivisible(array.shape or (), array.spec or (), now.mesh):
            axis = axes_of(array, layout)[uneven.dimension]
            name = None if axis is None else _size_name(axis, layout)
            if name is None or layout.sizes[name] != uneven.size:
                return None
            multiples[name] = math.lcm(multiples.get(name, 1), uneven.ways)
    return multiples


def _size_name(axis: str, layout: Layout) -> str | None:
    """Return the size that is the extent of a logical axis. In a user's model, it has the same name."""
    name = layout.entry.extents.get(axis, axis)
    return name if isinstance(layout.sizes.get(name), int) else None
