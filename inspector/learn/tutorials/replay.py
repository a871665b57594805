"""Run a tutorial cell by cell, and record its output, arrays and errors."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax

from inspector.guides.tutorials import DrawnArray, TutorialRequest, TutorialRun, TutorialStep
from inspector.records import snapshot, typed_json
from inspector.records.job_report import JobReport
from inspector.text.errors import Cancelled, InvalidInput
from inspector.tracing.leaves import Leaf, mesh_record
from inspector.tracing.live_arrays import live_array
from inspector.tracing.model.abstract import versions


def replay(payload: dict[str, Any], report: JobReport) -> dict[str, Any]:
    """Worker job: run the TutorialRequest in `{"tutorial": …}` and return a `TutorialRun` as JSON."""
    request = typed_json.decode(TutorialRequest, payload["tutorial"])
    return typed_json.encode(TutorialRun(run(cells(request.guide), request, report), versions()))


def cells(guide: str) -> tuple[Cell, ...]:
    """Return the cells of a tutorial."""
    module = importlib.import_module(f"inspector.learn.tutorials.{guide}")
    return cells_of(inspect.getsource(module.tutorial))


def run(written: Sequence[Cell], request: TutorialRequest, report: JobReport) -> tuple[TutorialStep, ...]:
    """Run cells in one namespace. After a failed cell, the other steps are returned without a run."""
    # Flax looks up classes by the name of their module.
    namespace: dict[str, Any] = {
        "__name__": __name__,
        "mesh_shape": request.mesh_shape,
        "axis_names": request.axis_names,
    }
    steps: list[TutorialStep] = []
    try:
        for number, cell in enumerate(written, 1):
            report("step", done=number - 1, of=len(written))
            failed = [place for place, step in enumerate(steps, 1) if step.problem is not None]
            if failed:
                problem = f"not run, because step {failed[0]} failed"
                steps.append(TutorialStep(cell.title, cell.words, cell.code, problem=problem))
            else:
                steps.append(_run(cell, number, namespace))
    finally:
        # JAX's caches keep functions of the cells, and with them the namespace and all its arrays.
        namespace.clear()
    return tuple(steps)


def _run(cell: Cell, number: int, namespace: dict[str, Any]) -> TutorialStep:
    printed = io.StringIO()
    drawn: tuple[DrawnArray, ...] = ()
    mesh = refusal = problem = None
    try:
        with contextlib.redirect_stdout(printed):
            # Tracebacks contain this name.
            exec(compile(cell.code, f"step {number}", "exec", dont_inherit=True), namespace)
        values = {name: namespace[name] for name in cell.draw}
        mesh = next(
            (mesh_record(value) for value in values.values() if isinstance(value, jax.sharding.Mesh)), None
        )
        drawn = tuple(_drawn(name, value) for name, value in values.items() if isinstance(value, jax.Array))
        refusal = _refusal(namespace[cell.refused]) if cell.refused else None
    except Cancelled:
        raise
    except Exception as error:
        problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return TutorialStep(
        cell.title,
        cell.words,
        cell.code,
        output=printed.getvalue().rstrip("\n"),
        drawn=drawn,
        mesh=mesh,
        refusal=refusal,
        problem=problem,
    )


def _drawn(name: str, value: jax.Array) -> DrawnArray:
    placed = value.sharding
    if isinstance(placed, jax.sharding.NamedSharding):
        mesh = mesh_record(placed.mesh)
    else:
        device: jax.Device
        (device,) = placed.device_set
        mesh = snapshot.Mesh(
            (snapshot.MeshAxis("device", 1),),
            (device.id,),
            (device.process_index,),
            device.device_kind,
        )
    return DrawnArray(live_array(Leaf(name, "other", value, None), mesh, logical=False), mesh)


def _refusal(error: Exception | None) -> str:
    if error is None:
        raise InvalidInput("this version of JAX raised no error")
    return f"{type(error).__name__}: {error}"


_TITLE = re.compile(r"^ *# %% (?P<title>.+)$", re.MULTILINE)
_NAMES = re.compile(r"^# (?P<what>draw|refused): (?P<names>.+)\n?", re.MULTILINE)


@dataclass(frozen=True)
class Cell:
    """The source of one step.

    Attributes:
      words: Markdown text.
      draw: names of the arrays, or the mesh, to draw after it.
      refused: name of the variable with an error that the step demonstrates; None without one.
    """

    title: str
    words: str
    code: str
    draw: tuple[str, ...]
    refused: str | None


def cells_of(source: str) -> tuple[Cell, ...]:
    """Return the cells in the source of a function. The source before the first title is ignored."""
    _, *parts = _TITLE.split(source)
    return tuple(_cell(title, body) for title, body in zip(parts[::2], parts[1::2], strict=True))


def _cell(title: str, body: str) -> Cell:
    words, _, code = textwrap.dedent(body).strip("\n").partition("\n\n")
    names = {match["what"]: match["names"].split(", ") for match in _NAMES.finditer(code)}
    return Cell(
        title=title,
        words=" ".join(line.removeprefix("#").strip() for line in words.splitlines()),
        code=_NAMES.sub("", code).strip("\n"),
        draw=tuple(names.get("draw", ())),
        refused=names["refused"][0] if "refused" in names else None,
    )
