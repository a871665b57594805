"""Tests of saved and restored checkpoints: Orbax restores every bit in another layout."""

from __future__ import annotations

import math
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from inspector import layout as layouts
from inspector.core import temporary_folder, typed_json
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Snapshot, from_json
from inspector.core.temporary_folder import TemporaryFolder
from inspector.core.totals import STATE_GROUPS
from inspector.guides.restore import transfer
from inspector.guides.restore.checkpoint import Restored, Saved
from inspector.layout import Layout
from inspector.layout.plan import plan
from inspector.producers.learn import checkpoint
from inspector.producers.model.abstract import abstract_state
from inspector.service.restoration import UNEQUAL, restoration_of

SMALL = {"layers": "2", "depth": "48"}

CHANGES = {
    "another mesh shape": ({}, {"mesh": "4x2"}),
    "fewer devices": ({}, {"mesh": "2x2"}),
    "more devices": ({"mesh": "1x2"}, {"mesh": "4x4"}),
    "one device to many": ({"mesh": "1"}, {"mesh": "16", "axes": "x", "rules": "embed=x"}),
    "other rules": (
        {"mesh": "8", "axes": "fsdp", "rules": "batch=fsdp,embed=fsdp"},
        {"mesh": "2x4", "axes": "a,b", "rules": "hidden=b+a"},
    ),
    "device axes": ({"model": "mlp"}, {"model": "mlp", "mesh": "4x2", "specs": "W1=data.model"}),
    "scan, with the layer axis sharded": (
        {"scan": "true"},
        {"scan": "true", "mesh": "2x3", "axes": "layer,model", "rules": "layer=layer,hidden=model"},
    ),
    "bfloat16, lion": (
        {"dtype": "bfloat16", "optimizer": "lion"},
        {"dtype": "bfloat16", "optimizer": "lion", "mesh": "3x4"},
    ),
    "the same layout": ({}, {}),
}


def layout_of(fields: dict[str, str]) -> Layout:
    return layouts.parse(SMALL | fields).unwrap()


def quiet(*_: object, **__: object) -> None:
    """Ignore a report."""


def state_only(snapshot: Snapshot) -> dict[str, object]:
    return {
        array.path: (array.shape, array.dtype, array.spec, array.shard_shape, array.replicas, array.shards)
        for array in snapshot.arrays
        if array.group in STATE_GROUPS
    }


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("change", CHANGES)
def test_every_value_is_restored_with_its_planned_sharding(change: str, tmp_path: Path) -> None:
    before, after = map(layout_of, CHANGES[change])
    saved = checkpoint.save_state(before, tmp_path, quiet)
    restored = checkpoint.restore_state(after, tmp_path, quiet)
    plans = [plan(layout, abstract_state(layout)) for layout in (before, after)]
    assert state_only(saved.snapshot) == state_only(plans[0])
    assert state_only(restored.snapshot) == state_only(plans[1])
    assert [compared.unequal for compared in restored.compared] == [0] * len(saved.snapshot.arrays)
    assert [(compared.path, compared.elements) for compared in restored.compared] == [
        (array.path, math.prod(array.shape)) for array in saved.snapshot.arrays
    ]

    outcome = restoration_of(saved, restored)
    found = outcome.snapshot.transfer
    assert found.routes == transfer.transfer(*plans).routes, "live and planned bytes differ"
    assert found.saved_layout == before.to_json()
    assert outcome.snapshot.findings == ()
    assert from_json(outcome.snapshot.to_json()) == outcome.snapshot
    words = transfer.verdict(found, "A → B")
    assert words.startswith(f"All {len(found.arrays)} arrays, ")
    assert words.endswith(" values, equal bit by bit after restoring A → B.")


def test_the_saved_state_has_no_zero_moment(tmp_path: Path) -> None:
    saved = checkpoint.save_state(layout_of({}), tmp_path, quiet)
    paths = [array.path for array in saved.snapshot.arrays]
    moments = [number for number, path in enumerate(paths) if "/mu/" in path or "/nu/" in path]
    assert len(moments) == 2 * 2 * 2  # two moments of two matrices in two layers
    for number in moments:
        values = np.fromfile(tmp_path / checkpoint.VALUES / str(number), np.float32)
        assert np.any(values) and np.isfinite(values).all()
    step = np.fromfile(tmp_path / checkpoint.VALUES / str(paths.index("step")), np.int32)
    assert step.tolist() == [1]
    on_disk = sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file())
    state = sum(array.bytes for array in saved.snapshot.arrays)
    assert on_disk <= temporary_folder.bytes_needed(state, len(paths))
    assert saved.file_bytes == on_disk - state


def test_a_changed_value_is_reported(tmp_path: Path) -> None:
    saved = checkpoint.save_state(layout_of({}), tmp_path, quiet)
    paths = [array.path for array in saved.snapshot.arrays]
    changed = "params/DotReluDot_1/W2"
    file = tmp_path / checkpoint.VALUES / str(paths.index(changed))
    values = np.fromfile(file, np.uint32).reshape(48, 48)
    values[5, 7] ^= 1  # the lowest bit of the mantissa
    values[40, 0] ^= 1 << 31
    values.tofile(file)
    outcome = restoration_of(saved, checkpoint.restore_state(layout_of({"mesh": "4x2"}), tmp_path, quiet))
    wrong = [row for row in outcome.snapshot.transfer.arrays if row.unequal]
    assert [(row.path, row.unequal, row.first_unequal) for row in wrong] == [(changed, 2, (5, 7))]
    (finding,) = outcome.snapshot.findings
    assert (finding.level, finding.code, finding.array) == ("error", UNEQUAL, changed)
    assert finding.message == (f"{changed} has 2 of 2,304 values unequal to those saved, the first at [5, 7]")
    assert transfer.verdict(outcome.snapshot.transfer, "A → B") == (
        "1 of 14 arrays, 2 of 27,650 values, are not equal after restoring A → B."
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool", "complex64"])
@pytest.mark.parametrize("spec", [PartitionSpec(), PartitionSpec("a"), PartitionSpec(None, "b")])
def test_values_are_compared_bit_by_bit(dtype: str, spec: PartitionSpec, tmp_path: Path) -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("a", "b"))
    bits = np.random.default_rng(0).integers(0, 256, (4, 6, np.dtype(jax.numpy.dtype(dtype)).itemsize))
    if dtype == "bool":
        bits %= 2
    whole = bits.astype(np.uint8).view(jax.numpy.dtype(dtype))[..., 0]
    if dtype in ("float32", "bfloat16", "complex64"):
        whole[0, 0], whole[1, 1] = np.nan, -0.0
    file = tmp_path / "values"
    whole.tofile(file)
    value = jax.device_put(whole, NamedSharding(mesh, spec))
    same = checkpoint.compare("x", value, file)
    assert (same.unequal, same.first_unequal, same.elements) == (0, None, 24)
    other = whole.copy()
    other[1, 1] = 0 if whole[1, 1] != 0 or dtype not in ("int8", "bool") else 1
    other.tofile(file)  # 0.0 equals -0.0 as a number
    compared = checkpoint.compare("x", value, file)
    assert (compared.unequal, compared.first_unequal) == (1, (1, 1))


@pytest.mark.parametrize("shape", [(), (0, 3), (1,)])
def test_scalars_and_empty_arrays_are_compared(shape: tuple[int, ...], tmp_path: Path) -> None:
    file = tmp_path / "values"
    value = jax.numpy.full(shape, 7, jax.numpy.int32)
    np.asarray(value).tofile(file)
    same = checkpoint.compare("x", value, file)
    assert (same.elements, same.unequal) == (math.prod(shape), 0)
    (np.asarray(value) + 1).tofile(file)
    assert checkpoint.compare("x", value, file).unequal == math.prod(shape)


def test_a_file_of_another_size_differs_everywhere(tmp_path: Path) -> None:
    (tmp_path / "values").write_bytes(b"\0" * 12)
    compared = checkpoint.compare("x", jax.numpy.zeros((2, 2)), tmp_path / "values")
    assert (compared.unequal, compared.first_unequal) == (4, (0, 0))


def test_both_jobs_return_json_and_report_phases() -> None:
    folder = TemporaryFolder()
    phases = []
    try:
        payload = {"folder": str(folder.path), "memory": None}
        for job, kind, fields in (
            (checkpoint.save, Saved, {}),
            (checkpoint.restore, Restored, {"mesh": "4x1"}),
        ):
            answer = job(
                payload | {"layout": layout_of(fields).to_json()},
                lambda phase, **_: phases.append(phase),
            )
            assert typed_json.encode(typed_json.decode(kind, answer)) == answer
    finally:
        folder.remove()
    assert list(dict.fromkeys(phases)) == [
        "build", "compile", "train", "save", "values", "restore", "compare",
    ]  # fmt: skip
    with pytest.raises(InvalidInput, match="no longer exists"):
        checkpoint.restore(payload | {"layout": layout_of({}).to_json()}, quiet)


def test_a_large_program_is_refused_before_it_runs(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="a train step of the layout to be saved needs about"):
        checkpoint.save_state(layout_of({}), tmp_path, quiet, memory=1000)
    assert list(tmp_path.iterdir()) == []
