"""The effect of each rule, sharding constraint and mesh axis of a layout: a sentence, and a table."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from inspector.answers.programs import BEFORE_COMPILE
from inspector.answers.section import Block, Cell, Column, Inline, Listing, Section, Strong, Table, text
from inspector.compare.question import change_text
from inspector.compare.ratio import change_of
from inspector.machines import hardware
from inspector.prediction.memory import ESTIMATE_LOW
from inspector.records.assessment import LEAST_CHANGE, STEP, TRAFFIC, Assessment
from inspector.records.snapshot import Change, Effects, LayoutCost
from inspector.records.snapshot.effects import UNKNOWN_AXES
from inspector.text.formatting import bytes_text, counted, mesh_axes_text, seconds_text, signed_text
from inspector.text.program_names import noun

TABLE = "effects"
HEADING = "Effect of each rule, constraint and mesh axis"
NO_LAYOUT = "This Snapshot contains no layout whose rules could be changed."
_MOST_AXES = 5  # columns of mesh axes


@dataclass(frozen=True)
class _Measure:
    """One quantity of a cost. `of` returns its value, None if unknown; `text` formats its absolute value."""

    heading: str
    noun: str
    of: Callable[[LayoutCost], float | None]
    text: Callable[[Any], str]

    def change(self, current: LayoutCost, cost: LayoutCost) -> float | None:
        before, after = self.of(current), self.of(cost)
        return None if before is None or after is None else after - before

    def words(self, current: LayoutCost, cost: LayoutCost, shares: bool = False) -> str:
        """Return the change with its sign and share: `+8.0 MiB (+25%)`, `0`, `unknown`; or only its share.

        The share of a predicted step is the interval of its change, `−12% to −4%`, if that is decided.

        shares: whether the current layout is compiled. Its figures then are those of the compiler, and only
          the share of a change is known before the changed layout is compiled too.
        """
        change = self.change(current, cost)
        if change is None:
            return "unknown"
        timed = self is _SECONDS
        share = change_of(cost) if timed else change_text(self.of(current) or 0, self.of(cost) or 0)
        if shares and self not in (_STATE, _MEMORY):
            return share or (timed and cost.answer) or "0"
        return signed_text(change, self.text) + (f" ({share})" if share else "")


_SECONDS = _Measure(STEP, "step", lambda cost: cost.seconds, seconds_text)
_WIRE = _Measure(TRAFFIC, "traffic", lambda cost: cost.wire_total, bytes_text)
_STATE = _Measure(
    "Train state per device", "train state per device", lambda cost: cost.state_bytes, bytes_text
)
_MEMORY = _Measure("Memory of a device", "memory of a device", lambda cost: cost.peak_bytes, bytes_text)


def section(effects: Effects, assessed: Assessment | None = None) -> Section:
    """Return the changes that improve the layout, then the effects of all."""
    improvements = tuple(
        (Strong(change.effect.label), f": {'; '.join(altered(effects, change.effect, assessed))}.")
        for change in improving(effects, assessed)
    )
    best = Listing(improvements) if improvements else text("None of them improves the layout.")
    blocks = (text(*tried(effects)), best, *details(effects, assessed)) if effects.changes else ()
    return Section(TABLE, HEADING, blocks or (text(*tried(effects)),))


def tried(effects: Effects) -> tuple[Inline, ...]:
    """Return the number of changes and the program: `14 changes tried on the train step, …`."""
    if not effects.changes:
        return ("This layout has no rule, sharding constraint or mesh axis that could be changed.",)
    where = "" if effects.chip is None else f", predicted for {_chip_title(effects)}"
    changes = counted(len(effects.changes), "change")
    return (f"{changes} tried on {noun(effects.program)}{where}, not compiled.",)


def all_heading(effects: Effects, assessed: Assessment | None = None) -> str:
    """Return the heading of the effects of all changes below those that improve the layout.

    It counts each change once: `All 29 changes tried: 3 listed above, 14 with another effect, 12 without`.
    """
    listed = len(improving(effects, assessed))
    invalid = sum(effect.cost is None for effect in effects.changes)
    affecting = sum(_affects(effects, effect) for effect in effects.changes)
    counts = {
        "listed above": listed,
        "with another effect" if listed else "with an effect": affecting - listed,
        "without an effect": len(effects.changes) - affecting - invalid,
        "not valid": invalid,
    }
    said = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    return f"All {counted(len(effects.changes), 'change')} tried: {said}"


def details(effects: Effects, assessed: Assessment | None = None) -> tuple[Block, ...]:
    """Return the cost of the layout, and all effects in a table.

    assessed: the figures of the layout as it is. If they are those of a compiler, effects are shares of them.
    """
    if not effects.changes:
        return ()
    return (
        text(_current(effects)),
        table(effects, _is_compiled(assessed)),
        text(*_notes(effects), quiet=True),
    )


@dataclass(frozen=True)
class Improving:
    """A change that improves the layout. Its saving is negative if it costs more.

    share: of the step if that is decided to be shorter, or of traffic or work if times are unknown.
    memory, wire: bytes of one device.
    """

    effect: Change
    share: float
    memory: float
    wire: float


def improving(effects: Effects, assessed: Assessment | None = None) -> list[Improving]:
    """Return the changes that improve the layout, whatever the machine's efficiencies are, the best first.

    A layout that does not fit is improved by what lowers its memory. Otherwise a change improves it if it
    needs less traffic or memory, and no more of these, of the step and of FLOPs, or if the step is decided to
    be shorter and the changed layout fits. Differences below 1% do not count, nor does an estimated peak that
    is less by no more than estimates are off, unless the train state or a donation proves it.
    """
    current = effects.current

    def saved(of: Callable[[LayoutCost], float | None], cost: LayoutCost) -> float:
        before, after = of(current), of(cost)
        if before is None or after is None or abs(before - after) < LEAST_CHANGE * before:
            return 0
        return before - after

    need = None if assessed is None else assessed.memory
    too_large = need is not None and need.fits is False
    improved = []
    for effect in effects.changes:
        if (cost := effect.cost) is None or effect.kind == "chips":
            continue
        held = _STATE if None in (current.peak_bytes, cost.peak_bytes) else _MEMORY
        seconds, wire, memory = (saved(measure.of, cost) for measure in (_SECONDS, _WIRE, held))
        work = saved(lambda cost: cost.flops, cost)
        exact = effect.kind == "donation" or held is _STATE or saved(_STATE.of, cost) > 0
        less = exact or memory > (1 - ESTIMATE_LOW) * (current.peak_bytes or 0)
        less_of_all = max(wire, memory if less else 0) > 0 and min(seconds, wire, memory, work) >= 0
        better = cost.answer == "better"
        faster = better and (cost.fits or (memory >= 0 and cost.fits is None))
        if memory > 0 if too_large else cost.fits is not False and (less_of_all or faster):
            pairs = [(seconds if better else 0, current.seconds)]
            if current.seconds is None:
                pairs = [(wire, current.wire_total), (work, current.flops)]
            share = max(less / before if before else 0.0 for less, before in pairs)
            improved.append(Improving(effect, share, memory, wire))
    return sorted(improved, key=lambda change: -(change.memory if too_large else change.share))


def altered(effects: Effects, effect: Change, assessed: Assessment | None = None) -> list[str]:
    """Return the effects of a change of at least 1%, one text for each figure: `step −1.2 ms (−10%)`."""
    assert effect.cost is not None
    return [
        f"{measure.noun} {measure.words(effects.current, effect.cost, _is_compiled(assessed))}"
        for measure in _measures(effects)
        if measure.change(effects.current, effect.cost)
        and change_text(measure.of(effects.current) or 0, measure.of(effect.cost) or 0)
    ]


def table(effects: Effects, shares: bool = False) -> Table:
    """Return one row per change, the largest effect first and invalid changes last."""
    current = effects.current
    timed = [_SECONDS] if effects.chip is not None else []
    columns: dict[str | Column, Callable[[Change], Cell]] = {"Change": lambda effect: effect.label}
    for measure in (*timed, _WIRE):
        columns[measure.heading] = _cell(current, measure, shares)
    for axes in _axes(effects):
        measure = _Measure(f"over {_axes_text(axes)}", "", _over(axes), bytes_text)
        columns[measure.heading] = _cell(current, measure, shares)
    for measure in (_STATE, *([_MEMORY] if current.peak_bytes else [])):
        columns[measure.heading] = _cell(current, measure, shares)
    columns["Matrix FLOPs"] = lambda one: "–" if one.cost is None else _flops(current, one.cost)
    if any(change.cost is None for change in effects.changes):
        columns["Not valid"] = lambda effect: effect.reason or "–"
    return Table.of(TABLE, effects.changes, columns)


def _cell(current: LayoutCost, measure: _Measure, shares: bool) -> Callable[[Change], Cell]:
    return lambda one: "–" if one.cost is None else measure.words(current, one.cost, shares)


def _is_compiled(assessed: Assessment | None) -> bool:
    evidence = None if assessed is None else assessed.evidence
    return evidence is not None and not evidence.before_compile


def _flops(current: LayoutCost, cost: LayoutCost) -> str:
    if current.flops is None or cost.flops is None:
        return "unknown"
    return change_text(current.flops, cost.flops) or "0"


def _over(axes: str) -> Callable[[LayoutCost], float | None]:
    return lambda cost: cost.wire_bytes.get(axes, 0)


def _axes(effects: Effects) -> list[str]:
    """Return the mesh axes with traffic, those of the current layout first, then by the largest traffic."""
    costs = [effects.current, *(change.cost for change in effects.changes if change.cost is not None)]
    found = dict.fromkeys(axes for cost in costs for axes in cost.wire_bytes)

    def rank(axes: str) -> tuple[bool, int]:
        most = max(cost.wire_bytes.get(axes) or 0 for cost in costs)
        return axes not in effects.current.wire_bytes, -most

    return sorted(found, key=rank)[:_MOST_AXES]


def _axes_text(axes: str) -> str:
    return mesh_axes_text(None if axes == UNKNOWN_AXES else axes.split(",") if axes else ())


def _measures(effects: Effects) -> tuple[_Measure, ...]:
    """Return the known figures of the current layout, the one that orders the changes first."""
    every = (_SECONDS, _WIRE, _MEMORY, _STATE)
    return tuple(measure for measure in every if measure.of(effects.current) is not None)


def _affects(effects: Effects, effect: Change) -> bool:
    cost = effect.cost
    return cost is not None and any(measure.change(effects.current, cost) for measure in _measures(effects))


def _current(effects: Effects) -> str:
    """Return the cost of the layout as it is, which the changes are compared with."""
    figures = [
        f"{measure.noun} {measure.text(measure.of(effects.current))}" for measure in _measures(effects)
    ]
    return f"The layout as it is, before a compile: {'; '.join(figures)}."


def _notes(effects: Effects) -> Iterable[str]:
    yield f"{BEFORE_COMPILE} Every change keeps the number of devices. "
    if effects.chip is None:
        yield "No chip is chosen, so times are unknown."
    else:
        yield (
            f"Times are predictions before a compile for {_chip_title(effects)}, as for a plan in the tab "
            "Time: of transfers that computation can hide, only a part counts."
        )
    if effects.left_out:
        yield f" {counted(effects.left_out, 'swap')} of two rules left out."


def _chip_title(effects: Effects) -> str:
    known = hardware.CHIPS.get(effects.chip or "")
    return known.title if known else effects.chip or "an unknown chip"
