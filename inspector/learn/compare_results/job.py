"""The worker job that compares one program, sharded and on one device."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.mlir import ir
from jax.extend.sharding import GSPMDSharding

from inspector.learn.compare_results import differences, modules
from inspector.learn.compare_results.differences import Difference, difference
from inspector.learn.compare_results.modules import ResultMatch
from inspector.recording.for_target import compile_module
from inspector.records import typed_json
from inspector.records.job_report import JobReport
from inspector.records.same_results import ComparedProgram, ComparedValue, FirstOperation, UnequalReplicas
from inspector.text.errors import InvalidInput
from inspector.text.printable import one_line
from inspector.tracing.mlir import walk

_MOST_ERROR = 400  # characters


@dataclass(frozen=True)
class ResultValue:
    """A result of a program.

    Attributes:
      shape: the global shape.
      parts: what each device holds, in the order of the program's devices.
      indices: which part of the whole array that is.
    """

    shape: tuple[int, ...]
    parts: tuple[Any, ...]
    indices: tuple[tuple[slice, ...], ...]

    def whole(self) -> np.ndarray:
        """Return the array with its global shape. Of several replicas, it has the first, as JAX does."""
        if self.parts[0].shape == self.shape:
            return self.parts[0]
        whole = np.empty(self.shape, self.parts[0].dtype)
        for part, index in reversed(list(zip(self.parts, self.indices, strict=True))):
            whole[index] = part
        return whole

    def unequal_replicas(self) -> UnequalReplicas | None:
        """Return the replicas that differ most, None if all replicas are equal."""
        first: dict[str, int] = {}
        worst: tuple[float, int, int, Any] | None = None
        groups = set()
        for place, (part, index) in enumerate(zip(self.parts, self.indices, strict=True)):
            key = str(index)
            before = first.setdefault(key, place)
            if before == place:
                continue
            measured = difference(self.parts[before], part)
            if measured.index is None:
                continue
            groups.add(key)
            if worst is None or measured.relative > worst[0]:
                worst = measured.relative, before, place, measured
        if worst is None:
            return None
        _, before, place, measured = worst
        starts = [piece.start or 0 for piece in self.indices[place]]
        inside = zip(starts, measured.index, strict=True)
        element = tuple(start + offset for start, offset in inside)
        return UnequalReplicas((before, place), element, measured.values, len(groups))


class Executable:
    """A compiled module that takes whole arrays.

    Raises:
      InvalidInput: the compiler fails.
    """

    def __init__(self, module: ir.Module, settings: dict[str, Any]) -> None:
        devices = jax.devices()
        self._module, self._settings = module, settings
        self._devices = tuple(devices[place] for place in settings["devices"])
        results = walk.function_type(walk.main_function(module.operation)).results
        self._shapes = [tuple(ir.RankedTensorType(result).shape) for result in results]
        with _errors("the compiler fails"):
            self._executable = compile_module(walk.of_module(module), list(self._devices), settings)
        self._inputs = self._executable.get_parameter_shardings()
        self._outputs = self._executable.get_output_shardings()

    def with_rounded_sums(self, sign: int) -> Executable:
        """Return the same program with rounding errors in its sums, as `modules.with_rounded_sums`."""
        return Executable(modules.with_rounded_sums(self._module, sign), self._settings)

    def __call__(self, arguments: Sequence[Any]) -> list[ResultValue]:
        """Return the results for whole NumPy arrays.

        Raises:
          InvalidInput: the program fails.
        """
        with _errors("it fails"):
            placed = [
                jax.make_array_from_callback(
                    value.shape, self._sharding(self._inputs, place), value.__getitem__
                )
                for place, value in enumerate(arguments)
            ]
            parts = self._executable.execute_sharded(placed).disassemble_into_single_device_arrays()
            return [
                self._value(shape, place, pieces)
                for place, (shape, pieces) in enumerate(zip(self._shapes, parts, strict=True))
            ]

    def _sharding(self, shardings: Sequence[Any] | None, place: int) -> jax.sharding.Sharding:
        if shardings is None:
            if len(self._devices) > 1:
                return GSPMDSharding.get_replicated(self._devices)
            return jax.sharding.SingleDeviceSharding(self._devices[0])
        return GSPMDSharding(self._devices, shardings[place])

    def _value(self, shape: tuple[int, ...], place: int, pieces: Sequence[Any]) -> ResultValue:
        indices = self._sharding(self._outputs, place).devices_indices_map(shape)
        by_device = {piece.device: np.asarray(piece) for piece in pieces}
        return ResultValue(
            shape,
            tuple(by_device[device] for device in self._devices),
            tuple(indices[device] for device in self._devices),
        )


@contextmanager
def _errors(what: str) -> Iterator[None]:
    """Turn an error of XLA into an `InvalidInput`."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError, NotImplementedError) as error:
        message = one_line(str(error)).strip()[:_MOST_ERROR]
        raise InvalidInput(f"{what}: {message}") from None


_MOST_VALUES = 2000  # intermediate values of one program that are compared
_VALUES_AT_ONCE = 64  # a module with them is compiled once
_BYTES_AT_ONCE = 256 * 2**20  # of these values, on one device
_DRAWS = 4  # of rounding errors in the arguments
_Differing = tuple[ResultMatch, ComparedValue]


def compare_results(payload: dict[str, Any], report: JobReport) -> dict[str, Any]:
    """Worker job: return the `ComparedProgram` of one program as JSON.

    The payload has the `name` and the stems of the files that the recorder wrote: `sharded`, of the program
    with its mesh, and `single`, of the same program with meshes of one device. If `single` is None for a
    `reason`, only replicas are compared.

    Raises:
      InvalidInput: the program cannot be compiled or run, or its arguments have other types on one device.
    """
    with jax.enable_x64(True):  # the program can have 64-bit types
        if payload["single"] is None:
            return typed_json.encode(_with_unequal_replicas(payload, report))
        return typed_json.encode(_compared(payload, report))


@dataclass(frozen=True)
class _Written:
    """The records of one program."""

    record: dict[str, Any]
    module: ir.Module
    arguments: list[Any]

    @classmethod
    def read(cls, stem: str) -> _Written:
        record = json.loads(Path(f"{stem}.json").read_text(encoding="utf-8"))
        module = modules.prepared(Path(f"{stem}.mlirbc").read_bytes())
        values = Path(f"{stem}.values")
        content = values.read_bytes() if values.exists() else b""
        arguments, start = [], 0
        for entry in record["values"]:
            dtype = jnp.dtype(entry["dtype"])
            count = math.prod(entry["shape"])
            value = np.frombuffer(content, dtype, count, start).reshape(entry["shape"])
            start += count * dtype.itemsize
            arguments.append(value)
        return cls(record, module, arguments)


@dataclass(frozen=True)
class _Tolerance:
    """The least tolerance of a program, and its floating-point types, as MLIR names them."""

    constant: float
    kinds: list[str]


def _compared(payload: dict[str, Any], report: JobReport) -> ComparedProgram:
    report("read")
    sharded, single = _Written.read(payload["sharded"]), _Written.read(payload["single"])
    kinds = modules.float_kinds(single.module)
    tolerance = _Tolerance(differences.tolerance(kinds, modules.longest_sum(single.module)), kinds)
    report("compile")
    executables = (
        Executable(sharded.module, sharded.record["settings"]),
        Executable(single.module, single.record["settings"]),
    )
    report("run")
    values = tuple(_values(executables, sharded.arguments, tolerance, sharded.record["results"]))
    differing = [place for place, value in enumerate(values) if value.differs]
    if differing:
        report("find the first operation that differs")
        found, unknown = _first_operation(sharded, single, tolerance, differing)
    else:
        found, unknown = _first_shard_map(sharded, single, tolerance, len(values)), None
    first = None if found is None else _named(*found)
    if found and found[0].computes_blocks and not any(value.unequal for value in (*values, found[1])):
        where = f" at {first.source}" if first and first.source else ""
        raise InvalidInput(
            f"each device computes with its own block in the shard_map{where}, and one device has no blocks"
        )
    return ComparedProgram(
        payload["name"],
        sharded.record["source"],
        devices=sharded.record["devices"],
        results=len(values),
        values=tuple(sorted(values, key=_severity, reverse=True)),
        first=first,
        first_unknown=unknown,
    )


def _with_unequal_replicas(payload: dict[str, Any], report: JobReport) -> ComparedProgram:
    """Return a program that cannot be compared, with the results whose replicas differ."""
    report("run")
    sharded = _Written.read(payload["sharded"])
    results = Executable(sharded.module, sharded.record["settings"])(sharded.arguments)
    paths = sharded.record["results"]
    values = [_compared_value(path, value, None, 0.0) for path, value in zip(paths, results, strict=True)]
    return ComparedProgram(
        payload["name"],
        sharded.record["source"],
        sharded.record["devices"],
        len(values),
        tuple(value for value in values if value.differs),
        reason=payload["reason"],
    )


def _values(
    executables: tuple[Executable, Executable],
    arguments: Sequence[Any],
    tolerance: _Tolerance,
    paths: Sequence[str],
    skipped: int = 0,
) -> Iterator[ComparedValue]:
    """Yield the comparison of each result from number `skipped` on."""
    sharded, single = executables
    theirs = single(arguments)[skipped:]
    ours = sharded(arguments)[skipped : skipped + len(theirs)] if skipped else sharded(arguments)
    if [value.shape for value in ours] != [value.shape for value in theirs]:
        raise InvalidInput("its results have other shapes on one device")
    changes: list[list[Difference]] = []  # of each draw and result
    for place, (value, other) in enumerate(zip(ours, theirs, strict=True)):
        path = paths[place] if place < len(paths) else str(place)
        # Integers, booleans and keys are exact.
        limit = tolerance.constant if jnp.issubdtype(value.parts[0].dtype, jnp.inexact) else 0.0
        compared = _compared_value(path, value, other, limit)
        if compared.differs and compared.unequal is None:
            if not changes:
                # The errors of two sums can cancel if their signs are equal, or if they are not.
                inexact = [single.with_rounded_sums(sign) for sign in (-1, 1)]
                for seed in range(_DRAWS):
                    rounded = inexact[seed % 2](differences.rounded(arguments, tolerance.kinds, seed))[
                        skipped:
                    ]
                    pairs = zip(rounded, theirs, strict=True)
                    changes.append([difference(changed.whole(), own.whole()) for changed, own in pairs])
            scale = difference(value.whole(), other.whole()).scale
            larger = differences.with_sensitivity(limit, [draw[place] for draw in changes], scale)
            if limit < larger < math.inf:
                compared = _compared_value(path, value, other, larger)
        yield compared


def _compared_value(path: str, value: ResultValue, other: ResultValue | None, limit: float) -> ComparedValue:
    """Return the comparison of a value with that of one device, or only of its replicas without it."""
    whole = value.whole()
    measured = differences.EQUAL if other is None else difference(whole, other.whole())
    unequal = value.unequal_replicas()
    return ComparedValue(
        path,
        whole.dtype.name,
        shape=value.shape,
        difference=measured.relative if math.isfinite(measured.relative) else None,
        tolerance=limit,
        index=measured.index,
        values=measured.values,
        factor=measured.factor,
        unequal=unequal,
        differs=measured.relative > limit or unequal is not None,
    )


def _first_operation(
    sharded: _Written, single: _Written, tolerance: _Tolerance, differing: Sequence[int]
) -> tuple[_Differing | None, str | None]:
    """Return the first operation whose result differs, or the reason why it is unknown."""
    everything = list(modules.candidates(sharded.module, single.module, differing))
    first = _first_of(sharded, single, tolerance, everything)
    if first is not None:
        return first, None
    if len(everything) > _MOST_VALUES:
        return None, f"the first {_MOST_VALUES:,} values before the result agree"
    if not everything:
        return None, "the program on one device has no operation in the same place"
    return None, (
        f"all {len(everything):,} values that both programs compute agree; the program on one device has "
        "other operations or constants, for example because it computes with the number of devices"
    )


def _first_shard_map(
    sharded: _Written, single: _Written, tolerance: _Tolerance, outputs: int
) -> _Differing | None:
    """Return the first `shard_map` whose result differs, None if none does."""
    everything = modules.candidates(sharded.module, single.module, range(outputs), by_order=False)
    mapped = [candidate for candidate in everything if candidate.is_shard_map]
    return _first_of(sharded, single, tolerance, mapped)


def _first_of(
    sharded: _Written, single: _Written, tolerance: _Tolerance, everything: Sequence[ResultMatch]
) -> _Differing | None:
    for group in _groups(everything[:_MOST_VALUES]):
        values = _intermediate_values(sharded, single, tolerance, group)
        for candidate, value in zip(group, values, strict=True):
            if value.differs:
                return candidate, value
    return None


def _groups(everything: Sequence[ResultMatch]) -> Iterator[list[ResultMatch]]:
    group: list[ResultMatch] = []
    size = 0
    for candidate in everything:
        full = len(group) == _VALUES_AT_ONCE or size + candidate.bytes > _BYTES_AT_ONCE
        if group and full:
            yield group
            group, size = [], 0
        group.append(candidate)
        size += candidate.bytes
    if group:
        yield group


def _intermediate_values(
    sharded: _Written, single: _Written, tolerance: _Tolerance, group: Sequence[ResultMatch]
) -> list[ComparedValue]:
    """Return the comparison of intermediate values. Of a value of one module only, compare the replicas."""
    paired = [candidate for candidate in group if candidate.other is not None]
    others = [candidate.other for candidate in group if candidate.other is not None]
    alone = [candidate for candidate in group if candidate.other is None]
    ours = Executable(
        modules.with_results(sharded.module, [candidate.value for candidate in (*paired, *alone)]),
        _with_chosen(sharded, len(group)),
    )
    theirs = Executable(
        modules.with_results(single.module, others),
        _with_chosen(single, len(paired)),
    )
    start = len(sharded.record["results"])
    values = _values((ours, theirs), sharded.arguments, tolerance, [""] * len(paired), start)
    compared = dict(zip(map(id, paired), values, strict=True))
    for candidate, value in zip(alone, ours(sharded.arguments)[start + len(paired) :], strict=True):
        compared[id(candidate)] = _compared_value("", value, None, tolerance.constant)
    return [compared[id(candidate)] for candidate in group]


def _with_chosen(written: _Written, count: int) -> dict[str, Any]:
    """Return the settings with the shardings of more results chosen by the compiler."""
    settings = written.record["settings"]
    return {**settings, "outputs_chosen": [*settings["outputs_chosen"], *[True] * count]}


def _named(candidate: ResultMatch, value: ComparedValue) -> FirstOperation:
    op_name, source = modules.op_name_of(candidate.operation)
    return FirstOperation(
        "shard_map" if candidate.is_shard_map else candidate.operation.name.partition(".")[2],
        op_name,
        source,
        value,
        candidate.has_other_constants,
    )


def _severity(value: ComparedValue) -> tuple[bool, float]:
    if value.difference is None:
        return value.differs, math.inf
    return value.differs, value.difference / max(value.tolerance, 1e-300)
