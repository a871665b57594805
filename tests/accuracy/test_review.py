"""A new table is not written if a group of published runs is predicted worse by it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from benchmarks.accuracy import __main__ as commands
from benchmarks.accuracy import review
from inspector import layout as layouts
from inspector.compare.measured.published_runs import PublishedRun

DENSE = layouts.parse({"model": "transformer"}).unwrap()
MIXTURE = layouts.parse({"model": "moe"}).unwrap()


def run(number: int, chip: str = "v5p", layout=DENSE) -> PublishedRun:
    return PublishedRun(f"{chip} {number}", chip, "model", 16, 1.0, layout, None, "source")


def rows(runs, *, error: float, stage: str = "before_compile") -> list[dict[str, object]]:
    return [{"id": one.name, "measured": 1.0, stage: 1 + error} for one in runs]


def found(runs, old, new) -> dict[tuple[str, str], review.Group]:
    return {(one.name, one.stage): one for one in review.groups(runs, old, new)}


@pytest.mark.parametrize(
    ("count", "was", "now", "refused"),
    [
        (5, 0.04, 0.050, True),
        (5, 0.04, 0.044, False),
        (5, -0.04, 0.03, False),
        (4, 0.04, 0.5, False),
    ],
)
def test_a_group_of_five_runs_may_not_get_worse_by_half_a_point(count, was, now, refused) -> None:
    runs = [run(number) for number in range(count)]
    group = found(runs, rows(runs, error=was), rows(runs, error=now))["v5p", "before a compile"]
    assert group.refused is refused
    assert (group.was, group.now) == (pytest.approx(abs(was)), pytest.approx(abs(now)))


def test_medians_are_of_the_runs_of_both_tables() -> None:
    runs = [run(number) for number in range(8)]
    old, new = rows(runs[:6], error=0.01), rows(runs[:6], error=0.01) + rows(runs[6:], error=0.9)
    group = found(runs, old, new)["all", "before a compile"]
    assert (group.runs, group.now, group.lost, group.refused) == (8, pytest.approx(0.01), 0, False)
    back = found(runs, new, old)["all", "before a compile"]
    assert (back.runs, back.lost, back.refused) == (6, 2, True)


def test_groups_are_those_of_chips_kinds_and_stages() -> None:
    int8 = dataclasses.replace(DENSE, sizes={**DENSE.sizes, "quantization": "int8"})
    runs = [run(0), run(1, "v5e", MIXTURE), run(2, "v5e", int8)]
    old = rows(runs, error=0.1)
    new = rows(runs, error=0.1)
    for row in new:
        row["compiled"] = 1.2
    by_name = found(runs, old, new)
    assert {name for name, _ in by_name} == {*("all", "v5p", "v5e", "dense", "int8", "mixture of experts")}
    assert by_name["dense", "before a compile"].runs == 2
    alone = by_name["v5e", "schedule alone"]
    assert alone.was is None and alone.now == pytest.approx(0.2) and not alone.refused


def test_the_table_is_written_only_on_request_if_it_is_worse(tmp_path: Path, monkeypatch, capsys) -> None:
    runs = [run(number) for number in range(5)]
    (tmp_path / "runs.json").write_text(json.dumps({"rows": []}))
    table = {"constants": {}, "rows": rows(runs, error=0.2)}
    monkeypatch.setattr(commands.published_runs, "read", lambda path: tuple(runs))
    monkeypatch.setattr(commands, "compare_runs", lambda *arguments: None)
    monkeypatch.setattr(commands, "fitted_table", lambda *arguments: table)
    monkeypatch.setattr(commands, "accuracy_table", lambda: {"rows": rows(runs, error=0.1)})
    written = tmp_path / "table.json"
    arguments = ["fit", "runs.json", str(written), "--no-compile"]
    with pytest.raises(SystemExit) as ended:
        commands.main(arguments)
    shown = capsys.readouterr()
    assert ended.value.code == 2 and "v5p, before a compile" in shown.err
    assert "10.0%" in shown.out and "20.0%" in shown.out
    assert not written.exists()
    assert commands.main([*arguments, "--even-if-worse"]) == 0
    assert json.loads(written.read_text()) == table
