"""The expected cost of collectives on TPUs against published microbenchmarks, and against its lower bound.

Source of the measurements: AI-Hypercomputer/tpu-recipes at c8cfe2f, microbenchmarks.
"""

from __future__ import annotations

import pytest

from inspector.machines.hardware import Torus, chip
from inspector.machines.links import Ring, SliceLink, TorusLink, collective_time
from inspector.prediction.calibration import default_constants
from inspector.prediction.collective_cost import START_SECONDS, expected
from inspector.records.collectives import OPS

TPU7X = chip("tpu7x")
# An all-gather of float32 on 2×2×1 chips: elements of a shard, and GB/s of the bytes that a chip receives.
GATHERS = {65_536: 71.77, 262_144: 129.19, 1_048_576: 161.9, 4_194_304: 174.77, 16_777_216: 178.77}


def line(size: int) -> Ring:
    network = TPU7X.network
    assert isinstance(network, Torus)
    return Ring(size, network.bytes_per_second, network.hop_seconds, wraps=False)


SQUARE = TorusLink((line(2), line(2)))


@pytest.mark.parametrize(("elements", "rate"), GATHERS.items())
def test_gathers_take_as_long_as_measured_from_256_kib_on(elements: int, rate: float) -> None:
    shard = 4 * elements
    measured = 3 * shard / (rate * 1e9)
    cost = expected("all-gather", 4 * shard, SQUARE, default_constants(TPU7X))
    assert cost.seconds == pytest.approx(measured, rel=0.06)
    # The lower bound is 60% below the measured time of the smallest one.
    assert collective_time("all-gather", 4 * shard, SQUARE).seconds < measured


def test_latency_is_a_start_and_the_hops() -> None:
    constants = default_constants(TPU7X)
    assert expected("all-gather", 0, SQUARE, constants).latency == pytest.approx(START_SECONDS + 2e-6)
    assert expected("all-reduce", 0, SQUARE, constants).latency == pytest.approx(START_SECONDS + 4e-6)
    neighbor = Ring(8, 9e10, 1e-6)
    cost = expected("collective-permute", 9e10 * 1e-6, TorusLink((neighbor,)), constants)
    assert cost.latency == pytest.approx(START_SECONDS + 1e-6)
    assert cost.seconds == pytest.approx(cost.latency + 1e-6 / constants.link_efficiency)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("payload", [0, 1000, 10**9])
def test_no_collective_is_expected_to_be_faster_than_its_bound(op: str, payload: int) -> None:
    constants = default_constants(TPU7X)
    links = (SQUARE, SliceLink(SQUARE, 2, 1.25e10), SliceLink(TorusLink((line(1),)), 2, 1.25e10))
    for link in links:
        cost = expected(op, payload, link, constants)
        assert cost.seconds >= collective_time(op, payload, link).seconds
        assert 0 < cost.latency <= cost.seconds
    assert expected(op, payload, TorusLink((line(1),)), constants).seconds == 0


def test_a_part_that_stays_in_one_level_costs_nothing_in_the_other() -> None:
    constants = default_constants(TPU7X)
    permute = expected("collective-permute", 1e6, SliceLink(SQUARE, 2, 1.25e10), constants)
    assert permute.inside == 0
    assert permute.between == pytest.approx(START_SECONDS + 1e6 / 1.25e10 / constants.dcn_efficiency)
    assert expected("all-gather", 1e6, SQUARE, constants).between == 0
