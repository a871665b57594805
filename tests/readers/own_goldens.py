"""Goldens in the form of MaxText's, whose specs Flax computes from rules of our own."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from flax import linen

_Rules = list[tuple[str, Any]]

# By the folder of a golden: sizes of the mesh axes, and rules.
_DEFAULT: _Rules = [
    ("act_batch", ("data", "fsdp", "expert")),
    ("act_embed", "tensor"),
    ("act_mlp", ("tensor",)),
    ("vocab", ("tensor",)),
    ("mlp", ("tensor",)),
    ("exp", "expert"),
    ("embed", ("fsdp", "expert")),
    ("embed", "fsdp"),
    ("norm", "tensor"),
    ("layers", ()),
]
_EXPERTS_ON_FSDP = [("exp", "fsdp") if name == "exp" else (name, axes) for name, axes in _DEFAULT]
RULES: dict[str, tuple[dict[str, int], _Rules]] = {
    "rule_default": ({"data": 1, "fsdp": 16, "expert": 1, "tensor": 1}, _DEFAULT),
    "rule_experts-on-fsdp": (
        {"data": 1, "fsdp": 4, "expert": 2, "tensor": 1},
        _EXPERTS_ON_FSDP,
    ),
    "rule_more-axes": (
        {"slice": 1, "data": 1, "fsdp": 16, "expert": 1, "tensor": 1},
        [("vocab", ("tensor", "slice")), *_DEFAULT],
    ),
    "rule_tensor": ({"data": 2, "fsdp": 4, "expert": 1, "tensor": 2}, _DEFAULT),
}

# By model: the arrays of the parameters, which Adam's moments repeat, and activations.
_ARRAYS: dict[str, dict[str, tuple[tuple[int, ...], tuple[str | None, ...]]]] = {
    "mixture": {
        "['embedding']": ((512, 64), ("vocab", "embed")),
        "['decoder']/['norm']/['scale']": ((64, 4), ("norm", "layers")),
        "['decoder']/['mlp']/['up']": ((64, 4, 256), ("embed", "layers", "mlp")),
        "['decoder']/['mlp']/['down']": ((256, 4, 64), ("mlp", "layers", "embed")),
        "['decoder']/['experts']/['up']": ((8, 4, 64, 32), ("exp", "layers", "embed", "mlp")),
        "['decoder']/['router']": ((64, 4, 8), ("embed", "layers", None)),
    },
    "dense": {
        "['embedding']": ((512, 96), ("vocab", "embed")),
        "['decoder']/['mlp']/['gate']": ((96, 4, 256), ("embed", "layers", "mlp")),
    },
}
_ACTIVATIONS: dict[str, tuple[str | None, ...] | None] = {
    "decoder/inputs: bfloat16[32,128,64]": ("act_batch", None, "act_embed"),
    "mlp/hidden: bfloat16[32,128,256]": ("act_batch", None, "act_mlp"),
    "experts/up: bfloat16[8,64,32]": None,
    "decoder/inputs: bfloat16[32,128,64]#2": ("act_batch", None, "act_embed"),
}


def _spec(names: tuple[str | None, ...], rules: _Rules) -> list[Any]:
    return list(linen.logical_to_mesh_axes(names, rules))


@cache
def folders() -> tuple[Path, ...]:
    """Write every golden on first use, and return their folders: `MODEL/RULES`."""
    top = Path(tempfile.mkdtemp(prefix="goldens-"))
    atexit.register(shutil.rmtree, top, ignore_errors=True)
    for model, arrays in _ARRAYS.items():
        leaves = {".step": ((), ())}
        for tree in (
            ".params/['params']",
            ".opt_state/[0]/.mu/['params']",
            ".opt_state/[0]/.nu/['params']",
        ):
            leaves |= {f"{tree}/{path}": array for path, array in arrays.items()}
        for name, (sizes, rules) in RULES.items():
            mesh = {"axis_names": list(sizes), "shape": sizes}
            dump = [
                {
                    key.partition("#")[0]: {
                        "logic_axes": "Unknown" if names is None else str(names),
                        "PartitionSpec": f"P{tuple(_spec(names or (None,) * 3, rules))}",
                    }
                }
                for key, names in _ACTIVATIONS.items()
            ]
            content = {
                "named": {
                    key: {"mesh": mesh, "partition_spec": _spec(names, rules), "shape": shape}
                    for key, (shape, names) in leaves.items()
                },
                "logical": {
                    key: {"partition_spec": names, "shape": shape} for key, (shape, names) in leaves.items()
                },
                "input": {"Activation Sharding Dump": dump},
            }
            folder = top / model / name
            folder.mkdir(parents=True)
            for kind, value in content.items():
                (folder / f"{kind}_shardings.json").write_text(json.dumps(value))
    return tuple(sorted(path for path in top.glob("*/*")))
