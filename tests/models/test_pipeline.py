"""The transformer as a pipeline: the same function as without, and the schedule that it declares."""

from __future__ import annotations

import flax
import jax
import numpy as np
import pytest

from inspector.model.built_in.transformer import transformer
from inspector.partition.partition_layout import partitioned_programs
from inspector.text.errors import InvalidInput
from tests.models.language_models import small

SIZES = {
    "batch": 8, "seq": 8, "layers": 4, "embed": 16, "mlp": 32, "heads": 2, "kv_heads": 1, "head_dim": 8,
    "vocab": 32, "scan": True,
}  # fmt: skip


def flat(params):
    return flax.traverse_util.flatten_dict(flax.core.meta.unbox(params))


def with_stages(state, plain):
    """Return the state with the weights of a plain model, whose layers become those of stages."""
    known = flat(plain)
    weights = {}
    for path, value in flat(state.params).items():
        source = known[("blocks", *path[2:])] if path[0] == "stages" else known[path]
        if path[0] == "stages" and path[1] != "blocks":  # a layer without a scan
            layer = int(path[1].removeprefix("block_"))
            source = source.reshape(value.shape[0], -1, *value.shape[1:])[:, layer]
        weights[path] = source.reshape(value.shape)
    boxed = flax.core.meta.replace_boxed(state.params, flax.traverse_util.unflatten_dict(weights))
    return state.replace(params=boxed)


@pytest.mark.parametrize(
    ("stages", "microbatches", "options"),
    [(2, 4, {}), (4, 2, {"scan": False}), (2, 8, {"remat": "full"})],
)
def test_stages_change_neither_the_result_nor_the_loss(stages, microbatches, options):
    plain = transformer(**SIZES)
    batch = plain.batch(jax.random.key(1))
    state = plain.init(jax.random.key(0), batch)
    model = transformer(**SIZES | {"stages": stages, "microbatches": microbatches} | options)
    other = with_stages(model.init(jax.random.key(0), batch), state.params)
    np.testing.assert_allclose(
        jax.jit(model.apply)(other, batch), jax.jit(plain.apply)(state, batch), rtol=1e-3, atol=1e-4
    )
    losses = [jax.jit(one.step)(before, batch)[1] for one, before in ((model, other), (plain, state))]
    np.testing.assert_allclose(*losses, rtol=1e-5)


def test_a_plan_has_the_schedule_of_its_sizes():
    layout = small(
        "transformer", scan="true", mesh="2x4", axes="data,stage", batch="16", layers="4", stages="4",
        microbatches="8", rules="stages=stage,vocab=stage,batch=data",
    )  # fmt: skip
    programs = partitioned_programs(layout, origins=False).programs
    (step,) = [program for program in programs if program.name == "train_step"]
    assert [
        (pipeline.axes, pipeline.stages, pipeline.microbatches, pipeline.backward)
        for pipeline in step.pipelines or ()
    ] == [(("stage",), 4, 8, False), (("stage",), 4, 8, True)]
    # Inside of a stage, only results go to the next device, and no activation is gathered.
    assert {c.op for c in step.collectives or () if c.executions == 11} == {
        "collective-permute",
        "all-reduce",
    }


@pytest.mark.parametrize(
    "sizes",
    [{"stages": 3}, {"stages": 2, "microbatches": 3}, {"stages": 4, "window": 4, "global_every": 2}],
)
def test_sizes_that_do_not_divide_are_refused(sizes):
    with pytest.raises(InvalidInput):
        transformer(**SIZES | sizes)
