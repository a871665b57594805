"""Name the live arrays of a program, and capture them.

A name comes from, in this order: the argument of a program that the array was passed to, a variable of the
program's main module, the output of a compiled program that it matches, or the order of creation.
"""

from __future__ import annotations

import math
import sys
import time
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
from jax.sharding import Sharding

from inspector.jax_private import arrays
from inspector.jax_private.programs import output_shardings
from inspector.model import PyTree
from inspector.recording.capture import capture
from inspector.recording.own_names import ArgumentPaths, names_of_libraries, trees_of_objects
from inspector.records.snapshot import Snapshot
from inspector.sharding.memory_kinds import PINNED
from inspector.text.formatting import numbered
from inspector.tracing.leaves import unboxed

if TYPE_CHECKING:
    from inspector.jax_private.programs import MeshExecutable

BY_ARGUMENT, BY_VARIABLE, BY_OUTPUT, BY_ORDER = "argument", "variable", "output", "order"

Signature = tuple[Any, ...]
_Address = tuple[int, int, int]  # device, address (0: unknown) and bytes

# A program that ends waits this long, all in all, for arrays that are still computed or copied.
_MOST_SECONDS = 1.0


class Names(NamedTuple):
    """What is known of the names of live arrays.

    Attributes:
      counts: number of arrays by source of their name.
      own: names that a library gives to arrays, by their paths.
      outputs: paths of arrays by that of the output of a program that they are.
    """

    counts: dict[str, int]
    own: dict[str, str]
    outputs: dict[str, str]


class LiveArrays:
    """Knows what compiled programs took and returned, without references to arrays."""

    def __init__(self) -> None:
        self._arguments: dict[int, tuple[Any, str]] = {}  # id -> (weak reference, path)
        self._outputs: dict[str, list[tuple[Signature, str, str]]] = {}
        self._older: dict[str, dict[int, Any]] = {}  # program -> arrays from before its first run
        self._dtypes: dict[str, Any] = {}  # by path, as the program has it: typed keys are not their data
        self._numbers: dict[Signature, int] = {}
        self._seen: dict[int, Any] = {}  # id -> weak reference to an array of the last capture
        self.share_of_new = 1.0
        self._most_alive = 0  # on one device, at any count
        self._addresses: dict[int, tuple[Any, frozenset[_Address]]] = {}  # id -> weak reference, addresses

    def most_alive(self) -> int:
        """Count the live arrays, and return the most bytes on one device at any count: a lower bound.

        Each memory counts once. Without an address, an array could be in the memory of others of its size.
        """
        live = [array for array in jax.live_arrays() if not array.is_deleted()]
        alone = Counter[Any]()  # as if each array had its own memory
        for array in live:
            alone.update(dict.fromkeys(array.sharding.addressable_devices, _shard_bytes(array)))
        if max(alone.values(), default=0) <= self._most_alive:
            return self._most_alive
        known: dict[int, tuple[Any, frozenset[_Address]]] = {}  # local: several threads count
        for array in live:
            reference, addresses = self._addresses.get(id(array), (None, frozenset()))
            if reference is None or reference() is not array or not all(place for _, place, _ in addresses):
                addresses = _addresses(array) if array.sharding.memory_kind != PINNED else frozenset()
            known[id(array)] = weakref.ref(array), addresses
        self._addresses, held = known, set().union(*(addresses for _, addresses in known.values()))
        equal = {(device, size) for device, place, size in held if place}
        memory = {
            (one, place or -size): size for one, place, size in held if place or (one, size) not in equal
        }
        totals = Counter[int]()
        for (device, _), size in memory.items():
            totals[device] += size
        self._most_alive = max(self._most_alive, *totals.values(), 0)
        return self._most_alive

    def compiled(
        self, name: str, executable: MeshExecutable, paths: ArgumentPaths, trees: Iterable[tuple[str, Any]]
    ) -> None:
        """Remember the arguments of the call that compiles a program, and the outputs of the program."""
        first = name not in self._outputs
        for argument, tree in trees:
            for path, array in _arrays(argument, tree):
                held = _held(array)
                self._remember(held, path, array.dtype)
                if first:
                    self._older.setdefault(name, {})[id(held)] = weakref.ref(held)
        inputs = paths.inputs
        self._outputs.pop(name, None)
        self._outputs[name] = outputs = []
        for aval, sharding, output in zip(
            executable.out_avals, output_shardings(executable), paths.outputs, strict=False
        ):
            path = _input_of(output, inputs) or "/".join(filter(None, (name, "output", output)))
            outputs.append((_held_signature(aval, sharding), output, path))
            self._dtypes[path] = aval.dtype

    def captured(
        self, trees: Iterable[tuple[str, Any]], final: bool = False
    ) -> tuple[Snapshot | None, Names]:
        """Return a Snapshot of all live arrays, and what is known of their names.

        Args:
          trees: pytrees with their names, which are the arguments of a program.
          final: whether the program has ended, and sees no array that this function creates.

        The Snapshot is None if no array is alive. `share_of_new` becomes the share of the bytes in arrays
        that were created after the last capture.
        """
        live = _without_views([array for array in jax.live_arrays() if not array.is_deleted()], final)
        self._compare_with_last(live)
        if not live:
            return None, Names({}, {}, {})
        named: dict[str, Any] = {}
        counts: dict[str, int] = {}
        left = {id(array): array for array in reversed(live)}  # from the oldest to the newest
        _move(left, named, counts, trees, BY_ARGUMENT)
        for key in list(left):
            reference, path = self._arguments.get(key, (None, ""))
            if reference is not None and reference() is left[key]:
                _add(named, path, self._typed(path, left.pop(key)))
                counts[BY_ARGUMENT] = counts.get(BY_ARGUMENT, 0) + 1
        _move(left, named, counts, _variables(), BY_VARIABLE)
        # A result with a name is of its run all the same: the equal run before is that of another program.
        every = {id(array): array for array in reversed(live)}
        matched = self._matched(every)
        for path, key in matched:
            if key in left:
                _add(named, path, self._typed(path, left.pop(key)))
                counts[BY_OUTPUT] = counts.get(BY_OUTPUT, 0) + 1
        for place, array in enumerate(left.values()):
            _add(named, f"unnamed/{place}", array)
            counts[BY_ORDER] = counts.get(BY_ORDER, 0) + 1
        snapshot = capture(named)
        # Numbers and functions in a pytree are not arrays of the program.
        findings = tuple(finding for finding in snapshot.findings if finding.code != "left-out")
        own = names_of_libraries()
        captured = list(_arrays("", named))
        paths = list(numbered(path or "array" for path, _ in captured))
        path_of = {id(_held(array)): path for path, (_, array) in zip(paths, captured, strict=True)}
        groups = {path_of[key]: own[key].group for key in path_of.keys() & own.keys()}
        arrays = tuple(replace(one, group=groups.get(one.path) or one.group) for one in snapshot.arrays)
        own_names = {path_of[key]: own[key].path for key in path_of.keys() & own.keys()}
        outputs = {path: path_of[key] for path, key in matched if key in path_of}
        return replace(snapshot, arrays=arrays, findings=findings), Names(counts, own_names, outputs)

    def _compare_with_last(self, live: list[Any]) -> None:
        sizes = {id(array): array.size * array.dtype.itemsize for array in live}
        seen = {key for key, reference in self._seen.items() if reference() is not None}
        new = sum(size for key, size in sizes.items() if key not in seen)
        self.share_of_new = new / max(sum(sizes.values()), 1)
        self._seen = {id(array): weakref.ref(array) for array in live}

    def _remember(self, array: jax.Array, path: str, dtype: Any) -> None:
        key, self._dtypes[path] = id(array), dtype
        self._arguments[key] = (weakref.ref(array, lambda _: self._arguments.pop(key, None)), path)

    def _typed(self, path: str, data: Any) -> Any:
        """Return an array with the dtype that the program has under this path."""
        dtype = self._dtypes[path]
        is_key = jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key) and data.dtype == "uint32"
        return arrays.typed_keys(dtype, data) if is_key else data

    def _matched(self, left: dict[int, Any]) -> list[tuple[str, int]]:
        """Return a path for arrays that are, in order of creation, the outputs of one run of a program.

        The outputs of a run are created together. Equal runs of shapes, dtypes and shardings are compared as
        text, one character for each signature. The program compiled last comes first.
        """
        keys = list(left)
        text = "".join(self._character((tuple(a.shape), a.dtype, a.sharding)) for a in left.values())
        paths = []
        for name, outputs in reversed(self._outputs.items()):
            # What a program took in its first run is none of its results.
            own = self._older.get(name, {})
            older = [key in own and own[key]() is left[key] for key in keys]
            waiting = [(list(outputs), 0)]
            while waiting:
                wanted, depth = waiting.pop(0)
                part = "".join(self._character(signature) for signature, _, _ in wanted)
                start = "".join(
                    "\0" if old else character for character, old in zip(text, older, strict=True)
                ).rfind(part)
                # One array alone is only certain if no other has its signature, and of equal parts of a
                # result, such as two moments of an optimizer, any could be the one that is left.
                if start < 0 or ((len(part) == 1 or depth > 1) and text.count(part) > 1):
                    waiting += [(smaller, depth + 1) for smaller in _parts(wanted, depth)]
                    continue
                for place, (_, _, path) in enumerate(wanted, start=start):
                    paths.append((path, keys[place]))
                text = text[:start] + "\0" * len(part) + text[start + len(part) :]
        return paths

    def _character(self, signature: Signature) -> str:
        return chr(self._numbers.setdefault(signature, len(self._numbers) + 1))


def _held_signature(aval: jax.core.ShapedArray, sharding: Sharding) -> Signature:
    """Return the signature of the array that holds the data: of a typed random key, its key data."""
    if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended):
        sharding = arrays.physical_sharding(aval, sharding)
        aval = arrays.physical_aval(aval)
    return (tuple(aval.shape), aval.dtype, sharding)


def _without_views(live: list[Any], final: bool) -> list[Any]:
    """Leave out the arrays that hold no memory of their own. Of arrays with one memory, the oldest stays.

    JAX makes such arrays on one device when a program reads `addressable_shards`, as Orbax does, and when it
    prints an array or copies it to the host or to another mesh. `jax.device_put` makes one if each device
    has its shard already. At the end of the program, data that is still computed is waited for.
    """
    until = time.monotonic() + _MOST_SECONDS
    sizes = Counter(map(_shard_bytes, live))
    held: set[_Address] = set()
    views: set[int] = set()
    oldest_first = [array for array in reversed(live) if sizes[_shard_bytes(array)] > 1]
    # An array on several devices can consist of arrays on one device each, which are older.
    for array in sorted(oldest_first, key=lambda array: len(array.sharding.device_set) == 1):
        while final and not array.is_ready() and time.monotonic() < until:
            time.sleep(0.002)
        addresses = _addresses(array)
        if addresses <= held and all(address for _, address, _ in addresses):
            views.add(id(array))
        else:
            held |= addresses
    return [array for array in live if id(array) not in views]


def _shard_bytes(array: jax.Array) -> int:
    return math.prod(array.sharding.shard_shape(array.shape)) * int(array.dtype.itemsize)


def _addresses(array: Any) -> frozenset[_Address]:
    """Return where the data of an array is; without addresses if it is not ready. Empty if it is deleted."""
    try:
        if array.is_ready():
            parts = [array] if len(array.sharding.device_set) == 1 else arrays.parts(array)
            return frozenset(
                (*(d.id for d in p.devices()), p.unsafe_buffer_pointer(), p.nbytes) for p in parts
            )
    except Exception:  # deleted meanwhile, or a backend without addresses
        if array.is_deleted():
            return frozenset()
    return frozenset((device.id, 0, _shard_bytes(array)) for device in array.sharding.addressable_devices)


def _parts(outputs: Sequence[tuple[Signature, str, str]], depth: int) -> list[list[Any]]:
    """Return the elements of a result at one depth, largest first: a program can drop some of them."""
    by_element: dict[tuple[str, ...], list[Any]] = {}
    for output in outputs:
        by_element.setdefault(tuple(output[1].split("/")[: depth + 1]), []).append(output)
    if len({path for _, path, _ in outputs}) == 1:
        return []
    return sorted(by_element.values(), key=len, reverse=True)


def _input_of(output: str, inputs: Sequence[str]) -> str | None:
    """Return the input whose path below its parameter is that of the output below its element.

    A train step returns the state that it takes: `0/params/w` is `state/params/w`. `nnx.jit` returns its
    arguments in front of the result: `0/1/count` is `optimizer/count`.
    """
    below: str | None = output
    while below is not None:
        head, slash, rest = below.partition("/")
        wanted = (rest, output) if below is output else (rest,)
        matches = [path for path in inputs if path.partition("/")[2] in wanted] if slash else []
        if len(matches) == 1:
            return matches[0]
        below = rest if slash and head.isdecimal() else None
    return None


def _move(
    left: dict[int, Any],
    named: dict[str, Any],
    counts: dict[str, int],
    trees: Iterable[tuple[str, Any]],
    how: str,
) -> None:
    """Move the arrays in pytrees from `left` to `named`. A pytree whose arrays are all new stays whole."""
    for name, tree in trees:
        try:
            arrays = list(_arrays(name, tree))
        except Exception:  # a class of the program whose flatten function fails
            continue
        new = {key: (path, array) for path, array in arrays if (key := id(_held(array))) in left}
        if not new:
            continue
        if len(new) == len(arrays) and name not in named:
            named[name] = tree
        else:
            for path, array in new.values():
                _add(named, path, array)
        for key in new:
            del left[key]
        counts[how] = counts.get(how, 0) + len(new)


def _arrays(name: str, tree: PyTree) -> Iterable[tuple[str, Any]]:
    for leaf in unboxed(tree):
        if isinstance(leaf.value, jax.Array) and not isinstance(leaf.value, jax.core.Tracer):
            yield "/".join(filter(None, (name, leaf.path))), leaf.value


def _held(array: jax.Array) -> PyTree:
    """Return the array that holds the data: of a typed random key, its key data."""
    return getattr(array, "_base_array", array)


def _variables() -> list[tuple[str, Any]]:
    return list(
        trees_of_objects(
            (name, value)
            for name, value in list(vars(sys.modules["__main__"]).items())
            if not name.startswith("__")
        )
    )


def _add(named: dict[str, Any], path: str, array: jax.Array) -> None:
    """Add an array under its path, with a number if another array has it."""
    number = 1
    while (unique := path if number == 1 else f"{path} ({number})") in named:
        number += 1
    named[unique] = array
