"""Make a global array from shards on emulated devices, with an optional mistake, and record JAX's errors."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from inspector.compiled import hlo
from inspector.core import typed_json
from inspector.core.collectives import BY_OPCODE
from inspector.core.errors import InvalidInput
from inspector.core.job_report import JobReport
from inspector.core.sharding import jax_entry
from inspector.core.snapshot import Spec
from inspector.guides import assembly as assemblies
from inspector.guides.array_fields import JaxError
from inspector.guides.assembly import Assembled, Assembly, Contents, Piece, Stage, Step
from inspector.producers.arrays.leaves import Leaf
from inspector.producers.arrays.live_arrays import live_array

DTYPE = np.dtype("int32")  # JAX's default integer type

# Newer JAX versions end a message with the path of this file.
_SOURCE = re.compile(r"(?<![\w.-])(?:/[\w.@+ -]+)+/(?=[\w.-]+\.py\b)")


def assemble(payload: dict[str, Any], report: JobReport) -> dict[str, Any]:
    """Worker job: return the `Assembled` of `{"assembly": …}` as JSON."""
    wanted = assemblies.from_json(payload.get("assembly"))
    report("build")
    return typed_json.encode(make_array(wanted))


def make_array(wanted: Assembly) -> Assembled:
    """Make the array and read it back. An error of JAX becomes part of the result."""
    if wanted.devices > jax.device_count():
        raise InvalidInput(
            f"the mesh has {wanted.devices} devices, but this process has {jax.device_count()}"
        )
    return _Assembly(wanted).assembled()


class _Assembly:
    """One assembly in progress: the pieces that JAX received and the current step."""

    def __init__(self, wanted: Assembly) -> None:
        self.wanted = wanted
        self.shape = assemblies.given_shape(wanted)
        devices = np.array(jax.devices()[: wanted.devices]).reshape(wanted.mesh_shape)
        self.mesh = Mesh(devices, wanted.axis_names)
        self.sharding = self.sharding_of(wanted.spec)
        # For the mistake `global_shape`, the data is right and only the shape given to JAX is wrong.
        shape = wanted.shape if wanted.mistake == "global_shape" else self.shape
        self.host = np.arange(np.prod(shape), dtype=DTYPE).reshape(shape)
        self.pieces: list[Piece] = []
        self.step: Step = "cut"

    def sharding_of(self, spec: Spec) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(*map(jax_entry, spec)))

    def assembled(self) -> Assembled:
        array = moved = refusal = None
        collectives: tuple[str, ...] = ()
        makers = {
            "callback": self.by_callback,
            "pieces": self.from_pieces,
            "device_put": self.by_device_put,
        }
        try:
            array = jax.block_until_ready(makers[self.wanted.way]())
            if self.wanted.target is not None:
                self.step = "reshard"
                moved, collectives = self.reshard(array, self.wanted.target)
        except Exception as error:  # the error is the result
            refusal = JaxError(self.step, type(error).__name__, _SOURCE.sub("", str(error)))
        return Assembled(
            shape=self.shape,
            pieces=tuple(self.pieces),
            joined=None if array is None else self.stage("batch", array),
            resharded=None if moved is None else self.stage("batch, resharded", moved),
            collectives=collectives,
            refusal=refusal,
            versions={"jax": jax.__version__},
        )

    def from_pieces(self) -> jax.Array:
        indices = self.sharding.addressable_devices_indices_map(self.host.shape)
        cut = [(device, self.host[index]) for device, index in indices.items()]
        devices: list[Any] = list(indices)
        intended = [device.id for device in devices]
        self.make_mistake(cut, intended)
        self.step = "move"
        if self.wanted.mistake == "unmoved":
            arrays = [jnp.asarray(piece) for _, piece in cut]
        else:
            arrays = [jax.device_put(piece, device) for device, piece in cut]
        for device, array in zip(intended, arrays, strict=True):
            on: jax.Device
            (on,) = array.devices()
            self.pieces.append(_piece(np.asarray(array), device, on.id))
        self.step = "join"
        return jax.make_array_from_single_device_arrays(self.shape, self.sharding, arrays)

    def make_mistake(self, cut: list[tuple[Any, np.ndarray]], intended: list[int]) -> None:
        """Change the list of (device, piece) and the intended device ids."""
        place = self.wanted.device
        device, piece = cut[place]
        match self.wanted.mistake:
            case "missing":
                del cut[place], intended[place]
            case "swapped":
                other = assemblies.swap_partner(self.wanted)
                cut[place], cut[other] = (device, cut[other][1]), (cut[other][0], piece)
                intended[place], intended[other] = intended[other], intended[place]
            case "same_device":
                cut[place] = (cut[(place + 1) % len(cut)][0], piece)
            case "list_order":
                cut.reverse()
                intended.reverse()
            case "shape" | "dtype" | "copies":
                cut[place] = (device, self.wrong(piece))

    def wrong(self, piece: np.ndarray) -> Any:
        """Return the piece with the mistake of the assembly, None if the piece is missing."""
        match self.wanted.mistake:
            case "shape":
                return one_row_off(piece)
            case "dtype":
                return piece.astype(np.float32)
            case "copies":
                return piece + DTYPE.type(self.host.size)
            case "missing":
                return None
        return piece

    def by_callback(self) -> jax.Array:
        self.step = "join"
        # JAX calls the callback once for a replicated array.
        wrong = 0 if self.sharding.is_fully_replicated else self.wanted.device
        swapped: dict[int, Any] = {}
        if self.wanted.mistake == "swapped":
            indices = list(self.sharding.devices_indices_map(self.shape).values())
            other = assemblies.swap_partner(self.wanted)
            swapped = {wrong: indices[other], other: indices[wrong]}

        def callback(index: tuple[slice, ...] | None) -> Any:  # what JAX refuses, too
            number = len(self.pieces)
            piece = self.host[swapped.get(number, index)]
            if number == wrong:
                piece = self.wrong(piece)
            self.pieces.append(_piece(piece, self.mesh.devices.flat[number].id, None))
            return piece

        return jax.make_array_from_callback(self.shape, self.sharding, callback)

    def by_device_put(self) -> jax.Array:
        host = self.host
        if self.wanted.mistake == "swapped":
            indices = list(self.sharding.devices_indices_map(self.shape).values())
            block, swap = indices[self.wanted.device], indices[assemblies.swap_partner(self.wanted)]
            host = host.copy()
            host[block], host[swap] = self.host[swap], self.host[block]
        elif self.wanted.mistake == "dtype":
            host = host.astype(np.int64)
        self.pieces.append(_piece(host, None, None))
        self.step = "join"
        return jax.device_put(host, self.sharding)

    def reshard(self, array: jax.Array, target: Spec) -> tuple[jax.Array, tuple[str, ...]]:
        """Return the array resharded by a jitted identity, and the collectives of that program."""
        identity = jax.jit(lambda x: x, out_shardings=self.sharding_of(target))
        text = identity.lower(array).compile().as_text() or ""
        collectives = tuple(
            BY_OPCODE[instruction.opcode].name
            for module in hlo.parse(text)
            for _, instruction in module.instructions
            if instruction.opcode in BY_OPCODE
        )
        return jax.block_until_ready(identity(array)), collectives

    def stage(self, path: str, array: jax.Array) -> Stage:
        shards = {shard.device.id: np.asarray(shard.data) for shard in array.addressable_shards}
        return Stage(
            array=live_array(Leaf(path, "batch", array, None), self.wanted.mesh(), logical=False),
            sharding=str(array.sharding),
            contents=tuple(
                Contents(device.id, shards[device.id].shape, _values(shards[device.id]))
                for device in self.mesh.devices.flat
            ),
        )


def one_row_off(piece: np.ndarray) -> np.ndarray:
    """Return the piece without its last row. A piece of one row gets a second one."""
    return piece[:-1] if piece.shape[0] > 1 else np.concatenate([piece, piece])


def _piece(piece: np.ndarray | None, intended: int | None, on: int | None) -> Piece:
    if piece is None:
        return Piece(intended, on, None, "None", ())
    return Piece(intended, on, piece.shape, str(piece.dtype), _values(piece))


def _values(values: np.ndarray) -> tuple[int, ...]:
    return tuple(values.ravel().astype(np.int64).tolist())
