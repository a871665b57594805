"""Run scripts one after the other in a process without this project, and print their arrays.

    python run_scripts.py SCRIPT.py …

Without arguments, each line of standard input is the path of a script.

The first script sets the number of emulated devices. The output has one line of JSON per script: the losses,
and for each array its shape, dtype, spec and the index ranges of each device.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from types import ModuleType
from typing import Any


def imported(path: str, name: str) -> ModuleType:
    """Import the script as a module, without the code below `if __name__`."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def described(array: Any) -> dict[str, Any]:
    places = array.sharding.devices_indices_map(array.shape)
    return {
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "spec": [
            [entry] if isinstance(entry, str) else list(entry) if entry else None
            for entry in array.sharding.spec
        ],
        "shards": {
            str(device.id): [
                list(part.indices(size)[:2]) for part, size in zip(index, array.shape, strict=True)
            ]
            for device, index in places.items()
        },
    }


def made_by(module: ModuleType) -> dict[str, Any]:
    import jax
    from flax import nnx
    from flax.core import meta

    state, data, losses = module.trained()
    arrays = {}
    if module.infer is not None:
        arrays["output"] = described(module.infer(state, data))
    for name, array in data.items():
        arrays[f"batch/{name}"] = described(array)
    leaves = jax.tree_util.tree_leaves_with_path(
        nnx.as_pure(state), is_leaf=lambda leaf: isinstance(leaf, meta.AxisMetadata)
    )
    for path, leaf in leaves:
        # `nn.unbox` would give an array the sharding of its rules.
        array = leaf.value if isinstance(leaf, meta.AxisMetadata) else leaf
        arrays[jax.tree_util.keystr(path, simple=True, separator="/")] = described(array)
    return {"losses": losses, "arrays": arrays}


if __name__ == "__main__":
    for number, script in enumerate(sys.argv[1:] or map(str.strip, sys.stdin)):
        print(json.dumps(made_by(imported(script, f"script_{number}"))), flush=True)
