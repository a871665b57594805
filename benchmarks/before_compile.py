"""Compare the step that is predicted before a compile with the one from the compiler's schedule.

The layouts, of models with 10M to 8B parameters on TPU v5e, TPU v5p and H100, are in
`compiled_steps.json` with the seconds that were predicted from their schedules, because a compile takes
minutes. `python -m benchmarks.before_compile --compile` compiles them again and writes the file.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inspector import layout as layouts
from inspector.files import output
from inspector.jobs.inspection import Inspection
from inspector.layout import Layout
from inspector.machines import targets
from inspector.prediction.predicted import CLAIMED, predicted
from inspector.records.snapshot import Program, Snapshot
from inspector.records.statistics import by_key

COMPILED = Path(__file__).with_name("compiled_steps.json")
_PROGRAM = "train_step"


@dataclass(frozen=True)
class Step:
    """One layout, and the seconds of its step from its schedule and before its compile.

    checked: whether published runs say how wrong the estimate is. Otherwise low and high are bounds.
    """

    name: str
    chip: str
    compiled: float
    before: float
    low: float
    high: float
    checked: bool

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
    return "\n".join(["before a compile / compiled", *lines])


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
            )


def name_of(layout: Layout) -> str:
    """Return `tpu:v5e:4x4, transformer, 12 × 768, fsdp 16, seq 1024`."""
    sizes = dict(layout.sizes)
    mesh = " ".join(f"{name} {size}" for name, size in zip(layout.axis_names, layout.mesh_shape, strict=True))
    width = sizes.get("embed", sizes.get("depth"))
    return f"{layout.target}, {layout.model} {sizes['layers']}×{width}, {mesh}, seq {sizes.get('seq')}"


def compile_all() -> dict[str, Any]:
    """Compile the layouts of the file and return it with the seconds from their schedules."""
    plain: dict[str, Any] = json.loads(COMPILED.read_text(encoding="utf-8"))
    with closing(Inspection(run_workers=1)) as service:
        for row in plain["rows"]:
            layout = layouts.from_json(row["layout"])
            print(name_of(layout), file=sys.stderr, flush=True)
            made = service.run(layout).answer()
            row["seconds"] = from_schedule(made)
            plain["versions"] = {**plain["versions"], **made.source.versions}
    return plain


def from_schedule(made: Snapshot) -> float:
    """Return the seconds that the train step takes by its schedule alone."""
    program, chip = made.program(_PROGRAM), targets.chip_of(made)
    assert isinstance(program, Program) and chip is not None and made.mesh is not None
    seconds = predicted(program, made.mesh, chip).seconds
    assert seconds is not None
    return float(f"{seconds:.4g}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--compile"]:
        output.write_text(json.dumps(compile_all(), indent=1) + "\n", str(COMPILED))
    print(report())
