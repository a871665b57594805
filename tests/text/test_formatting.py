"""Tests of the text of quantities, shardings and devices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.records.snapshot import Array, Mesh, MeshAxis
from inspector.sharding import sharding_text
from inspector.text import formatting

MESH = Mesh((MeshAxis("data", 2), MeshAxis("model", 4)), tuple(range(8)))


@pytest.mark.parametrize(
    ("devices", "text"),
    [
        ((5,), "5"),
        ((0, 4), "0, 4"),
        (tuple(range(64)), "0–63 (64×)"),
        (tuple(range(0, 512, 8)), "0, 8, … 504 (64×)"),
        ((*range(8), *range(32, 40)), "0–7, 32–39 (16×)"),
        ((*range(4), *range(8, 12), *range(16, 20)), "0–3, … 16–19 (12×)"),
        ((0, 3, 7, 9, 20), "0, 3, 7, … 20 (5×)"),
    ],
)
def test_devices(devices: tuple[int, ...], text: str) -> None:
    assert formatting.devices_text(devices) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1048576, "1.0 MiB"),
        (1048575, "1.0 MiB"),
        (4194304, "4.0 MiB"),
        (268435456, "256 MiB"),
        (int(73.22 * 2**30), "73.2 GiB"),
        (None, "unknown"),
    ],
)
def test_bytes(count: int | None, text: str) -> None:
    assert formatting.bytes_text(count) == text


@given(st.integers(0, 2**62))
def test_bytes_are_rounded_correctly(count: int) -> None:
    number, unit = formatting.bytes_text(count).split()
    scale = 1024 ** ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].index(unit)
    step = 0.1 if "." in number else 1
    assert abs(float(number) * scale - count) <= step / 2 * scale * (1 + 1e-9)
    assert len(number.replace(".", "").lstrip("0")) <= 4


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0000123, "12.3 µs"),
        (0.0, "0 s"),
        (6.72e-9, "6.72 ns"),
        (9.996e-7, "1.00 µs"),
        (9.96e-10, "1.00 ns"),
        (6.72e-12, "< 1 ns"),
        (5e-5, "50.0 µs"),
        (0.0703, "70.3 ms"),
        (0.99996, "1.00 s"),
        (1.25, "1.25 s"),
        (26, "26.0 s"),
        (150.0, "2 min 30 s"),
        (None, "unknown"),
    ],
)
def test_seconds(seconds: float | None, text: str) -> None:
    assert formatting.seconds_text(seconds) == text


def test_counted() -> None:
    assert formatting.counted(1, "device") == "1 device"
    assert formatting.counted(8, "device") == "8 devices"


def test_factors_have_three_digits_or_all() -> None:
    factors = (None, 1, 2.5, 999.4, 999.6, 8230.4, 131072)
    assert [formatting.times_text(factor) for factor in factors] == [
        *("unknown", "1", "2.5", "999", "1,000", "8,230", "131,072")
    ]


def test_spec() -> None:
    assert sharding_text.spec_text((("data",), None)) == "P('data', None)"
    assert sharding_text.spec_text((("fsdp", "tensor"), None)) == "P(('fsdp', 'tensor'), None)"
    assert sharding_text.spec_text(()) == "P()"
    assert sharding_text.spec_text(None) == "unknown"


def test_mesh() -> None:
    assert sharding_text.mesh_text(MESH) == "data 2 × model 4"
    assert sharding_text.mesh_text(None) == "unknown"
    ones = tuple(MeshAxis(f"one{n}", 1) for n in range(11))
    many = Mesh((MeshAxis("fsdp", 16), *ones), tuple(range(16)))
    assert sharding_text.mesh_text(many) == "fsdp 16, and 11 axes of size 1"


def test_dimension() -> None:
    axes, spec = ("embed", "hidden"), (None, ("model",))
    kernel = Array("kernel", "params", (1024, 1024), "float32", logical_axes=axes, spec=spec)
    assert sharding_text.dimension_text(kernel, MESH, 0) == "dim 0 · embed · 1024"
    assert sharding_text.dimension_text(kernel, MESH, 1) == "dim 1 · hidden · 1024 ÷ 4 over model"


@pytest.mark.parametrize("decimals", [0, 1])
def test_only_the_whole_is_100_percent_and_only_nothing_is_0(decimals: int) -> None:
    assert formatting.share_text(1.0, decimals).startswith("100")
    assert formatting.share_text(0.0, decimals).strip(".%") in ("0", "0.0")
    for part in (1, 2, 7, 51, 500, 9_949, 9_950, 9_997, 9_999):
        text = formatting.share_text(part / 10_000, decimals)
        words, _, figure = text[:-1].rpartition(" ")
        exact = part / 100
        assert 0 < float(figure) < 100
        if not words:
            assert abs(float(figure) - exact) <= 0.5
        else:
            assert exact < float(figure) if words == "below" else exact > float(figure)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.02, "1 s"), (3.81, "4 s"), (9.99, "10 s"), (10.4, "10 s"), (100.2, "100 s"), (119.9, "2 min 0 s")],
)
def test_time_left_has_no_fractions(seconds: float, text: str) -> None:
    assert formatting.left_text(seconds) == f"about {text} left"


@given(st.floats(1e-4, 1e9))
def test_a_ratio_is_a_plain_number_within_five_percent(ratio: float) -> None:
    written = formatting.ratio_text(ratio)
    assert "e" not in written
    assert float(written.replace(",", "")) == pytest.approx(ratio, rel=0.05)
