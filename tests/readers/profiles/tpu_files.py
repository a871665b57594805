"""Profiles in the documented form of TPUs, written by hand: no real one is at hand.

Planes `/device:TPU:N` have the lines Steps, XLA Modules, XLA Ops and Async XLA Ops. The metadata of an
operation has its text as its name, and the statistics hlo_category, program_id, flops, bytes_accessed, tf_op
and source.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
from jaxlib import _hlo

PROGRAM = 77
US = 1_000_000  # picoseconds of a microsecond

# A loop of two iterations over a product, and an asynchronous all-reduce, of which a sine hides a part.
TEXT = """HloModule jit_step, is_scheduled=true, num_partitions=4

add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }

body {
  state = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[8,8] get-tuple-element(state), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  product.1 = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT both = (s32[], f32[8,8]) tuple(next, product.1)
}

condition {
  state.2 = (s32[], f32[8,8]) parameter(0)
  i.2 = s32[] get-tuple-element(state.2), index=0
  two = s32[] constant(2)
  ROOT less = pred[] compare(i.2, two), direction=LT
}

ENTRY main {
  p = f32[8,8] parameter(0), sharding={devices=[4,1]<=[4]}
  zero = s32[] constant(0)
  first = (s32[], f32[8,8]) tuple(zero, p)
  loop.3 = (s32[], f32[8,8]) while(first), condition=condition, body=body
  y = f32[8,8] get-tuple-element(loop.3), index=1
  all-reduce-start.4 = f32[8,8] all-reduce-start(y), channel_id=1, replica_groups={{0,1,2,3}},
    use_global_device_ids=true, to_apply=add
  sine.5 = f32[8,8] sine(p)
  all-reduce-done.4 = f32[8,8] all-reduce-done(all-reduce-start.4)
  ROOT sum.6 = f32[8,8] add(all-reduce-done.4, sine.5)
}
"""

CATEGORIES = {
    "product.1": "convolution",
    "loop.3": "while",
    "all-reduce-start.4": "all-reduce-start",
    "all-reduce-done.4": "all-reduce-done",
    "sine.5": "non-fusion elementwise",
    "sum.6": "non-fusion elementwise",
}


@dataclass
class Operation:
    """An event on a line of operations, in microseconds after the start of the run."""

    name: str
    start: int
    microseconds: int
    program: int | None = PROGRAM


@dataclass
class Run:
    """A run of a program on one device, in microseconds."""

    start: int
    microseconds: int
    operations: Sequence[Operation]
    asynchronous: Sequence[Operation] = ()
    id: int | None = None
    program: str = f"jit_step({PROGRAM})"


def usual_run(start: int, late: int = 0, id: int | None = None) -> Run:
    """Return a run of `TEXT`: the all-reduce takes 60 µs, and the sine hides 20. `late` makes it wait."""
    return Run(
        start,
        240 + late,
        [
            Operation("loop.3", 0, 120),
            Operation("product.1", 2, 55),
            Operation("product.1", 60, 57),
            Operation("all-reduce-start.4", 121, 1),
            Operation("sine.5", 125, 20),
            Operation("all-reduce-done.4", 146, 36 + late),
            Operation("sum.6", 200 + late, 40),
        ],
        [Operation("all-reduce-start.4", 121, 61 + late)],
        id,
    )


@dataclass
class Profile:
    """A file of one host: the runs of each device by its number.

    Attributes:
      module_line: whether the planes have the line of programs.
      hlo: HLO texts by program and id, such as `jit_step(77)`.
    """

    runs: dict[int, Sequence[Run]]
    hlo: dict[str, str] = field(default_factory=lambda: {f"jit_step({PROGRAM})": TEXT})
    kind: str = "TPU v5e"
    module_line: bool = True
    program_of_operations: bool = True

    def write(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.serialized())
        return path

    def serialized(self) -> bytes:
        planes = [self._metadata(), *(self._device(number, runs) for number, runs in self.runs.items())]
        return jax.profiler.ProfileData.text_proto_to_serialized_xspace("\n".join(planes))

    def _metadata(self) -> str:
        programs = []
        for name, text in self.hlo.items():
            number = name.partition("(")[2].removesuffix(")")
            module = proto_of(text)
            proto = b"\x0a" + _varint(len(module)) + module  # an HloProto, whose first field is the module
            escaped = "".join(f"\\{byte:03o}" for byte in proto)
            programs.append(
                f'event_metadata {{ key: {number} value {{ id: {number} name: "{name}" '
                f'stats {{ metadata_id: 1 bytes_value: "{escaped}" }} }} }}'
            )
        stat = 'stat_metadata { key: 1 value { id: 1 name: "hlo_proto" } }'
        return f'planes {{ id: 100 name: "/host:metadata" {stat} {" ".join(programs)} }}'

    def _device(self, number: int, runs: Sequence[Run]) -> str:
        table = _Table()
        modules, steps, operations, asynchronous = [], [], [], []
        for place, run in enumerate(runs):
            span = run.start * US, run.microseconds * US
            known = {} if run.id is None else {"run_id": run.id}
            modules.append(table.event(run.program, {}, *span, known))
            steps.append(table.event(str(place), {}, *span, {"group_id": place}))
            for line, listed in ((operations, run.operations), (asynchronous, run.asynchronous)):
                line += [self._operation(table, run, operation) for operation in listed]
        lines = {"Steps": steps, "XLA Ops": operations, "Async XLA Ops": asynchronous}
        if self.module_line:
            lines["XLA Modules"] = modules
        written = [
            f'lines {{ id: {place} name: "{name}" timestamp_ns: 1000 {" ".join(events)} }}'
            for place, (name, events) in enumerate(lines.items())
        ]
        stats = [table.stat("device_type_string", self.kind), table.stat("peak_teraflops_per_second", 197.0)]
        return (
            f'planes {{ id: {number + 1} name: "/device:TPU:{number}" {" ".join(written)} {" ".join(stats)} '
            f"{table} }}"
        )

    def _operation(self, table: _Table, run: Run, operation: Operation) -> str:
        text = f"%{operation.name} = f32[8,8]{{1,0}} any(f32[8,8]{{1,0}} %p)"
        stats: dict[str, Any] = {
            "hlo_category": CATEGORIES.get(operation.name, "data formatting"),
            "flops": 1024,
            "bytes_accessed": 512,
            "tf_op": "jit(step)/dot_general",
            "source": "step.py:3",
            "symbol_id": list(CATEGORIES).index(operation.name) + 1 if operation.name in CATEGORIES else 99,
        }
        if self.program_of_operations and operation.program is not None:
            stats["program_id"] = operation.program
        span = (run.start + operation.start) * US, operation.microseconds * US
        return table.event(text, stats, *span, {})


class _Table:
    """The metadata of a plane, as text."""

    def __init__(self) -> None:
        self._stats: dict[str, int] = {}
        self._events: dict[str, tuple[int, str, dict[str, Any]]] = {}

    def stat(self, name: str, value: Any) -> str:
        number = self._stats.setdefault(name, len(self._stats) + 1)
        kind = {float: "double_value", str: "str_value"}.get(type(value), "uint64_value")
        return f"stats {{ metadata_id: {number} {kind}: {json.dumps(value)} }}"

    def event(self, name: str, stats: dict[str, Any], start: int, length: int, own: dict[str, Any]) -> str:
        key = json.dumps([name, stats])
        number, *_ = self._events.setdefault(key, (len(self._events) + 1, name, stats))
        counted = {"device_offset_ps": start, "device_duration_ps": length, **own}
        written = " ".join(self.stat(*item) for item in counted.items())
        return f"events {{ metadata_id: {number} offset_ps: {start} duration_ps: {length} {written} }}"

    def __str__(self) -> str:
        events = [
            f"event_metadata {{ key: {number} value {{ id: {number} name: {json.dumps(name)} "
            f"{_display(name)} {' '.join(self.stat(*item) for item in stats.items())} }} }}"
            for number, name, stats in self._events.values()
        ]
        stats = [
            f'stat_metadata {{ key: {number} value {{ id: {number} name: "{name}" }} }}'
            for name, number in self._stats.items()
        ]
        return " ".join([*events, *stats])


def _display(name: str) -> str:
    return f'display_name: "{name[1:].partition(" ")[0]}"' if name.startswith("%") else ""


def proto_of(text: str) -> bytes:
    """Return a serialized module with a device assignment, as the profiler writes it."""
    module: bytes = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    partitions = int(text.partition("num_partitions=")[2].split()[0].rstrip(","))
    devices = b"".join(b"\x1a\x03\x0a\x01" + bytes([number]) for number in range(partitions))
    assignment = b"\x08\x01\x10" + bytes([partitions]) + devices
    return module + b"\x7a" + bytes([len(assignment)]) + assignment


def printed(text: str) -> str:
    """Return a text as XLA prints it."""
    header, rest = _hlo.hlo_module_from_text(text).to_string().split("\n", 1)
    count = text.partition("num_partitions=")[2].split()[0]
    return f"{header.partition(', num_partitions')[0]}, num_partitions={count}\n{rest}"


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    return bytes([*written, value])


def usual(devices: Iterable[int] = range(4), runs: int = 3, **options: Any) -> Profile:
    """Return a profile of some runs of `TEXT`, one of which is late on the last device."""
    numbers = list(devices)
    return Profile(
        {
            number: [
                usual_run(1000 * run, 30 * (run == 1 and number == numbers[-1]), 500 + run)
                for run in range(runs)
            ]
            for number in numbers
        },
        **options,
    )
