"""Compile a layout ahead of time for TPUs and GPUs, up to the Snapshot, compared with JAX alone.

Both processes are warm, and both compile init, train step and inference each time. The service also analyses
the compiled text and makes the Snapshot.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.pairing import Result, interleave, ratio_result
from benchmarks.plain_process import PlainProcess
from inspector import layout as layouts
from inspector.jobs.compile_cache import CompileCache
from inspector.jobs.inspection import Inspection
from inspector.layout import Layout
from inspector.machines import out_of_memory, targets
from inspector.machines.targets import GPUS_PER_NODE, Target
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.text.errors import InvalidInput

PAIRS = 3
LIMIT = 1.15
SCRIPT = Path(__file__).with_name("plain_compile.py")

# (target, other fields of the layout, maximum number of pairs); the last two take minutes.
FSDP_AND_TENSOR = {
    "model": "transformer",
    "axes": "fsdp,tensor",
    "rules": "vocab=tensor,mlp=tensor,heads=tensor,kv_heads=tensor,batch=fsdp,embed=fsdp",
}
CASES: tuple[tuple[str, dict[str, str], int], ...] = (
    ("tpu:v5e:4x4", {"mesh": "4x4", "batch": "16"}, 15),
    ("tpu:v5p:8x8x8", {"mesh": "64x8", "batch": "512"}, 15),
    ("tpu:v5p:16x16x16", {"mesh": "256x16", "batch": "4096"}, 5),
    ("gpu:h100:8", {"mesh": "2x4"}, 15),
    ("tpu:v5e:4x4", {"mesh": "4x4", "depth": "32768"}, 5),
    ("tpu:v5p:4x4x4", {"mesh": "16x4", **FSDP_AND_TENSOR}, 1),
)


def measure(pairs: int = PAIRS, cases: Sequence[tuple[str, dict[str, str], int]] = CASES) -> list[Result]:
    """Measure every case; the last one is Llama-3-8B.

    Raises:
      InvalidInput: the compiler of a case is not installed.
    """
    return [_measured(layout_of(target, fields), min(pairs, most)) for target, fields, most in cases]


def layout_of(target: str, fields: dict[str, str]) -> Layout:
    """Return the layout of a case; a transformer has the sizes of Llama-3-8B."""
    sizes: dict[str, str] = {}
    if "model" in fields:
        entry = CATALOGUE[fields["model"]]
        preset = next(one for one in entry.presets if one.name == "Llama-3-8B")
        sizes = {name: layouts.print_size(size) for name, size in entry.sizes_of(preset).items()}
    return layouts.parse(sizes | fields | {"target": target}).unwrap()


def _measured(layout: Layout, pairs: int) -> Result:
    machine = layout.machine
    assert machine is not None
    if lacking := targets.missing_compiler(machine):
        raise InvalidInput(lacking)
    request = {
        "topology": _topology(machine),
        "model": layout.model,
        "sizes": dict(layout.sizes),
        "mesh": list(zip(layout.axis_names, layout.mesh_shape, strict=True)),
        "rules": layout.rules,
    }
    with tempfile.TemporaryDirectory() as folder:
        service = Inspection(run_workers=1, compiled=CompileCache(Path(folder) / "compiled.sqlite3"))
        try:
            planned = service.plan(layout)
            with PlainProcess(1, SCRIPT, dict(targets.environment(machine))) as plain:

                def ours() -> float:
                    began = time.perf_counter()
                    found = service.run(layout, planned).start().wait().answer()
                    seconds = time.perf_counter() - began
                    too_large.append(len(out_of_memory.findings(found)))
                    return seconds

                def alone() -> float:
                    answer = plain.ask("compile", **request)
                    too_large.append(len(answer["too_large"]))
                    return answer["seconds"]

                too_large: list[int] = []
                # A cold start of a second does not matter in a compile of a minute.
                taken = interleave(ours, alone, pairs, warm_up=int(layout.model != "transformer"))
        finally:
            service.close()
    if len(set(too_large)) != 1:
        raise RuntimeError(f"{layout.target}: the service and JAX disagree on the programs that do not fit")
    fits = "" if too_large[0] == 0 else f", {too_large[0]} programs do not fit"
    return ratio_result(
        LIMIT,
        name="target_compile",
        ours=f"{layout.model} for {layout.target} by the service{fits}",
        baseline="the same three compiles by JAX alone in a warm process",
        pairs=taken,
    )


def _topology(machine: Target) -> dict[str, Any]:
    """Return the arguments of JAX's `get_topology_desc`."""
    if machine.slice is None:
        gpus = min(machine.devices, GPUS_PER_NODE)
        folder = Path(targets.__file__).parent / "gpu_targets"
        return {
            "platform": "cuda",
            "topology": f"1x{machine.hosts}x{gpus}",
            "target_config_file": str(folder / f"{machine.chip_name}.textproto"),
        }
    one = machine.slice
    return {
        "platform": "tpu",
        "topology_name": f"{one.generation}:{one.topology}",
        "chips_per_host_bounds": list(one.host_shape),
        "wrap": (*one.wraps, False)[:3],
        "chip_config_name": "megacore" if one.chip.devices < one.chip.cores else "default",
    }
