"""Published sweeps, one model measured under several layouts: whether predictions order them as measured.

The file format is a JSON object with `sweeps`. Each has `id`, `hardware`, `model`, and `rows` with a
`layout` such as `fsdp=16,tensor=8,dcn data=2`, and the `chips`. Sweeps do not say sizes and types, so a row
is matched with the published run of the same chip, model, mesh axes and number of chips.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inspector.compare.measured.accuracy import AccuracyRow, ordered
from inspector.compare.measured.published_runs import PublishedRun
from inspector.files import strict_json
from inspector.text.errors import InvalidInput, shown


@dataclass(frozen=True)
class Sweep:
    """One sweep.

    Attributes:
      rows: Number of its measured layouts.
      known: Names of the published runs that some of them are.
      right, pairs: Pairs of these in the right order, and all that differ by more than 10%.
    """

    name: str
    rows: int
    known: tuple[str, ...]
    right: int
    pairs: int


def read(path: str | Path, runs: Sequence[PublishedRun], rows: Sequence[AccuracyRow]) -> tuple[Sweep, ...]:
    """Return the sweeps of a file, with the order of the predictions in `rows` for `runs`.

    Raises:
      InvalidInput: the file cannot be read, or is not a JSON object with a list `sweeps` of objects.
    """
    plain = strict_json.read(str(path))
    sweeps = plain.get("sweeps") if isinstance(plain, dict) else None
    if not isinstance(sweeps, list) or not all(isinstance(one, dict) for one in sweeps):
        raise InvalidInput(f"{path} must be a JSON object with a list `sweeps` of objects")
    by_name = {row.id: row for row in rows}
    return tuple(_sweep(one, runs, by_name) for one in sweeps)


def _sweep(plain: Mapping[str, Any], runs: Sequence[PublishedRun], rows: Mapping[str, AccuracyRow]) -> Sweep:
    measured = plain.get("rows")
    if not isinstance(measured, list):
        raise InvalidInput(f"rows of the sweep {shown(plain.get('id'))} must be a list")
    matched = (_run(plain, one, runs) for one in measured if isinstance(one, dict))
    found = [rows[run.name] for run in matched if run is not None and run.name in rows]
    right, pairs = ordered(found)
    return Sweep(str(plain.get("id")), len(measured), tuple(row.id for row in found), right, pairs)


def _run(
    sweep: Mapping[str, Any], row: Mapping[str, Any], runs: Sequence[PublishedRun]
) -> PublishedRun | None:
    """Return the published run that a row of a sweep is; None if there is none."""
    hardware, model = _words(sweep.get("hardware")), _words(sweep.get("model"))
    pairs = re.findall(r"(\w+)\s*=\s*(\d+)", str(row.get("layout", "")))
    axes = {name: int(size) for name, size in pairs if int(size) != 1}
    for run in runs:
        layout = run.layout
        if layout is None or run.chips != row.get("chips") or run.chip not in hardware:
            continue
        name = _words(run.model)
        if model[: len(name)] == name and axes == dict(
            zip(layout.axis_names, layout.mesh_shape, strict=True)
        ):
            return run
    return None


def _words(text: Any) -> list[str]:
    """Return the words of a name in lower case: `maxtext 128B (64 layers)` begins as `maxtext-128b` does."""
    return re.findall(r"[a-z0-9.]+", str(text).lower())
