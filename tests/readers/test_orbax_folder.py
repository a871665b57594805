"""Tests of finding a checkpoint in a folder: steps, items and unfinished folders."""

from __future__ import annotations

import shutil
from pathlib import Path

import jax.numpy as jnp
import orbax.checkpoint as ocp
import pytest

from inspector.readers import orbax_folder
from inspector.text.errors import InvalidInput
from tests.readers.test_orbax import codes, read


def save(folder: Path, size: int = 2) -> Path:
    ocp.PyTreeCheckpointer().save(folder, {"w": jnp.ones(size)})
    return folder


def test_step_0_is_found(tmp_path: Path) -> None:
    for step in (0, 5):
        save(tmp_path / "steps" / str(step), size=step + 1)
    snapshot = read(tmp_path / "steps")
    assert [(array.path, array.shape) for array in snapshot.arrays] == [("w", (6,))]
    assert snapshot.source.step == 5
    assert read(tmp_path / "steps", step=0).array("w").shape == (1,)


def test_numbered_items_are_not_steps(tmp_path: Path) -> None:
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
        items = {f"stage_{n}": ocp.args.PyTreeSave({"w": jnp.ones(n)}) for n in (1, 2)}
        checkpointer.save(tmp_path / "items", ocp.args.Composite(**items))
    snapshot = read(tmp_path / "items")
    assert {array.path: array.shape for array in snapshot.arrays} == {"stage_1/w": (1,), "stage_2/w": (2,)}
    assert snapshot.source.step is None


def test_an_unfinished_item_is_skipped_with_a_finding(tmp_path: Path) -> None:
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        tree = {"w": jnp.ones(4)}
        manager.save(3, args=ocp.args.Composite(a=ocp.args.PyTreeSave(tree), b=ocp.args.PyTreeSave(tree)))
        manager.wait_until_finished()
    step = tmp_path / "run" / "3"
    (step / "b").rename(step / "b.orbax-checkpoint-tmp-7")
    snapshot = read(tmp_path / "run")
    assert [array.path for array in snapshot.arrays] == ["w"]
    assert codes(snapshot) == ["checkpoint-uncommitted"] and snapshot.findings[0].level == "error"
    assert "'b.orbax-checkpoint-tmp-7'" in snapshot.findings[0].message


def test_an_unfinished_step_is_skipped(tmp_path: Path) -> None:
    save(tmp_path / "run" / "5")
    save(tmp_path / "run" / "9").rename(tmp_path / "run" / "9.orbax-checkpoint-tmp-1")
    (tmp_path / "run" / "logs").mkdir()
    assert read(tmp_path / "run").source.step == 5
    shutil.rmtree(tmp_path / "run" / "5")
    for more in ("more", "logs/inside"):
        with pytest.raises(InvalidInput, match=r"unfinished checkpoint '9\.orbax"):
            read(tmp_path / "run")
        (tmp_path / "run" / more).mkdir()


def test_metadata_of_macos_is_ignored(tmp_path: Path) -> None:
    save(tmp_path / "top" / "run" / "7")
    (tmp_path / "top" / "__MACOSX" / "run").mkdir(parents=True)
    (tmp_path / "top" / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    assert read(tmp_path / "top").source.step == 7


def test_array_folders_next_to_a_msgpack_file_are_read(tmp_path: Path) -> None:
    # The first versions of Orbax wrote a file `checkpoint` and no _METADATA.
    ocp.PyTreeCheckpointer(use_ocdbt=False).save(tmp_path / "old", {"params": {"w": jnp.ones(3)}})
    for name in ("_METADATA", "_sharding", "_CHECKPOINT_METADATA", "commit_success.txt"):
        (tmp_path / "old" / name).unlink()
    (tmp_path / "old" / "checkpoint").write_bytes(b"\x81\xa6params\x81\xa1w\xa1x")
    snapshot = read(tmp_path / "old")
    assert [(array.path, array.shape, array.dtype) for array in snapshot.arrays] == [
        ("params/w", (3,), "float32")
    ]
    assert codes(snapshot) == ["file-missing"] * 2
    shutil.rmtree(tmp_path / "old" / "params.w")
    for place in (tmp_path / "old", tmp_path):  # alone and as an item
        with pytest.raises(InvalidInput, match="one msgpack file"):
            read(place)


@pytest.mark.parametrize("name", ["_METADATA", "_sharding", "manifest.ocdbt"])
def test_the_error_for_one_file_names_its_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}")
    with pytest.raises(InvalidInput, match="give the folder that contains it"):
        orbax_folder.find(tmp_path / name, name)
