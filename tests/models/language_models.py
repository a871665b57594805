"""Small transformers and mixtures of experts for the tests."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from flax.core import meta

from inspector import layout as layouts
from inspector.layout import Layout
from inspector.model import Batch, Model
from inspector.model.built_in.layer import Config
from inspector.tracing.model import build

MODELS = ("transformer", "moe")

# The ways of every preset divide them.
SMALL = {
    **{"batch": "8", "seq": "16", "layers": "2", "embed": "32", "mlp": "64", "vocab": "64"},
    **{"heads": "4", "kv_heads": "2", "head_dim": "8", "learning_rate": "0.01", "steps": "3"},
}

# The sizes of a layer that is built alone.
CONFIG = Config(
    **{"layers": 1, "embed": 8, "mlp": 8, "heads": 1, "kv_heads": 1, "head_dim": 2, "vocab": 8},
    **{"scan": False, "remat": "none", "tied": False, "unconstrained": frozenset()},
    **{"dtype": np.dtype("float32"), "weight_dtype": np.dtype("float32")},
)


def small(model: str, **fields: str) -> Layout:
    return layouts.parse(SMALL | {"model": model} | fields).unwrap()


def built(model: str, **fields: str) -> tuple[Model, Any, Batch]:
    """A model on one device, its first state with the boxes opened, and a batch."""
    model = build.build_model(small(model, **fields))
    batch = model.batch(jax.random.key(1))
    return model, meta.unbox(jax.jit(model.init)(jax.random.key(0), batch)), batch
