"""Bounds of the step from amounts that are written down here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inspector import layout as layouts
from inspector.layout import Layout
from inspector.machines.hardware import CHIPS, Chip
from inspector.machines.links import NoLink
from inspector.machines.mesh_links import links_of
from inspector.prediction.calibration import before_compile_constants, default_constants
from inspector.prediction.collective_cost import expected
from inspector.search.bounds import ProgramAmounts, alike_key, least_seconds
from inspector.search.transfers import Contraction, ProductArray

CHIP = CHIPS["v5p"]
GPU = CHIPS["h100"]
ROWS, COLUMNS = frozenset({"batch"}), frozenset({"mlp"})
FLOPS = 1e18


def layout(mesh: str, axes: str, rules: str, **more: str) -> Layout:
    fields = {"model": "transformer", "mesh": mesh, "axes": axes, "rules": rules}
    return layouts.parse(fields | more).unwrap()


def amounts(**changes: object) -> ProgramAmounts:
    """Return a program that is one product of (batch) × (mlp), and reads an array of each."""
    fields = {
        "name": "train_step",
        "products": {("bf16", ((ROWS, COLUMNS),)): FLOPS},
        "attention": {},
        "attention_share": 0.0,
        "traffic": {((ROWS,),): 0.0},
        "fusions": 1.0,
        "given": (("batch", "mlp"), ("batch", "seq")),
    }
    return ProgramAmounts(**fields | changes)  # type: ignore[arg-type]


def of_flops(flops: float) -> float:
    """Return the seconds of products, a billionth less as all bounds are."""
    peak = CHIP.peak("bf16")
    assert peak is not None
    return flops / peak.flops_per_second / before_compile_constants().of(CHIP) * (1 - 1e-9)


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
    result = least_seconds(amounts(), layout(mesh, "a,b", rules), CHIP, 0)
    assert result == pytest.approx(of_flops(FLOPS / ways), rel=1e-12)


def test_the_axes_of_the_optimizer_state_can_shard_everything():
    given = layout("8x4", "a,b", "batch=a", optimizer_axes="b")
    assert least_seconds(amounts(), given, CHIP, 0) == pytest.approx(of_flops(FLOPS / 32), rel=1e-12)


def test_unknown_dimensions_are_divided_by_all_devices():
    unknown = amounts(products={("bf16", None): FLOPS})
    result = least_seconds(unknown, layout("8x4", "a,b", "batch=a"), CHIP, 0)
    assert result == pytest.approx(of_flops(FLOPS / 32), rel=1e-12)


def test_without_amounts_the_state_is_read():
    state = 10**11
    result = least_seconds(None, layout("8", "a", "batch=a"), CHIP, state)
    rate = CHIP.hbm_bytes_per_second_per_device * default_constants(CHIP).hbm_efficiency
    assert result == pytest.approx(state / rate)


def test_a_contraction_over_an_axis_ends_with_a_reduction():
    """(batch) × (mlp) → scalar per batch: the sum over `mlp` crosses its axis, unless all is repeated."""
    bytes_of = 10**12
    product = Contraction(
        1e18,
        "bf16",
        1,
        (ROWS, COLUMNS),
        (
            ProductArray(bytes_of, frozenset({0, 1}), ("batch", "mlp"), (0, 1)),
            ProductArray(8, frozenset({1}), ("mlp",), (1,)),
            ProductArray(bytes_of, frozenset({0}), ("batch",), (0,)),
        ),
    )
    with_product = amounts(contractions=(product,))
    both = layout("8x4", "a,b", "batch=a,mlp=b")
    alone = least_seconds(amounts(), both, GPU, 0)
    more = least_seconds(with_product, both, GPU, 0)
    assert more > alone
    # On a TPU it can be beside the product.
    assert least_seconds(with_product, both, CHIP, 0) >= least_seconds(amounts(), both, CHIP, 0)
    # Nothing crosses the axis of the rows.
    rows = layout("32", "a", "batch=a")
    assert least_seconds(with_product, rows, CHIP, 0) == least_seconds(amounts(), rows, CHIP, 0)


def seconds_of(contraction: Contraction, given: Layout, chip: Chip = GPU) -> float:
    """Return what an operation adds to the bound of a program with long products."""
    more = least_seconds(amounts(contractions=(contraction,)), given, chip, 0)
    return more - least_seconds(amounts(), given, chip, 0)


def test_a_sum_over_a_sharded_dimension_is_reduced_once_for_all_axes():
    def total(users: int = 1) -> Contraction:
        operand = ProductArray(10**12, frozenset({0, 1}), ("batch", "seq"), (0, 1))
        result = ProductArray(10**10, frozenset(), None, users=users)
        result = replace(result, given=(), at=())
        names = (frozenset({"batch"}), frozenset({"seq"}))
        return Contraction(0.0, "f32", 1, names, (operand, result), frozenset({0, 1}), decisive=1)

    over_both = seconds_of(total(), layout("8x4", "a,b", "batch=a,seq=b"))
    assert over_both > 0
    # An array that is not sharded in a dimension of the sum is summed on each device.
    assert seconds_of(total(), layout("8x4", "a,b", "mlp=a")) == 0
    # Each of two sums that are added has half of the reduction.
    assert seconds_of(total(users=2), layout("8x4", "a,b", "batch=a,seq=b")) == pytest.approx(over_both / 2)


@pytest.mark.parametrize("chip", ["v5p", "tpu7x", "h100"])
def test_no_product_hides_the_sum_of_a_gradient(chip):
    """(batch, mlp) → (mlp). On v5p the compiler keeps it synchronous, on tpu7x most of it is hidden."""

    def gradient(state: bool) -> Contraction:
        operand = ProductArray(10**12, frozenset({0, 1}), ("batch", "mlp"), (0, 1))
        result = ProductArray(10**10, frozenset({1}), ("mlp",), (1,), state=state)
        return Contraction(0.0, "f32", 1, (ROWS, COLUMNS), (operand, result), frozenset({0}), decisive=1)

    given, share = layout("8", "a", "batch=a"), before_compile_constants().exposed_share
    link = links_of(given.mesh(), CHIPS[chip], [("a",)])["a",]
    assert not isinstance(link, NoLink)
    whole = expected("all-reduce", 1e15, link, default_constants(CHIPS[chip])).inside / 1e15 * 10**10
    counted = whole if chip == "v5p" else share * whole
    assert seconds_of(gradient(True), given, CHIPS[chip]) == pytest.approx(counted, rel=1e-3)
    beside = 0.0 if CHIPS[chip].kind == "tpu" else counted
    assert seconds_of(gradient(False), given, CHIPS[chip]) == pytest.approx(beside, rel=1e-3)


def test_two_arrays_with_an_axis_in_one_dimension_decide_the_product():
    """(batch, mlp) × (mlp, embed): a large sum over `mlp`, although gathering the operands is cheaper."""
    names = (frozenset({"batch"}), frozenset({"mlp"}), frozenset({"embed"}))
    product = Contraction(
        1.0,
        "bf16",
        1,
        names,
        (
            ProductArray(10**6, frozenset({0, 1}), ("batch", "mlp"), (0, 1)),
            ProductArray(10**6, frozenset({1, 2}), ("mlp", "embed"), (1, 2)),
            ProductArray(10**12, frozenset({0, 2}), ("batch", "embed"), (0, 2)),
        ),
        frozenset({1}),
    )
    given = layout("32", "a", "mlp=a")
    reduced = seconds_of(product, given)
    assert reduced > 100 * seconds_of(replace(product, decisive=9), given)


def test_a_change_of_the_given_sharding_is_an_exchange():
    """(batch, expert) sharded over one axis by its batch, and then by its experts."""
    arrays = (
        ProductArray(10**12, frozenset({0, 1}), ("batch", None), (0, 1)),
        ProductArray(10**12, frozenset({0, 1}), (None, "expert"), (0, 1)),
    )
    names = (frozenset({"batch"}), frozenset({"expert"}))
    change = Contraction(0.0, "", 1, names, arrays, decisive=9)
    model = {"model": "moe"}
    exchanged = seconds_of(change, layout("8", "a", "batch=a,expert=a", **model))
    gathered = seconds_of(change, layout("8", "a", "batch=a", **model))
    assert 0 < exchanged < gathered
    # On a TPU, a gather can be beside the products, which is then cheaper.
    assert seconds_of(change, layout("8", "a", "batch=a,expert=a", **model), CHIP) == 0
    # A sharding that is added needs no transfer.
    assert seconds_of(change, layout("8", "a", "expert=a", **model)) == 0


def test_devices_repeat_a_product_whose_arrays_are_not_sharded_over_their_axis():
    """Both names can shard the columns elsewhere in the program, but the arrays have one of them."""
    columns = frozenset({"heads", "kv_heads"})
    arrays = (
        ProductArray(1, frozenset({0}), ("batch",), (0,)),
        ProductArray(1, frozenset({1}), ("heads",), (1,)),
        ProductArray(1, frozenset({0, 1}), ("batch", "heads"), (0, 1)),
    )
    product = Contraction(FLOPS, "bf16", 1, (ROWS, columns), arrays)
    known = amounts(products={("bf16", ((ROWS, columns),)): FLOPS}, contractions=(product,))
    shared = least_seconds(known, layout("8x4", "a,b", "batch=a,heads=b"), CHIP, 0)
    repeated = least_seconds(known, layout("8x4", "a,b", "batch=a,kv_heads=b"), CHIP, 0)
    assert repeated == pytest.approx(4 * shared, rel=1e-3)


def test_an_array_is_shared_as_far_as_one_of_the_values_with_its_sizes_can_be():
    either = amounts(products={}, traffic={((ROWS,), (COLUMNS,)): 1e15})
    rows = amounts(products={}, traffic={((ROWS,),): 1e15})
    given = layout("8x4", "a,b", "batch=a,mlp=b")
    assert least_seconds(either, given, CHIP, 0) == least_seconds(rows, given, CHIP, 0)


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


def test_a_bound_does_not_depend_on_the_candidates_before_it():
    """Results for parts of a program are kept: they must depend on nothing else of a layout."""
    product = Contraction(
        FLOPS,
        "bf16",
        1,
        (ROWS, COLUMNS, frozenset({"embed"})),
        (
            ProductArray(2**30, frozenset({0, 2}), ("batch", "embed"), (0, 2)),
            ProductArray(2**28, frozenset({1, 2}), ("embed", "mlp"), (2, 1)),
            ProductArray(2**30, frozenset({0, 1}), ("batch", "mlp"), (0, 1)),
        ),
        frozenset({2}),
    )
    table = replace(product, flops=0.0, names=(ROWS, frozenset({"vocab"}), frozenset({"mlp"})))
    fields = {"contractions": (product, table)}
    kept = amounts(**fields)
    rules = ["batch=a", "batch=a,mlp=b", "batch=a+b,embed=a", "embed=b,batch=a", "vocab=a", "mlp=a,batch=a"]
    every = [
        (layout(mesh, "a,b", rule, **more), CHIPS[chip])
        for mesh in ("8x4", "4x8", "2x16")
        for rule in rules
        for chip in ("v5p", "v5e", "h100")
        for more in ({}, {"optimizer_axes": "b"})
    ]
    before = [least_seconds(kept, candidate, chip, 2**20) for candidate, chip in every]
    again = [least_seconds(kept, candidate, chip, 2**20) for candidate, chip in every]
    alone = [least_seconds(amounts(**fields), candidate, chip, 2**20) for candidate, chip in every]
    assert before == again == alone
    assert len(set(alone)) > len(every) / 4
