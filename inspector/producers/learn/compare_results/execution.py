"""Run a lowered module on the devices of this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import jax
import numpy as np
from jax.extend.mlir import ir
from jax.extend.sharding import GSPMDSharding

from inspector.core.errors import InvalidInput
from inspector.core.printable import one_line
from inspector.core.same_results import UnequalReplicas
from inspector.producers.learn.compare_results import modules
from inspector.producers.learn.compare_results.differences import difference
from inspector.producers.mlir import bytecode
from inspector.producers.recorded.for_target import compile_module

_MOST_ERROR = 400  # characters


@dataclass(frozen=True)
class Value:
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
        """Return the whole array. Of several replicas, it has that of the first device, as JAX does."""
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
        self._shapes = _result_shapes(module)
        with _errors("the compiler fails"):
            self._executable = compile_module(bytecode.of_module(module), list(self._devices), settings)
        self._inputs = self._executable.get_parameter_shardings()
        self._outputs = self._executable.get_output_shardings()

    def with_rounded_sums(self, error: Callable[[int], float]) -> Executable:
        """Return the same program with rounding errors in its sums, as `modules.with_rounded_sums`."""
        return Executable(modules.with_rounded_sums(self._module, error), self._settings)

    def __call__(self, arguments: Sequence[Any]) -> list[Value]:
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

    def _value(self, shape: tuple[int, ...], place: int, pieces: Sequence[Any]) -> Value:
        indices = self._sharding(self._outputs, place).devices_indices_map(shape)
        by_device = {piece.device: np.asarray(piece) for piece in pieces}
        return Value(
            shape,
            tuple(by_device[device] for device in self._devices),
            tuple(indices[device] for device in self._devices),
        )


class _errors:
    """Turns an error of XLA into an `InvalidInput`."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, (jax.errors.JaxRuntimeError, ValueError, NotImplementedError)):
            message = one_line(str(error)).strip()[:_MOST_ERROR]
            raise InvalidInput(f"{self._what}: {message}") from None


def _result_shapes(module: ir.Module) -> list[tuple[int, ...]]:

    from inspector.producers.mlir.walk import main_function

    kind = ir.FunctionType(ir.TypeAttr(main_function(module.operation).attributes["function_type"]).value)
    return [tuple(ir.RankedTensorType(result).shape) for result in kind.results]
