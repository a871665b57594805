"""Find the devices and hosts that the others wait for.

All devices of a collective end it together. So a late one waits least in collectives, and its delay is what
the others wait longer. Each wait is between two events of one device, so no clocks are compared.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from inspector.readers.profiles.planes import Ints
from inspector.records.collectives import OPERATIONS, OPS
from inspector.records.snapshot import LateCause, LateDevice

Floats = npt.NDArray[np.float64]

# Less than this share of a run is not a delay.
_LEAST_SHARE = 0.02
# A delay is as many times that of others in all but 10% of the runs: waits are irregular, so some are long.
_SPREADS = 3.0
_USUAL = 0.9  # quantile
_LEAST_OF_OWN = 0.25  # of the usual delay of the same device
_LEAST_RUNS = 3
# The most probable chance for a balanced program to have as many delays of one device.
_CHANCE = 0.05
_MOST_LATE = 8
_MANY = 32  # units, of which one does not change the median
_SHIFTS = (0, 1, -1, 2, -2)  # runs that the profile of one process begins after that of another one
_LEAST_SPREAD = 1e-6  # seconds by which two clocks differ more in one run than in another
# In these, each device waits for all others of its group.
_MEETINGS = frozenset(
    name for name, operation in OPERATIONS.items() if operation.route in ("ring", "all-to-all")
)


@dataclass(frozen=True)
class Recording:
    """The events of a program in its complete runs, one entry each, and the runs of its devices.

    Attributes:
      device: row of `starts`.
      run: column of `starts`.
      place: index in `names`.
      own: seconds that belong to the event alone.
      names: of instructions.
      kinds: of these.
      starts: seconds at which each run begins on each device, on the clock of its process. Infinite if the
        device lacks the run.
      stops: its end.
      hosts: number of the process of each device.
      device_names: of each device.
      host_names: of each process.
      shared_cores: whether the devices of a process share its cores, so that they wait for each other
        without a cause in the program.
    """

    device: Ints
    run: Ints
    place: Ints
    own: Floats
    names: Sequence[str]
    kinds: Sequence[str]
    starts: Floats
    stops: Floats
    hosts: Ints
    device_names: Sequence[str]
    host_names: Sequence[str]
    shared_cores: bool


def late_devices(recording: Recording) -> tuple[LateDevice, ...]:
    """Return the hosts, then the devices of other hosts, that are late too often for chance.

    A device is late in a run if it waits less in collectives than half of the others, by more than 2% of the
    usual run, and by more than three times the delay that others have in one of ten runs. Delays below a
    quarter of its usual one do not count. A host is late if all of its devices are.
    """
    if not any(kind in _MEETINGS for kind in recording.kinds):
        return ()
    tables = _Tables(recording)
    hosts = sorted(set(recording.hosts.tolist()))
    late: list[LateDevice] = []
    late_hosts: set[int] = set()
    if len(hosts) > 1:
        for place, delays in _late(np.searchsorted(hosts, recording.hosts), tables):
            late_hosts.add(hosts[place])
            rows = recording.hosts == hosts[place]
            late.append(tables.described(recording.host_names[hosts[place]], "host", rows, delays))
    if not recording.shared_cores and len(hosts) < len(recording.hosts):
        rows = np.arange(len(recording.hosts))
        for place, delays in _late(rows, tables):
            if recording.hosts[place] not in late_hosts:
                name = recording.device_names[place]
                late.append(tables.described(name, "device", rows == place, delays))
    return tuple(sorted(late, key=lambda device: -device.runs * device.seconds)[:_MOST_LATE])


class _Tables:
    """Seconds by device and run. Not a number if a device lacks a run."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        shape = len(recording.hosts), recording.starts.shape[1]
        shifts = _shifts(recording)
        self._run = recording.run + shifts[recording.device]
        inside = (self._run >= 0) & (self._run < shape[1])
        self._device, self._place = recording.device[inside], recording.place[inside]
        self._run, self._own = self._run[inside], recording.own[inside]
        starts, stops = (_shifted(table, shifts) for table in (recording.starts, recording.stops))
        self._meets = np.array([kind in _MEETINGS for kind in recording.kinds])
        meets = self._meets[self._place]
        self.step = float(np.nanmedian(stops - starts))
        self.waits = np.where(np.isfinite(starts), self._by_run(meets, shape), np.nan)
        self._idle = stops - starts - self._by_run(np.ones(len(meets), bool), shape)
        self._pauses = np.full(shape, np.nan)
        self._pauses[:, 1:] = starts[:, 1:] - stops[:, :-1]

    def _by_run(self, chosen: npt.NDArray[np.bool_], shape: tuple[int, int]) -> Floats:
        return table(self._device[chosen], self._run[chosen], self._own[chosen], *shape)

    def described(
        self, name: str, kind: Literal["device", "host"], rows: npt.NDArray[np.bool_], delays: Floats
    ) -> LateDevice:
        """Return the record of a late device.

        Args:
          rows: whether a device is the late one, or of the late host.
          delays: seconds of each run, 0 if it is not late.
        """
        runs = delays > 0
        delay = float(np.median(delays[runs]))
        excess = self._excess(rows, runs)
        waited = np.where(self._meets, -excess, -np.inf)
        computes = np.array([kind not in OPS for kind in self._recording.kinds])
        longest = int(np.argmax(np.where(computes, excess, -np.inf)))
        causes: dict[LateCause, float] = {
            "pause": _more(self._pauses, rows, runs),
            "idle": _more(self._idle, rows, runs),
            "computation": float(excess[computes].sum()),
        }
        largest = max(causes, key=lambda part: causes[part])
        cause = largest if causes[largest] >= delay / 2 else None
        is_one = cause == "computation" and excess[longest] >= delay / 2
        return LateDevice(
            name,
            kind,
            runs=int(runs.sum()),
            of=int(np.isfinite(self.waits).all(axis=0).sum()),
            seconds=delay,
            collective=self._recording.names[int(np.argmax(waited))],
            cause=cause,
            operation=self._recording.names[longest] if is_one else None,
        )

    def _excess(self, rows: npt.NDArray[np.bool_], runs: npt.NDArray[np.bool_]) -> Floats:
        """Return the mean seconds by which each instruction takes longer than on other devices."""
        chosen = runs[self._run]
        names, devices = len(self._recording.names), len(rows)
        sums = table(self._place[chosen], self._device[chosen], self._own[chosen], names, devices)
        more: Floats = (np.median(sums[:, rows], axis=1) - np.median(sums[:, ~rows], axis=1)) / runs.sum()
        return more


def table(row: Ints, column: Ints, value: Ints | Floats, rows: int, columns: int) -> Floats:
    """Return the sums of values by row and column."""
    sums = np.bincount(row * columns + column, value.astype(np.float64), minlength=rows * columns)
    return sums.reshape(rows, columns).astype(np.float64)


def _late(units: Ints, tables: _Tables) -> Iterator[tuple[int, Floats]]:
    """Yield each late unit with its delay in each run, 0 if it is not late there.

    Args:
      units: the unit of each device, from 0: its host, or itself.
    """
    count = int(units.max()) + 1
    own = np.full((count, tables.waits.shape[1]), -np.inf)
    np.maximum.at(own, units, tables.waits)
    if count > _MANY:
        others = np.median(tables.waits, axis=0)
    else:
        others = np.stack([np.median(tables.waits[units != unit], axis=0) for unit in range(count)])
    delays = np.maximum(np.nan_to_num(others - own, nan=0.0), 0.0)
    usual = np.quantile(delays, _USUAL, axis=1)
    for unit in range(count):
        least = max(_LEAST_SHARE * tables.step, _SPREADS * float(np.median(np.delete(usual, unit))))
        delays[unit, delays[unit] <= least] = 0.0
        if (total := delays[unit].sum()) > 0:
            # Half of all that it delays is in runs with this delay or a longer one.
            ordered = np.sort(delays[unit])
            own_usual = ordered[np.searchsorted(np.cumsum(ordered), total / 2)]
            delays[unit, delays[unit] < _LEAST_OF_OWN * own_usual] = 0.0
    times = (delays > 0).sum(axis=1)
    for unit in np.flatnonzero(times >= _LEAST_RUNS).tolist():
        if count * _chance(int(times[unit]), int(times.sum()), count) <= _CHANCE:
            yield unit, delays[unit]


def _chance(times: int, total: int, units: int) -> float:
    """Return the chance that one unit has at least as many of all delays, if each is of a random unit."""
    share = 1 / units
    logarithm = math.lgamma(total + 1) - math.lgamma(times + 1) - math.lgamma(total - times + 1)
    term = math.exp(logarithm + times * math.log(share) + (total - times) * math.log(1 - share))
    chance = term
    for number in range(times, total):
        term *= (total - number) / (number + 1) * share / (1 - share)
        chance += term
    return chance


def _more(table: Floats, rows: npt.NDArray[np.bool_], runs: npt.NDArray[np.bool_]) -> float:
    """Return the mean seconds by which a device has more than others; 0 if unknown."""
    more = np.median(table[rows], axis=0) - np.median(table[~rows], axis=0)
    more = more[runs & np.isfinite(more)]
    return float(more.mean()) if more.size else 0.0


def _shifts(recording: Recording) -> Ints:
    """Return the number of runs by which the profile of each device began after that of the first process.

    The ends of runs are those of collectives, so their distances are the same in all processes.
    """
    shifts = np.zeros(len(recording.hosts), np.int64)
    hosts = np.unique(recording.hosts)
    stops = np.where(np.isfinite(recording.stops), recording.stops, np.nan)
    first = stops[recording.hosts == hosts[0]].min(axis=0)
    for host in hosts[1:].tolist():
        rows = recording.hosts == host
        own = stops[rows].min(axis=0)
        spreads = {shift: _spread(first, own, shift) for shift in _SHIFTS}
        most = 2 * min(spreads.values()) + _LEAST_SPREAD
        shifts[rows] = next((shift for shift in _SHIFTS if spreads[shift] <= most), 0)
    return shifts


def _spread(first: Floats, own: Floats, shift: int) -> float:
    """Return the variation of the difference of two clocks if one process begins some runs later."""
    size = len(own) - abs(shift)
    if size < _LEAST_RUNS:
        return math.inf
    differences = first[max(shift, 0) :][:size] - own[max(-shift, 0) :][:size]
    differences = differences[np.isfinite(differences)]
    if differences.size < _LEAST_RUNS:
        return math.inf
    return float(np.abs(differences - np.median(differences)).mean())


def _shifted(table: Floats, shifts: Ints) -> Floats:
    """Return a table whose rows are moved by these numbers of columns. Missing entries are not a number."""
    moved = np.full(table.shape, np.nan)
    for row, shift in enumerate(shifts.tolist()):
        size = table.shape[1] - abs(shift)
        if size > 0:
            moved[row, max(shift, 0) :][:size] = table[row, max(-shift, 0) :][:size]
    return np.where(np.isfinite(moved), moved, np.nan)
