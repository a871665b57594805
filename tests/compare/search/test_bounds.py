"""Bounds of the step from amounts that are written down here."""

from __future__ import annotations

import pytest

from inspector import layout as layouts
from inspector.compare.search.bounds import Amounts, alike_key, least_seconds
from inspector.compare.search.transfers import Array, Contraction
from inspector.layout import Layout
from inspector.machines.hardware import CHIPS
from inspector.machines.prediction.calibration import before_compile_constants, default_constants

CHIP = CHIPS["v5p"]
ROWS, COLUMNS = frozenset({"batch"}), frozenset({"mlp"})
FLOPS = 1e18


def layout(mesh: str, axes: str, rules: str, **more: str) -> Layout:
    fields = {"model": "transformer", "mesh": mesh, "axes": axes, "rules": rules}
    return layouts.parse(fields | more).unwrap()


def amounts(**changes: object) -> Amounts:
    """Return a program that is one product of (batch) × (mlp), and reads an array of each."""
    fields = {
        "name": "train_step",
        "products": {("bf16", (ROWS, COLUMNS)): FLOPS},
        "attention": {},
        "attention_share": 0.0,
        "traffic": {(ROWS,): 0.0},
        "fusions": 1.0,
        "given": (("batch", "mlp"), ("batch", "seq")),
    }
    return Amounts(**fields | changes)  # type: ignore[arg-type]


def of_flops(flops: float) -> float:
    peak = CHIP.peak("bf16")
    assert peak is not None
    return flops / peak.flops_per_second / before_compile_constants().of(CHIP)


@pytest.mark.parametrize(
    ("mesh", "rules", "ways"),
    [
        ("8x4", "batch=a,mlp=b", 32),
        ("8x4", "batch=a", 8),  # nothing is shared over b
        ("8x4", "mlp=b", 4),
        ("8x4", "batch=a+b,mlp=b", 32),  # b shards the rows already
        # Both dimensions have the axis: another one of its size shards the second.
        ("8x8", "batch=a,mlp=a", 64),
        ("8x4", "batch=a,mlp=a", 8),
    ],
)
def test_work_is_divided_by_the_axes_of_the_dimensions_alone(mesh, rules, ways):
    found = least_seconds(amounts(), layout(mesh, "a,b", rules), CHIP, 0)
    assert found == pytest.approx(of_flops(FLOPS / ways), rel=1e-9)


def test_the_axes_of_the_optimizer_state_can_shard_everything():
    given = layout("8x4", "a,b", "batch=a", optimizer_axes="b")
    assert least_seconds(amounts(), given, CHIP, 0) == pytest.approx(of_flops(FLOPS / 32), rel=1e-9)


def test_unknown_dimensions_are_divided_by_all_devices():
    unknown = amounts(products={("bf16", None): FLOPS})
    found = least_seconds(unknown, layout("8x4", "a,b", "batch=a"), CHIP, 0)
    assert found == pytest.approx(of_flops(FLOPS / 32), rel=1e-9)


def test_without_amounts_the_state_is_read():
    state = 10**11
    found = least_seconds(None, layout("8", "a", "batch=a"), CHIP, state)
    rate = CHIP.hbm_bytes_per_second_per_device * default_constants(CHIP).hbm_efficiency
    assert found == pytest.approx(state / rate)


def test_a_contraction_over_an_axis_ends_with_a_reduction():
    """(batch) × (mlp) → scalar per batch: the sum over `mlp` crosses its axis, unless all is repeated."""
    bytes_of = 10**12
    product = Contraction(
        1e18,
        "bf16",
        1,
        (ROWS, COLUMNS),
        (
            Array(bytes_of, frozenset({0, 1}), ("batch", "mlp"), (0, 1)),
            Array(8, frozenset({1}), ("mlp",), (1,)),
            Array(bytes_of, frozenset({0}), ("batch",), (0,)),
        ),
    )
    with_product = amounts(contractions=(product,))
    both = layout("8x4", "a,b", "batch=a,mlp=b")
    alone = least_seconds(amounts(), both, CHIP, 0)
    more = least_seconds(with_product, both, CHIP, 0)
    assert more > alone
    # Nothing crosses the axis of the rows.
    rows = layout("32", "a", "batch=a")
    assert least_seconds(with_product, rows, CHIP, 0) == least_seconds(amounts(), rows, CHIP, 0)


def test_alike_are_layouts_whose_arrays_are_sharded_alike():
    known = amounts()
    first = alike_key(known, layout("8x4", "a,b", "batch=a,mlp=b"))
    assert first == alike_key(known, layout("8x4", "x,y", "batch=x,mlp=y"))
    assert first == alike_key(known, layout("8x1x4", "x,z,y", "batch=x,seq=z,mlp=y"))
    # A rule for a logical axis that no array has.
    assert first == alike_key(known, layout("8x4", "a,b", "batch=a,mlp=b,embed=a"))
    assert first != alike_key(known, layout("4x8", "a,b", "batch=a,mlp=b"))
    assert first != alike_key(known, layout("8x4", "a,b", "batch=b,mlp=a"))
    assert first != alike_key(known, layout("8x4", "a,b", "batch=a,mlp=b,seq=b"))
    assert first != alike_key(known, layout("8x4", "a,b", "batch=a,mlp=b", donate="true"))
    assert alike_key(None, layout("8", "a", "batch=a")) is None
