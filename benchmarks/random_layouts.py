"""Random layouts of all built-in models and of two users' models, reproducible by seed.

A layout has two to four mesh axes. Each logical axis is sharded over none, one or two of them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace

from inspector import layout as layouts
from inspector.layout import Layout, specs_from_rules
from inspector.layout.mesh_shapes import mesh_shapes
from inspector.model.built_in.catalogue import CATALOGUE

USERS_MODELS = ("examples.linen_mlp:build", "examples.nnx_mlp:build")
# More layouts of the models with more logical axes.
MODELS = (
    "transformer", "moe", "logical_mlp", "transformer", "mlp", "moe", "transformer", USERS_MODELS[0],
    "moe", USERS_MODELS[1],
)  # fmt: skip
SHARDED = ("batch", "embed", "heads", "kv_heads", "mlp", "vocab", "seq", "expert", "hidden")
AXIS_NAMES = ("data", "fsdp", "tensor", "expert")
# How many layouts in ten shard a logical axis over no, one and two mesh axes.
AXES_WEIGHTS = (4, 4, 2)

SMALL = {
    "mlp": {"batch": 16, "layers": 2, "depth": 64},
    "transformer": {
        "batch": 16, "seq": 32, "layers": 2, "embed": 64, "heads": 16, "kv_heads": 8, "head_dim": 16,
        "mlp": 128, "vocab": 256,
    },
    "user": {"rows": 16, "width": 64, "hidden": 128},
}  # fmt: skip
# The compiler for TPUs narrows operands of matrix products, but not those that are smaller than a few tiles.
LARGE = {
    "mlp": {"batch": 128, "layers": 2, "depth": 512},
    "transformer": {
        "batch": 16, "seq": 128, "layers": 2, "embed": 512, "heads": 16, "kv_heads": 8, "head_dim": 64,
        "mlp": 1024, "vocab": 1024,
    },
    "user": {"rows": 128, "width": 512, "hidden": 1024},
}  # fmt: skip
_MOST_TRIES = 100


def random_layouts(target: str, seed: int) -> Iterator[tuple[str, Layout]]:
    """Yield layouts for a target without end, each with a name. The users' models must be registered."""
    source = random.Random(f"{target} {seed}")
    number = 0
    while True:
        model = MODELS[number % len(MODELS)]
        yield f"{number}: {model}", _layout(model, target, source)
        number += 1


def _layout(model: str, target: str, source: random.Random) -> Layout:
    """Return a layout whose mesh axes divide all sizes."""
    entry = CATALOGUE[model]
    sizes = SMALL if target == "cpu" else LARGE
    chosen: dict[str, object] = dict(sizes["user" if entry.own else "mlp"])
    if not entry.own:
        chosen |= {"scan": source.random() < 0.5, "optimizer": source.choice(("adam", "sgd"))}
    if model in ("transformer", "moe"):
        chosen = {**chosen, **sizes["transformer"]}
        del chosen["depth"]
        chosen |= {
            "dtype": source.choice(("float32", "float32", "bfloat16")),
            "weight_dtype": "float32",
            "remat": source.choice(("none", "none", "full")),
        }
        if target == "cpu":
            # The compiler for CPUs has no bfloat16, so it sends float32.
            chosen["dtype"] = "float32"
        if model == "moe":
            chosen["experts"] = 16
    fields = {
        "model": model,
        "target": target,
        **{key: _text(value) for key, value in chosen.items()},
    }
    start = layouts.parse(fields).unwrap()
    extents = entry.extents
    for _ in range(_MOST_TRIES):
        names = tuple(source.sample(AXIS_NAMES, source.randint(2, 4)))
        shape = source.choice(mesh_shapes(start.devices, len(names)))
        if shape.count(1) > max(0, len(names) - int(math.log2(start.devices))):
            continue
        ways = dict(zip(names, shape, strict=True))
        logical_axes = [name for name in SHARDED if name in entry.logical_axes]
        source.shuffle(logical_axes)
        rules = tuple(
            (name, tuple(source.sample(names, count)))
            for name in logical_axes
            for count in source.choices((0, 1, 2), AXES_WEIGHTS)
        )
        if entry.rules_semantics == "nnx":
            rules += tuple((name, ()) for name in entry.logical_axes if name not in dict(rules))
        if any(
            name in extents and start.sizes[extents[name]] % math.prod(ways[axis] for axis in axes)
            for name, axes in rules
        ):
            continue
        changed = start.on_mesh(shape, names)
        if entry.has_rules:
            return replace(changed, rules=rules)
        return replace(changed, specs=specs_from_rules(entry, rules))
    raise AssertionError(f"no mesh divides the sizes of {model}")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
