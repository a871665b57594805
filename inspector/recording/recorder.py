"""Write each compiled program, and the live arrays, to the folder of the run.

Runs inside the user's program and imports only JAX, NumPy and msgspec in addition. Each program is written as
soon as it is compiled, so that it is kept however the process ends. The text of a compiled program is written
as it is: the process that started the program reads it.
"""

from __future__ import annotations

import _thread
import contextlib
import itertools
import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
from jax.sharding import Mesh, NamedSharding, Sharding

from inspector.files import output
from inspector.jax_private import custom_partitions, programs
from inspector.model import PyTree
from inspector.recording.capture import capture_compiled
from inspector.recording.last_error import last_error, lost_sharding
from inspector.recording.live import LiveArrays
from inspector.recording.own_names import (
    ArgumentPaths,
    argument_paths,
    arrays_of_function,
    with_argument_names,
)
from inspector.recording.step_profile import StepProfile
from inspector.records import typed_json
from inspector.records.program_run import LOWERED, when_compiled
from inspector.records.snapshot import CheckpointName, Snapshot
from inspector.tracing.leaves import mesh_record, shards_of, spec_of
from inspector.tracing.mlir import walk

if TYPE_CHECKING:
    from inspector.jax_private.compile_hook import Hook, Split, TracedFunction
    from inspector.jax_private.move_hook import Moves
    from inspector.jax_private.programs import MeshComputation, MeshExecutable


def plain(counts: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the moves as JSON.

    Args:
      counts: the `counts` of a `Moves`.
    """
    meshes: dict[Mesh, int] = {}
    moves = [
        {
            "operation": operation,
            "place": place,
            "executions": count.value(),
            "arrays": [
                {
                    "count": number,
                    "shape": list(shape),
                    "dtype": str(dtype),
                    "itemsize": dtype.itemsize,
                    "source": _side(before, shape, meshes),
                    "target": _side(after, shape, meshes),
                }
                for (before, after, shape, dtype), number in arrays
            ],
        }
        for (operation, place, arrays), count in list(counts.items())
    ]
    return {"meshes": [typed_json.encode(mesh_record(mesh)) for mesh in meshes], "moves": moves}


def _side(sharding: Sharding, shape: tuple[int, ...], meshes: dict[Mesh, int]) -> dict[str, Any]:
    """Return the number of the mesh and the spec of a sharding, or its shards if it has none."""
    if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh):
        spec = sharding.spec
        # An array with partial sums is not described by the entries of the spec alone.
        partial = getattr(spec, "unreduced", None)
        if not sharding.mesh.empty and not partial:
            number = meshes.setdefault(sharding.mesh, len(meshes))
            return {"mesh": number, "spec": spec_of(spec, len(shape))}
    try:
        return {"shards": [[shard.device, shard.index] for shard in shards_of(sharding, shape)]}
    except Exception:  # sharding types raise different errors for shapes they cannot shard
        devices: set[Any] = sharding.device_set
        return {"devices": sorted(device.id for device in devices)}


MOVES = "moves.json"
ERROR = "error.json"
REQUEST = "capture"  # a file of this name in the folder asks for the live arrays
_POLL_SECONDS = 0.5
_MOST_WAIT_SECONDS = 30.0  # for the thread of the recorder; reading live arrays takes much less
# Live arrays are read at most this often, and at most this share of the time is spent on it. After a compile,
# they are read soon: the program has results that it did not have before, and a short one ends.
_LEAST_PAUSE_SECONDS = 5.0
_PAUSE_AFTER_COMPILE_SECONDS = 0.5
_MOST_SHARE = 0.01
_FREE_SECONDS = 0.1  # on top, so that a short program is read more than once


class Recorder:
    """Writes one record for each compiled program, and one for the live arrays."""

    def __init__(self, settings: dict[str, Any], hook: Hook) -> None:
        self._raw = Path(settings["folder"]) / "raw"
        self._request = Path(settings["folder"]) / REQUEST
        self._hook = hook
        self._started = settings["started"]
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._structures_of: dict[tuple[str, str], list[PyTree]] = {}  # by function and argument
        self._last: dict[str, Any] = {}  # function -> weak reference to the object compiled last
        self._executables: dict[int, Any] = {}  # id of XLA's object -> weak reference to JAX's
        self._live = LiveArrays()
        self._written_bytes = 0
        self._counting = 0.0  # seconds of CPU, on counting live bytes
        self._written: tuple[dict[str, Any], Snapshot] | None = None  # the last record of live arrays
        self._read_bytes = 0  # at the last reading
        self._first_read = time.time()
        self._spent = 0.0  # seconds, on reading live arrays
        self._next_read = self._next_at_compile = self._next_moves = 0.0
        self._written_moves = 0
        self._ended = _thread.allocate_lock()  # released when the thread must end
        self._ended.acquire()
        self._join: Callable[[float], Any] | None = None
        self._profile: StepProfile | None = None
        # A multi-process job runs the same program in each process; the first one writes.
        self._writes = jax.process_index() == 0
        if self._writes and hook.profiler is not None:
            self._profile = StepProfile(hook.profiler, Path(settings["folder"]))
        self.stopped = hook.ended or not self._writes
        if not self.stopped:
            if hook.moves is not None:
                hook.moves.after = self._count
            self._join = _start_thread(self._poll)
            _let_no_fork_interrupt(self._lock)

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
        """Write one compiled program.

        Args:
          computation: JAX's lowered computation.
          executable: JAX's `MeshExecutable`.
          traced: the `TracedFunction` of the hook, None if unknown.
          seconds: of lowering and compiling.
          arguments: the flat arguments of the call that compiles it, None ahead of time.
          target: the computation lowered for the target, the error as text, or None.
          names: the names of activations in its code. None if unknown.
        """
        if not self._writes:
            return
        name, source, of_jax = described(computation, traced)
        if of_jax:
            self._append_operation(name, seconds, lost_sharding(computation, executable))
            return
        if not self._is_new_executable(executable):
            return
        with self._lock:
            stem = f"{next(self._numbers):04d}"
        seconds = {"trace": None if traced is None else traced.seconds, **seconds}
        compiled, paths = _compiled(computation, executable, traced)
        record = with_argument_names(capture_compiled(compiled, name=name), name, paths)
        programs_of_record = (replace(program, checkpoint_names=names) for program in record.programs)
        record = replace(record, programs=tuple(programs_of_record))
        self._write_text(stem, executable)
        meta = {
            "name": name,
            "source": source,
            "called": None if self._hook.moves is None else self._hook.moves.place(sys._getframe(1))[1],
            "constants": _constants(traced),
            "at": time.time() - self._started,
            "seconds": seconds,
            "static": {} if traced is None else traced.static,
            "structures": self._structures(source, paths),
            "new_function": self._is_new(source, traced),
            "ahead_of_time": arguments is None,
            "inputs": _inputs(computation, executable, paths.inputs, arguments),
            "devices": [device.id for device in programs.devices_of(computation)],
        }
        if len(meta["devices"]) > 1:
            module = walk.of_module(computation.stablehlo())
            output.write_bytes(module, self._raw / f"{stem}{LOWERED}")
        if target is not None:
            meta["target"] = self._write_target(stem, target)
        self._write_json(f"{stem}.json", meta, record)
        if not self._hook.ended:  # else an exit function of the program compiles
            if self._profile is not None:
                self._profile.compiled()
            self._watch_arrays(name, executable, paths, () if arguments is None else paths.trees(arguments))

    def _write_text(self, stem: str, executable: MeshExecutable) -> None:
        """Write the compiled text, if the platform gives one."""
        text = None
        with contextlib.suppress(jax.errors.JaxRuntimeError, NotImplementedError):
            text = executable.as_text()
        if text and "tpu_custom_call" in text:
            # Imported only if needed: a program under `run` starts without the analyses.
            from inspector.tracing.mlir.kernel_bodies import with_costs

            text = with_costs(text)
        if text:
            output.write_text(text, self._raw / f"{stem}.hlo")

    def _watch_arrays(
        self, name: str, executable: MeshExecutable, paths: ArgumentPaths, trees: Sequence[tuple[str, Any]]
    ) -> None:
        """Name the arrays of a program that was compiled, and read the live ones, now or soon."""
        self._live.compiled(name, executable, paths, trees)
        self._count()
        # A program of many small functions would otherwise spend its time on this.
        if time.time() >= self._next_at_compile:
            self._read_live(when_compiled(name), trees)
        soon = time.time() + _PAUSE_AFTER_COMPILE_SECONDS
        self._next_read = min(self._next_read, max(soon, self._next_at_compile))

    def _is_new_executable(self, executable: MeshExecutable) -> bool:
        """Return whether XLA compiled. JAX also lowers again for equal types in other objects."""
        key = id(executable.xla_executable)
        before = self._executables.get(key)
        # Of several objects, the newest lives longest.
        self._executables[key] = weakref.ref(executable)
        return before is None or before() is None

    def _is_new(self, source: str, traced: TracedFunction | None) -> bool:
        """Return whether the same function was compiled before as another Python object."""
        reference = None if traced is None else traced.function
        if reference is None:
            return False
        before = self._last.get(source)
        self._last[source] = reference
        return before is not None and before() is not reference()

    def _structures(self, source: str, paths: ArgumentPaths) -> dict[str, int]:
        """Return a number for the pytree of each positional argument, with its static part."""
        trees = paths.tree.children()[:1]
        numbers = {}
        for place, tree in enumerate(trees[0].children() if trees else ()):
            name = paths.parameters.get(str(place), str(place))
            known = self._structures_of.setdefault((source, name), [])
            known += [] if tree in known else [tree]
            numbers[name] = known.index(tree)
        return numbers

    def _append_operation(
        self, name: str, seconds: dict[str, float | None], lost: dict[str, Any] | None
    ) -> None:
        """Write an operation of JAX itself. `lost` has the sharding that it lost, if any."""
        written: dict[str, Any] = {"name": name, "seconds": seconds["compile"]}
        moves = self._hook.moves
        if lost is not None and moves is not None:
            of_move, place = moves.place(sys._getframe(1))
            if not of_move:  # the program did not ask for this sharding
                written["lost"] = lost | {"place": place}
        line = json.dumps(written) + "\n"
        with open(self._raw / "operations.jsonl", "a", encoding="utf-8") as file:
            file.write(line)

    def _write_target(self, stem: str, target: MeshComputation | str) -> dict[str, Any]:
        if isinstance(target, str):
            return {"error": target}
        output.write_bytes(walk.of_module(target.stablehlo()), self._raw / f"{stem}.mlirbc")
        # Emulated devices are numbered from 0, in the order of `jax.devices()`.
        return lowered_settings(target, {device.id: device.id for device in programs.devices_of(target)})

    def _write_json(self, name: str, meta: dict[str, Any], snapshot: Snapshot) -> None:
        text = json.dumps({"meta": meta, "snapshot": snapshot.to_json()})
        output.write_text(text, self._raw / name)

    # --- Live arrays -------------------------------------------------------------------------------------

    def _count(self) -> None:
        """Count the bytes of live arrays, at each compile and move: a timer misses most on a busy machine.

        It takes at most a share of the program's CPU time, whatever else the machine does.
        """
        started = time.thread_time()
        if self._counting <= _FREE_SECONDS + _MOST_SHARE * time.process_time():
            self._live.most_alive()
            self._counting += time.thread_time() - started

    def _read_live(self, when: str, trees: Sequence[tuple[str, PyTree]] = (), final: bool = False) -> None:
        """Write the live arrays, unless far fewer are left than before: a program ends by freeing them.

        While the program runs, fewer arrays that are mostly new are those of its next phase, unless they are
        as small as a loss.
        """
        now = time.time()
        if not self._lock.acquire(blocking=final):
            return
        try:
            snapshot, names = self._live.captured(trees, final)
            if snapshot is not None:
                size = sum(array.bytes or 0 for array in snapshot.arrays)
                # At the end, as many as at the last reading are still in use.
                goes_on = size >= self._read_bytes / 2 if final else self._live.share_of_new > 0.5
                self._read_bytes = size
                if size >= self._written_bytes / 2 or (goes_on and size >= self._written_bytes / 100):
                    self._written_bytes = size
                    meta = {"when": when, "at": now - self._started, "names": names._asdict(), "bytes": size}
                    self._written = {**meta, "devices": jax.device_count(), "alive": -1}, snapshot
            # Later readings can be of too few arrays to be written.
            alive = self._live.most_alive()
            if self._written is not None and self._written[0]["alive"] < alive:
                self._written[0]["alive"] = alive
                self._write_json("arrays.json", *self._written)
        finally:
            self._lock.release()
        self._spent += time.time() - now
        pause = (self._spent - _FREE_SECONDS) / _MOST_SHARE
        self._next_at_compile = self._first_read + max(pause, 0.0)
        self._next_read = max(time.time() + _LEAST_PAUSE_SECONDS, self._next_at_compile)

    def _poll(self) -> None:
        """Read the live arrays now and then, and whenever the file that asks for them exists."""
        while not self._ended.acquire(timeout=_POLL_SECONDS) and self._hook.active:
            try:
                if self._profile is not None:
                    with self._lock, self._hook.package.loaded():
                        self._profile.poll()
            except Exception:
                self._hook.problem("the steps cannot be profiled")
            try:
                asked = self._request.exists()
                if self._hook.moves is not None and time.time() >= self._next_moves:
                    with self._lock, self._hook.package.loaded():
                        self.write_moves(self._hook.moves)
                if not (asked or time.time() >= self._next_read):
                    continue
                with self._lock, self._hook.package.loaded():
                    if asked:
                        self._written_bytes = 0
                    self._read_live("on request" if asked else "while the program ran")
                if asked:
                    self._request.unlink(missing_ok=True)
            except Exception:
                self._hook.problem("the live arrays cannot be read")

    def write_error(self, error: Exception) -> None:
        """Write the error that ends the program."""
        if self._writes:
            output.write_text(json.dumps(last_error(error)), self._raw / ERROR)

    def write_moves(self, moves: Moves) -> None:
        """Write the arrays that moved between devices so far, unless the file has all of them."""
        if not self._writes or (total := moves.total.value()) == self._written_moves:
            return
        started, self._written_moves = time.time(), total
        output.write_text(json.dumps(plain(moves.counts)), self._raw / MOVES)
        spent = time.time() - started
        self._next_moves = time.time() + max(_LEAST_PAUSE_SECONDS, spent / _MOST_SHARE)

    def stop(self) -> None:
        """End the thread that reads live arrays: in a finalized interpreter it would crash the program."""
        if self._profile is not None:
            try:
                self._profile.end()
            except Exception:
                self._hook.problem("the steps cannot be profiled")
        with contextlib.suppress(RuntimeError):  # a call before, which a signal interrupted, did it
            self._ended.release()
        if self._join is not None:
            self._join(_MOST_WAIT_SECONDS)
        self.stopped = True

    def read_at_end(self) -> None:
        """Write the live arrays at the end of the program."""
        if self._writes:
            self._read_live("at the end", final=True)

    def forget(self) -> None:
        """Drop all references to devices.

        JAX waits for the last computation when it destroys its client, and a device keeps the client alive.
        If nothing destroys it, the process ends while the computation runs, and crashes.
        """
        self._live = LiveArrays()
        self._last.clear()
        self._structures_of.clear()


def _let_no_fork_interrupt(lock: Any) -> None:
    """Fork only while no thread of the recorder works: the child has no such thread, but all it holds.

    Python keeps these functions beyond the end of the program, so they refer to the lock alone.
    """
    process = os.getpid()
    held: list[bool] = []

    def before() -> None:
        if os.getpid() == process:
            held.append(lock.acquire(timeout=_MOST_WAIT_SECONDS))

    def after() -> None:
        if held and held.pop():
            lock.release()

    os.register_at_fork(before=before, after_in_parent=after, after_in_child=after)


def _start_thread(function: Callable[[], None]) -> Callable[[float], Any]:
    """Start a thread, and return a function that waits until it has left the interpreter.

    It is not a `threading.Thread`, which the program would see in `threading.enumerate()`.
    """
    if hasattr(_thread, "start_joinable_thread"):
        return _thread.start_joinable_thread(function, daemon=True).join
    # Before Python 3.13: a lock that Python releases when the state of the thread is gone.
    locks: list[Any] = []
    started = _thread.allocate_lock()
    started.acquire()

    def run() -> None:
        locks.append(_thread._set_sentinel())  # type: ignore[attr-defined]
        started.release()
        function()

    _thread.start_new_thread(run, ())
    with started:
        return lambda seconds: locks[0].acquire(timeout=seconds)


def _constants(traced: TracedFunction | None) -> dict[str, list[str]]:
    """Return the names of the large arrays around a function, by their type and shape: `float32[8, 4]`."""
    function = None if traced is None or traced.function is None else traced.function()
    names: dict[str, list[str]] = {}
    for name, array in arrays_of_function(function):
        names.setdefault(f"{array.dtype}{list(array.shape)}", []).append(name)
    return names


def described(computation: MeshComputation, traced: TracedFunction | None) -> tuple[str, str, bool]:
    """Return the name and source of a lowered function, and whether it is one of JAX's own.

    Args:
      computation: JAX's lowered computation.
      traced: the `TracedFunction` of the hook, None if unknown.
    """
    name = programs.name_of(computation).removeprefix("jit(").removesuffix(")")
    debug = computation.compile_args["all_args_info"].debug_info
    split = None if traced is None else traced.split
    source = (split and split.source) or debug.func_src_info or ""
    if traced is None:
        # `jnp.add`, which runs outside of any jit, is one of JAX's own.
        return name, source, os.path.dirname(jax.__file__) + os.sep in source
    return traced.name or name, traced.source or source, traced.of_jax


def paths_of(
    computation: MeshComputation, executable: MeshExecutable, traced: TracedFunction | None
) -> ArgumentPaths:
    """Return the paths of the arguments and results of a compiled program."""
    _, paths = _compiled(computation, executable, traced)
    return paths


def lowered_settings(lowered: MeshComputation, places: Mapping[int, int]) -> dict[str, Any]:
    """Return the settings to compile a lowered module. `places` numbers devices from 0 by their ids."""
    arguments = lowered.compile_args
    return {
        "devices": [places[device.id] for device in programs.devices_of(lowered)],
        "tuple_args": bool(arguments["tuple_args"]),
        "inputs_chosen": [programs.is_chosen(argument) for argument in arguments["in_shardings"]],
        "outputs_chosen": [programs.is_chosen(argument) for argument in arguments["out_shardings"]],
        "partitions": getattr(lowered, custom_partitions.ATTRIBUTE, []),
    }


def _compiled(
    computation: MeshComputation, executable: MeshExecutable, traced: TracedFunction | None
) -> tuple[Any, Any]:
    """Return a `jax.stages.Compiled` without its text, and the paths of its arguments."""
    arguments = computation.compile_args["all_args_info"]
    constants = len(computation.const_args)
    avals = arguments.in_avals[constants:]
    kept = sorted(computation.compile_args["kept_var_idx"])
    donated = set(itertools.compress(kept, programs.donated(computation)))
    information = [jax.stages.ArgInfo(aval, place + constants in donated) for place, aval in enumerate(avals)]
    names = tuple(arguments.debug_info.arg_names or ())[constants:]
    if traced is not None and traced.argument_names is not None:
        names = traced.argument_names
    in_tree, out_tree = (None, None) if traced is None else (traced.in_tree, traced.out_tree)
    if in_tree is None or in_tree.num_leaves != len(information):
        in_tree = jax.tree.structure((tuple(information), {}))
    if out_tree is None or out_tree.num_leaves != len(executable.out_avals):
        out_tree = jax.tree.structure([0] * len(executable.out_avals))
    compiled = _WithoutText(executable, computation.const_args, in_tree.unflatten(information), out_tree)
    compiled.split = None if traced is None else traced.split
    compiled.fixed = [*map(programs.is_given, computation.compile_args["out_shardings"])]
    made = [] if traced is None else traced.made
    compiled.constraints = [*map(programs.constraint_of, made, programs.output_shardings(executable))]
    compiled.fixed_inputs = [] if traced is None else [*map(programs.is_given, traced.in_shardings)]
    return compiled, argument_paths(in_tree, out_tree, names, compiled.split)


class _WithoutText(jax.stages.Compiled):
    """A compiled program whose text is read later, by another process.

    Attributes:
      split: the `Split` of the hook for a function of Equinox or Haliax, else None.
      fixed, fixed_inputs: whether the code gives the sharding of each result, or argument, to jit.
      constraints: the line of the constraint that gives each result its sharding, None for others.
    """

    split: Split | None = None
    fixed: Sequence[bool] = ()
    fixed_inputs: Sequence[bool] = ()
    constraints: Sequence[str | None] = ()

    def as_text(self) -> str | None:
        """Return None, so that nothing is read from the text."""
        return None


def _inputs(
    computation: MeshComputation,
    executable: MeshExecutable,
    paths: Sequence[str],
    called: tuple[Any, ...] | None,
) -> list[dict[str, Any]]:
    """Return name, type and sharding of each argument, to compare compiles of one function.

    The sharding is that of the argument itself, or the compiled one if the program compiles ahead of time.
    """
    arguments = computation.compile_args["all_args_info"]
    constants = len(computation.const_args)
    shardings = iter(programs.input_shardings(executable))
    kept = programs.used_arguments(executable)
    count = len(arguments.in_avals) - constants
    own = () if called is None or len(called) < count else called[len(called) - count :]
    inputs = []
    for place, aval in enumerate(arguments.in_avals):
        sharding = next(shardings, None) if place in kept else None
        if place < constants:
            continue
        inputs.append(
            {
                "name": paths[place - constants],
                "shape": list(getattr(aval, "shape", ())),
                "dtype": str(getattr(aval, "dtype", aval)),
                "weak": bool(getattr(aval, "weak_type", False)),
                "sharding": _own_sharding(own[place - constants]) if own else _sharding_text(sharding),
            }
        )
    return inputs


def _own_sharding(argument: PyTree) -> str | None:
    """Return the sharding that JAX keeps a compile for. All arguments that are not committed share one."""
    if not isinstance(argument, jax.Array) or not argument.committed:
        return "not committed"
    return _sharding_text(argument.sharding)


def _sharding_text(sharding: Any) -> str | None:
    """Return a sharding in words. Equivalent ones, for which JAX compiles once, have the same words."""
    if sharding is None:
        return None
    if not isinstance(sharding, NamedSharding):
        devices = len(sharding.device_set)
        return type(sharding).__name__ + (f" on {devices} devices" if devices > 1 else "")
    sizes = sharding.mesh.shape
    axes = [tuple(name for name in names or () if sizes[name] > 1) for names in spec_of(sharding.spec, 0)]
    while axes and not axes[-1]:
        axes.pop()
    spec = sharding.spec.update(partitions=axes)
    mesh = " ".join(f"{name}={size}" for name, size in sizes.items())
    memory = "" if sharding.memory_kind in (None, "device") else f", {sharding.memory_kind}"
    return f"{spec} on {mesh}{memory}"
