"""A train state, which Orbax saves in all of its forms during the tests."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from orbax.checkpoint.experimental import v1

# By path: shape, type, and spec on a mesh of data 2 × model 4.
_ARRAYS: dict[str, tuple[tuple[int, ...], str, P]] = {
    "step": ((), "int32", P()),
    "params/emb": ((128, 32), "float32", P(("data", "model"), None)),
    "params/norm/scale": ((32,), "bfloat16", P()),
    "params/up/kernel": ((32, 64), "float32", P("data", "model")),
    "opt_state/0/mu/emb": ((128, 32), "float32", P("model")),
    "opt_state/0/mu/up/kernel": ((32, 64), "float32", P(None, ("model", "data"))),
}


@cache
def leaves() -> dict[str, jax.Array]:
    """Return the arrays of the train state by path."""
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))
    return {
        path: jax.device_put(jnp.ones(shape, dtype), NamedSharding(mesh, spec))
        for path, (shape, dtype, spec) in _ARRAYS.items()
    }


def _tree() -> dict[str, Any]:
    values = leaves()
    return {
        "step": values["step"],
        "params": {
            "emb": values["params/emb"],
            "norm": {"scale": values["params/norm/scale"]},
            "up": {"kernel": values["params/up/kernel"]},
        },
        "opt_state": [
            {
                "mu": {
                    "emb": values["opt_state/0/mu/emb"],
                    "up": {"kernel": values["opt_state/0/mu/up/kernel"]},
                }
            }
        ],
    }


FORMS = ("ocdbt", "without ocdbt", "zarr3", "v1", "manager", "manager/3/state")


def saved(form: str) -> Path:
    """Return the folder of a form. On first use, save the train state in every one of `FORMS`."""
    return _folder() / form


@cache
def _folder() -> Path:
    top = Path(tempfile.mkdtemp(prefix="checkpoints-"))
    atexit.register(shutil.rmtree, top, ignore_errors=True)
    tree = _tree()
    for name, settings in (
        ("ocdbt", {"use_ocdbt": True, "use_zarr3": False}),
        ("without ocdbt", {"use_ocdbt": False, "use_zarr3": False}),
        ("zarr3", {"use_ocdbt": True, "use_zarr3": True}),
    ):
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**settings)) as checkpointer:
            checkpointer.save(top / name, tree)
    v1.save(top / "v1", tree)
    with ocp.CheckpointManager(top / "manager", item_names=("state", "meta")) as manager:
        manager.save(
            3,
            args=ocp.args.Composite(state=ocp.args.PyTreeSave(tree), meta=ocp.args.JsonSave({"epoch": 1})),
        )
    return top
