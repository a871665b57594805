"""Compare the step that is predicted before a compile with the one from the compiler's schedule.

The layouts, of models with 10M to 8B parameters on TPU v5e, TPU v5p and H100, are in
`compiled_steps.json` with the seconds that were predicted from their schedules, also by part, because a
compile takes minutes. `python -m benchmarks.before_compile --compile` compiles them again and writes the
file.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inspector import layout as layouts
from inspector.files import output
from inspector.jobs.inspection import Inspection
from inspector.layout import Layout
from inspector.machines import targets
from inspector.prediction.predicted import CLAIMED, Predicted, predicted
from inspector.prediction.step_parts import step_parts
from inspector.records.snapshot import Program, Snapshot
from inspector.records.statistics import by_key

COMPILED = Path(__file__).with_name("compiled_steps.json")
_PROGRAM = "train_step"
# A part of a step is predicted well within this factor of that from the schedule.
_WITHIN = 1.5
_LEAST_SHARE = 0.05  # of the step, for a part to count

Parts = Mapping[str, float]  # seconds by part: `compute`, `memory`, and `inside fsdp` for a network


@dataclass(frozen=True)
class Step:
    """One layout, and the seconds of its step from its schedule and before its compile, each with its parts.

    checked: whether published runs say how wrong the estimate is. Otherwise low and high are bounds.
    """

    name: str
    chip: str
    compiled: float
    before: float
    low: float
    high: float
    checked: bool
    compiled_parts: Parts  # empty if the file lacks them
    before_parts: Parts

    @property
    def within(self) -> dict[str, bool]:
        """Whether each part that counts before or after the compile is within `_WITHIN` of the other one."""
        pairs = {
            name: (self.compiled_parts.get(name, 0.0), self.before_parts.get(name, 0.0))
            for name in {**self.compiled_parts, **self.before_parts}
        }
        counting = {name: pair for name, pair in pairs.items() if max(pair) >= _LEAST_SHARE * self.compiled}
        return {name: max(pair) <= _WITHIN * min(pair) for name, pair in counting.items()}

    @property
    def same_largest(self) -> bool:
        """Whether the largest part is the same before and after the compile."""
        largest = (
            max(parts, key=lambda name: parts[name]) for parts in (self.compiled_parts, self.before_parts)
        )
        return len(set(largest)) == 1

    @property
    def factor(self) -> float:
        """By how much the estimate is too short or too long, at least 1."""
        return math.exp(abs(math.log(self.before / self.compiled)))

    @property
    def inside(self) -> bool:
        return self.low <= self.compiled <= self.high


def report(cases: int | None = None) -> str:
    """Return the factor between both predictions and the share inside of the interval, as text."""
    steps = list(steps_of(cases))
    lines = [
        f"{step.name:<58} {step.compiled:9.4f} s  {step.before / step.compiled:5.2f}"
        f"  {step.low:9.4f} to {step.high:9.4f} s{'' if step.checked else ', bounds'}"
        f"{'' if step.inside else '  outside'}"
        for step in steps
    ]
    for chip, own in {"all": steps, **by_key((one.chip, one) for one in steps)}.items():
        inside = sum(one.inside for one in own)
        lines.append(
            f"{chip}: {len(own)} programs, median factor {statistics.median(s.factor for s in own):.2f}, "
            f"{inside} inside of the {CLAIMED:.0%} interval or of the bounds ({inside / len(own):.0%})"
        )
    return "\n".join(
        ["before a compile / compiled", *lines, *_of_parts([s for s in steps if s.compiled_parts])]
    )


def _of_parts(steps: Sequence[Step]) -> Iterator[str]:
    """Yield how many layouts have each part within `_WITHIN`, and the same largest part."""
    kinds = by_key((name.partition(" ")[0], good) for step in steps for name, good in step.within.items())
    for kind, good in kinds.items():
        yield f"{kind}: {sum(good)} of {len(good)} parts within {_WITHIN} times ({sum(good) / len(good):.0%})"
    whole, same = sum(all(step.within.values()) for step in steps), sum(step.same_largest for step in steps)
    yield f"all parts in {whole} of {len(steps)} programs, and the same largest part in {same}"


def steps_of(most: int | None = None) -> Iterator[Step]:
    """Yield the layouts of the file, at most `most` of them, each propagated anew."""
    rows = json.loads(COMPILED.read_text(encoding="utf-8"))["rows"]
    with closing(Inspection(run_workers=1)) as service:
        for row in rows[:most]:
            layout = layouts.from_json(row["layout"])
            made = service.programs(layout, only=(_PROGRAM,)).answer()
            program = next(one for one in made.programs if one.name == _PROGRAM)
            machine = layout.machine
            assert machine is not None
            found = predicted(program, layout.mesh(), machine.chip)
            assert found.seconds and found.low and found.high
            yield Step(
                name_of(layout),
                machine.chip.name,
                row["seconds"],
                found.seconds,
                found.low,
                found.high,
                found.outside is None,
                row.get("parts", {}),
                parts_of(found),
            )


def name_of(layout: Layout) -> str:
    """Return `tpu:v5e:4x4, transformer, 12 × 768, fsdp 16, seq 1024`."""
    sizes = dict(layout.sizes)
    mesh = " ".join(f"{name} {size}" for name, size in zip(layout.axis_names, layout.mesh_shape, strict=True))
    width = sizes.get("embed", sizes.get("depth"))
    return f"{layout.target}, {layout.model} {sizes['layers']}×{width}, {mesh}, seq {sizes.get('seq')}"


def parts_of(found: Predicted) -> dict[str, float]:
    """Return the seconds of each part of a step. Waits for copies are of HBM, as is what starts kernels."""
    parts: dict[str, float] = {}
    for part in step_parts(found, None):
        kind = part.kind if part.is_communication or part.kind == "compute" else "memory"
        name = f"{kind} {part.axes}" if part.axes else kind
        parts[name] = parts.get(name, 0.0) + part.seconds
    return parts


def compile_all() -> dict[str, Any]:
    """Compile the layouts of the file and return it with the parts of their steps from their schedules."""
    plain: dict[str, Any] = json.loads(COMPILED.read_text(encoding="utf-8"))
    with closing(Inspection(run_workers=1)) as service:
        for row in plain["rows"]:
            layout = layouts.from_json(row["layout"])
            print(name_of(layout), file=sys.stderr, flush=True)
            made = service.run(layout).answer()
            row["seconds"], row["parts"] = from_schedule(made)
            plain["versions"] = {**plain["versions"], **made.source.versions}
    return plain


def from_schedule(made: Snapshot) -> tuple[float, dict[str, float]]:
    """Return the seconds that the train step takes by its schedule alone, and those of each part."""
    program, chip = made.program(_PROGRAM), targets.chip_of(made)
    assert isinstance(program, Program) and chip is not None and made.mesh is not None
    found = predicted(program, made.mesh, chip)
    assert found.seconds is not None
    parts = {name: float(f"{seconds:.4g}") for name, seconds in parts_of(found).items()}
    return float(f"{found.seconds:.4g}"), parts


if __name__ == "__main__":
    if sys.argv[1:] == ["--compile"]:
        output.write_text(json.dumps(compile_all(), indent=1) + "\n", str(COMPILED))
    print(report())
