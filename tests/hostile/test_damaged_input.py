"""Whatever a file, a link or an option contains, the only exception is InvalidInput, with one sentence.

CI draws the same few examples each time. `HOSTILE_EXAMPLES=10000` draws as many of each kind, other ones each
time, and draws everything of each Snapshot.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import urllib.parse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inspector import layout as layouts
from inspector.audit import checked, lock_file, policy
from inspector.compare import board
from inspector.files import strict_json
from inspector.guides import assembly, processes
from inspector.layout import rule_files
from inspector.layout.script import script
from inspector.records import program_run, snapshot, typed_json
from inspector.records.snapshot import Snapshot
from inspector.sharding.rules import written
from inspector.text.errors import LONGEST_SENTENCE, InvalidInput
from tests.audit.policy.test_policy_file import EVERY_RULE
from tests.hostile import drawn, whole
from tests.hostile.damage import damaged, damaged_text
from tests.media.terminal.command import inspector

EXAMPLES = int(os.environ.get("HOSTILE_EXAMPLES", "0"))
# Pictures take most of the time, so CI draws a few things of each Snapshot.
MOST_DRAWN = None if EXAMPLES else 3

WHOLE = whole.snapshot()
PLAIN = WHOLE.to_json()
LAYOUTS = [
    PLAIN["layout"],
    layouts.parse({"model": "mlp", "specs": "W1=None.model"}).unwrap().to_json(),
    layouts.parse({"model": "transformer", "target": "tpu:v5e:4x4", "mesh": "4x4"}).unwrap().to_json(),
]
RULE_FILES = {
    "a.yml": "mesh_axes: [data, fsdp]\nici_fsdp_parallelism: -1\nlogical_axis_rules: [[embed, [fsdp]], "
    "[batch, data]]\ntrainer:\n  axis_resources: {embed: data}\n  tensor_parallel_axes: [mlp]\n",
}  # fmt: skip


class Seeded(random.Random):
    """A source of random numbers that a failing example can be repeated with."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._seed = seed

    def __repr__(self) -> str:
        return f"Seeded({self._seed})"


# Nearly every seed gives another document, so that Hypothesis has nothing to make smaller.
randoms = st.integers(0, 2**64).map(Seeded)


def examples(usual: int, most: int | None = None) -> settings:
    """Return how many examples a test draws: `usual` in CI, and never more than `most`."""
    return settings(max_examples=min(EXAMPLES or usual, most or EXAMPLES or usual), derandomize=not EXAMPLES)


def accepted(read: Callable[[], Any]) -> Any:
    """Return what `read` returns, or None if it refuses its input in one sentence."""
    try:
        return read()
    except InvalidInput as error:
        text = str(error)
        assert "\n" not in text and len(text) <= LONGEST_SENTENCE
        return None


def damaged_json(plain: Any, draw: random.Random) -> bytes:
    """Return damaged JSON; sometimes the text is damaged too."""
    text = json.dumps(damaged(plain, draw))
    return (damaged_text(text, draw) if draw.random() < 0.1 else text).encode()


def damaged_snapshot(draw: random.Random) -> Snapshot | None:
    content = damaged_json(PLAIN, draw)
    return accepted(lambda: snapshot.from_json(strict_json.parse(content, "a.json"), "a.json"))


def draw_all(views: Iterable[drawn.View], draw: random.Random) -> None:
    views = list(views)
    for _, make in views if MOST_DRAWN is None else draw.sample(views, MOST_DRAWN):
        accepted(make)


@pytest.mark.nightly
@examples(60)
@given(randoms)
def test_everything_that_is_shown_of_a_snapshot(draw: random.Random) -> None:
    snapshot = damaged_snapshot(draw)
    if snapshot is not None:
        draw_all(drawn.one(snapshot), draw)


@pytest.mark.nightly
@examples(25)
@given(randoms)
def test_everything_that_is_shown_of_two_snapshots(draw: random.Random) -> None:
    snapshot = damaged_snapshot(draw)
    if snapshot is not None:
        both = [WHOLE, snapshot]
        draw.shuffle(both)
        draw_all(drawn.several(both), draw)


@pytest.mark.nightly
def test_the_whole_snapshot_is_shown() -> None:
    """Otherwise the other tests would prove little."""
    for _, make in [*drawn.one(WHOLE), *drawn.several([WHOLE, WHOLE])]:
        make()


@pytest.mark.nightly
def test_an_array_with_one_logical_axis_twice_is_shown() -> None:
    arrays = tuple(
        dataclasses.replace(array, logical_axes=("embed", "embed"))
        if array.logical_axes and array.shape and len(array.shape) == 2
        else array
        for array in WHOLE.arrays
    )
    assert sum(array.logical_axes == ("embed", "embed") for array in arrays) > 2
    snapshot = dataclasses.replace(WHOLE, arrays=arrays)
    for _, make in [*drawn.one(snapshot), *drawn.several([WHOLE, snapshot])]:
        make()


@pytest.mark.parametrize("spec", [[], [["data"]], [None, None, None]])
def test_an_operand_whose_spec_does_not_fit_is_refused(spec: list[Any]) -> None:
    plain = WHOLE.to_json()
    (operand,) = plain["programs"][1]["sharding_error"]["operands"]
    assert len(operand["spec"]) == 2
    operand["spec"] = spec
    with pytest.raises(InvalidInput, match=r"programs\[1\]\.sharding_error"):
        snapshot.from_json(plain)


@examples(40)
@given(randoms)
def test_layouts(draw: random.Random) -> None:
    content = damaged_json(draw.choice(LAYOUTS), draw)
    layout = accepted(lambda: layouts.from_json(strict_json.parse(content, "a.json"), "a.json"))
    if layout is None:
        return
    assert layouts.from_json(layout.to_json()) == layout
    assert layouts.parse(layouts.to_query(layout)).unwrap() == layout
    accepted(lambda: script(layout))


@examples(60)
@given(randoms)
def test_links_to_layouts_and_guides(draw: random.Random) -> None:
    fields = layouts.to_fields(layouts.from_json(draw.choice(LAYOUTS)))
    for _ in range(draw.choice((1, 2, 4))):
        name = draw.choice([*fields, damaged_text(draw.choice([*fields]), draw)])
        fields[name] = damaged_text(fields.get(name, ""), draw)
    parsed = layouts.parse(fields)
    assert parsed.value is not None or parsed.problems
    assert layouts.parse_leniently(fields).value is not None
    for guide in (assembly, processes):
        assert guide.parse(fields).value is not None or guide.parse(fields).problems


@examples(40)
@given(randoms)
def test_links_to_boards(draw: random.Random) -> None:
    pin = board.pin_text("A", layouts.from_json(draw.choice(LAYOUTS)), "cpu")
    link = urllib.parse.urlencode({"pin": pin, "baseline": "A", "chip": "v5e"}) + f"&pin={pin}"
    query = urllib.parse.parse_qs(damaged_text(link, draw))
    linked = board.parse_link(query)
    assert linked.pins or linked.problems or "pin" not in query


@examples(40)
@given(randoms)
def test_policies(draw: random.Random) -> None:
    text = damaged_text(EVERY_RULE, draw, ("[", "]", "=", '"', "1e-999999999", "9" * 5000, "*", "[[a]]"))
    demands = accepted(lambda: policy.parse(text, "p.toml"))
    if demands is not None:
        demands.check(WHOLE)


@examples(30)
@given(randoms)
def test_lock_files(draw: random.Random) -> None:
    lock = lock_file.locked(WHOLE)
    content = damaged_json(json.loads(lock_file.dumps(lock)), draw)
    result = accepted(lambda: lock_file.from_json(strict_json.parse(content, "a.json"), "a.json"))
    if result is not None:
        checked.changes(result, lock)
        checked.changes(lock, result)


@examples(15)
@given(randoms)
def test_board_files(draw: random.Random) -> None:
    small = dict(PLAIN, programs=[], effects=None)
    plain = board.Board().pinned("A", snapshot.from_json(small)).to_json()
    content = damaged_json(plain, draw)
    accepted(lambda: board.parse(content, "a.json"))


@examples(40)
@given(randoms)
def test_files_of_rules(draw: random.Random) -> None:
    name = draw.choice([*RULE_FILES])
    text = damaged_text(
        RULE_FILES[name], draw, ("[", "]", "(", ")", "- ", ": ", "!!", "&a", "*a", "9" * 5000)
    )
    layout = layouts.parse({}).unwrap()
    for one in accepted(lambda: rule_files.rule_sets(text, name)) or ():
        accepted(lambda one=one: rule_files.applied_text(one, one.applied_to(layout)))
    accepted(lambda: written.parse(text))


@examples(20)
@given(randoms)
def test_records_of_runs(draw: random.Random) -> None:
    run = program_run.ProgramRun(("train.py",), "2026-01-01T00:00:00Z", "exit 0", 3.0)
    content = damaged_json(typed_json.encode_file(run, program_run.FORMAT, program_run.VERSION), draw)
    accepted(
        lambda: typed_json.decode_file(
            program_run.ProgramRun, strict_json.parse(content, "a"), "a", program_run.FORMAT, 1
        )
    )


@examples(20)
@given(randoms)
def test_commands(tmp_path_factory: Any, draw: random.Random) -> None:
    """Each command ends with status 0, 1 or 2 and at most one line of error, whatever its files contain."""
    folder: Path = tmp_path_factory.mktemp("hostile")
    good, bad, rules = folder / "good.json", folder / "bad.json", folder / "p.toml"
    good.write_text(snapshot.dumps(WHOLE))
    bad.write_bytes(damaged_json(PLAIN, draw))
    rules.write_text(damaged_text(EVERY_RULE, draw))
    path = str(bad)
    command = draw.choice(
        [
            ["show", path],
            ["show", path, "--chip", "v5e"],
            ["shards", path, "--json"],
            ["shards", path, "--array", WHOLE.arrays[1].path],
            ["device", path, "--device", "0,1", "--all"],
            ["device", path, "--process", "1", "--json"],
            ["explain", path],
            ["explain", path, "--array", WHOLE.arrays[1].path, "--rules", "embed=data"],
            ["explain", path, "--collective", "all-reduce.1", "--json"],
            ["explain", path, "--agreement"],
            ["explain", path, "--rule", "hidden"],
            ["predict", path, "--json", "--trace", str(folder / "trace.json")],
            ["audit", path, "--json"],
            ["compare", str(good), path, "-o", str(folder / "out.json")],
            ["compare", path, str(good)],
            ["report", path, "-o", str(folder / "out.md")],
            ["check", path, "--policy", str(rules)],
            ["check", str(good), "--lock", path],
            ["check", path, "--write-lock", str(folder / "out.json")],
            ["code", path],
        ]
    )  # fmt: skip
    if draw.random() < 0.3:
        place = draw.randrange(1, len(command))
        command[place] = damaged_text(command[place], draw).replace("/", "_") or "x"
    done = inspector(*command)
    assert done.returncode in (0, 1, 2)
    if done.returncode == 2:
        assert len(done.stderr.splitlines()) == 1 and "unexpected" not in done.stderr, done.stderr
    assert not list(folder.glob(".*")), "a temporary file is left"


_SEARCH_OPTIONS = {
    "--weights": ("inference=1,train_step=2", "train_step=1"),
    "--limits": ("train_step=1s", "inference=25ms,train_step=0.5s"),
    "--vary": ("donate=true,false", "batch=8,16", "optimizer_axes=none,data", "device_order=row-major"),
    "--lock": ("mesh", "rules", "data=2", "hidden=model"),
    "--objective": ("memory", "traffic"),
    "--set": ("batch=16", "depth=32"),
    "--rules": ("batch=data,hidden=model", "batch=data,embed="),
    "--compiler-options": ("xla_tpu_scoped_vmem_limit_kib=98304",),
    "--optimizer-axes": ("data",),
}


@pytest.mark.nightly
@examples(10, most=100)
@given(randoms)
def test_searches(tmp_path_factory: Any, draw: random.Random) -> None:
    """A search with damaged options ends as each command does, and a result that it writes is whole."""
    output: Path = tmp_path_factory.mktemp("search") / "out.json"
    options = []
    for name in draw.sample([*_SEARCH_OPTIONS], k=draw.choice((1, 2, 3))):
        value = draw.choice(_SEARCH_OPTIONS[name])
        options.append(f"{name}={damaged_text(value, draw) if draw.random() < 0.5 else value}")
    done = inspector("search", "--target", "tpu:v5e:2x2", "--budget", "0", *options, "-o", str(output))
    assert done.returncode in (0, 1, 2), options
    if done.returncode == 2:
        assert len(done.stderr.splitlines()) == 1 and "unexpected" not in done.stderr, done.stderr
        assert not output.exists()
    else:
        json.loads(output.read_text())
