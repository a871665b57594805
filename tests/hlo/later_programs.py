"""Write `later_programs.json`: small programs after XLA's partitioner, and their collectives when compiled.

    python -m tests.hlo.later_programs

Each program is compiled for emulated CPU devices, which writes the text after the partitioner, and by the
real compiler of a target. The file was written with JAX 0.10.2, libtpu 0.0.42 and the CUDA 13 plugin 0.10.2.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_suffix(".json")
_REPOSITORY = Path(__file__).resolve().parents[2]
TARGETS = {"tpu": "tpu:v5e:2x4", "gpu": "gpu:h100:8", "slices": "tpu:v5e:2x4*2"}
# Sizes of the mesh axes a and b. The axis b of 16 devices has both slices.
SHAPES = {"tpu": (2, 4), "gpu": (2, 4), "slices": (1, 16)}
# Small sums, of which the compiler for several slices scatters other parts than the passes do.
_NOT_ON_SLICES = frozenset({"few rows of a sum", "part of a vector"})
# Parts of a text that no pass reads.
_NOT_READ = re.compile(r", (?:metadata|sharding|frontend_attributes)=\{(?:[^{}\"]|\"[^\"]*\"|\{[^{}]*\})*\}")


def programs(mesh: Any) -> dict[str, tuple[Any, list[Any]]]:
    """Return the function and the arguments of each program on a mesh with the axes a and b."""
    import jax
    from jax import numpy as jnp
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    def array(shape: tuple[int, ...], *spec: Any, dtype: Any = jnp.float32) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))

    def held(value: Any, *spec: Any) -> Any:
        return jax.lax.with_sharding_constraint(value, NamedSharding(mesh, P(*spec)))

    def tokens(width: int, dtype: Any = jnp.float32) -> Any:
        return array((4096, width), "b", None, dtype=dtype)

    def product(*spec: Any) -> Any:
        return lambda x, w: held(x.T @ w, *spec)

    def gathered(value: Any, axis: str) -> Any:
        return jax.lax.all_gather(value, axis, axis=1, tiled=True)

    left, right = array((256, 512), None, "b"), array((512, 1024), "b", None)
    return {
        "sum of partial sums": (
            lambda x, w, y, v: held(held(x @ w) + held(y @ v)),
            [left, right, left, right],
        ),
        "sum of three": (
            lambda x, w, y, v, z, u: held(held(x @ w) + held(y @ v) + held(z @ u)),
            [left, right, left, right, left, right],
        ),
        "part of a sum": (lambda x, w: held(held(x @ w), None, "b"), [left, right]),
        "rows of a sum": (product("b"), [tokens(1024), tokens(512)]),
        "few rows of a sum": (product("b"), [tokens(32), tokens(128)]),
        "columns of a sum": (product(None, "b"), [tokens(256), tokens(1024)]),
        "columns of a sum in bfloat16": (
            product(None, "b"),
            [tokens(256, jnp.bfloat16), tokens(512, jnp.bfloat16)],
        ),
        "few columns of a sum": (product(None, "b"), [tokens(512), tokens(128)]),
        "part of a vector": (lambda x: held(x.sum(0), "b"), [tokens(65536)]),
        "rows over two axes": (
            lambda x, w: held(x.T @ w, ("a", "b")),
            [array((4096, 1024), ("a", "b")), array((4096, 512), ("a", "b"))],
        ),
        "sum over two axes": (
            lambda x: held(jnp.sum(x, axis=(0, 2))),
            [array((256, 512, 64), "a", None, "b")],
        ),
        "gathered weight": (
            lambda x, w: held(x @ held(w), "a", None),
            [array((256, 512), "a", None), right],
        ),
        "gathered weight of highest precision": (
            lambda x, w: held(jnp.dot(x, held(w), precision="highest"), "a", None),
            [array((256, 512), "a", None), right],
        ),
        "gathered weight along two dimensions": (
            lambda x, w: held(x @ held(w)),
            [array((256, 512)), array((512, 1024), "a", "b")],
        ),
        "gathered along one dimension, over one axis after the other": (
            jax.shard_map(
                lambda x, w: gathered(gathered(x, "b"), "a") @ w,
                mesh=mesh,
                in_specs=(P(None, ("a", "b")), P()),
                out_specs=P(),
                check_vma=False,
            ),
            [array((256, 4096), None, ("a", "b")), array((4096, 512))],
        ),
        "gathered, then narrowed": (
            lambda w: held(w).astype(jnp.bfloat16) * 2,
            [right],
        ),
        "widened, then gathered": (
            lambda w: held(w.astype(jnp.float32)) * 2,
            [array((512, 1024), "b", None, dtype=jnp.bfloat16)],
        ),
    }


def partitioned() -> dict[str, dict[str, str]]:
    """Return the text after the partitioner of each program, on 8 and on 16 emulated devices."""
    import jax
    import numpy as np
    from jax.sharding import Mesh

    texts: dict[str, dict[str, str]] = {}
    for kind, shape in SHAPES.items():
        devices = np.array(jax.devices()[: shape[0] * shape[1]])
        mesh = Mesh(devices.reshape(shape), ("a", "b"))
        texts[kind] = {}
        for name, (function, arguments) in programs(mesh).items():
            with tempfile.TemporaryDirectory() as folder:
                jax.jit(function).lower(*arguments).compile(
                    compiler_options={
                        "xla_dump_to": folder,
                        "xla_dump_hlo_pass_re": "spmd-partition.*",
                        "xla_dump_hlo_as_text": True,
                        "xla_dump_large_constants": True,
                    }
                )
                (file,) = Path(folder).glob("*after_spmd-partitioning*")
                text = file.read_text(encoding="utf-8").replace(f"{_REPOSITORY}/", "")
                texts[kind][name] = _NOT_READ.sub("", text)
    return texts


def compiled(kind: str) -> dict[str, list[list[Any]]]:
    """Return the operation, mesh axes and wire bytes of each collective that a target's compiler makes."""
    import jax

    from inspector import hlo
    from inspector.compiling.compile_layout import mesh_on
    from inspector.machines import targets

    mesh, record = mesh_on(targets.parse(TARGETS[kind]), SHAPES[kind], ("a", "b"), "row-major")
    found = {}
    for name, (function, arguments) in programs(mesh).items():
        text = jax.jit(function).lower(*arguments).compile().as_text()
        collectives = hlo.collectives.collectives(hlo.parser.parse(text)[0], record)
        found[name] = [
            [collective.op, collective.mesh_axes, collective.wire_bytes_per_device]
            for collective in collectives
        ]
    return found


def main(kind: str | None = None) -> None:
    """Write the file; a process of its own for each compiler prints its part."""
    if kind is not None:
        print(json.dumps(partitioned() if kind == "partitioned" else compiled(kind)))
        return
    from inspector.machines import targets

    parts: dict[str, Any] = {}
    for name in ("partitioned", *TARGETS):
        variables = {"JAX_PLATFORMS": "cpu"}
        if name == "partitioned":
            variables["XLA_FLAGS"] = "--xla_force_host_platform_device_count=16"
        else:
            variables |= dict(targets.environment(targets.parse(TARGETS[name])))
        ran = subprocess.run(
            [sys.executable, "-m", "tests.hlo.later_programs", name],
            env=os.environ | variables, stdout=subprocess.PIPE, check=True,
        )  # fmt: skip
        parts[name] = json.loads(ran.stdout.splitlines()[-1])
    cases = [
        {
            "program": program,
            "kind": kind,
            "text": text,
            "collectives": parts[kind][program],
        }
        for kind in TARGETS
        for program, text in parts["partitioned"][kind].items()
        if kind != "slices" or program not in _NOT_ON_SLICES
    ]
    FILE.write_text(json.dumps(cases, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
