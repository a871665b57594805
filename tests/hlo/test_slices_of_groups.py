"""Which collectives of a partitioned program send between TPU slices."""

from __future__ import annotations

import pytest

from inspector import hlo
from inspector.compiled import program_text
from inspector.machines import hardware
from inspector.machines.links import SliceLink, TorusLink
from inspector.machines.mesh_links import bytes_between_slices, link_of, links_of, spanned_axes
from inspector.records.snapshot import Collective, Mesh, MeshAxis
from inspector.sharding.meshes import DCN

# Two devices of `data` in each of two slices: a group of two can be inside of a slice or between both.
AXES = (MeshAxis("data", 4), MeshAxis("fsdp", 2))
MESH = Mesh(AXES, tuple(range(8)), slice_index=(0, 0, 0, 0, 1, 1, 1, 1))
INSIDE, BETWEEN = "{{0,2},{1,3},{4,6},{5,7}}", "{{0,4},{1,5},{2,6},{3,7}}"
TEXT = """HloModule m, num_partitions=8

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}

ENTRY main {
  p = f32[1024] parameter(0)
  ROOT reduced = f32[1024] all-reduce(p), replica_groups=GROUPS, to_apply=add
}
"""


def collective(groups: str, mesh: Mesh = MESH) -> Collective:
    module = program_text.parsed(TEXT.replace("GROUPS", groups))
    assert module is not None
    (collective,) = hlo.collectives.collectives(module, mesh)
    return collective


@pytest.mark.parametrize(("groups", "network"), [(INSIDE, None), (BETWEEN, DCN)])
def test_a_part_of_an_axis_that_crosses_slices_is_inside_or_between(groups, network):
    result = collective(groups)
    assert result.network == network
    axes = spanned_axes(result, MESH)
    assert axes == ("data",)
    link = link_of(result, links_of(MESH, hardware.chip("v5e"), [axes])[axes])
    assert isinstance(link, SliceLink if network else TorusLink)
    assert bool(bytes_between_slices([result], MESH)) == (network is not None)


def test_one_slice_has_no_network_between_slices():
    assert collective(BETWEEN, Mesh(AXES, tuple(range(8)))).network is None
