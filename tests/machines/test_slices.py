"""Slices of TPU pods against the tables that Google and MaxText publish."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.machines import slices
from inspector.machines.hardware import CHIPS
from inspector.machines.slices import Slice, slice_named, slice_of
from inspector.text.errors import InvalidInput

# Google, https://cloud.google.com/tpu/docs/v5p: topology, cores, chips, hosts.
GOOGLE_V5P = """
    2x2x1 8 4 1
    2x2x2 16 8 2
    2x4x4 64 32 8
    4x4x4 128 64 16
    4x4x8 256 128 32
    4x8x8 512 256 64
    8x8x8 1024 512 128
    8x8x16 2048 1024 256
    8x16x16 4096 2048 512
    16x16x16 8192 4096 1024
    16x16x24 12288 6144 1536
"""
# Google, https://cloud.google.com/tpu/docs/v6e: topology, chips, virtual machines.
GOOGLE_V6E = """
    1x1 1 1
    2x2 4 1
    2x4 8 1
    4x4 16 4
    4x8 32 8
    8x8 64 16
    8x16 128 32
    16x16 256 64
"""
# MaxText, accelerator_to_spec_map.py: name, topology, where it wraps around.
MAXTEXT = """
    tpu7x-8 2x2x1 no,no,no
    tpu7x-64 2x4x4 no,no,no
    tpu7x-128 4x4x4 yes,yes,yes
    tpu7x-384 4x4x12 yes,yes,yes
    tpu7x-1408 4x4x44 yes,yes,yes
    tpu7x-3456 12x12x12 yes,yes,yes
    tpu7x-6144 12x16x16 yes,yes,yes
    tpu7x-13824 12x24x24 yes,yes,yes
    tpu7x-16384 16x16x32 yes,yes,yes
    tpu7x-17920 16x20x28 yes,yes,yes
    tpu7x-18432 16x24x24 yes,yes,yes
    v6e-1 1x1 no,no
    v6e-64 8x8 no,no
    v6e-128 8x16 no,yes
    v6e-256 16x16 yes,yes
    v5e-16 4x4 no,no
    v5e-128 8x16 no,yes
    v4-8 2x2x1 no,no,no
    v4-32 2x2x4 no,no,no
    v4-384 4x4x12 yes,yes,yes
    v4-1536 8x8x12 yes,yes,yes
    v4-4096 8x16x16 yes,yes,yes
    v5p-32 2x2x4 no,no,no
    v5p-1024 8x8x8 yes,yes,yes
    v5p-4480 4x20x28 yes,yes,yes
    v5p-9216 12x16x24 yes,yes,yes
    v5p-12160 4x20x76 yes,yes,yes
    v5p-17920 16x20x28 yes,yes,yes
"""


def rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.strip().splitlines()]


@pytest.mark.parametrize(("topology", "cores", "chips", "hosts"), rows(GOOGLE_V5P))
def test_v5p_slices_of_google(topology: str, cores: str, chips: str, hosts: str) -> None:
    result = slice_of("v5p", topology)
    assert (result.cores, result.chips, result.hosts) == (int(cores), int(chips), int(hosts))
    assert result.name == f"v5p-{cores}"
    assert result.devices == result.chips  # megacore


@pytest.mark.parametrize(("topology", "chips", "machines"), rows(GOOGLE_V6E))
@pytest.mark.parametrize(("generation", "prefix"), [("v6e", "v6e"), ("v5e", "v5litepod")])
def test_v5e_and_v6e_slices_of_google(
    generation: str, prefix: str, topology: str, chips: str, machines: str
) -> None:
    result = slice_of(generation, topology)
    assert (result.chips, result.hosts) == (int(chips), int(machines))
    assert result.name == f"{prefix}-{chips}"


@pytest.mark.parametrize(("name", "topology", "wraps"), rows(MAXTEXT))
def test_names_and_wrap_around_of_maxtext(name: str, topology: str, wraps: str) -> None:
    result = slice_named(name)
    assert result.topology == topology
    assert result.wraps == tuple(word == "yes" for word in wraps.split(","))


def test_name_counts_tensorcores() -> None:
    assert slice_named("v5p-128").chips == 64
    v3 = slice_named("v3-8")
    assert (v3.topology, v3.chips, v3.devices) == ("2x2", 4, 8)
    ironwood = slice_named("tpu7x-128")
    assert (ironwood.chips, ironwood.devices) == (64, 128)


@pytest.mark.parametrize("generation", slices.GENERATIONS)
def test_all_slices_of_a_generation(generation: str) -> None:
    every = slices.slices(generation)
    assert len(set(every)) == len(every)
    assert max(one.chips for one in every) == CHIPS[generation].pod_chips
    for one in every:
        assert slice_of(generation, one.topology) is one
        assert one.hosts * math.prod(one.host_shape) == one.chips
        assert slice_named(one.name).chips == one.chips
        assert one.sentence.startswith(one.name)


@given(st.sampled_from([slice_ for name in slices.GENERATIONS for slice_ in slices.slices(name)]))
def test_links_are_counted_chip_by_chip(one: Slice) -> None:
    if one.chips > 512:
        return
    counted = 0
    for chip in range(one.chips):
        rest, place = chip, []
        for length in one.shape:
            rest, at = divmod(rest, length)
            place.append(at)
        for at, length, wraps in zip(place, one.shape, one.wraps, strict=True):
            counted += at + 1 < length or wraps  # the link to the next one
    assert one.links == counted


INVALID_TOPOLOGIES = {
    ("v9", "2x2"): "one of v3, v4, v5e, v5p, v6e, tpu7x",
    ("v5p", "3x4x4"): "three multiples of 4 in ascending order",
    ("v5p", "8x4x4"): "the same chips are written 4x4x8",
    ("v5p", "4x2x2"): "the same chips are written 2x2x4",
    ("v5p", "0x4x4"): "at most 8,960 chips",
    ("v5p", "100x100x100"): "nearest: 16x20x28",
    ("v5p", "4x4"): "2x2x1, 2x2x2",
    ("v5e", "2x2x2"): "one of 1x1, 2x2, 2x4",
    ("v6e", ""): "but must be",
    ("v4", "4x4x4x4"): "but must be",
    ("v4", "-4x4x4"): "but must be",
    ("v4", "٤x٤x٤"): "but must be",
}
INVALID_NAMES = {
    "v5p-100": "nearest: v5p-128, 4x4x4",
    "v5p": "v5p-128 or v5litepod-16",
    "h100-8": "of generation v3",
    "v5p-99999999999": "but must be a name",
    "": "but must be a name",
}


@pytest.mark.parametrize(("slice_", "said"), INVALID_TOPOLOGIES.items(), ids=str)
def test_invalid_topology(slice_: tuple[str, str], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        slice_of(*slice_)


@pytest.mark.parametrize(("name", "said"), INVALID_NAMES.items())
def test_invalid_name(name: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        slice_named(name)


@given(st.text(max_size=30))
def test_arbitrary_text(text: str) -> None:
    for read in (slice_named, lambda one: slice_of("v5p", one)):
        try:
            assert isinstance(read(text), Slice)
        except InvalidInput as refused:
            assert "but" in str(refused)
