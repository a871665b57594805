"""Changes of a layout that lower the memory of a device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from inspector.core.errors import InvalidInput
from inspector.core.formatting import mesh_sizes_text
from inspector.core.remedies import RemedyKind
from inspector.layout.changes import with_presets
from inspector.layout.layout import Layout
from inspector.machines import slices, targets
from inspector.model.built_in import remat_names

_TIMES = (2, 4, 8)  # the devices of now
# The values of `remat`, from the least that the backward pass computes again to the most.
_REMATERIALIZED = ("none", "minimal", "full")
_OFFLOADED = f"offload:{'+'.join(('decoder_layer_input', *remat_names.MINIMAL))}"


@dataclass(frozen=True)
class Proposal:
    """A change in words, and the changed layout, which is not always valid."""

    kind: RemedyKind
    label: str
    layout: Layout

    def and_then(self, other: Proposal) -> Proposal:
        """Return this change and another one of its layout as one change."""
        label = f"{self.label}, and {other.label[0].lower()}{other.label[1:]}"
        return Proposal(other.kind, label, other.layout)


def sharded(layout: Layout) -> Iterator[Proposal]:
    """Yield the optimizer state sharded over another mesh axis, and the presets on the same devices."""
    sizes = dict(zip(layout.axis_names, layout.mesh_shape, strict=True))
    free = [name for name in sizes if sizes[name] > 1 and name not in layout.optimizer_axes]
    for name in sorted(free, key=lambda name: -sizes[name]):
        changed = replace(layout, optimizer_axes=(*layout.optimizer_axes, name))
        yield Proposal("sharding", f"Shard the optimizer state over {name} as well", changed)
    for change in with_presets(layout):
        yield Proposal("sharding", change.label, change.layout)


def rematerialized(layout: Layout) -> Iterator[Proposal]:
    """Yield the layout whose backward pass computes more activations again, or reads them from the host."""
    now = layout.sizes.get("remat")
    if not isinstance(now, str):
        return
    place = _REMATERIALIZED.index(now) if now in _REMATERIALIZED else 0
    for value in _REMATERIALIZED[place + 1 :]:
        label = f"Compute activations again in the backward pass (remat {value})"
        yield Proposal("rematerialization", label, _remat(layout, value))
    if not now.startswith("offload"):
        label = "Keep activations in the memory of the host (remat offload)"
        yield Proposal("offload", label, _remat(layout, _OFFLOADED))


def _remat(layout: Layout, value: str) -> Layout:
    return replace(layout, sizes={**layout.sizes, "remat": value})


def more_chips(layout: Layout) -> Iterator[Proposal]:
    """Yield the layout with more devices along each mesh axis, on the next machine with that number."""
    for times in _TIMES:
        target = _larger(layout, times)
        for axis in sorted(range(len(layout.axis_names)), key=lambda axis: -layout.mesh_shape[axis]):
            if target is None:
                continue
            shape = list(layout.mesh_shape)
            shape[axis] *= times
            changed = replace(layout.on_mesh(tuple(shape), layout.axis_names), target=target)
            mesh = mesh_sizes_text(layout.axis_names, shape)
            where = "" if changed.machine is None else f"{changed.machine.title}, "
            yield Proposal("chips", f"Use {times} times the devices ({where}{mesh})", changed)


def _larger(layout: Layout, times: int) -> str | None:
    """Return the target with `times` times the devices; None if there is none."""
    machine = layout.machine
    if machine is None:
        return layout.target
    if machine.slice is None:
        text = f"{machine.kind}:{machine.chip_name}:{machine.devices * times}"
    elif machine.slices > 1:
        text = f"tpu:{machine.slice.generation}:{machine.slice.topology}*{machine.slices * times}"
    else:
        chips, generation = machine.slice.chips * times, machine.slice.generation
        fitting = (known.topology for known in slices.slices(generation) if known.chips == chips)
        text = f"tpu:{generation}:{next(fitting, '')}"
    try:
        return targets.parse(text).text
    except InvalidInput:
        return None
