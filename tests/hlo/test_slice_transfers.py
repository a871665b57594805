"""Collectives between TPU slices, in texts as libtpu 0.0.42 writes them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from inspector import hlo
from inspector.compiled.device_traffic import device_traffic
from inspector.records.snapshot import Collective, Mesh, MeshAxis
from inspector.sharding.meshes import crossing_axes, slices_of

IDS = [100_000 * slice_id + device for slice_id in (1, 2) for device in range(4)]


def mesh(ids: list[int] = IDS, **sizes: int) -> Mesh:
    axes = tuple(MeshAxis(name, size) for name, size in sizes.items())
    assert math.prod(sizes.values()) == len(ids)
    return Mesh(axes, tuple(ids), slice_index=tuple(id_ // 100_000 - 1 for id_ in ids))


TWO = mesh(data=2, fsdp=4)


def transfer(kind: str, target: str, sent: str, received: str, number: int = 0) -> str:
    """Return the four instructions of one transfer, with `sent` as operand `x<number>`."""
    attributes = (
        'is_host_transfer=true, frontend_attributes={_xla_host_transfer_handler_name="xla_megascale_runtime",'
        f'_xla_host_transfer_rendezvous="{kind.lower()}.{number}_0",_xla_megascale_target={target},'
        f'_xla_megascale_transfer_type="{kind}"}}'
    )
    done = 'frontend_attributes={_xla_host_transfer_handler_name="xla_megascale_runtime"}'
    metadata = f'metadata={{op_name="jit(f)/layer_{number}/dot_general"}}'
    return f"""
  %x{number} = {sent}{{1,0:T(8,128)(2,1)}} convert(%p), {metadata}
  %t{number} = token[] after-all()
  %send.{number} = ({sent}, u32[], token[]) send(%x{number}, %t{number}), channel_id=4, {attributes}
  %recv.{number} = ({received}, u32[], token[]) recv(%t{number}), channel_id=1, {attributes}
  %send-done.{number} = token[] send-done(%send.{number}), channel_id=4, {done}
  %recv-done.{number} = ({received}, token[]) recv-done(%recv.{number}), channel_id=1, {done}"""


def collectives(*instructions: str, on: Mesh | None = TWO) -> tuple[Collective, ...]:
    text = (
        "HloModule jit_f, is_scheduled=true, num_partitions=4\n\n"
        "ENTRY %main (p: bf16[64,32]) -> bf16[64,32] {\n"
        "  %p = bf16[64,32]{1,0} parameter(0)\n"
        + "\n".join(instructions)
        + "\n  ROOT %r = bf16[64,32]{1,0} copy(%p)\n}\n"
    )
    (module,) = hlo.parser.parse(text)
    return hlo.collectives.collectives(module, on)


ALL = '"{1,2}x{0:3}"'


@pytest.mark.parametrize(
    ("kind", "sent", "received", "op", "payload", "wire"),
    [
        ("ALL_REDUCE", "bf16[64,32]", "bf16[64,32]", "all-reduce", 4096, 4096),
        ("ALL_GATHER", "bf16[64,32]", "bf16[128,32]", "all-gather", 8192, 4096),
        ("REDUCE_SCATTER", "bf16[64,32]", "bf16[32,32]", "reduce-scatter", 4096, 2048),
        ("ALL_TO_ALL", "bf16[64,32]", "bf16[64,32]", "all-to-all", 4096, 2048),
        ("NEW_TYPE", "bf16[64,32]", "bf16[64,32]", "new-type", 4096, None),
    ],
)
def test_a_transfer_is_one_collective(
    kind: str, sent: str, received: str, op: str, payload: int, wire: int | None
) -> None:
    (collective,) = collectives(transfer(kind, ALL, sent, received))
    assert (collective.op, collective.name, collective.computation, collective.network) == (
        op,
        "send.0",
        "main",
        "dcn",
    )
    assert (collective.mesh_axes, collective.group_size, collective.groups) == (("data",), 2, 4)
    assert (collective.payload_bytes, collective.wire_bytes_per_device) == (payload, wire)
    assert (collective.executions, collective.asynchronous, collective.conditional) == (1, True, False)
    assert collective.op_name == "jit(f)/layer_0/dot_general"


def test_every_transfer_counts_once() -> None:
    result = collectives(
        transfer("ALL_REDUCE", ALL, "bf16[64,32]", "bf16[64,32]", 0),
        transfer("ALL_GATHER", ALL, "bf16[8,32]", "bf16[16,32]", 1),
    )
    assert [(collective.op, collective.name) for collective in result] == [
        ("all-reduce", "send.0"),
        ("all-gather", "send.1"),
    ]


@pytest.mark.parametrize(
    ("target", "on", "axes", "groups"),
    [
        # Device ids. The mesh has the chips of the second slice in another order.
        (
            "{{100000,200001},{100001,200000},{100002,200003},{100003,200002}}",
            mesh([*IDS[:4], 200001, 200000, 200003, 200002], data=2, fsdp=4), ("data",), None,
        ),
        # All devices of both slices.
        ("{{100000,100001,100002,100003,200000,200001,200002,200003}}", TWO, ("data", "fsdp"), None),
        # Slices along the last axis, as `create_hybrid_device_mesh` can put them.
        (ALL, mesh([IDS[at] for at in (0, 4, 1, 5, 2, 6, 3, 7)], fsdp=4, data=2), ("data",), None),
        # A part of an axis, of which the rest is inside of the slices.
        (ALL, mesh(data=8), ("data",), ((0, 4), (1, 5), (2, 6), (3, 7))),
        (ALL, mesh(data=4, model=2), ("data",), ((0, 4), (1, 5), (2, 6), (3, 7))),
        # A device that is not on the mesh.
        ("{{100000,900000}}", TWO, None, None),
        ('"{1,9}x{0:3}"', TWO, None, None),
    ],
)  # fmt: skip
def test_groups_of_slices(target: str, on: Mesh, axes: tuple | None, groups: tuple | None) -> None:
    (collective,) = collectives(transfer("ALL_REDUCE", target, "f32[8]", "f32[8]"), on=on)
    assert (collective.mesh_axes, collective.device_groups) == (axes, groups)


def test_pairs_between_slices() -> None:
    pairs = "{{100000->200000},{100001->200001},{200000->100000},{200001->100001}}"
    (collective,) = collectives(transfer("ONE_TO_ONE", pairs, "bf16[1,32]", "bf16[1,32]"))
    assert (collective.op, collective.mesh_axes, collective.wire_bytes_per_device) == (
        "collective-permute",
        ("data",),
        64,
    )
    assert collective.source_target_pairs == ((0, 4), (1, 5), (4, 0), (5, 1))


def test_without_a_mesh_the_size_of_the_groups_is_known() -> None:
    (collective,) = collectives(transfer("ALL_REDUCE", ALL, "f32[8]", "f32[8]"), on=None)
    assert (
        collective.mesh_axes,
        collective.group_size,
        collective.groups,
        collective.wire_bytes_per_device,
    ) == (
        None,
        2,
        4,
        32,
    )


@pytest.mark.parametrize("target", ['""', "{}", '"{0:99999999}x{1}"', '"{}x{}"', "{{1->}}"])
def test_invalid_targets_have_unknown_groups(target: str) -> None:
    (collective,) = collectives(transfer("ALL_REDUCE", target, "f32[8]", "f32[8]"))
    assert collective.mesh_axes is collective.group_size is collective.wire_bytes_per_device is None


def test_a_send_to_the_host_is_no_collective() -> None:
    send = (
        "  %t = token[] after-all()\n  %send = (bf16[64,32], u32[], token[]) send(%p, %t), channel_id=1, "
        'is_host_transfer=true, frontend_attributes={_xla_host_transfer_rendezvous="callback"}'
    )
    assert collectives(send) == ()


def all_gather(groups: str) -> str:
    return (
        f"  %g = bf16[128,32]{{1,0}} all-gather(%p), channel_id=1, replica_groups={groups}, "
        "dimensions={0}, use_global_device_ids=true"
    )


@pytest.mark.parametrize(
    ("groups", "on", "axes", "parts"),
    [
        ("{{0,1,2,3}}", TWO, ("fsdp",), None),
        ("{{0,2},{1,3}}", mesh(data=2, a=2, b=2), ("a",), None),
        ("{{0,1},{2,3}}", mesh(data=2, a=2, b=2), ("b",), None),
        # The program numbers the devices of a slice in mesh order, whatever their ids.
        ("{{0,1},{2,3}}", mesh([IDS[at] for at in (2, 0, 3, 1, 6, 4, 7, 5)], data=2, a=2, b=2),
         ("b",), None),
        ("{{0,1,2,3}}", mesh([IDS[at] for at in (0, 4, 1, 5, 2, 6, 3, 7)], fsdp=4, data=2),
         ("fsdp",), None),
        # The part of an axis that is inside of a slice.
        ("{{0,2},{1,3}}", mesh(data=4, model=2), ("data",), ((0, 2), (1, 3), (4, 6), (5, 7))),
        ("{{0,1},{2,3}}", mesh(data=4, model=2), ("model",), None),
        # Half of that part.
        ("{{0,1},{2,3}}", TWO, None, ((0, 1), (2, 3), (4, 5), (6, 7))),
    ],
)  # fmt: skip
def test_groups_inside_of_the_slices(groups: str, on: Mesh, axes: tuple | None, parts: tuple | None) -> None:
    (collective,) = collectives(all_gather(groups), on=on)
    assert (collective.mesh_axes, collective.device_groups, collective.network) == (axes, parts, None)
    assert collective.groups * collective.group_size == 8  # of both slices


def test_bytes_between_devices_of_an_axis_that_crosses_slices() -> None:
    on = mesh(data=8)
    result = collectives(
        all_gather("{{0,1,2,3}}"), transfer("ALL_REDUCE", ALL, "bf16[64,32]", "bf16[64,32]"), on=on
    )
    sent = device_traffic(result, on).sent
    inside = np.zeros((8, 8), np.int64)
    for first in (0, 4):
        for at in range(4):
            inside[first + at, first + (at + 1) % 4] = 8192 * 3 // 4
    across = np.zeros((8, 8), np.int64)
    for at in range(4):
        across[at, at + 4] = across[at + 4, at] = 4096
    assert (sent == inside + across).all()


@pytest.mark.parametrize("written", [None, (0, 1), (0,) * 8, (0,) * 5 + (1,) * 3])
def test_invalid_slices_of_a_file(written: tuple[int, ...] | None) -> None:
    mesh = Mesh(TWO.axes, TWO.devices, slice_index=written)
    assert slices_of(mesh) is None and crossing_axes(mesh) == ()


@pytest.mark.parametrize(
    ("on", "crossing"),
    [
        (TWO, ("data",)),
        (mesh(data=8), ("data",)),
        (mesh([IDS[at] for at in (0, 4, 1, 5, 2, 6, 3, 7)], fsdp=4, data=2), ("data",)),
        (mesh([IDS[at] for at in (0, 1, 4, 5, 6, 7, 2, 3)], data=2, fsdp=4), ("data", "fsdp")),
    ],
)
def test_axes_that_cross_slices(on: Mesh, crossing: tuple[str, ...]) -> None:
    assert crossing_axes(on) == crossing
