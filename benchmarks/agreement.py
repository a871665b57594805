"""Compare propagated with compiled collectives for every model and preset, on CPU, TPU and GPU.

For each target, the report has the number of pairs (a program and one set of mesh axes) whose wire bytes are
equal within 1%, and all other pairs with the reasons of the difference. Sizes are small, so compiles take
seconds. Targets without their compiler are left out.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from inspector import layout as layouts
from inspector.compare.propagated_traffic import Pair, compared, pairs
from inspector.core.errors import InvalidInput
from inspector.core.formatting import mesh_axes_text
from inspector.layout import Layout, presets
from inspector.machines import targets
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.service.compile_cache import CompileCache
from inspector.service.inspection import Inspection

MLP = {"batch": "16", "layers": "2", "depth": "64", "steps": "1"}
TRANSFORMER = {
    "batch": "16", "seq": "32", "embed": "64", "mlp": "128", "vocab": "256", "layers": "2", "steps": "1",
}  # fmt: skip
# Compilers for TPUs narrow operands of matrix products, but not those that are smaller than a few tiles.
LARGER_MLP = MLP | {"batch": "64", "depth": "512"}
LARGER_TRANSFORMER = TRANSFORMER | {
    "seq": "64", "embed": "512", "mlp": "1024", "vocab": "1024", "head_dim": "64",
}  # fmt: skip
# Meshes by target.
TARGETS: dict[str, tuple[tuple[int, ...], ...]] = {
    "cpu": ((8,), (2, 4), (2, 2, 2)),
    "tpu:v5e:4x4": ((16,), (4, 4), (2, 2, 4)),
    "gpu:h100:8": ((8,), (2, 4), (2, 2, 2)),
}
SHARE = 0.9  # of the pairs on CPU


@dataclass
class Found:
    """The pairs of one target, and the layouts that could not be compared."""

    pairs: list[tuple[str, Pair]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    @property
    def agreeing(self) -> int:
        return sum(pair.agrees for _, pair in self.pairs)


def report() -> str:
    """Return the agreement of all targets as text."""
    return "\n\n".join(text(target, measure(target, meshes)) for target, meshes in TARGETS.items())


def cases(target: str, meshes: tuple[tuple[int, ...], ...]) -> Iterator[tuple[str, Layout]]:
    """Yield every model with every preset that has as many mesh axes as one of the meshes."""
    for model, entry in CATALOGUE.items():
        if entry.own:
            continue
        small, larger = MLP, LARGER_MLP
        if "seq" in entry.logical_axes:
            small, larger = TRANSFORMER, LARGER_TRANSFORMER
        sizes = larger if target.startswith("tpu:") else small
        start = layouts.parse({"model": model, "target": target, **sizes}).unwrap()
        for mesh in meshes:
            for preset in presets.fitting(entry):
                if len(preset.axis_names) == len(mesh):
                    layout = replace(preset.applied_to(start), mesh_shape=mesh)
                    yield f"{model}, {preset.name}, {'x'.join(map(str, mesh))}", layout


def measure(target: str, meshes: tuple[tuple[int, ...], ...], most: int | None = None) -> Found:
    """Propagate and compile the cases of a target; at most `most` of them."""
    found = Found()
    machine = layouts.parse({"target": target}).value
    lacking = machine and machine.machine and targets.missing_compiler(machine.machine)
    if lacking:
        found.failed.append(lacking)
        return found
    with tempfile.TemporaryDirectory() as folder:
        cache = CompileCache(Path(folder) / "compiled.sqlite3")
        service = Inspection(run_workers=1, compiled=cache)
        try:
            for number, (name, layout) in enumerate(cases(target, meshes)):
                if number == most:
                    break
                print(f"  {target}: {name}", file=sys.stderr, flush=True)
                try:
                    propagation = service.start_propagation(layout, origins=False)
                    compiled = service.start_run(layout, service.plan(layout)).wait().answer()
                    programs = propagation.wait().answer().programs
                except InvalidInput as error:
                    found.failed.append(f"{name}: {error}")
                    continue
                rows = compared(programs, compiled.programs)
                found.pairs += [(name, pair) for pair in pairs(rows)]
        finally:
            service.close()
    return found


def text(target: str, found: Found) -> str:
    """Return the counts of one target, and a line for each pair that differs."""
    total = len(found.pairs)
    lines = [f"{target}: {found.agreeing} of {total} pairs agree within 1%"]
    if total:
        lines[0] += f" ({found.agreeing / total:.0%})"
    if target == "cpu":
        verdict = "pass" if total and found.agreeing >= SHARE * total else "under"
        lines[0] += f", target at least {SHARE:.0%}: {verdict}"
    different = [(name, pair) for name, pair in found.pairs if not pair.agrees]
    reasons = Counter(reason for _, pair in different for reason in pair.reasons)
    if reasons:
        counts = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
        lines.append(f"  reasons: {counts}")
    for name, pair in different:
        axes = "unknown axes" if pair.mesh_axes is None else mesh_axes_text(pair.mesh_axes)
        sent = [
            "unknown" if one is None else f"{one:,}" for one in (pair.propagated, pair.compiled)
        ]
        lines.append(
            f"  {name}, {pair.program}, {axes}: {sent[0]} → {sent[1]} bytes ({', '.join(pair.reasons)})"
        )
    return "\n".join([*lines, *(f"  not compared: {each}" for each in found.failed)])
