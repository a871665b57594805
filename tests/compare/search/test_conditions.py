"""Changed conditions of a search, and the place of the best layout under them."""

from __future__ import annotations

from dataclasses import replace

from inspector import layout as layouts
from inspector.compare.search.conditions import conditions, sensitivity
from inspector.compare.search.evaluated import Evaluated
from inspector.compare.search.result import candidate
from inspector.layout import Layout

FIELDS = {
    "model": "transformer", "target": "tpu:v5e:4x4", "mesh": "4x4", "axes": "fsdp,tensor",
    "rules": "mlp=tensor,batch=fsdp,embed=fsdp", "batch": "64", "seq": "256",
}  # fmt: skip


def layout(**fields: str) -> Layout:
    return layouts.parse(FIELDS | fields).unwrap()


def test_batch_sequence_devices_and_chip_change_one_at_a_time():
    begun = layout()
    result = list(conditions(begun))
    assert result[0].layout == begun
    changed = [
        (one.layout.target, one.layout.sizes["batch"], one.layout.sizes["seq"], one.layout.devices)
        for one in result[1:]
    ]
    assert changed[:5] == [
        ("tpu:v5e:4x4", 128, 256, 16),
        ("tpu:v5e:4x4", 64, 512, 16),
        ("tpu:v5e:2x4", 64, 256, 8),
        ("tpu:v5e:4x8", 64, 256, 32),
        ("tpu:v5e:8x8", 64, 256, 64),
    ]
    target, *sizes = changed[5]
    assert sizes == [64, 256, 16] and ":v5e:" not in target
    # Each is a layout that the form accepts.
    for condition in result:
        assert layouts.from_json(condition.layout.to_json()) == condition.layout


def test_a_plan_has_no_other_machine_and_a_gpu_node_has():
    plan = layout(target="plan")
    assert [condition.label for condition in conditions(plan)][1:] == ["batch 128", "seq 512"]
    node = layout(target="gpu:h100:8", mesh="2x4")
    targets = [condition.layout.target for condition in conditions(node)]
    assert {"gpu:h100:4", "gpu:h100:16", "gpu:h100:32"} <= set(targets)


def test_the_place_is_that_of_the_same_rules_on_any_mesh():
    begun = layout()
    (first, *_) = conditions(begun)
    other = replace(begun, rules=(("batch", ("fsdp",)),))
    same = begun.on_mesh((8, 2), ("fsdp", "tensor"))
    listed = [other, same, begun]
    costs = [Evaluated("propagated", seconds=1.0 + number) for number in range(3)]
    ordered = [candidate(one, cost, cost, False, False) for one, cost in zip(listed, costs, strict=True)]
    result = sensitivity(first, begun, ordered, listed, 3)
    assert (result.seconds, result.kept_seconds, result.kept_place) == (1.0, 2.0, 2)
    assert result.kept == same.to_json()
    assert sensitivity(first, begun, [], [], None).seconds is None
