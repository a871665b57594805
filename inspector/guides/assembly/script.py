"""The Python script that makes the array of an Assembly."""

import math

from inspector.guides import assembly as assemblies
from inspector.guides.assembly import Assembly, Step
from inspector.sharding import placement
from inspector.sharding.sharding_text import spec_text

_ENVIRONMENT = """\
import os

# {devices} emulated devices. Delete these two lines to run on real devices.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_NUM_CPU_DEVICES"] = "{devices}"

"""

_SETUP = """\
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

devices = np.array(jax.devices()[:{devices}]).reshape({mesh_shape})
mesh = Mesh(devices, {names})
sharding = NamedSharding(mesh, {spec})

# Each element is its own position, so that the output shows which device holds it.
host = np.arange({elements}, dtype=np.int32).reshape({shape})
"""

_CALLBACK = """

calls = []


def callback(index):
    number = len(calls)
    calls.append(index)
    piece = host[index]
{mistake}    return piece


"""

_CUT = """
indices = sharding.addressable_devices_indices_map(host.shape)
pieces = [(device, host[index]) for device, index in indices.items()]
"""

_RESHARD = """
# Change the sharding inside jit: JAX moves the data.
target = NamedSharding(mesh, {target})
array = jax.jit(lambda x: x, out_shardings=target)(array)
"""

_TAIL = """
print(array.sharding)
for shard in array.addressable_shards:
    print("device", shard.device.id, "holds", shard.index, shard.data.tolist())
"""


def script(assembly: Assembly) -> str:
    """Return the script. It prints the last sharding, and the shard of each device on one line."""
    code = "".join(code for _, code in cells(assembly))
    return _ENVIRONMENT.format(devices=assembly.devices) + code + _TAIL


def cells(assembly: Assembly) -> list[tuple[Step, str]]:
    """Return the code that makes the array, in parts that follow each other, each with its step."""
    given = assemblies.given_shape(assembly)
    shape = assembly.shape if assembly.mistake == "global_shape" else given
    setup = _SETUP.format(
        devices=assembly.devices,
        mesh_shape=assembly.mesh_shape,
        names=assembly.axis_names,
        spec=spec_text(assembly.spec),
        elements=math.prod(shape),
        shape=shape,
    )
    parts: list[tuple[Step, str]] = [("cut", setup)]
    if assembly.way == "callback":
        made = "array = jax.make_array_from_callback(host.shape, sharding, callback)\n"
        parts += [("join", _CALLBACK.format(mistake=_callback_mistake(assembly))), ("join", made)]
    elif assembly.way == "pieces":
        moved = "[jax.device_put(piece, device) for device, piece in pieces]"
        if assembly.mistake == "unmoved":
            moved = "[jax.numpy.asarray(piece) for _, piece in pieces]  # the mistake: all on one device"
        shape_text = str(given) if assembly.mistake == "global_shape" else "host.shape"
        made = f"array = jax.make_array_from_single_device_arrays({shape_text}, sharding, arrays)\n"
        parts += [("cut", _CUT), ("cut", _pieces_mistake(assembly))]
        parts += [("move", f"arrays = {moved}\n"), ("join", made)]
    else:
        parts += [("cut", _host_mistake(assembly)), ("join", "\narray = jax.device_put(host, sharding)\n")]
    if assembly.target is not None:
        parts.append(("reshard", _RESHARD.format(target=spec_text(assembly.target))))
    return parts


def _pieces_mistake(assembly: Assembly) -> str:
    place = assembly.device
    lines: tuple[str, ...] = ()
    match assembly.mistake:
        case "shape":
            lines = (
                f"device, piece = pieces[{place}]",
                f"pieces[{place}] = device, {_one_row_off(assembly)}",
            )
        case "missing":
            lines = (f"del pieces[{place}]",)
        case "swapped":
            other = assemblies.swap_partner(assembly)
            lines = (
                f"(one, piece), (other, its_piece) = pieces[{place}], pieces[{other}]",
                f"pieces[{place}], pieces[{other}] = (one, its_piece), (other, piece)",
            )
        case "same_device":
            other = (place + 1) % assembly.devices
            lines = (f"pieces[{place}] = pieces[{other}][0], pieces[{place}][1]",)
        case "list_order":
            lines = ("pieces.reverse()",)
        case "dtype":
            lines = (
                f"device, piece = pieces[{place}]",
                f"pieces[{place}] = device, piece.astype(np.float32)",
            )
        case "copies":
            lines = (
                f"device, piece = pieces[{place}]",
                f"pieces[{place}] = device, piece + np.int32(host.size)",
            )
    return _marked(lines)


def _callback_mistake(assembly: Assembly) -> str:
    ways = placement.ways_per_dimension(assembly.spec, assembly.mesh())
    # JAX calls the callback once if all devices hold the same block.
    place = assembly.device if any(count > 1 for count in ways) else 0
    condition = f"if number == {place}:"
    lines: tuple[str, ...] = ()
    match assembly.mistake:
        case "shape":
            lines = (condition, f"    piece = {_one_row_off(assembly)}")
        case "missing":
            lines = (condition, "    piece = None")
        case "swapped":
            other = assemblies.swap_partner(assembly)
            lines = (
                "indices = list(sharding.devices_indices_map(host.shape).values())",
                f"if number in ({place}, {other}):",
                f"    piece = host[indices[{place + other} - number]]",
            )
        case "dtype":
            lines = (condition, "    piece = piece.astype(np.float32)")
        case "copies":
            lines = (condition, "    piece = piece + np.int32(host.size)")
    return _marked(lines, "    ")


def _host_mistake(assembly: Assembly) -> str:
    lines: tuple[str, ...] = ()
    match assembly.mistake:
        case "swapped":
            place, other = assembly.device, assemblies.swap_partner(assembly)
            lines = (
                "indices = list(sharding.devices_indices_map(host.shape).values())",
                f"one, other = indices[{place}], indices[{other}]",
                "host[one], host[other] = host[other].copy(), host[one].copy()",
            )
        case "dtype":
            lines = ("host = host.astype(np.int64)",)
    return _marked(lines)


def _marked(lines: tuple[str, ...], indent: str = "") -> str:
    if not lines:
        return ""
    return "".join(f"{indent}{line}\n" for line in ("# The mistake:", *lines))


def _one_row_off(assembly: Assembly) -> str:
    rows = placement.shard_shape(assembly.shape, assembly.spec, assembly.mesh())[0]
    return "piece[:-1]" if rows > 1 else "np.concatenate([piece, piece])"
