"""Figures of chips against published tables, shares of a device, and wrap-around links."""

from __future__ import annotations

import json
import math

import pytest

from inspector.core.errors import InvalidInput
from inspector.machines.hardware import CHIPS, Nodes, Torus, chip
from tests.paths import CASES

PROBLEMS = CASES / "numeric" / "problems.json"
NAMES_IN_THE_TABLE = {"v4p": "v4"}
needs_table = pytest.mark.skipif(
    not PROBLEMS.is_file(), reason="needs ../shared/cases/numeric/problems.json"
)


def published() -> dict:
    return json.loads(PROBLEMS.read_text(encoding="utf-8"))["hardware"]


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
@pytest.mark.parametrize(
    ("row", "name"), [("H100", "h100"), ("B200", "b200"), ("GB200_NVL72", "gb200")]
)
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
