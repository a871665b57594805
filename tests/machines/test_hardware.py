"""Figures of chips against published tables, shares of a device, and wrap-around links."""

from __future__ import annotations

import json
import math

import pytest

from inspector.machines.hardware import CHIPS, Nodes, Torus, chip
from inspector.text.errors import InvalidInput
from tests.paths import CASES

PROBLEMS = CASES / "numeric" / "problems.json"
NAMES_IN_THE_TABLE = {"v4p": "v4"}
needs_table = pytest.mark.skipif(not PROBLEMS.is_file(), reason="needs ../shared/cases/numeric/problems.json")


def published() -> dict:
    return json.loads(PROBLEMS.read_text(encoding="utf-8"))["hardware"]


# By chip, of Google's pages (https://cloud.google.com/tpu/docs): bf16 and 8-bit FLOP/s, bytes of HBM and
# bytes per second, Gbit/s of all links in one direction, chips of a pod. The FLOP/s and links of v3 are only
# in the book: Google has 123 TFLOP/s.
GOOGLE = {
    "v3": (None, None, 32e9, 900e9, None, 1024),
    "v4": (275e12, 275e12, 32e9, 1228e9, 2400, 4096),
    "v5e": (197e12, 394e12, 16e9, 819e9, 1600, 256),
    "v5p": (459e12, 918e12, 95e9, 2765e9, 4800, 8960),
    "v6e": (918e12, 1836e12, 32e9, 1638e9, 3200, 256),
    "tpu7x": (2307e12, 4614e12, 192e9, 7380e9, 4800, 9216),
}


@pytest.mark.parametrize("name", GOOGLE)
def test_tpu_figures_are_close_to_those_of_google(name: str) -> None:
    bf16, eight_bits, size, rate, link_bits, chips = GOOGLE[name]
    ours = chip(name)
    torus = ours.network
    assert isinstance(torus, Torus) and ours.pod_chips == chips
    assert ours.hbm_bytes == pytest.approx(size, rel=0.015)
    assert ours.hbm_bytes_per_second == pytest.approx(rate, rel=0.03)
    if bf16 is not None:
        rates = ours.flops_per_second
        assert rates["bf16"] == pytest.approx(bf16, rel=0.005)
        assert rates["fp8" if name == "tpu7x" else "int8"] == pytest.approx(eight_bits, rel=0.005)
        # The book has 90% of Google's rate of a link.
        link_bytes = link_bits * 1e9 / 8 / (2 * torus.axes)
        assert torus.bytes_per_second == pytest.approx(0.9 * link_bytes, rel=0.005)


# By chip, of NVIDIA's data sheets, without sparsity: bf16, 8-bit and fp4 FLOP/s, bytes of HBM and bytes per
# second, NVLink and PCIe in both directions.
NVIDIA = {
    "a100": (312e12, 624e12, None, 80e9, 2039e9, 600e9, 64e9),
    "h100": (989.5e12, 1979e12, None, 80e9, 3350e9, 900e9, 128e9),
    "h200": (989.5e12, 1979e12, None, 141e9, 4800e9, 900e9, 128e9),
    "b200": (2250e12, 4500e12, 9000e12, 192e9, 8000e9, 1800e9, 128e9),
    "gb200": (2500e12, 5000e12, 10000e12, 186e9, 8000e9, 1800e9, 128e9),
}


@pytest.mark.parametrize("name", NVIDIA)
def test_gpu_figures_are_close_to_those_of_nvidia(name: str) -> None:
    bf16, eight_bits, fp4, size, rate, nvlink, pcie = NVIDIA[name]
    ours = chip(name)
    nodes, rates = ours.network, ours.flops_per_second
    assert isinstance(nodes, Nodes) and nodes.gpus == (72 if name == "gb200" else 8)
    assert nodes.bytes_per_second == nvlink / 2 and ours.pcie_bytes_per_second == pcie / 2
    assert rates["bf16"] == pytest.approx(bf16, rel=0.025)
    assert rates["int8" if name == "a100" else "fp8"] == pytest.approx(eight_bits, rel=0.015)
    assert rates.get("fp4") == fp4
    assert ours.hbm_bytes == size
    assert ours.hbm_bytes_per_second == pytest.approx(rate, rel=0.02)
    # A network adapter for each GPU: 200 Gbit/s beside an A100, 400 Gbit/s beside the others.
    adapter = 25e9 if name == "a100" else 50e9
    assert nodes.node_bytes_per_second == nodes.gpus * adapter


@needs_table
def test_tpu_figures_are_the_published_ones() -> None:
    table = published()["tpu"]
    rows = {name: row for name, row in table.items() if name in ("v3", "v4p", *CHIPS)}
    assert len(rows) == 6
    for name, row in rows.items():
        row = dict(zip(table["columns"], row, strict=True))
        ours = chip(NAMES_IN_THE_TABLE.get(name, name))
        torus = ours.network
        assert isinstance(torus, Torus)
        # Google states the second figure of tpu7x for fp8 and none for int8.
        eight_bits = "fp8" if name == "tpu7x" else "int8"
        assert {
            "pod": "x".join(map(str, torus.pod)),
            "host": "x".join(map(str, torus.host)),
            "hbm_bytes": ours.hbm_bytes,
            "hbm_bw": ours.hbm_bytes_per_second,
            "flops_bf16": ours.flops_per_second["bf16"],
            "flops_int8": ours.flops_per_second[eight_bits],
            "ici_oneway_per_link": torus.bytes_per_second,
            "ici_bidi_per_link": 2 * torus.bytes_per_second,
            "ici_axes": torus.axes,
            "dcn_per_chip": ours.dcn_bytes_per_second,
            "pcie_per_chip": ours.pcie_bytes_per_second,
        } == row


@needs_table
@pytest.mark.parametrize("name", ["A100", "H100", "H200", "B200"])
def test_gpu_figures_are_the_published_ones(name: str) -> None:
    table = published()["gpu"]
    row = dict(zip(table["columns"], table[name], strict=True))
    ours = chip(name)
    # An A100 has no fp8: the table's figure is that of int8.
    eight_bits = "int8" if name == "A100" else "fp8"
    found = {
        "hbm_bytes": ours.hbm_bytes,
        "hbm_bw": ours.hbm_bytes_per_second,
        "flops_bf16": ours.flops_per_second["bf16"],
        "flops_fp8": ours.flops_per_second[eight_bits],
        "flops_fp4": ours.flops_per_second.get("fp4"),
    }
    assert {key: value for key, value in found.items() if row[key] is not None} == {
        key: value for key, value in row.items() if value is not None
    }


@needs_table
@pytest.mark.parametrize(
    ("name", "generation"),
    [("a100", "Ampere"), ("h100", "Hopper"), ("h200", "Hopper"), ("b200", "Blackwell")],
)
def test_nvlink_bandwidth_is_the_sum_of_its_links(name: str, generation: str) -> None:
    each, links, together, *_ = published()["gpu"]["nvlink"][generation]
    nodes = chip(name).network
    assert isinstance(nodes, Nodes)
    assert nodes.bytes_per_second == each * links * 1e9 == together * 1e9


@needs_table
@pytest.mark.parametrize(("row", "name"), [("H100", "h100"), ("B200", "b200"), ("GB200_NVL72", "gb200")])
def test_node_bandwidth_is_the_published_one(row: str, name: str) -> None:
    nodes = chip(name).network
    assert isinstance(nodes, Nodes)
    assert published()["gpu"]["egress"][row] == [
        nodes.gpus,
        nodes.bytes_per_second,
        nodes.node_bytes_per_second,
    ]


@pytest.mark.parametrize("one", CHIPS.values(), ids=CHIPS)
def test_chip_is_consistent(one) -> None:
    assert chip(one.name.upper()) is one
    assert one.hbm_bytes_per_device * one.devices == one.hbm_bytes
    assert one.allocatable_bytes is None or one.allocatable_bytes < 1.1 * one.hbm_bytes_per_device
    assert one.cores % one.devices == 0
    if isinstance(one.network, Torus):
        assert one.pod_chips % math.prod(one.network.host) == 0
    else:
        assert one.pod_chips is None
    # A float32 product never runs faster than a bfloat16 one.
    assert one.peak("float32").flops_per_second <= one.peak("bfloat16").flops_per_second
    assert one.peak("float32").assumption
    assert one.peak("bfloat16").assumption is None
    assert one.peak("float64") is None  # unknown stays unknown
    # What a chip does not multiply runs as a wider type.
    for dtype, own, wider in (
        *(("s4", "int4", "int8"), ("s8", "int8", "bf16")),
        *(("f4e2m1fn", "fp4", "float8_e5m2"), ("f8e4m3fn", "fp8", "bf16")),
    ):
        peak = one.peak(dtype)
        assert peak.flops_per_second >= one.peak(wider).flops_per_second
        assert (peak.runs_as == own) == (own in one.flops_per_second) == (peak.assumption is None)
    assert one.peak("bf16") == one.peak("bfloat16")


def test_two_devices_share_a_chip() -> None:
    v3 = chip("v3")
    assert v3.devices == 2
    assert v3.peak("bfloat16").flops_per_second * 2 == v3.flops_per_second["bf16"]
    assert v3.hbm_bytes_per_second_per_device * 2 == v3.hbm_bytes_per_second


def test_wrap_around() -> None:
    v5e, v5p = chip("v5e").network, chip("v5p").network
    assert isinstance(v5e, Torus) and isinstance(v5p, Torus)
    assert [n for n in range(2, 40) if v5e.wraps_around(n, 16 * n)] == [16]
    assert [n for n in range(2, 21) if v5p.wraps_around(n, 4096)] == [4, 8, 12, 16, 20]
    assert not v5p.wraps_around(4, 32)  # less than a cube has no optical switch
    assert v5p.wraps_around(4, 64)


@pytest.mark.parametrize("name", ["v9", "", "v5", 3, None])
def test_unknown_chip(name) -> None:
    with pytest.raises(InvalidInput, match=r"v5p, .*h100"):
        chip(name)


def test_table_is_immutable() -> None:
    with pytest.raises(TypeError):
        CHIPS["v5p"] = chip("v4")  # type: ignore[index]
    with pytest.raises(TypeError):
        chip("v5p").flops_per_second["bf16"] = 1.0  # type: ignore[index]
