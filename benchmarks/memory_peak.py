"""The peak of compiled train steps, from the schedule and estimated before the compile, over the compiler's.

Compiled programs are kept in the cache, so that a second run takes seconds.
"""

from __future__ import annotations

from contextlib import closing

from inspector import layout as layouts
from inspector.jobs.inspection import Inspection
from inspector.prediction.memory import ESTIMATE_HIGH, ESTIMATE_LOW
from inspector.text.errors import InvalidInput

_DENSE = {
    "model": "transformer", "layers": "4", "scan": "true", "embed": "1024", "mlp": "4096",
    "heads": "8", "kv_heads": "8", "head_dim": "128", "vocab": "16384", "batch": "32",
    "seq": "1024", "dtype": "bfloat16", "donate": "true",
}  # fmt: skip
_MOE = {
    "model": "moe", "layers": "2", "scan": "true", "embed": "512", "mlp": "1024", "heads": "8",
    "kv_heads": "8", "head_dim": "64", "vocab": "4096", "experts": "8", "batch": "16",
    "seq": "512", "donate": "true",
}  # fmt: skip
_FSDP = {"axes": "fsdp", "rules": "batch=fsdp,embed=fsdp"}
_TENSOR = {
    "axes": "data,model", "rules": "batch=data,mlp=model,heads=model,kv_heads=model,vocab=model",
}  # fmt: skip
_H100 = {"target": "gpu:h100:8"}
_V5E = {"target": "tpu:v5e:4x4"}
_V5P = {"target": "tpu:v5p:2x2x2"}
PROGRAMS = {
    "FSDP, 8 H100": {**_DENSE, **_FSDP, **_H100, "mesh": "8"},
    "tensor, 8 H100": {**_DENSE, **_TENSOR, **_H100, "mesh": "2x4"},
    "recomputed, 8 H100": {**_DENSE, **_FSDP, **_H100, "mesh": "8", "remat": "full"},
    "not donated, 8 H100": {**_DENSE, **_FSDP, **_H100, "mesh": "8", "donate": "false"},
    "experts, 8 H100": {**_MOE, **_FSDP, **_H100, "mesh": "8"},
    "FSDP, 16 v5e": {**_DENSE, **_FSDP, **_V5E, "mesh": "16"},
    "tensor, 16 v5e": {**_DENSE, **_TENSOR, **_V5E, "mesh": "4x4"},
    "recomputed, 16 v5e": {**_DENSE, **_FSDP, **_V5E, "mesh": "16", "remat": "full"},
    "not donated, 16 v5e": {**_DENSE, **_FSDP, **_V5E, "mesh": "16", "donate": "false"},
    "experts, 8 v5p": {**_MOE, **_FSDP, **_V5P, "mesh": "8"},
    "unrolled, 8 v5p": {**_DENSE, **_FSDP, **_V5P, "mesh": "8", "scan": "false"},
    "flash attention, 8 v5p": {**_DENSE, **_FSDP, **_V5P, "mesh": "8", "attention": "flash"},
}


def report(cases: int | None = None) -> str:
    """Compile the first `cases` programs, and return a line for each.

    Raises:
      InvalidInput: a compiler is not installed.
    """
    lines, close, inside = [], 0, 0
    with closing(Inspection(run_workers=1)) as service:
        programs = list(PROGRAMS.items())[:cases]
        for name, fields in programs:
            layout = layouts.parse(fields).unwrap()
            planned = service.plan(layout)
            before = service.programs(layout).answer()
            found = service.run(layout, planned).answer()
            step = found.program("train_step")
            estimated = next(one for one in before.programs if one.name == "train_step")
            if step is None or step.memory_use is None or step.memory is None:
                raise InvalidInput(f"the train step of {name} has no schedule")
            peak = step.memory.peak
            assert peak is not None and estimated.memory_use is not None
            ours = step.memory_use.peak_bytes / peak
            listed = sum(one.bytes for one in step.memory_use.values) / peak
            ratio = peak / estimated.memory_use.peak_bytes
            close += abs(ours - 1) <= 0.01
            inside += ESTIMATE_LOW <= ratio <= ESTIMATE_HIGH
            lines.append(
                f"{name}: schedule / compiler {ours:.4f}, listed {listed:.1%}, "
                f"compiler / estimate {ratio:.2f}"
            )
    count = len(programs)
    lines.append(f"{close} of {count} within 1%, {inside} of {count} estimates inside the interval")
    return "Peak memory of train steps\n" + "\n".join(lines)
