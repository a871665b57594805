"""The Python script that makes the array of an Assembly."""

from __future__ import annotations

from inspector.core import sharding
from inspector.core.snapshot import Spec
from inspector.guides import assembly as assemblies
from inspector.guides.assembly import Assembly

_HEAD = """\
import os

# {devices} emulated devices; leave these two lines out where there are real ones.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_NUM_CPU_DEVICES"] = "{devices}"

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

devices = np.array(jax.devices()[:{devices}]).reshape({mesh_shape})
mesh = Mesh(devices, {names})
sharding = NamedSharding(mesh, {spec})

# Every element is its own number, so that it can be seen where it ends up.
host = np.arange({elements}, dtype=np.int32).reshape({shape})
"""

_CALLBACK = """

calls = []


def callback(index):
    number = len(calls)
    calls.append(index)
    piece = host[index]
{mistake}    return piece


array = jax.make_array_from_callback(host.shape, sharding, callback)
"""

_PIECES = """
indices = sharding.addressable_devices_indices_map(host.shape)
pieces = [(device, host[index]) for device, index in indices.items()]
{mistake}arrays = {arrays}
array = jax.make_array_from_single_device_arrays({shape}, sharding, arrays)
"""

_DEVICE_PUT = """{mistake}
array = jax.device_put(host, sharding)
"""

_RESHARD = """
# What follows may need another sharding: inside jit, JAX moves what has to move.
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
    given = assemblies.given_shape(assembly)
    shape = assembly.shape if assembly.mistake == "global_shape" else given
    count = 1
    for size in shape:
        count *= size
    text = _HEAD.format(
        devices=assembly.devices,
        mesh_shape=assembly.mesh_shape,
        names=_quoted(assembly.axis_names),
        spec=_spec(assembly.spec),
        elements=count,
        shape=shape,
    )
    if assembly.way == "callback":
        text += _CALLBACK.format(mistake=_callback_mistake(assembly))
    elif assembly.way == "pieces":
        moved = "[jax.device_put(piece, device) for device, piece in pieces]"
        if assembly.mistake == "unmoved":
            moved = "[jax.numpy.asarray(piece) for _, piece in pieces]  # the mistake: all on one device"
        told = "host.shape"
        if assembly.mistake == "global_shape":
            told = f"{given}"
        text += _PIECES.format(mistake=_pieces_mistake(assembly), arrays=moved, shape=told)
    else:
        text += _DEVICE_PUT.format(mistake=_host_mistake(assembly))
    if assembly.target is not None:
        text += _RESHARD.format(target=_spec(assembly.target))
    return text + _TAIL


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
    ways = sharding.ways_per_dimension(assembly.spec, assembly.mesh())
    # What is the same everywhere is asked for only once.
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
    rows = sharding.shard_shape(assembly.shape, assembly.spec, assembly.mesh())[0]
    return "piece[:-1]" if rows > 1 else "np.concatenate([piece, piece])"


def _quoted(names: tuple[str, ...]) -> str:
    listed = ", ".join(f'"{name}"' for name in names)
    return f"({listed},)" if len(names) == 1 else f"({listed})"


def _spec(spec: Spec) -> str:
    entries = [
        "None" if not axes else _quoted(axes) if len(axes) > 1 else f'"{axes[0]}"' for axes in spec
    ]
    return f"P({', '.join(entries)})"
