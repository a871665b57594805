"""Write the lowered module of each program, and the values of the arguments of the call that compiles it.

`sharding-inspector same` runs a program with this recorder instead of the one of `run`. A worker then runs
the modules with these values.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from inspector.files import output
from inspector.jax_private import programs
from inspector.model import PyTree
from inspector.recording.recorder import described, lowered_settings, paths_of
from inspector.records.snapshot import CheckpointName
from inspector.text.formatting import bytes_text
from inspector.tracing.mlir import walk

if TYPE_CHECKING:
    from inspector.jax_private.compile_hook import Hook, TracedFunction
    from inspector.jax_private.move_hook import Moves
    from inspector.jax_private.programs import MeshComputation, MeshExecutable

MOST_BYTES = 512 * 2**20  # of the arguments of all programs of a run, on disk


class LoweredRecorder:
    """Writes `NUMBER.json`, `NUMBER.mlirbc` and, if `settings` asks for values, `NUMBER.values`."""

    stopped = True  # it has no thread

    def __init__(self, settings: dict[str, Any], hook: Hook) -> None:
        self._raw = Path(settings["folder"]) / "raw"
        self._writes_values = bool(settings.get("values"))
        self._lock = threading.Lock()
        self._count = 0
        self._bytes = 0
        self._executables: dict[int, Any] = {}  # id of XLA's object -> JAX's object

    def compiled(
        self,
        computation: MeshComputation,
        executable: MeshExecutable,
        traced: TracedFunction | None,
        seconds: dict[str, float | None],
        arguments: tuple[Any, ...] | None,
        target: MeshComputation | str | None,
        names: tuple[CheckpointName, ...] | None,
    ) -> None:
        """Write one compiled program. The arguments are those of `recorder.Recorder.compiled`."""
        name, source, of_jax = described(computation, traced)
        if of_jax:
            with self._lock, open(self._raw / "operations.txt", "a", encoding="utf-8") as file:
                file.write(".")  # only their number matters
            return
        key = id(executable.xla_executable)
        if key in self._executables:  # lowered again for equal types in other objects
            return
        self._executables[key] = executable
        with self._lock:
            self._count += 1
            stem = f"{self._count:04d}"
        module = walk.of_module(computation.stablehlo())
        output.write_bytes(module, self._raw / f"{stem}.mlirbc")
        devices = programs.devices_of(computation)
        information = computation.compile_args["all_args_info"]
        places = {device.id: place for place, device in enumerate(jax.devices())}
        record = {
            "name": name,
            "source": source,
            "settings": lowered_settings(computation, places),
            "devices": len(devices),
            "types": [f"{aval.dtype}{list(aval.shape)}" for aval in information.in_avals],
            "results": list(paths_of(computation, executable, traced).outputs),
            "values": [],
            "reason": None,
        }
        if self._writes_values and len(devices) > 1:
            try:
                record["values"], record["reason"] = self._write_values(stem, computation, arguments)
            except Exception as error:  # such as an argument that another process has a part of
                record["reason"] = f"its arguments cannot be read: {type(error).__name__}: {error}"
        output.write_text(json.dumps(record), self._raw / f"{stem}.json")

    def _write_values(
        self, stem: str, computation: MeshComputation, arguments: tuple[Any, ...] | None
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return shape and type of each value, in the order of the file, or why none is written."""
        if arguments is None:
            return [], "it is compiled ahead of time, so the values of its arguments are unknown"
        if jax.process_count() > 1:
            return [], "it runs in several processes"
        if computation.compile_args["ordered_effects"]:
            return [], "it has ordered effects, such as an ordered callback"
        avals = computation.compile_args["all_args_info"].in_avals
        count = len(avals) - len(computation.const_args)
        given = [*computation.const_args, *arguments[len(arguments) - count :]]
        kept = sorted(computation.compile_args["kept_var_idx"])
        values = [_value(given[place], avals[place]) for place in kept]
        size = sum(value.nbytes for value in values)
        if self._bytes + size > MOST_BYTES:
            return [], (
                f"its arguments have {bytes_text(size)}, and those of all programs may have "
                f"{bytes_text(MOST_BYTES)}"
            )
        self._bytes += size
        output.write_bytes(b"".join(map(_bytes, values)), self._raw / f"{stem}.values")
        return [{"dtype": value.dtype.name, "shape": list(value.shape)} for value in values], None

    def stop(self) -> None:
        """Do nothing: there is no thread."""

    def read_at_end(self) -> None:
        """Do nothing: live arrays are not recorded."""

    def write_error(self, error: Exception) -> None:
        """Do nothing: Python prints the error."""

    def write_moves(self, moves: Moves) -> None:
        """Do nothing: moves are not recorded."""

    def forget(self) -> None:
        """Drop all references to devices."""
        self._executables.clear()


def _value(argument: PyTree, aval: jax.core.ShapedArray) -> PyTree:
    """Return the whole array of an argument. A key array is returned as its integers."""
    if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended):
        return np.asarray(jax.random.key_data(argument))
    return np.asarray(argument).astype(aval.dtype, copy=False)


def _bytes(value: np.ndarray) -> bytes:
    content: bytes = np.ascontiguousarray(value).tobytes()
    return content


Recorder = LoweredRecorder  # the name that the hook looks for in the module of a recorder
