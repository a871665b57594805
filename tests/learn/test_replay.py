"""Tests of tutorials in workers against JAX's objects and the figures of the guides."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from inspector.guides import tutorials
from inspector.guides.tutorials import TUTORIALS, DrawnArray, TutorialRequest, TutorialRun, TutorialStep
from inspector.jobs.inspection import Inspection
from inspector.learn.tutorials import replay
from inspector.learn.tutorials.replay import Cell, cells_of
from inspector.sharding import placement
from inspector.sharding.placement import jax_entry
from inspector.text.errors import Cancelled
from tests.paths import ROOT

pytestmark = pytest.mark.close_to_jax

REQUESTS = [
    TutorialRequest("scale_up", (2, 4), ("data", "model")),
    TutorialRequest("scale_up", (3, 2), ("rows", "columns")),
    TutorialRequest("arrays", (2, 4), ("data", "model")),
    TutorialRequest("arrays", (3,), ("only",)),
    TutorialRequest("arrays", (2, 1, 2), ("a", "b", "c")),
    TutorialRequest("pieces", (2, 4), ("x", "y")),
    TutorialRequest("pieces", (3, 2), ("p", "q")),
]
AS_THE_GUIDE = {tutorial.guide: tutorial for tutorial in REQUESTS if tutorial.mesh_shape == (2, 4)}

Take = Callable[[TutorialRequest], TutorialRun]


@pytest.fixture(scope="module")
def take() -> Iterator[Take]:
    """Return a function that runs each tutorial once."""
    service = Inspection(run_workers=1, memory=2**33)

    def taken(tutorial: TutorialRequest) -> TutorialRun:
        return service.tutorial(tutorial).answer()

    yield taken
    service.close()


def cases(*guides: str) -> list[Any]:
    """Return the requests of these guides. Those of other meshes are nightly, because each takes 2 to 6 s."""
    return [
        pytest.param(
            tutorial,
            id=f"{tutorial.guide}-{'x'.join(map(str, tutorial.mesh_shape))}",
            marks=() if tutorial in AS_THE_GUIDE.values() else pytest.mark.nightly,
        )
        for tutorial in REQUESTS
        if tutorial.guide in guides
    ]


def step(result: TutorialRun, title: str) -> TutorialStep:
    (step,) = [one for one in result.steps if one.title == title]
    return step


def drawn(result: TutorialRun, name: str) -> DrawnArray:
    (drawn_array,) = [
        one for step in result.steps for one in step.drawn if one.array.path == name
    ]  # fmt: skip
    return drawn_array


def jax_mesh(tutorial: TutorialRequest) -> Mesh:
    return Mesh(
        np.array(jax.devices()[: tutorial.devices]).reshape(tutorial.mesh_shape),
        tutorial.axis_names,
    )


def groups(drawn_array: DrawnArray) -> list[tuple[int, ...]]:
    """Return the devices of each block, in block order."""
    held: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for shard in placement.shards(drawn_array.array, drawn_array.mesh):
        held.setdefault(shard.index, []).append(shard.device)
    return [tuple(held[index]) for index in sorted(held)]


@pytest.mark.parametrize("tutorial", cases(*TUTORIALS))
def test_every_step_runs_and_has_a_result(take: Take, tutorial: TutorialRequest) -> None:
    result = take(tutorial)
    assert [step.problem for step in result.steps] == [None] * len(result.steps)
    assert all(step.title and step.words and step.code and step.output for step in result.steps)
    assert not any(mark in step.code for step in result.steps for mark in ("# %%", "# draw", "# ref"))
    # Newer JAX versions add file names of this machine to errors.
    assert not any(str(ROOT) in step.output for step in result.steps)
    assert {"jax", "flax"} <= result.versions.keys()


@pytest.mark.parametrize("tutorial", cases(*TUTORIALS))
def test_drawn_arrays_have_the_shards_of_jax(take: Take, tutorial: TutorialRequest) -> None:
    mesh = jax_mesh(tutorial)
    arrays = [drawn_array for step in take(tutorial).steps for drawn_array in step.drawn]
    assert arrays
    for array in arrays:
        if array.array.spec is None:
            assert array.array.facts.placement == "single device"
            continue
        assert array.mesh.shape == tutorial.mesh_shape and array.mesh.axis_names == tutorial.axis_names
        spec = PartitionSpec(*map(jax_entry, array.array.spec))
        indices = NamedSharding(mesh, spec).devices_indices_map(array.array.shape)
        expected = {
            device.id: tuple(
                part.indices(size)[:2] for part, size in zip(index, array.array.shape, strict=True)
            )
            for device, index in indices.items()
        }
        assert {
            shard.device: shard.index for shard in placement.shards(array.array, array.mesh)
        } == expected  # fmt: skip


def test_the_scale_up_guides_device_groups(take: Take) -> None:
    result = take(AS_THE_GUIDE["scale_up"])
    assert groups(drawn(result, "W1")) == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert groups(drawn(result, "W2")) == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert groups(drawn(result, "x")) == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert groups(drawn(result, "output")) == [(0, 1, 2, 3), (4, 5, 6, 7)]
    printed = step(result, "Sharded initialization").output.splitlines()
    assert printed[:4] == [
        "W1 [0:256, 0:64] on devices 0 4",
        "W1 [0:256, 64:128] on devices 1 5",
        "W1 [0:256, 128:192] on devices 2 6",
        "W1 [0:256, 192:256] on devices 3 7",
    ]
    assert step(result, "Inference").output.splitlines()[1:] == [
        "[0:4, 0:256] on devices 0 1 2 3",
        "[4:8, 0:256] on devices 4 5 6 7",
    ]


@pytest.mark.nightly
def test_device_groups_of_another_mesh(take: Take) -> None:
    result = take(TutorialRequest("scale_up", (3, 2), ("rows", "columns")))
    assert groups(drawn(result, "W1")) == [(0, 2, 4), (1, 3, 5)]
    assert groups(drawn(result, "output")) == [(0, 1), (2, 3), (4, 5)]
    assert drawn(result, "output").array.shape == (9, 256)
    assert "W1 [0:256, 128:256] on devices 1 3 5" in step(
        result, "Sharded initialization"
    ).output.splitlines()  # fmt: skip


@pytest.mark.parametrize("tutorial", cases("scale_up"))
def test_state_boxes_rules_and_timing(take: Take, tutorial: TutorialRequest) -> None:
    result = take(tutorial)
    _, model = tutorial.axis_names
    listed = step(result, "Shardings without arrays").output.splitlines()
    assert f"params/DotReluDot_0/Dense_0/kernel P(None, '{model}')" in listed
    assert f"opt_state/0/nu/DotReluDot_1/W2 P('{model}', None)" in listed
    assert {"step P()", "opt_state/0/count P()"} < set(listed)
    boxes = step(result, "Boxes").output
    assert boxes.startswith(f"Partitioned (None, '{model}')\nArrayImpl (256, 256)")
    assert boxes.endswith(f"boxed again: (None, '{model}') ('{model}', None)")
    trained = step(result, "A train step").output
    assert trained.startswith("step 0 → 1 replicated: P()")
    assert trained.count(": True") == 2
    assert step(result, "Logical axes").output == ("W1: P('embed', 'hidden')\nW2: P('hidden', 'embed')")
    ruled = step(result, "Rules").output.splitlines()
    assert ruled == [
        f"W1: P(None, '{model}')",
        f"W2: P('{model}', None)",
        # step, count, and both matrices of both blocks, three times
        "14 of 14 shardings of the state are equal",
    ]
    assert len(listed) == 14
    other = drawn(result, "embed_W1").array
    assert (other.spec, drawn(result, "hidden_W1").array.spec) == (
        ((model,), None),
        (None, (model,)),
    )
    assert "the same values: True" in step(result, "Other rules, the same module").output
    assert re.fullmatch(
        r"[\d.e+]+ ms ± [\d.e+]+ ms per loop \(mean ± std\. dev\. of 7 runs, 1 loop each\)",
        step(result, "Step time").output,
    )


@pytest.mark.parametrize("tutorial", cases("arrays"))
def test_printed_facts_of_arrays(take: Take, tutorial: TutorialRequest) -> None:
    result, count = take(tutorial), tutorial.devices
    assert "committed: False" in step(result, "An uncommitted array").output
    single = step(result, "Committed to one device").output
    assert "committed: True" in single and "addressable shards: 1 of 1" in single
    assert [shard.device for shard in drawn(result, "single").array.shards] == [count - 1]
    # Compare the printed facts with a live array of this process.
    rows = jax.device_put(
        np.zeros((count, count), np.float32),
        NamedSharding(jax_mesh(tutorial), PartitionSpec(tutorial.axis_names[0])),
    )
    told = re.findall(
        r"device (\d+): rows (\d+):(\d+), replica (\d+)", step(result, "Sharded over a mesh").output
    )
    assert [tuple(map(int, numbers)) for numbers in told] == [
        (shard.device.id, *shard.index[0].indices(count)[:2], shard.replica_id)
        for shard in rows.addressable_shards
    ]
    replicated = step(result, "Replicated").output
    assert "fully replicated: True" in replicated
    assert f"replicas: {' '.join(map(str, range(count)))}" in replicated
    assert "committed: False + True → True" in step(result, "Uncommitted and committed operands").output
    bytes_of_all = 4 * count * count
    part = bytes_of_all // tutorial.mesh_shape[0]
    alive = [
        [int(number) for number in line.split(":")[1].split()]
        for line in step(result, "Live arrays").output.splitlines()
        if line.startswith("bytes")
    ]
    without = [part + bytes_of_all, *[part] * (count - 1)]
    assert alive == [[held + bytes_of_all for held in without], without]
    assert f"devices here: {count} of {count}" in step(result, "Several processes").output


def test_jax_raises_the_errors_of_the_guides(take: Take) -> None:
    arrays, pieces = take(AS_THE_GUIDE["arrays"]), take(AS_THE_GUIDE["pieces"])
    clash = step(arrays, "Operands committed to different devices")
    assert "incompatible devices" in clash.refusal
    assert "device ids [0]" in clash.refusal and "device ids [1]" in clash.refusal
    mistake = step(arrays, "A local array instead of a global one")
    # The guide's numbers, in the messages of the supported versions.
    assert "partitioned 8 times, but the dimension size is 4" in mistake.refusal
    assert "global shape (8, 2) in shards of (1, 2)" in mistake.output
    wrong = step(pieces, "A piece of the wrong shape")
    assert "(2, 32)" in wrong.refusal and "(1, 32)" in wrong.refusal
    for one in (clash, mistake, wrong):
        _, _, text = one.refusal.partition(": ")
        assert text in one.output
    others = [one for result in (arrays, pieces) for one in result.steps if one.refusal is None]
    assert len(others) == len(arrays.steps) + len(pieces.steps) - 3


@pytest.mark.parametrize("tutorial", cases("pieces"))
def test_the_references_shapes(take: Take, tutorial: TutorialRequest) -> None:
    result = take(tutorial)
    as_reference = tutorial.mesh_shape == (2, 4)
    joined, batch, resharded = (drawn(result, name).array for name in ("joined", "batch", "resharded"))
    assert joined.shape == ((8, 8) if as_reference else (9, 8))
    assert joined.shard_shape == ((4, 2) if as_reference else (3, 4))
    # Two rows of 32 features on each device.
    assert (batch.shard_shape, batch.shape) == ((2, 32), (2 * tutorial.devices, 32))
    assert batch.spec == (tutorial.axis_names, None)
    assert resharded.shape == batch.shape
    assert resharded.spec == tuple((name,) for name in tutorial.axis_names)
    assert f"called {tutorial.devices} times" in step(result, "From a callback").output
    moved = step(result, "For tensor parallelism, reshard inside jit").output
    assert "by all-to-all" in moved
    equal = [
        line
        for one in result.steps
        for line in one.output.splitlines()
        if "same values" in line or "equal to" in line
    ]
    assert equal and all(line.endswith("True") for line in equal)


@pytest.mark.nightly
@pytest.mark.parametrize("guide", TUTORIALS)
def test_the_script_prints_what_the_page_shows(take: Take, guide: str, tmp_path: Path) -> None:
    tutorial = AS_THE_GUIDE[guide]
    result = take(tutorial)
    path = tmp_path / f"{guide}.py"
    path.write_text(tutorials.script(tutorial, result.steps), encoding="utf-8")
    variables = {name: text for name, text in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        env=variables | {"PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    shown = "\n".join(step.output for step in result.steps)
    assert comparable(done.stdout.rstrip("\n")) == comparable(shown)


def comparable(text: str) -> str:
    """Return the text without times and source lines, which differ between runs."""
    timed = re.sub(r"[\d.e+]+ ms ± [\d.e+]+ ms", "… ms ± … ms", text)
    return re.sub(r"(?:step \d+|\S+\.py):\d+:\d+", "(source)", timed)


def test_the_comparison_ignores_only_times_and_source_lines() -> None:
    assert comparable("2.1 ms ± 0.3 ms per loop") == comparable("14 ms ± 1.25 ms per loop")
    assert comparable("at step 3:5:4 (<module>)") == comparable("at /tmp/a.py:15:4 (<module>)")
    assert comparable("W1 on devices 0 4") != comparable("W1 on devices 0 5")


# --- Cells ----------------------------------------------------------------------------------------

SOURCE = '''
def tutorial(mesh_shape, axis_names):
    """Belongs to no cell."""
    # %% First title
    # Some words, that go
    # on.

    # A comment of the code.
    if True:
        size = 3
    # draw: one, other

    # %% Second title
    # Words.

    print(size)
    # refused: error
'''
HERE = TutorialRequest("arrays", (4, 4), ("a", "b"))


def test_cells_of_a_function() -> None:
    assert cells_of(SOURCE) == (
        Cell(
            "First title",
            "Some words, that go on.",
            "# A comment of the code.\nif True:\n    size = 3",
            ("one", "other"),
            None,
        ),
        Cell("Second title", "Words.", "print(size)", (), "error"),
    )


@pytest.mark.parametrize("guide", TUTORIALS)
def test_the_text_of_a_step_is_short(guide: str) -> None:
    for cell in replay.cells(guide):
        assert 1 <= len(re.findall(r"[.!?](?:\s|$)", cell.words)) <= 6, cell.title
        assert "#" not in cell.words and cell.code


def written(*codes: str, draw: tuple[str, ...] = (), refused: str | None = None) -> list[Cell]:
    return [Cell(f"Title {code}", "Words.", code, draw, refused) for code in codes]


def run(cells: list[Cell], report: Callable[..., None] = lambda *_, **__: None) -> tuple[TutorialStep, ...]:
    return replay.run(cells, HERE, report)


KEPT_BY_JAX = """
import jax, jax.numpy as jnp, optax
from flax.training.train_state import TrainState

def apply(params):
    return params

state = TrainState.create(apply_fn=apply, params=jnp.ones(1_000), tx=optax.sgd(0.1))
state = jax.jit(lambda state: state)(state)
"""


def test_a_tutorial_leaves_no_arrays_in_its_process() -> None:
    """JAX caches the structure of the train state, and with `apply` in it the namespace of the cells."""
    gc.collect()
    before = {id(array) for array in jax.live_arrays()}
    (step,) = run(written(KEPT_BY_JAX))
    assert step.problem is None
    gc.collect()
    assert {id(array) for array in jax.live_arrays()} <= before


def test_steps_after_a_failed_step_do_not_run() -> None:
    steps = run(written("first = 1", "print(first)\n1 / 0", "print(first)"))
    assert [step.problem for step in steps] == [
        None,
        "ZeroDivisionError: division by zero",
        "not run, because step 2 failed",
    ]
    assert [step.output for step in steps] == ["", "1", ""]
    assert [(step.title, step.words, step.code) for step in steps][2] == (
        "Title print(first)",
        "Words.",
        "print(first)",
    )


def test_cells_share_one_namespace() -> None:
    assert [step.output for step in run(written("x = mesh_shape", "print(x, axis_names)"))] == [
        "",
        "(4, 4) ('a', 'b')",
    ]
    (alone,) = run(written("print(x)"))
    assert alone.problem.startswith("NameError")


def test_a_missing_error_is_a_failure() -> None:
    (fine,) = run(written("error = ValueError('no')", refused="error"))
    assert (fine.refusal, fine.problem) == ("ValueError: no", None)
    (broken,) = run(written("error = None", refused="error"))
    assert broken.problem == "InvalidInput: this version of JAX raised no error"


def test_progress_is_reported_before_each_step_and_can_cancel() -> None:
    told: list[dict[str, int]] = []

    def report(phase: str, **figures: int) -> None:
        told.append({"phase": phase, **figures})
        if len(told) == 2:
            raise Cancelled

    with pytest.raises(Cancelled):
        run(written("pass", "pass", "pass"), report)
    assert told == [{"phase": "step", "done": done, "of": 3} for done in (0, 1)]
