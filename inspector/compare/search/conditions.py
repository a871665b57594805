"""Changed conditions of a search: a larger batch, longer sequences, more or fewer chips, another chip."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from inspector.compare.search.result import Candidate, Sensitivity
from inspector.compare.search.space import identity
from inspector.core.errors import InvalidInput
from inspector.layout import Layout
from inspector.machines import targets
from inspector.machines.hardware import CHIPS
from inspector.machines.slices import named_slices
from inspector.machines.targets import Target

_DOUBLED = ("batch", "seq")
_FACTORS = (0.5, 2.0, 4.0)  # of the number of devices


@dataclass(frozen=True)
class Condition:
    """One changed condition, and the layout that the search begins with under it."""

    label: str
    layout: Layout


def conditions(layout: Layout) -> Iterator[Condition]:
    """Yield the layout itself, then the changed conditions that its model and its target allow."""
    yield Condition(f"{layout.target}, as searched", layout)
    for name in _DOUBLED:
        size = layout.entry.size(name)
        value = layout.sizes.get(name)
        if size is None or not isinstance(value, int) or (size.most and 2 * value > size.most):
            continue
        sizes = {**layout.sizes, name: 2 * value}
        yield Condition(f"{name} {2 * value}", replace(layout, sizes=sizes))
    machine = layout.machine
    if machine is None or machine.slices > 1:
        return
    for factor in _FACTORS:
        devices = machine.devices * factor
        if devices == int(devices) and (other := _of_devices(machine, int(devices))):
            yield Condition(other.text, _on(layout, other))
    another = _another_chip(machine)
    if another is not None:
        yield Condition(another.text, _on(layout, another))


def sensitivity(
    condition: Condition,
    before: Layout,
    candidates: list[Candidate],
    layouts: list[Layout],
    listed: int | None,
) -> Sensitivity:
    """Return the rank of the best layout of the search among the candidates under a condition.

    before: the best layout of the search. candidates: the best first. layouts: theirs, in the same order.
    listed: as many of the candidates are the best of all; None if that is not known.
    """
    valid = [
        (candidate, layout)
        for candidate, layout in zip(candidates, layouts, strict=True)
        if candidate.stage != "rejected" and candidate.seconds is not None
    ]
    if not valid:
        return Sensitivity(condition.label, condition.layout.devices)
    wanted = use(before)
    place = next((n for n, (_, layout) in enumerate(valid) if use(layout) == wanted), None)
    kept = None if place is None else valid[place][0]
    best = valid[0][0]
    return Sensitivity(
        condition.label,
        condition.layout.devices,
        best.layout,
        best.seconds,
        None if kept is None else kept.layout,
        None if kept is None else kept.seconds,
        None if place is None or place >= (listed or 0) else place + 1,
    )


def use(layout: Layout) -> str:
    """Return text that two layouts share if axes of the same names shard the same dimensions."""
    plain = replace(layout.on_mesh((1,) * len(layout.axis_names), layout.axis_names), target="plan", sizes={})
    names = ",".join(layout.axis_names)
    return f"{names} {identity(plain)}"


def _on(layout: Layout, target: Target) -> Layout:
    """Return the layout on another target, all of whose devices are on the first mesh axis."""
    shape = (target.devices, *(1 for _ in layout.axis_names[1:]))
    return replace(layout.on_mesh(shape, layout.axis_names), target=target.text)


def _of_devices(machine: Target, devices: int) -> Target | None:
    """Return the machine of the same chips with this number of devices, if there is one."""
    if machine.slice is None:
        return _parsed(f"gpu:{machine.chip_name}:{devices}")
    for part in named_slices(machine.chip_name):
        if part.devices == devices:
            return _parsed(f"tpu:{machine.chip_name}:{part.topology}")
    return None


def _another_chip(machine: Target) -> Target | None:
    """Return the next chip in the table with as many devices, the newest ones last."""
    names = [name for name, chip in CHIPS.items() if chip.kind == machine.kind]
    start = names.index(machine.chip_name)
    for name in (*names[start + 1 :], *names[:start][::-1]):
        if machine.slice is None:
            target = _parsed(f"gpu:{name}:{machine.devices}")
        else:
            slices = [part for part in named_slices(name) if part.devices == machine.devices]
            target = _parsed(f"tpu:{name}:{slices[0].topology}") if slices else None
        if target is not None:
            return target
    return None


def _parsed(text: str) -> Target | None:
    try:
        return targets.parse(text)
    except InvalidInput:
        return None
