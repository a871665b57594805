"""Make a global array from shards on emulated devices, with an optional mistake, and record JAX's errors."""

import re
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from inspector import hlo
from inspector.guides import assembly as assemblies
from inspector.guides.array_fields import JaxError
from inspector.guides.assembly import Assembled, Assembly, Contents, Piece, Stage, Step, script
from inspector.records import typed_json
from inspector.records.collectives import BY_OPCODE
from inspector.records.job_report import JobReport
from inspector.tracing.leaves import Leaf
from inspector.tracing.live_arrays import live_array

# Newer JAX versions end a message with the path of this file.
_SOURCE = re.compile(r"(?<![\w.-])(?:/[\w.@+ -]+)+/(?=[\w.-]+\.py\b)")


def assemble(payload: dict[str, Any], report: JobReport) -> dict[str, Any]:
    """Worker job: return the `Assembled` of `{"assembly": …}` as JSON."""
    wanted = typed_json.decode(Assembly, payload["assembly"])
    report("build")
    return typed_json.encode(make_array(wanted))


def make_array(wanted: Assembly) -> Assembled:
    """Run the script of the assembly and read its arrays. An error of JAX becomes part of the result."""
    values: dict[str, Any] = {}  # of the script, by name
    refusal: JaxError | None = None
    stages: list[jax.Array] = []
    collectives: tuple[str, ...] = ()
    cut: dict[int, tuple[Any, int]] = {}  # piece and device by identity, before the mistake
    called: list[Piece] = []
    step: Step = "cut"
    try:
        for step, code in script.cells(wanted):
            exec(compile(code, "script", "exec", dont_inherit=True), values)
            if step == "cut" and not cut:
                cut = {id(piece): (piece, device.id) for device, piece in values.get("pieces", ())}
            if "callback" in values and not called:
                values["callback"] = _recorded(values["callback"], values["devices"], called)
            if "array" in values:
                jax.block_until_ready(values["array"])
                stages.append(values["array"])
            if step == "reshard":
                collectives = _collectives(stages[0], values["target"])
    except Exception as error:  # the error is the result
        refusal = JaxError(step, type(error).__name__, _SOURCE.sub("", str(error)))
    made = [
        _stage(name, array, wanted)
        for name, array in zip(("batch", "batch, resharded"), stages, strict=False)
    ]
    result = Assembled(
        shape=assemblies.given_shape(wanted),
        pieces=tuple(called or _pieces(values, cut, step)),
        joined=made[0] if made else None,
        resharded=made[1] if len(made) > 1 else None,
        collectives=collectives,
        refusal=refusal,
        versions={"jax": jax.__version__},
    )
    values.clear()  # JAX's caches keep the functions of the script, and with them its arrays
    return result


def _pieces(values: dict[str, Any], cut: dict[int, tuple[Any, int]], step: Step) -> list[Piece]:
    """Return what JAX was given: the pieces that were moved, or the host array of `device_put`."""
    if "pieces" not in values:
        return [] if step == "cut" or "callback" in values else [_piece(values["host"], None, None)]
    # A piece that a mistake has made anew is for the device beside it.
    intended = [cut.get(id(piece), (None, device.id))[1] for device, piece in values["pieces"]]
    found = []
    for device, array in zip(intended, values.get("arrays", ()), strict=False):
        on: jax.Device
        (on,) = array.devices()
        found.append(_piece(np.asarray(array), device, on.id))
    return found


def _recorded(callback: Any, devices: np.ndarray, called: list[Piece]) -> Any:
    """Return a callback that also records each piece, in the order of the calls."""

    def record(index: tuple[slice, ...] | None) -> Any:
        piece = callback(index)
        called.append(_piece(piece, devices.flat[len(called)].id, None))
        return piece

    return record


def _collectives(array: jax.Array, target: NamedSharding) -> tuple[str, ...]:
    """Return the collectives of the program that reshards an array."""
    text = jax.jit(lambda x: x, out_shardings=target).lower(array).compile().as_text() or ""
    return tuple(
        BY_OPCODE[instruction.opcode].name
        for module in hlo.parser.parse(text)
        for _, instruction in module.instructions
        if instruction.opcode in BY_OPCODE
    )


def _stage(path: str, array: jax.Array, wanted: Assembly) -> Stage:
    shards = {shard.device.id: np.asarray(shard.data) for shard in array.addressable_shards}
    return Stage(
        array=live_array(Leaf(path, "batch", array, None), wanted.mesh(), logical=False),
        sharding=str(array.sharding),
        contents=tuple(
            Contents(device.id, shards[device.id].shape, _values(shards[device.id]))
            for device in jax.devices()[: wanted.devices]
        ),
    )


def _piece(piece: np.ndarray | None, intended: int | None, on: int | None) -> Piece:
    if piece is None:
        return Piece(intended, on, None, "None", ())
    return Piece(intended, on, piece.shape, str(piece.dtype), _values(piece))


def _values(values: np.ndarray) -> tuple[int, ...]:
    return tuple(values.ravel().astype(np.int64).tolist())
