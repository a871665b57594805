"""Published answers to cost problems, computed with the functions of this project.

The problems are from "How to Scale Your Model" and MaxText. Each callable states the sizes of its question;
the published answer comes from the file of problems. `BY_HAND` has the same answers in plain arithmetic.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from inspector.machines.hardware import Chip, Torus, chip, compute_time, critical_intensity, hbm_time
from inspector.machines.links import (
    Link,
    NodeLink,
    Ring,
    TorusLink,
    collective_time,
    effective_bytes_per_second,
)
from inspector.machines.mesh_links import links_of
from inspector.records.snapshot import Mesh, MeshAxis
from inspector.sharding import placement
from tests.paths import CASES

PROBLEMS = CASES / "numeric" / "problems.json"

V4, V5E, V5P, V6E = chip("v4"), chip("v5e"), chip("v5p"), chip("v6e")
H100 = chip("h100")


def problems() -> dict[str, dict[str, Any]]:
    if not PROBLEMS.is_file():
        return {}
    found = json.loads(PROBLEMS.read_text(encoding="utf-8"))["problems"]
    return {problem["id"]: problem for problem in found}


def mesh(**axes: int) -> Mesh:
    count = math.prod(axes.values())
    return Mesh(tuple(MeshAxis(*axis) for axis in axes.items()), tuple(range(count)))


def link(on: Mesh, of: Chip, *axes: str) -> Link:
    link = links_of(on, of, [axes])[axes]
    assert isinstance(link, TorusLink | NodeLink)
    return link


def seconds(op: str, payload: float, over: Link) -> float:
    return collective_time(op, payload, over).seconds


def ring(of: Chip, size: int) -> Ring:
    """Return a torus axis with wrap-around links."""
    assert isinstance(of.network, Torus)
    return Ring(size, of.network.bytes_per_second, of.network.hop_seconds)


def axis_rate(of: Chip) -> float:
    """Return the bytes per second over both directions of a torus axis, or of a GPU into its node."""
    if isinstance(of.network, Torus):
        return effective_bytes_per_second(TorusLink((ring(of, 16),)))
    return of.network.bytes_per_second


def intensity(of: Chip, bytes_per_second: float | None = None, dtype: str = "bfloat16") -> float:
    """Return the FLOP/s of the chip over the bytes per second of one torus axis, or of another rate."""
    peak = of.peak(dtype)
    assert peak is not None
    return critical_intensity(peak.flops_per_second * of.devices, bytes_per_second or axis_rate(of))


CUBE = mesh(X=4, Y=4, Z=4)  # every axis wraps around
ARRAY = 2 * 1024 * 4096  # bytes of bf16[1024, 4096]
QUIZ = mesh(X=2, Y=8, Z=2)
QUIZ_SPEC = (("X", "Y"), None)
NODE = mesh(gpu=8)

ANSWERS: dict[str, Callable[[], float]] = {
    # Sharding
    "shard_popquiz1_per_device": lambda: math.prod(placement.shard_shape((128, 2048), QUIZ_SPEC, QUIZ)),
    "shard_popquiz1_total": lambda: (
        math.prod(placement.shard_shape((128, 2048), QUIZ_SPEC, QUIZ)) * QUIZ.size
    ),
    "shard_popquiz2_a_bidi": lambda: seconds("all-gather", 2048 * 8192 * 2, TorusLink((ring(V5E, 4),))),
    "shard_popquiz2_b": lambda: seconds("all-gather", 256 * 256 * 2, link(mesh(X=8, Y=4), V5E, "Y")),
    "shard_q1_ratio": lambda: placement.replicas((("X",), None, None), mesh(X=4, Y=8, Z=2)),
    "shard_q2_1": lambda: seconds("all-gather", ARRAY / 4, link(CUBE, V4, "X")),
    "shard_q2_2": lambda: seconds("all-gather", ARRAY, link(CUBE, V4, "X", "Y")),
    "shard_q2_fun_1": lambda: seconds("all-gather", ARRAY / 4, link(CUBE, V4, "X", "Z")),
    "shard_q2_fun_2": lambda: seconds("all-gather", ARRAY, link(CUBE, V4, "X", "Y", "Z")),
    "shard_q3": lambda: seconds("all-gather", 128 * 2, link(CUBE, V4, "X")),
    # An all-reduce of the result costs 2·2·B·F/W, the FLOPs that it saves 2·B·D·F/C.
    "shard_q4_crossover": lambda: 2 * intensity(V5P),
    "shard_q10_unidir": lambda: _all_to_all_over_all_gather(two_way=False),
    "shard_q10_bidir": lambda: _all_to_all_over_all_gather(two_way=True),
    # TPUs
    "tpu_q1": lambda: hbm_time(200e9 * 2 / 32, V4).seconds,
    "tpu_q2_flops": lambda: V5E.pod_chips * V5E.peak("bfloat16").flops_per_second,
    "tpu_q2_v5p_hbm": lambda: V5P.pod_chips * V5P.hbm_bytes,
    # Rooflines
    "roof_h100": lambda: compute_time(1e12, H100, "bfloat16").seconds,
    "roof_v6e": lambda: compute_time(1e12, V6E, "bfloat16").seconds,
    "roof_v5e_int": lambda: intensity(V5E, V5E.hbm_bytes_per_second),
    # Training
    "train_intensity_v5p": lambda: intensity(V5P),
    "train_intensity_dcn": lambda: intensity(V5P, V5P.dcn_bytes_per_second),
    # Inference
    "ai_step": lambda: hbm_time(112e9 / 8, V5E).seconds,
    # GPUs
    "gpu_q3_h100": lambda: intensity(H100, H100.hbm_bytes_per_second),
    "gpu_q7": lambda: hbm_time(3 * 4 * 2**30, H100).seconds,  # two float32 read, one written
    "gpu_node_q3": lambda: seconds("all-gather", 4096 * 65536 * 2, link(NODE, H100, "gpu")),
    "gpu_q5_2node": lambda: effective_bytes_per_second(link(mesh(gpu=16), H100, "gpu")),
    "gpu_nvl72": lambda: chip("gb200").network.node_bytes_per_second,
    # MaxText
    "maxtext_v6e": lambda: intensity(V6E),
}


def _all_to_all_over_all_gather(two_way: bool) -> float:
    """Return the ratio of times for one array on 16 chips."""
    # The operand of the all-to-all is 1/16 of the gathered result.
    around = TorusLink((Ring(16, 9e10, 1e-6, two_way=two_way),))
    return seconds("all-to-all", 1e9 / 16, around) / seconds("all-gather", 1e9, around)


def _beyond_a_node() -> float:
    """H100's intensity against the network between nodes, which the node's GPUs share."""
    return intensity(H100, H100.network.node_bytes_per_second)


# Name: (why our answer differs, our answer, the expected answer given the published one)
DIFFERENT: dict[str, tuple[str, Callable[[], float], Callable[[float], float]]] = {
    "shard_q2_3_OLD": (
        "an erratum of the book: it reduces the whole array, but a shard is 1/16 of that",
        lambda: seconds("all-reduce", ARRAY / 16, link(CUBE, V4, "Z")),
        lambda published: published / 16,
    ),
    "gpu_pop1_rough": (
        "a rough answer: the book's own exact one leaves out the part that a GPU has, and is 65 µs",
        lambda: seconds("all-gather", 1024 * 16384 * 2, link(NODE, H100, "gpu")),
        lambda published: published * 7 / 8,
    ),
}


# Bytes over bytes per second, FLOPs over FLOP/s. A ring sends in both directions: 9e10 B/s on an axis of v4
# and v5e, 1.8e11 on one of v5p and v6e. Each hop of a short message takes 1 µs.
BY_HAND: dict[str, float] = {
    "shard_popquiz1_per_device": 128 * 2048 / 16,
    "shard_popquiz1_total": 128 * 2048 * 2,  # Z holds two copies
    "shard_popquiz2_a_bidi": 2048 * 8192 * 2 / 9e10,
    "shard_popquiz2_b": 3 * 1e-6,  # three hops along a line of four: 131 kB take less
    "shard_q1_ratio": 8 * 2,
    "shard_q2_1": 2 * 1024 * 4096 / 4 / 9e10,
    "shard_q2_2": 2 * 1024 * 4096 / (2 * 9e10),
    "shard_q2_fun_1": 2 * 1024 * 4096 / 4 / (2 * 9e10),
    "shard_q2_fun_2": 2 * 1024 * 4096 / (3 * 9e10),
    "shard_q3": 2 * 1e-6,  # two hops around a ring of four
    "shard_q4_crossover": 2 * 459e12 / 1.8e11,
    "shard_q10_unidir": 1 / 2,
    "shard_q10_bidir": 1 / 4,
    "tpu_q1": 2 * 200e9 / 32 / 1.2e12,
    "tpu_q2_flops": 16 * 16 * 197e12,
    "tpu_q2_v5p_hbm": 16 * 20 * 28 * 96e9,
    "roof_h100": 1e12 / 990e12,
    "roof_v6e": 1e12 / 920e12,
    "roof_v5e_int": 197e12 / 810e9,
    "train_intensity_v5p": 459e12 / 1.8e11,
    "train_intensity_dcn": 459e12 / 6.25e9,
    "ai_step": 112e9 / 8 / 810e9,
    "gpu_q3_h100": 990e12 / 3.4e12,
    "gpu_q7": 3 * 4 * 2**30 / 3.4e12,
    "gpu_node_q3": 4096 * 65536 * 2 * 7 / 8 / 450e9,  # a GPU has an eighth
    "gpu_q5_2node": 450e9 * 8 / 7,
    "gpu_nvl72": 72 * 400e9 / 8,  # 400 Gbit/s for each GPU
    "maxtext_v6e": 920e12 / 1.8e11,
    "shard_q2_3_OLD": 2 * (2 * 1024 * 4096 / 16) / 9e10,  # an all-reduce sends twice
    "gpu_pop1_rough": 1024 * 16384 * 2 * 7 / 8 / 450e9,
}


@pytest.mark.parametrize("name", BY_HAND)
def test_answer_matches_plain_arithmetic(name: str) -> None:
    answer = ANSWERS[name] if name in ANSWERS else DIFFERENT[name][1]
    assert answer() == pytest.approx(BY_HAND[name], rel=1e-3)


def test_every_answer_has_plain_arithmetic() -> None:
    assert {*ANSWERS, *DIFFERENT} == BY_HAND.keys()


@pytest.mark.parametrize("name", ANSWERS)
def test_answer_matches_the_book(name: str) -> None:
    problem = problems().get(name)
    if problem is None:
        pytest.skip("needs ../shared/cases/numeric/problems.json")
    assert ANSWERS[name]() == pytest.approx(problem["published"], rel=problem["tol"])


@pytest.mark.parametrize("name", DIFFERENT)
def test_answer_corrects_the_book(name: str) -> None:
    problem = problems().get(name)
    if problem is None:
        pytest.skip("needs ../shared/cases/numeric/problems.json")
    _, ours, expected = DIFFERENT[name]
    assert ours() != pytest.approx(problem["published"], rel=problem["tol"])
    assert ours() == pytest.approx(expected(problem["published"]), rel=problem["tol"])
