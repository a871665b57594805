"""Faults found in any pieces, against what JAX itself does with exactly these pieces."""

from __future__ import annotations

import jax
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from inspector.guides import assembly as assemblies
from inspector.guides.array_fields import JaxError
from inspector.guides.assembly import Assembled, Contents, Piece, Stage, pieces
from inspector.records.snapshot import Array

SPECS = ("x, y", "x", "None, y", "y + x", "")


@st.composite
def handed_over(draw: st.DrawFn) -> tuple[assemblies.Assembly, list[tuple[np.ndarray, int, int]]]:
    """An assembly on four devices and a list of (piece, meant for, put on), right or wrong."""
    asked = assemblies.parse({"mesh": "2x2", "shape": "4x4", "spec": draw(st.sampled_from(SPECS))})
    assembly = asked.unwrap()
    placed = pieces.placement(assembly)
    listed = []
    for device in range(4):
        piece = pieces.belonging(assembly, placed.starts[device], placed.stops[device])
        piece = piece.astype(np.int32)
        match draw(st.sampled_from(["right"] * 8 + ["short", "float", "other numbers"])):
            case "short":
                piece = piece[:, :-1] if piece.shape[1] > 1 else piece[:-1]
            case "float":
                piece = piece.astype(np.float32)
            case "other numbers":
                piece = (piece + np.int32(draw(st.integers(1, 20)))).astype(np.int32)
        on = device if draw(st.integers(0, 9)) else draw(st.integers(0, 3))
        listed.append((piece, device, on))
    if not draw(st.integers(0, 9)):
        listed.pop(draw(st.integers(0, 3)))
    return assembly, draw(st.permutations(listed))


def made_by_jax(assembly: assemblies.Assembly, listed: list) -> Assembled:
    """What `make_array_from_single_device_arrays` does, in the same words as a worker says it."""
    devices = np.array(jax.devices()[:4]).reshape(2, 2)
    axes = [None if entry is None else tuple(entry) for entry in assembly.spec]
    layout = NamedSharding(Mesh(devices, ("x", "y")), PartitionSpec(*axes))
    given = tuple(
        Piece(meant_for, on, piece.shape, str(piece.dtype), tuple(map(int, piece.ravel())))
        for piece, meant_for, on in listed
    )
    joined = refusal = None
    try:
        arrays = [jax.device_put(piece, jax.devices()[on]) for piece, _, on in listed]
        array = jax.make_array_from_single_device_arrays(assembly.shape, layout, arrays)
    except (ValueError, TypeError) as error:
        refusal = JaxError("join", type(error).__name__, str(error))
    else:
        shards = sorted(array.addressable_shards, key=lambda shard: shard.device.id)
        joined = Stage(
            Array("batch", "batch", array.shape, str(array.dtype), spec=assembly.spec),
            str(array.sharding),
            tuple(
                Contents(shard.device.id, shard.data.shape, tuple(map(int, np.ravel(shard.data))))
                for shard in shards
            ),
        )
    return Assembled(assembly.shape, given, joined, None, (), refusal)


@given(handed_over())
def test_faults_are_found_if_jax_refuses_or_numbers_are_wrong(case: tuple) -> None:
    assembly, listed = case
    assembled = made_by_jax(assembly, listed)
    faults = pieces.faults(assembly, assembled)
    all_float = all(piece.dtype == np.float32 for piece, _, _ in listed)
    if assembled.refusal is not None:
        assert faults
    elif not all_float:
        wrong = {
            shard.device
            for shard in assembled.joined.contents
            if list(shard.values) != expected(assembly, shard.device)
        }
        assert set(pieces.wrong_elements(assembly, assembled.joined)) == wrong
        assert {device for fault in faults for device in fault.devices} == wrong
        assert bool(faults) == bool(wrong)


def expected(assembly: assemblies.Assembly, device: int) -> list[int]:
    """Return the numbers of a device's shard in JAX."""
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("x", "y"))
    axes = [None if entry is None else tuple(entry) for entry in assembly.spec]
    indices = NamedSharding(mesh, PartitionSpec(*axes)).devices_indices_map((4, 4))
    return np.arange(16).reshape(4, 4)[indices[jax.devices()[device]]].ravel().tolist()


@given(st.sampled_from(SPECS), st.sampled_from(["4x4", "8x4", "4x4x6"]))
def test_home_blocks_are_the_blocks_of_the_devices(spec: str, shape: str) -> None:
    assembly = assemblies.parse({"mesh": "2x2", "shape": shape, "spec": spec}).unwrap()
    numbers = pieces.home_blocks(assembly)
    placed = pieces.placement(assembly)
    for start, stop, block in zip(placed.starts, placed.stops, placed.block, strict=True):
        assert (numbers[pieces.window(start, stop)] == block).all()
    assert set(np.unique(numbers)) == set(range(placed.blocks))
    # A later batch has the blocks of the first.
    later = np.arange(assembly.elements) + 3 * assembly.elements
    assert (pieces.blocks_of_values(assembly, later) == numbers.ravel()).all()


def test_an_indivisible_shape_has_no_placement() -> None:
    assembly = assemblies.parse({"shape": "9x8"}).unwrap()
    assert pieces.placement(assembly) is None
    assert (pieces.home_blocks(assembly) == 0).all()
