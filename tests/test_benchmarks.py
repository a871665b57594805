"""The benchmarks run and give ratios, and the statistics of pairs are correct; no time is checked.

Most of them run only at night.
"""

from __future__ import annotations

import importlib
import itertools
import json
import math
import re
import signal
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import __main__ as command
from benchmarks import (
    agreement,
    analysis,
    candidates,
    capture,
    pairing,
    plain_script,
    preview,
    random_layouts,
    rule_change,
    warm_run,
)
from benchmarks.faults import writer
from benchmarks.pairing import Pair, Result
from benchmarks.plain_process import PlainProcess
from inspector import hlo
from inspector import layout as layouts
from inspector.hlo.work import work
from inspector.jobs.own_model_registration import register_own
from inspector.layout.plan import plan
from inspector.machines import targets
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.tracing.model.abstract import abstract_state

SMALL = {"batch": "8", "layers": "2", "depth": "16", "steps": "2"}
seconds = st.floats(1e-6, 1e3)


def result(pairs: list[tuple[float, float]], **changed) -> Result:
    plain = {"name": "n", "ours": "ours", "baseline": "theirs", "target": "none"} | changed
    return Result(pairs=tuple(Pair(*pair) for pair in pairs), **plain)


@given(st.lists(st.tuples(seconds, seconds), min_size=1, max_size=9))
def test_spread_of_ratios(pairs) -> None:
    quotients = sorted(ours / baseline for ours, baseline in pairs)
    middle = len(quotients) // 2
    expected = quotients[middle]
    if len(quotients) % 2 == 0:
        expected = (quotients[middle - 1] + quotients[middle]) / 2
    found = result(pairs)
    assert found.ratio.median == pytest.approx(expected)
    assert (found.ratio.least, found.ratio.most) == (quotients[0], quotients[-1])
    ours, baseline = zip(*pairs, strict=True)
    assert found.ratio_of_least == sorted(ours)[0] / sorted(baseline)[0]
    assert found.seconds[0].median == statistics.median(ours)
    assert found.seconds[1].median == statistics.median(baseline)


def test_spread_needs_a_figure() -> None:
    with pytest.raises(ValueError, match="no figures"):
        pairing.Spread.of([])


def test_both_ways_alternate_after_the_warm_up() -> None:
    order: list[str] = []
    clock = iter(range(1, 100))

    def timed(name: str) -> float:
        order.append(name)
        return float(next(clock))

    pairs = pairing.interleave(lambda: timed("A"), lambda: timed("B"), pairs=3, warm_up=2)
    assert "".join(order) == "ABABABABAB"
    assert pairs == (Pair(5.0, 6.0), Pair(7.0, 8.0), Pair(9.0, 10.0))


@pytest.mark.parametrize(
    ("verdict", "word"),
    [
        (pairing.at_most(1.10, 1.10), "pass"),
        (pairing.at_most(1.11, 1.10), "over"),
        (pairing.within(0.96, 1.0, 0.05), "pass"),
        (pairing.within(1.06, 1.0, 0.05), "over"),
        (pairing.within(0.94, 1.0, 0.05), "under"),
    ],
)
def test_verdicts(verdict: str, word: str) -> None:
    assert verdict == word


def test_the_table_has_median_range_and_target() -> None:
    text = pairing.table([result([(1.0, 2.0), (3.0, 2.0), (4.0, 2.0)], target="at most 2").judged("pass")])
    row = next(line for line in text.splitlines() if line.startswith("n "))
    assert row.split(maxsplit=3)[:3] == ["n", "1.50", "0.50–2.00"]
    assert row.endswith("at most 2  pass")
    assert "3.00 s (1.00–4.00) / 2.00 s (2.00–2.00); the shortest of each 0.50" in text


def test_targets_are_printed() -> None:
    taken = (Pair(1.0, 0.4),)
    fields = {"name": "n", "ours": "a", "baseline": "b", "pairs": taken}
    ratio = pairing.ratio_result(rule_change.LIMIT, **fields)
    assert (ratio.verdict, ratio.target) == ("over", "ratio at most 2.00")
    seconds = pairing.seconds_result(preview.LIMIT, **fields)
    assert (seconds.verdict, seconds.target) == ("over", "at most 80 ms")
    for name in command.NAMES:
        module = importlib.import_module(f"benchmarks.{name}")
        if hasattr(module, "report"):
            assert callable(module.report)
        else:
            assert callable(module.measure) and module.PAIRS >= 1


TRANSFORMER = {
    "layers": "1", "batch": "16", "seq": "16", "embed": "32", "mlp": "64", "heads": "4", "kv_heads": "4",
    "head_dim": "16", "vocab": "64",
}  # fmt: skip
FSDP = {"mesh": "8", "axes": "fsdp", "rules": "batch=fsdp,embed=fsdp"}
# One rule and one constraint, because each change takes half a second.
ONE_CONSTRAINT = {"unconstrained": ",".join([*CATALOGUE["transformer"].constraints][1:])}
# The smallest input of each benchmark, next to one pair or one case.
SMALLEST: dict[str, dict[str, Any]] = {
    "warm_run": SMALL,
    "page_run": {},
    "train_step": SMALL,
    "preview": {"mesh": "2x4", "arrays": 30},
    "first_map": {},
    "rule_change": {},
    "analysis": {"layers": 1, "megabytes": 0.2},
    "board": {"arrays": 9},
    "target_compile": {"cases": [("gpu:h100:8", {"mesh": "2x4", "depth": "64", "layers": "1"}, 1)]},
    "capture": {"mesh": (2, 4), "arrays": 9},
    "partition": {**TRANSFORMER, **FSDP},
    "partitioned_change": {"models": ["logical_mlp"]},
    "effects": {
        **TRANSFORMER, **ONE_CONSTRAINT, "target": "cpu", "mesh": "4", "axes": "fsdp", "rules": "batch=fsdp",
    },
    "agreement": {"layouts_of": {"cpu": 1}},
    "before_compile": {},
    "origins": {},
    "recorded_run": {"seconds": 0.1},
    "simulation": {"target": "tpu:v5e:2x2", "fields": {"mesh": "2x2", "depth": "64", "layers": "1"}},
    "memory_peak": {},
    "search_tasks": {**TRANSFORMER, "target": "gpu:h100:8", "mesh": "4x2"},
    "candidates": {**TRANSFORMER, "target": "tpu:v5e:2x2", "mesh": "4"},
    "search": {"most": 2},
    "faults": {},
    "search_bounds": {"locks": ("data=1", "context=1", "tensor=2")},
    "search_faults": {},
    "sessions": {},
    "opened_files": {},
}  # fmt: skip
CHEAP = ("preview", "board")
COMPILED_FOR = {
    "target_compile": "gpu:h100:8", "simulation": "tpu:v5e:2x2", "memory_peak": "gpu:h100:8",
    "search_tasks": "gpu:h100:8", "search": "gpu:h100:8", "search_faults": "gpu:h100:8",
}  # fmt: skip


@pytest.mark.timeout(3600)  # faults, above all, kill and start many servers
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in CHEAP else pytest.mark.nightly) for name in SMALLEST]
)
def test_each_benchmark_has_figures(name: str, known_models: None) -> None:
    if name in COMPILED_FOR and (lacking := targets.missing_compiler(targets.parse(COMPILED_FOR[name]))):
        pytest.skip(lacking)
    module = importlib.import_module(f"benchmarks.{name}")
    if hasattr(module, "report"):
        assert re.search(r"\d", module.report(1, **SMALLEST[name]).replace(name, ""))
        return
    results = module.measure(1, **SMALLEST[name])
    assert results
    for one in results:
        check(one, pairs=1)


def test_a_benchmark_that_is_ended_closes_what_it_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    def measure(pairs: int) -> list[Result]:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            closed.append(pairs)
        return []

    monkeypatch.setattr(preview, "measure", measure)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as ended:
            command.main(["preview", "--pairs", "2"])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 128 + signal.SIGTERM and closed == [2]


def test_each_benchmark_has_a_smallest_input() -> None:
    assert set(SMALLEST) == set(command.NAMES)


def test_a_pass_that_is_left_out_moves_pairs_and_amounts() -> None:
    for module, attribute, replacement in agreement.PASSES.values():
        assert callable(getattr(module, attribute)) and callable(replacement)
    whole = agreement.Figures({("a",): (100, 100), ("b",): (50, 100)}, (2.0, 10, 150))
    without = agreement.Figures({("a",): (80, 100), ("b",): (99, 100)}, (1.0, 11, 179))
    unknown = agreement.Figures({}, (None, None, None))
    cells = list(agreement.changes([whole, unknown], [without, unknown]))
    assert cells == ["1", "2", "1", "1", "-50.0%", "+10.0%", "+19.3%"]


@pytest.mark.nightly
def test_random_layouts_are_the_same_for_a_seed_and_fit_their_mesh(known_models: None) -> None:
    for name in random_layouts.USERS_MODELS:
        register_own(name)
    first, again, other = (
        [layout for _, layout in itertools.islice(random_layouts.random_layouts("tpu:v5e:2x4*2", seed), 20)]
        for seed in (1, 1, 2)
    )
    assert first == again != other
    assert {2, 3} <= {len(layout.axis_names) for layout in first} <= {2, 3, 4}
    assert {layout.model for layout in first} == set(random_layouts.MODELS)
    for layout in first:
        assert layout.devices == 16
        rules = layout.rules if layout.entry.has_rules else ()
        assert all(len(axes) <= 2 for _, axes in rules)


@pytest.mark.nightly
def test_a_capture_is_compared_with_jax_and_makes_no_array() -> None:
    (result,) = capture.measure(pairs=1, mesh=(2, 4), arrays=9)
    check(result, pairs=1)
    assert result.notes == ("jax.Arrays made while capturing: 0",)


@pytest.mark.nightly
def test_a_repeated_program_has_twice_the_flops() -> None:
    with PlainProcess(8, analysis.LARGE_PROGRAM) as process:
        text = process.ask("compile", program="transformer", layers=1)["text"]
    (once,) = hlo.parser.parse(text)
    (twice,) = hlo.parser.parse(analysis.repeated(text, len(text) + 1))
    assert not twice.truncated
    assert work(once).matmul is not None
    (one,), (two,) = work(once).matmul, work(twice).matmul
    assert two.flops == 2 * one.flops > 0
    assert work(twice).flops == 2 * work(once).flops + 1  # the negation at the end
    assert len(hlo.collectives.collectives(twice)) == 2 * len(hlo.collectives.collectives(once)) > 0


def check(found: Result, pairs: int) -> None:
    assert len(found.pairs) == pairs
    figures = [figure for pair in found.pairs for figure in (pair.ours, pair.baseline, pair.ratio)]
    assert all(math.isfinite(figure) and figure > 0 for figure in figures)
    assert found.verdict in ("pass", "over", "under")
    assert found.name in pairing.table([found])


def test_the_preview_has_1000_arrays_on_512_devices() -> None:
    alike, different = preview.arrays_of_layers(1000), preview.arrays_all_different(1000)
    layout = layouts.parse(
        {
            "mesh": preview.MESH,
            "axes": "fsdp,tensor",
            "rules": "batch=fsdp,embed=fsdp,hidden=tensor",
        }
    ).unwrap()
    assert layout.devices == 512
    for arrays in (alike, different):
        assert len({array.path for array in arrays}) == 1000
        snapshot = plan(layout, preview._state(arrays))
        assert not snapshot.findings, "an uneven dimension is not drawn"
        assert preview.largest_parameter(snapshot.arrays).replicas != 512
    assert len({array.shape for array in different}) == 1000


def test_the_plain_script_has_the_parameters_of_the_default_model() -> None:
    import jax

    layout = layouts.parse(SMALL).unwrap()
    mine = [(array.shape, array.dtype) for array in abstract_state(layout).arrays if array.group == "params"]
    sizes = warm_run.script_sizes(layout)
    model = plain_script.MLP(sizes["layers"], sizes["depth"])
    batch = jax.ShapeDtypeStruct((sizes["batch"], sizes["depth"]), "float32")
    theirs = jax.eval_shape(lambda x: model.init(jax.random.key(0), x), batch)
    assert sorted(mine) == sorted((leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(theirs))


@pytest.mark.nightly
def test_the_plain_script_measures_the_requested_steps() -> None:
    with PlainProcess(8) as plain:
        sizes = warm_run.script_sizes(layouts.parse(SMALL | {"steps": "3"}).unwrap())
        first, again = plain.ask("run", **sizes), plain.ask("run", **sizes)
    for answer in (first, again):
        assert len(answer["train_steps"]) == 3
        assert answer["seconds"] > sum(answer["train_steps"])


@pytest.mark.nightly
def test_a_plain_script_that_ends_is_an_error() -> None:
    with PlainProcess(3) as plain, pytest.raises(RuntimeError, match="ended with status 1"):
        plain.ask("run", batch=8, layers=1, depth=8, mesh=[2, 4], steps=1)


def test_a_benchmark_that_fails_is_reported_and_the_others_are_kept(tmp_path, capsys, monkeypatch) -> None:
    file = tmp_path / "figures.json"
    written_before: list[dict] = []

    def defect(pairs: int) -> list[Result]:
        written_before.append(json.loads(file.read_text()))
        raise TypeError("an unexpected argument")

    monkeypatch.setattr(preview, "measure", lambda pairs: [result([(1.0, 2.0)] * pairs)])
    monkeypatch.setattr(analysis, "measure", defect)
    monkeypatch.setattr(candidates, "report", lambda cases: f"{cases} case")
    names = ["preview", "analysis", "candidates"]
    assert command.main([*names, "--pairs", "1", "--json", str(file)]) == 1
    (before,), after = written_before, json.loads(file.read_text())
    for written in (before, after):
        (one,) = written["results"]
        assert one["pairs"] == [{"ours": 1.0, "baseline": 2.0, "ratio": 0.5}]
    assert (before["reports"], before["failed"]) == ({}, [])
    assert after["reports"] == {"candidates": "1 case"} and "unexpected" in after["failed"][0]
    printed, errors = capsys.readouterr()
    row = next(line for line in printed.splitlines() if line.startswith("n "))
    assert "0.50" in row and "1 case" in printed and "analysis failed" in errors


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nonsense"], "NAME is 'nonsense', but must be one of warm_run"),
        (["preview", "--pairs", "0"], "--pairs is 0, but must be at least 1"),
        (["preview", "--json", "/dev/null/x.json"], "cannot be written"),
    ],
)
def test_invalid_arguments_are_rejected_before_measuring(arguments, sentence, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert sentence in err
    assert (out, err.count("…")) == ("", 0)


def test_a_killed_writer_is_compared_with_what_it_reported(tmp_path) -> None:
    folder, steps = tmp_path, list(itertools.islice(writer.steps(1), 6))
    for kind, act in writer.KINDS.items():
        do = act(folder)
        for step in steps:
            do(step)
        # The last write can have ended without a report, but not the last two.
        assert writer.wrong(kind, folder, steps, 1) is None, kind
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    do = writer.KINDS["library"](fresh)
    do(steps[0])
    assert writer.wrong("library", fresh, [], 1) is None
    assert "are lost" in (writer.wrong("library", fresh, steps[:3], 1) or "")
