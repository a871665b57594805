"""The events of instructions in a profile: on which device, of which program and run, and when.

An event belongs to an instruction only if the profile says so: by the program's id and the instruction's
name. Three forms are known:

* CPU: lines of threads in the plane `/host:CPU`; events have `hlo_op`, `program_id`, `run_id` and
  `device_ordinal`. An instruction that goes on in another thread ends with an event `end: NAME`.
* GPU: lines `Stream …` in the planes `/device:GPU:N`; kernels have `hlo_op` and `program_id`.
* TPU: lines `XLA Ops`, `Async XLA Ops` and `XLA Modules` in the planes `/device:TPU:N`; the metadata of an
  event has `program_id`, and its name is that of the instruction, or its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from inspector.machines import targets
from inspector.readers import limits
from inspector.readers.profiles.planes import Damaged, Events, File, Ints, Plane, check_times, rows_by
from inspector.records.snapshot import Platform
from inspector.text.errors import InvalidInput

METADATA_PLANE, HOST_PLANE = "/host:metadata", "/host:CPU"
_DEVICE = re.compile(r"/device:(TPU|GPU):(\d{1,9})\Z")
# The lines that XProf adds to a plane of a GPU repeat those of streams.
_STREAM = re.compile(r"Stream\b")
_OPS, _ASYNCHRONOUS, _MODULES = "XLA Ops", "Async XLA Ops", "XLA Modules"
_HLO = ("Hlo Proto", "hlo_proto")
_END = "end: "
_TEXT = re.compile(r"%([^\s=]+)\s*=\s")  # the text of an instruction: `%fusion.1 = f32[8] fusion(…)`
_NUMBERED = re.compile(r"(.*)\(([0-9]+)\)\Z")  # a program and its id: `jit_step(14)`
_LONGEST_ID = 20  # digits of 64 bits
_TEXTS = ("hlo_op", "hlo_module")
_DEVICE_TIMES = ("device_offset_ps", "device_duration_ps")
_PYTHON = "python"  # the line of Python calls, usually the longest
# The kind of device in the plane of a TPU, and of a GPU.
_DEVICE_KINDS = ("device_type_string", "gpu_device_name")
# Figures in the plane of a GPU without a kind.
_GPU_FIGURES = ("compute_cap_major", "compute_cap_minor", "core_count", "memory_size", "memory_bandwidth")


class ProgramKey(NamedTuple):
    """A program of one process: ids of several processes have nothing in common.

    Attributes:
      host: index of the file.
      id: None if the events have none.
      name: that of the HLO module, such as jit_step; "" if the events have none.
    """

    host: int
    id: int | None
    name: str


class Device(NamedTuple):
    """A device of one process.

    Attributes:
      host: index of the file.
      platform: cpu, gpu or tpu.
      ordinal: its number in the process.
    """

    host: int
    platform: Platform
    ordinal: int


class InstructionEvents(NamedTuple):
    """The events of instructions, one entry each.

    Attributes:
      device: index in `Recorded.devices`.
      instruction: index in `Recorded.instructions`.
      run: a number that the events of one run of a program on a device have in common; −1 if unknown.
      start: picoseconds, on a clock of the file.
      stop: picoseconds. Later than start + duration if the instruction went on in another thread.
      duration: picoseconds of the event itself.
      asynchronous: whether it is the time from the start to the end of an asynchronous operation, next to the
        events of both.
    """

    device: Ints
    instruction: Ints
    run: Ints
    start: Ints
    stop: Ints
    duration: Ints
    asynchronous: Ints


@dataclass
class Recorded:
    """The contents of the files of one run.

    Attributes:
      hosts: names of the files.
      devices: those that ran an instruction.
      instructions: program and name of each one that ran.
      hlo: the serialized HloProto of each program.
      device_kinds: the kinds of devices that the planes name.
      cut: names of the files of which a part is damaged.
      without_instruction: kernels of GPUs that name no instruction, and all kernels.
    """

    hosts: list[str] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)
    instructions: list[tuple[ProgramKey, str]] = field(default_factory=list)
    hlo: dict[ProgramKey, bytes] = field(default_factory=dict)
    device_kinds: set[str] = field(default_factory=set)
    cut: list[str] = field(default_factory=list)
    without_instruction: tuple[int, int] = (0, 0)
    events: InstructionEvents | None = None


class Collector:
    """Collects the events of all files of one run."""

    def __init__(self) -> None:
        self.recorded = Recorded()
        self._devices: dict[Device, int] = {}
        self._instructions: dict[tuple[ProgramKey, str], int] = {}
        self._parts: list[InstructionEvents] = []
        self._count = 0

    def add(self, file: File) -> None:
        """Add the planes of one file.

        Raises:
          InvalidInput: all files together have too many events.
        """
        host = len(self.recorded.hosts)
        self.recorded.hosts.append(file.what)
        for plane in file.planes:
            try:
                if plane.name == METADATA_PLANE:
                    self._add_programs(host, plane)
                elif plane.name == HOST_PLANE:
                    self._add_cpus(host, plane)
                elif match := _DEVICE.match(plane.name):
                    add = self._add_tpu if match[1] == "TPU" else self._add_gpu
                    add(host, int(match[2]), plane)
            except Damaged:
                file.cut = True
        if file.cut:
            self.recorded.cut.append(file.what)

    def finish(self) -> Recorded:
        """Return everything, with all events in one table."""
        recorded = self.recorded
        recorded.devices = sorted(self._devices)
        recorded.instructions = list(self._instructions)
        if self._parts:
            events = InstructionEvents(*map(np.concatenate, zip(*self._parts, strict=True)))
            places = {device: place for place, device in enumerate(recorded.devices)}
            order = np.array([places[device] for device in self._devices], np.int64)
            recorded.events = events._replace(device=order[events.device])
        return recorded

    def _add_programs(self, host: int, plane: Plane) -> None:
        for key, metadata in plane.metadata.items():
            number, name = _numbered(metadata.name) or (key, metadata.name)
            for stat in _HLO:
                where = metadata.stats.get(stat)
                if isinstance(where, tuple):
                    self.recorded.hlo[ProgramKey(host, number, name)] = plane.file.raw[slice(*where)]

    def _add_cpus(self, host: int, plane: Plane) -> None:
        names = {key: metadata.name for key, metadata in plane.metadata.items()}
        ends = {key: name.removeprefix(_END) for key, name in names.items() if name.startswith(_END)}
        # Of the ends, and of the events with a continuation: what identifies it, and its time.
        ended: list[tuple[Ints, Ints, Ints]] = []
        begun: list[tuple[InstructionEvents, Ints, Ints]] = []
        for line in plane.lines:
            if line.name == _PYTHON:
                continue
            for events in plane.events(line, ("program_id", "run_id", "device_ordinal", "_p", "_c"), _TEXTS):
                known, places = np.unique(events.metadata, return_inverse=True)
                is_end = np.array([key in ends for key in known.tolist()], bool)[places]
                is_end &= events.numbers["_c"] >= 0
                if is_end.any():
                    ended.append(
                        (events.numbers["_c"][is_end], events.start[is_end], events.metadata[is_end])
                    )
                chosen = np.flatnonzero(events.texts["hlo_op"] >= 0)
                if not chosen.size:
                    continue
                ordinals = np.maximum(events.numbers["device_ordinal"][chosen], 0)
                devices = self._device_numbers(host, "cpu", ordinals)
                part = self._part(host, events, chosen, devices, events.numbers["run_id"][chosen])
                begun.append((part, events.numbers["_p"][chosen], events.metadata[chosen]))
        if not begun:
            return
        continued = _continuations(ended, ends, names)
        for part, keys, metadata in begun:
            self._keep(part._replace(stop=np.maximum(part.stop, continued(keys, metadata))))

    def _add_gpu(self, host: int, ordinal: int, plane: Plane) -> None:
        unnamed = total = 0
        device = self._device_numbers(host, "gpu", np.array([ordinal]))
        self._note_kind(plane)
        for line in plane.lines:
            if not _STREAM.match(line.name):
                continue
            for events in plane.events(line, ("program_id", "run_id"), _TEXTS):
                has_name = events.texts["hlo_op"] >= 0
                total, unnamed = total + len(has_name), unnamed + int((~has_name).sum())
                chosen = np.flatnonzero(has_name)
                if chosen.size:
                    devices = np.full(len(chosen), device[0], np.int64)
                    self._keep(self._part(host, events, chosen, devices, events.numbers["run_id"][chosen]))
        before = self.recorded.without_instruction
        self.recorded.without_instruction = (before[0] + unnamed, before[1] + total)

    def _add_tpu(self, host: int, ordinal: int, plane: Plane) -> None:
        device = self._device_numbers(host, "tpu", np.array([ordinal]))
        self._note_kind(plane)
        modules = _Modules(plane)
        for line in plane.lines:
            if line.name not in (_OPS, _ASYNCHRONOUS):
                continue
            for events in plane.events(line, _DEVICE_TIMES):
                start, duration = _device_times(events)
                place = modules.around(start)
                count = len(start)
                self._keep(
                    InstructionEvents(
                        np.full(count, device[0], np.int64),
                        self._tpu_instructions(host, plane, events, modules, place),
                        run=modules.runs(place),
                        start=start,
                        stop=start + duration,
                        duration=duration,
                        asynchronous=np.full(count, line.name == _ASYNCHRONOUS, np.int64),
                    )
                )

    def _tpu_instructions(
        self, host: int, plane: Plane, events: Events, modules: _Modules, place: Ints
    ) -> Ints:
        """Return the numbers of the instructions of events. The module around one names a program, too."""
        numbers = np.zeros(len(place), np.int64)
        for key, rows in rows_by(events.metadata):
            metadata = plane.metadata.get(key)
            if metadata is None:
                raise Damaged
            text = _TEXT.match(metadata.name)
            name = text[1] if text else metadata.name
            program = metadata.stats.get("program_id")
            if isinstance(program, int):
                own = ProgramKey(host, program, modules.names.get(program, ""))
                numbers[rows] = self._instruction_number(own, name)
                continue
            for module, inside in rows_by(place[rows]):
                own = ProgramKey(host, None, "") if module < 0 else modules.key(host, module)
                numbers[rows[inside]] = self._instruction_number(own, name)
        return numbers

    def _part(self, host: int, events: Events, chosen: Ints, device: Ints, run: Ints) -> InstructionEvents:
        """Return events of CPUs or GPUs, whose statistics name program and instruction."""
        program, module, name = (
            column[chosen]
            for column in (events.numbers["program_id"], events.texts["hlo_module"], events.texts["hlo_op"])
        )
        triples, places = np.unique(np.stack([program, module, name]), axis=1, return_inverse=True)
        numbers = [
            self._instruction_number(
                ProgramKey(
                    host,
                    None if number < 0 else number,
                    "" if of_module < 0 else events.strings[of_module],
                ),
                events.strings[of_name],
            )
            for number, of_module, of_name in triples.T.tolist()
        ]
        start, duration = events.start[chosen], events.duration[chosen]
        return InstructionEvents(
            device,
            np.array(numbers, np.int64)[places.reshape(-1)],
            run=run,
            start=start,
            stop=start + duration,
            duration=duration,
            asynchronous=np.zeros(len(chosen), np.int64),
        )

    def _device_numbers(self, host: int, platform: Platform, ordinals: Ints) -> Ints:
        known, places = np.unique(ordinals, return_inverse=True)
        numbers = [
            self._devices.setdefault(Device(host, platform, ordinal), len(self._devices))
            for ordinal in known.tolist()
        ]
        return np.array(numbers, np.int64)[places]

    def _instruction_number(self, program: ProgramKey, name: str) -> int:
        return self._instructions.setdefault((program, name), len(self._instructions))

    def _note_kind(self, plane: Plane) -> None:
        for name in _DEVICE_KINDS:
            kind = plane.stats.get(name)
            if isinstance(kind, str) and kind:
                self.recorded.device_kinds.add(kind)
                return
        figures = [value for name in _GPU_FIGURES if isinstance(value := plane.stats.get(name), int)]
        chip = targets.gpu_with(*figures) if len(figures) == len(_GPU_FIGURES) else None
        if chip is not None:
            self.recorded.device_kinds.add(chip.device_kind)

    def _keep(self, part: InstructionEvents) -> None:
        self._count += len(part.start)
        if self._count > limits.MOST_EVENTS:
            raise InvalidInput(
                f"the profile has more than {limits.MOST_EVENTS:,} events of instructions, the most that are "
                "read: profile fewer steps, or give the files of fewer hosts"
            )
        self._parts.append(part)


class _Modules:
    """The runs of programs on one TPU.

    Attributes:
      names: names of programs by id.
    """

    def __init__(self, plane: Plane) -> None:
        starts, stops, runs = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        programs: list[tuple[int | None, str]] = []
        for line in plane.lines:
            if line.name != _MODULES:
                continue
            for events in plane.events(line, (*_DEVICE_TIMES, "run_id")):
                start, duration = _device_times(events)
                starts.append(start)
                stops.append(start + duration)
                runs.append(events.numbers["run_id"])
                programs += [self._program(plane, key) for key in events.metadata.tolist()]
        start = np.concatenate(starts)
        order = np.argsort(start, kind="stable")
        self._start, self._stop = start[order], np.concatenate(stops)[order]
        run = np.concatenate(runs)[order]
        run = np.arange(len(run)) if (run < 0).any() else run
        self._run = np.append(run, -1)  # the last one is that of events outside of all
        self._programs = [programs[place] for place in order.tolist()]
        self.names = {number: name for number, name in programs if number is not None}

    def around(self, instants: Ints) -> Ints:
        """Return the place of the run around each instant, −1 for an instant outside of all."""
        if not len(self._start):
            return np.full(len(instants), -1, np.int64)
        place = np.searchsorted(self._start, instants, side="right") - 1
        inside = (place >= 0) & (instants < self._stop[place])
        return np.where(inside, place, -1)

    def runs(self, place: Ints) -> Ints:
        """Return the run at each place, −1 for −1."""
        return self._run[place]

    def key(self, host: int, place: int) -> ProgramKey:
        """Return the program of a run."""
        return ProgramKey(host, *self._programs[place])

    @staticmethod
    def _program(plane: Plane, key: int) -> tuple[int | None, str]:
        metadata = plane.metadata.get(key)
        if metadata is None:
            return None, ""
        if (numbered := _numbered(metadata.name)) is not None:
            return numbered
        number = metadata.stats.get("program_id")
        return (number if isinstance(number, int) else None), metadata.name


def _numbered(name: str) -> tuple[int, str] | None:
    """Return the id and the name of a program that are written together; None if they are not."""
    match = _NUMBERED.match(name)
    if match and len(match[2]) > _LONGEST_ID:
        raise Damaged
    return (int(match[2]), match[1]) if match else None


def _device_times(events: Events) -> tuple[Ints, Ints]:
    """Return start and duration in picoseconds, as the device counted them if it did."""
    offset, duration = (events.numbers[name] for name in _DEVICE_TIMES)
    counted = (offset >= 0) & (duration >= 0)
    check_times(offset[counted], duration[counted])
    return np.where(counted, offset, events.start), np.where(counted, duration, events.duration)


def _continuations(
    ended: list[tuple[Ints, Ints, Ints]], ends: dict[int, str], names: dict[int, str]
) -> Callable[[Ints, Ints], Ints]:
    """Return a function from keys and metadata of events to the time when each one went on to, or 0.

    Args:
      ended: keys, times and metadata of the ends.
      ends: names of the instructions that the metadata of ends is about.
      names: names of the metadata of all events.
    """
    if not ended:
        return lambda keys, metadata: np.zeros(len(keys), np.int64)
    keys, times, metadata = (np.concatenate(column) for column in zip(*ended, strict=True))
    order = np.argsort(keys, kind="stable")
    keys, times, metadata = keys[order], times[order], metadata[order]
    numbers = {name: number for number, name in enumerate(ends.values())}

    def instruction(of: Ints, table: dict[int, str]) -> Ints:
        known, places = np.unique(of, return_inverse=True)
        return np.array([numbers.get(table.get(key, ""), -2) for key in known.tolist()], np.int64)[places]

    ended_instruction = instruction(metadata, ends)

    def continued(wanted: Ints, of: Ints) -> Ints:
        place = np.searchsorted(keys, wanted)
        within = np.minimum(place, len(keys) - 1)
        same = (keys[within] == wanted) & (ended_instruction[within] == instruction(of, names))
        return np.where(same & (wanted >= 0), times[within], 0)

    return continued
