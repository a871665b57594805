"""Sum the events of each program of a profile: its runs, and the time of each of its instructions."""

import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inspector.readers.profiles.events import Device, InstructionEvents, ProgramKey, Recorded
from inspector.readers.profiles.kinds import OTHER, Kinds, rank
from inspector.readers.profiles.late import Floats, Recording, late_devices, table
from inspector.readers.profiles.planes import Ints, rows_by
from inspector.records.snapshot import InstructionTime, LateDevice, OperationTime, Trace
from inspector.records.statistics import statistics
from inspector.text.errors import InvalidInput

_SECONDS = 1e-12  # of a picosecond
_MOST_NUMBERS = 400_000  # seconds by instruction and device in one program; each takes about 10 bytes
_MOST_CELLS = 50_000_000  # of a table of instructions or devices by run; each takes 8 bytes
_RANKS = 3
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Measured:
    """The measured times of one program.

    Attributes:
      trace: the record.
      runs: seconds of each complete run.
    """

    trace: Trace
    runs: tuple[float, ...]


class Times:
    """Sums of the events of one profile.

    Args:
      kinds: of each instruction of `recorded.instructions` the kinds of its program, None without its text.
    """

    def __init__(self, recorded: Recorded, kinds: Sequence[Kinds | None]) -> None:
        assert recorded.events is not None
        self._recorded = recorded
        self._events = _with_ends(recorded, recorded.events, kinds)
        self._kinds = [
            OTHER if own is None else own.kinds.get(name, OTHER)
            for own, (_, name) in zip(kinds, recorded.instructions, strict=True)
        ]
        ranks = np.array([rank(kind) for kind in self._kinds], np.int64)[self._events.instruction]
        # Between its start and its end, an asynchronous operation only waits.
        ranks = np.where(self._events.asynchronous == 1, 1, ranks)
        self._own = _own_seconds(self._events, ranks)
        self._collectives = kinds
        self._kind_names, self._kind_places = np.unique(self._kinds, return_inverse=True)
        self._rows = dict(rows_by(self._events.instruction))

    def of(self, instructions: Iterable[int]) -> Measured:
        """Return the times of the program that has these instructions of `recorded.instructions`."""
        rows = np.sort(np.concatenate([self._rows[number] for number in instructions]))
        events = InstructionEvents(*(column[rows] for column in self._events))
        own = self._own[rows]
        numbers, device = np.unique(events.device, return_inverse=True)
        events = events._replace(device=device)
        devices = [self._recorded.devices[number] for number in numbers.tolist()]
        hosts = np.array([device.host for device in devices], np.int64)
        run = _runs(events, hosts[device])
        complete = _complete(events, run)
        count = int(run.max()) + 1
        _refuse_many(count, len(devices) + len(np.unique(events.instruction)))
        starts, stops = np.full((len(devices), count), np.inf), np.full((len(devices), count), -np.inf)
        np.minimum.at(starts, (device, run), events.start)
        np.maximum.at(stops, (device, run), events.stop)
        starts, stops = starts[:, complete], stops[:, complete]
        ran = np.isfinite(starts)
        runs = _longest(starts, stops, hosts) * _SECONDS
        usual = _usual(runs)
        renumbered = np.where(complete, np.cumsum(complete) - 1, -1)[run]
        kept = renumbered >= 0
        instructions_of = self._instructions(events, own, renumbered, starts, usual)
        trace = Trace(
            len(runs),
            float(runs.sum()),
            self._operations(events, own, kept),
            devices=tuple(map(self._device_name, devices)),
            busy=sum(instruction.own for instruction in instructions_of),
            span=float((stops - starts)[:, usual][ran[:, usual]].mean()) * _SECONDS,
            pause=_pause(starts, stops, hosts),
            instructions=instructions_of,
            late=self._late(events, own, renumbered, starts, stops, devices),
        )
        return Measured(trace, tuple(runs.tolist()))

    def _operations(
        self, events: InstructionEvents, own: Floats, kept: npt.NDArray[np.bool_]
    ) -> tuple[OperationTime, ...]:
        """Return the events and the own seconds of each kind, the longest first."""
        kinds, place = np.unique(self._kind_places[events.instruction], return_inverse=True)
        seconds = np.bincount(place[kept], own[kept], minlength=len(kinds))
        numbers = np.bincount(place[kept & (events.asynchronous == 0)], minlength=len(kinds))
        times = [
            OperationTime(str(self._kind_names[kind]), int(numbers[number]), float(seconds[number]))
            for number, kind in enumerate(kinds.tolist())
            if numbers[number]
        ]
        return tuple(sorted(times, key=lambda time: (-time.seconds, time.kind)))

    def _late(
        self,
        events: InstructionEvents,
        own: Floats,
        run: Ints,
        starts: Floats,
        stops: Floats,
        devices: Sequence[Device],
    ) -> tuple[LateDevice, ...]:
        """Return the devices that the others wait for. Arguments are those of `_instructions`."""
        kinds, place = self._by_name(events)
        kept = run >= 0
        return late_devices(
            Recording(
                events.device[kept],
                run[kept],
                place=place[kept],
                own=own[kept],
                names=tuple(kinds),
                kinds=tuple(kinds.values()),
                starts=starts * _SECONDS,
                stops=stops * _SECONDS,
                hosts=np.array([device.host for device in devices], np.int64),
                device_names=[self._device_name(device) for device in devices],
                host_names=self._recorded.hosts,
                shared_cores=any(device.platform == "cpu" for device in devices),
            )
        )

    def _by_name(self, events: InstructionEvents) -> tuple[dict[str, str], Ints]:
        """Return the kinds of instructions by name, and the place of that of each event among them.

        The same instruction can have several numbers: one for each process.
        """
        numbers, of_event = np.unique(events.instruction, return_inverse=True)
        names = [self._recorded.instructions[number][1] for number in numbers.tolist()]
        kinds = {name: self._kinds[number] for name, number in zip(names, numbers.tolist(), strict=True)}
        places = {name: place for place, name in enumerate(kinds)}
        return kinds, np.array([places[name] for name in names], np.int64)[of_event]

    def _device_name(self, device: Device) -> str:
        if len(self._recorded.hosts) == 1:
            return str(device.ordinal)
        return f"{self._recorded.hosts[device.host]}/{device.ordinal}"

    def _instructions(
        self,
        events: InstructionEvents,
        own: Floats,
        run: Ints,
        starts: Floats,
        usual: npt.NDArray[np.bool_],
    ) -> tuple[InstructionTime, ...]:
        """Return the times of each instruction.

        Args:
          run: the complete run of each event, −1 in an incomplete one.
          starts: of each device and complete run.
          usual: whether a complete run is one of the middle half, by its length.
        """
        devices, runs = starts.shape
        kinds, place = self._by_name(events)
        known = {name: number for number, name in enumerate(kinds)}
        collectives: dict[str, tuple[int, str]] = {}
        for number in np.unique(events.instruction).tolist():
            of_program, name = self._collectives[number], self._recorded.instructions[number][1]
            if of_program is not None and name in of_program.collectives:
                collectives[name] = of_program.collectives[name]
        counted = events.asynchronous == 0
        device = events.device
        events_of = np.bincount(place[counted], minlength=len(known))
        kept = run >= 0
        in_run = kept & counted
        per_run = table(place[in_run], run[in_run], events.duration[in_run], len(known), runs) / (
            np.isfinite(starts).sum() / runs
        )
        pairs = int(np.isfinite(starts[:, usual]).sum())
        chosen = kept & usual[run]
        own_of = np.bincount(place[chosen], own[chosen], minlength=len(known)) / pairs
        elapsed = _elapsed(place, events, chosen, known, collectives)
        ran = np.isfinite(starts)
        executions = _executions(place[in_run], device[in_run] * runs + run[in_run], int(ran.sum()))
        first = _first_starts(place[chosen], device[chosen], run[chosen], events.start[chosen], starts)
        totals: Floats | None = None
        if len(known) * devices <= _MOST_NUMBERS:
            totals = table(place[counted], device[counted], events.duration[counted], len(known), devices)
        times = []
        for name, number in known.items():
            spread = statistics((per_run[number] * _SECONDS).tolist())
            assert spread is not None
            collective = collectives.get(name)
            times.append(
                InstructionTime(
                    name,
                    kinds[name],
                    events=int(events_of[number]),
                    seconds=(spread.median, spread.low, spread.high),
                    own=float(own_of[number]),
                    elapsed=elapsed[name] / pairs * _SECONDS if name in elapsed else None,
                    collective=None if collective is None else collective[0],
                    start=first.get(number),
                    executions=executions.get(number, 0.0),
                    by_device=() if totals is None else tuple((totals[number] * _SECONDS).tolist()),
                )
            )
        return tuple(sorted(times, key=lambda time: (-time.own, -time.seconds[0], time.name)))


def _executions(place: Ints, pair: Ints, pairs: int) -> dict[int, float]:
    """Return how often a run on a device has an event of each instruction.

    A profile can lack an event, so this is the number in more than half of the pairs. If it differs between
    runs, as in a loop whose end depends on data, it is the mean.

    Args:
      pair: the device and the complete run of each event, as one number.
      pairs: number of pairs in which the program ran.
    """
    keys, counts = np.unique(np.stack([place, pair]), axis=1, return_counts=True)
    executions: dict[int, float] = {}
    begins = np.flatnonzero(np.diff(keys[0], prepend=-1))
    for own in np.split(np.arange(len(counts)), begins[1:]) if len(counts) else ():
        numbers, often = np.unique(counts[own], return_counts=True)
        most = int(np.argmax(often))
        number = int(keys[0, own[0]])
        usual = 2 * often[most] > pairs
        executions[number] = float(numbers[most]) if usual else float(counts[own].sum() / pairs)
    return executions


def _first_starts(place: Ints, device: Ints, run: Ints, start: Ints, starts: Floats) -> dict[int, float]:
    """Return the mean seconds from the start of a run to the first event of each instruction."""
    order = np.lexsort((start, run, device, place))
    keys = np.stack([place, device, run])[:, order]
    is_first = np.ones(len(order), bool)
    is_first[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    chosen = order[is_first]
    after = (start[chosen] - starts[device[chosen], run[chosen]]) * _SECONDS
    sums, counts = np.bincount(place[chosen], after), np.bincount(place[chosen])
    return {int(number): float(max(sums[number] / counts[number], 0.0)) for number in np.flatnonzero(counts)}


def _refuse_many(runs: int, rows: int) -> None:
    if runs * rows > _MOST_CELLS:
        raise InvalidInput(
            f"the profile has {runs:,} runs of one program, more than can be summed: profile fewer steps"
        )


def _with_ends(
    recorded: Recorded, events: InstructionEvents, kinds: Sequence[Kinds | None]
) -> InstructionEvents:
    """Return events whose instructions end before others use their results.

    A thread that ends an instruction first begins the next ones, and then records the end. Without the text
    of the program, an instruction ends with its event.
    """
    stop = events.stop.copy()
    later = np.flatnonzero(stop > events.start + events.duration)
    if not later.size:
        return events
    numbers = {instruction: number for number, instruction in enumerate(recorded.instructions)}
    rows_of = dict(rows_by(events.instruction))

    @functools.cache
    def begun(program: ProgramKey, names: frozenset[str]) -> dict[int, Ints]:
        """Return the starts of these instructions on each device, in order."""
        own = [rows_of[number] for name in names if (number := numbers.get((program, name))) is not None]
        rows = np.concatenate(own) if own else np.zeros(0, np.int64)
        return {device: np.sort(events.start[rows[here]]) for device, here in rows_by(events.device[rows])}

    for number, places in rows_by(events.instruction[later]):
        program, name = recorded.instructions[number]
        own, rows = kinds[number], later[places]
        least = events.start[rows] + events.duration[rows]
        if own is None:
            stop[rows] = least
            continue
        starts = begun(program, own.later(name))
        for device, here in rows_by(events.device[rows]):
            if device in starts:
                bounds = np.append(starts[device], _NEVER)[np.searchsorted(starts[device], least[here])]
                stop[rows[here]] = np.minimum(stop[rows[here]], bounds)
    return events._replace(stop=stop)


def _own_seconds(events: InstructionEvents, ranks: Ints) -> Floats:
    """Return the seconds of each event such that no instant of a device counts twice.

    If events overlap on a device, the time belongs to those that compute, in equal parts. If none computes,
    it belongs to collectives, else to the loop, call or conditional around them.
    """
    own = np.zeros(len(events.start))
    for _, rows in rows_by(events.device):
        start, stop, of_device = events.start[rows], events.stop[rows], ranks[rows]
        instants = np.unique(np.concatenate([start, stop]))
        lengths = np.diff(instants).astype(np.float64)
        begin, end = np.searchsorted(instants, start), np.searchsorted(instants, stop)
        free = np.ones(len(lengths), bool)
        for level in range(_RANKS):
            same = of_device == level
            changes = np.bincount(begin[same], minlength=len(instants)) - np.bincount(
                end[same], minlength=len(instants)
            )
            active = np.cumsum(changes)[:-1]
            shares = np.where(free & (active > 0), lengths / np.maximum(active, 1), 0.0)
            before = np.concatenate([[0.0], np.cumsum(shares)])
            own[rows[same]] = (before[end[same]] - before[begin[same]]) * _SECONDS
            free &= active == 0
    return own


def _runs(events: InstructionEvents, host: Ints) -> Ints:
    """Return the number of the run of each event, from 0, in the order of their start in each process.

    Without an id of the run, as on GPUs, a run begins with each event of the instruction that runs first
    among those that run least often.
    """
    runs = np.zeros(len(events.start), np.int64)
    unknown = np.flatnonzero(events.run < 0)
    for _, places in rows_by(events.device[unknown]):
        rows = unknown[places]
        rows = rows[np.argsort(events.start[rows], kind="stable")]
        own, first, count = np.unique(events.instruction[rows], return_index=True, return_counts=True)
        anchor = own[np.lexsort((first, count))[0]]
        runs[rows] = np.maximum(np.cumsum(events.instruction[rows] == anchor) - 1, 0)
    known = np.flatnonzero(events.run >= 0)
    for _, here in rows_by(host[known]):
        rows = known[here]
        ids, places = np.unique(events.run[rows], return_inverse=True)
        starts = np.full(len(ids), _NEVER)
        np.minimum.at(starts, places, events.start[rows])
        order = np.empty(len(ids), np.int64)
        order[np.argsort(starts, kind="stable")] = np.arange(len(ids))
        runs[rows] = order[places]
    return runs


def _complete(events: InstructionEvents, run: Ints) -> npt.NDArray[np.bool_]:
    """Return of each run whether the profile has all of it: it can begin and end in the middle of one.

    A first or last run is incomplete if it lacks instructions or devices of another run.
    """
    count = int(run.max()) + 1
    pairs = np.unique(np.stack([run, events.instruction, events.device]), axis=1)
    sizes = np.bincount(pairs[0], minlength=count)
    complete = np.ones(count, bool)
    for edge in {0, count - 1}:
        others = np.delete(sizes, edge)
        complete[edge] = not others.size or sizes[edge] >= others.max()
    if not complete.any():
        complete[int(np.argmax(sizes))] = True
    return complete


def _longest(starts: Floats, stops: Floats, hosts: Ints) -> Floats:
    """Return the picoseconds of each run, the longest of all processes, whose clocks differ."""
    spans = [
        stops[hosts == host].max(axis=0) - starts[hosts == host].min(axis=0) for host in np.unique(hosts)
    ]
    spans = [np.where(np.isfinite(span), span, 0.0) for span in spans]
    return np.max(spans, axis=0)  # type: ignore[no-any-return]


def _usual(runs: Floats) -> npt.NDArray[np.bool_]:
    """Return of each run whether it is one of the middle half, by its seconds.

    A few long runs would otherwise hide what takes the time of the others.
    """
    usual = np.zeros(len(runs), bool)
    first, last = round(len(runs) / 4), round(3 * len(runs) / 4)
    usual[np.argsort(runs, kind="stable")[first : max(last, first + 1)]] = True
    return usual


def _pause(starts: Floats, stops: Floats, hosts: Ints) -> float | None:
    """Return the median seconds between two runs in the first process; None without two."""
    first = hosts == hosts[0]
    gaps = starts[first].min(axis=0)[1:] - stops[first].max(axis=0)[:-1]
    gaps = np.maximum(gaps[np.isfinite(gaps)], 0.0)
    return float(np.median(gaps)) * _SECONDS if gaps.size else None


def _elapsed(
    place: Ints,
    events: InstructionEvents,
    kept: npt.NDArray[np.bool_],
    numbers: Mapping[str, int],
    collectives: Mapping[str, tuple[int, str]],
) -> dict[str, float]:
    """Return the picoseconds from start to end of each collective, of all executions in complete runs."""
    sums: dict[str, float] = {}
    by_collective: dict[int, dict[str, str]] = defaultdict(dict)
    for name, (collective, role) in collectives.items():
        by_collective[collective][role] = name
    for roles in by_collective.values():
        whole = roles.get("whole")
        if whole is not None:
            rows = kept & (place == numbers[whole])
            sums[whole] = float((events.stop - events.start)[rows].sum(dtype=float))
            continue
        start, done = roles.get("start"), roles.get("done")
        if start is None:
            continue
        of_start = kept & (place == numbers[start])
        beside = of_start & (events.asynchronous == 1)
        if beside.any():
            sums[start] = float(events.duration[beside].sum(dtype=float))
        elif done is not None:
            of_done = kept & (place == numbers[done])
            # Each end belongs to one start, so the sum of the differences needs no pairs.
            if int(of_start.sum()) == int(of_done.sum()):
                sums[start] = max((events.stop[of_done] - events.start[of_start]).sum(dtype=float), 0.0)
    return sums
