"""A value of another type, and a list of another length than its partner, are refused in one sentence.

Every value of a document of each format is replaced, one at a time, by each scalar and container of its
format.
"""

from __future__ import annotations

import itertools
import json
import random
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from hypothesis import given

from inspector import layout as layouts
from inspector.audit import lock_file, policy
from inspector.compare import board
from inspector.files import strict_json
from inspector.layout import rule_files
from inspector.readers import maxtext, sharding_file
from inspector.records import program_run, snapshot, typed_json
from inspector.records.snapshot import Snapshot
from inspector.search import result as results
from inspector.sharding.rules import written
from inspector.text.errors import LONGEST_SENTENCE, InvalidInput
from tests.audit.policy.test_policy_file import EVERY_RULE
from tests.hostile import drawn
from tests.hostile.test_damaged_input import (
    EXAMPLES,
    LAYOUTS,
    PLAIN,
    RULE_FILES,
    WHOLE,
    accepted,
    draw_all,
    examples,
    randoms,
)
from tests.readers import test_maxtext, test_sharding_file
from tests.search.samples import search_result

USUAL = 150  # cases of each document in CI
PLACE = "the replaced value"
LONG = "x" * 9_000
JSON = (
    "null", "true", "0", "-1", "7", "1.5", "9" * 4_000, "9" * 5_000, '""', '"x"', f'"{LONG}"', "[]", "{}",
    "[[]]", "[null]", "[7]", '["x"]', f'["{LONG}"]', '{"x": 7}', f'{{"{LONG}": 7}}', "[1, 2, 3, 4, 5]",
)  # fmt: skip
YAML = (
    *JSON, "1.5", ".inf", ".nan", "2001-01-01", "2001-01-01T10:00:00Z", "2001-99-99",
    "0001-01-01T00:00:00+23:59", "~", "yes", "0x" + "f" * 9_000, "-0x" + "f" * 9_000, "0" + "7" * 9_000,
    "0b" + "1" * 9_000, "1" + ":59" * 3_000, "1" + ":59" * 3_000 + ".5", "1_0", "!x y", "=", "<<", "é",
    f"? {LONG}",
)  # fmt: skip
TOML = (
    "true", "7", "-1", "1.5", "nan", "-inf", "2001-01-01", "07:32:00", "2001-01-01T10:00:00Z",
    "0x" + "f" * 9_000, "0o" + "7" * 9_000, "0b" + "1" * 9_000, "9" * 5_000, '""', '"x"',
    f'"{LONG}"', "[]", "{}", "[7]", "[[]]", '["x"]', f'["{LONG}"]', "[2001-01-01]", "{x = 7}",
    f"{{{LONG} = 7}}",
)  # fmt: skip


class Case(NamedTuple):
    """A document that is read, the form in which it is written, and the values of this form."""

    document: Any
    read: Callable[[str], object]
    dumps: Callable[[Any], str] = json.dumps
    values: tuple[str, ...] = JSON


def json_of(read: Callable[[Any, str], object]) -> Callable[[str], object]:
    return lambda text: read(strict_json.parse(text, "a.json"), "a.json")


def in_file(name: str, read: Callable[[Path], object]) -> Callable[[str], object]:
    def with_file(text: str) -> object:
        path = FOLDER / name
        path.write_text(text)
        return read(path)

    return with_file


def toml_text(tables: Any) -> str:
    """Return the tables of a policy as TOML."""
    if not isinstance(tables, dict):
        return json.dumps(tables)
    lines = []
    for name, value in tables.items():
        if not isinstance(value, (dict, list)):
            lines.insert(0, f"{name} = {json.dumps(value)}")
        for table in value if isinstance(value, list) else [value] if isinstance(value, dict) else ():
            if not isinstance(table, dict):
                lines.insert(0, f"{name} = [{json.dumps(table)}]")
                continue
            lines.append(f"[[{name}]]" if isinstance(value, list) else f"[{name}]")
            lines += [f"{key} = {json.dumps(item)}" for key, item in table.items()]
    return "\n".join(lines)


def read_sharding(text: str) -> object:
    """Read a `_sharding` file whose only entry is this text."""
    entry = strict_json.parse(text, "the entry")
    path = FOLDER / "_sharding"
    path.write_bytes(test_sharding_file.written({"params.a": entry, "b": test_sharding_file.NAMED}))
    return sharding_file.read(path, "_sharding")


def read_rule_file(name: str) -> Callable[[str], object]:
    layout = layouts.parse({}).unwrap()

    def read(text: str) -> None:
        for rules in rule_files.rule_sets(text, name):
            rule_files.applied_text(rules, rules.applied_to(layout))

    return read


FOLDER = Path()
GOLDEN = {test_maxtext.KEY: test_maxtext.ENTRY}
RULES_YAML = {
    "mesh_axes": ["data", "fsdp"],
    "ici_fsdp_parallelism": -1,
    "logical_axis_rules": [["embed", ["fsdp"]], ["batch", "data"], ["heads", None]],
    "trainer": {
        "axis_resources": {"embed": "data", "mlp": ["model"]},
        "parameter_axis_resources": {"embed": "data"},
        "tensor_parallel_axes": ["mlp"],
        "batch_axis": "batch",
        "fsdp_axis": ["embed"],
        "model_axis_size": 2,
    },
}
SMALL = dict(PLAIN, arrays=PLAIN["arrays"][:2], programs=[], effects=None)
RUN = program_run.ProgramRun(("train.py",), "2026-01-01T00:00:00Z", "exit 0", 3.0)
CASES = {
    "layout": Case(LAYOUTS[0], json_of(layouts.from_json)),
    "layout with specs": Case(LAYOUTS[1], json_of(layouts.from_json)),
    "rules": Case([["embed", ["fsdp"]], ["batch", "data"], ["heads", None]], written.parse),
    "rules as an object": Case({"embed": ["fsdp"], "batch": "data"}, written.parse),
    "MaxText and Levanter": Case(RULES_YAML, read_rule_file("a.yml"), yaml.safe_dump, YAML),
    "policy": Case(
        tomllib.loads(EVERY_RULE),
        lambda text: policy.parse(text, "p.toml").check(WHOLE),
        toml_text,
        TOML,
    ),
    "lock file": Case(json.loads(lock_file.dumps(lock_file.locked(WHOLE))), json_of(lock_file.from_json)),
    "board": Case(
        board.Board().pinned("A", snapshot.from_json(SMALL)).to_json(),
        lambda text: board.parse(text.encode(), "a.json"),
    ),
    "search result": Case(json.loads(results.dumps(search_result())), json_of(results.from_plain)),
    "run": Case(
        typed_json.encode_file(RUN, program_run.FORMAT, program_run.VERSION),
        json_of(
            lambda plain, what: typed_json.decode_file(
                program_run.ProgramRun, plain, what, program_run.FORMAT, 1
            )
        ),
    ),
    "golden of MaxText": Case(GOLDEN, in_file(maxtext.NAMED, lambda path: maxtext.read(path, "it"))),
    "sharding of Orbax": Case(test_sharding_file.NAMED, read_sharding),
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value in a document, the document itself first."""
    yield path
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, (*path, key))


def kinds_of_places(document: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the first two paths of each kind: all items of a list are of one kind."""
    seen: Counter[tuple[Any, ...]] = Counter()
    for path in places(document):
        kind = tuple("*" if isinstance(key, int) else key for key in path)
        seen[kind] += 1
        if seen[kind] <= 2:
            yield path


def changed(document: Any, path: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """Return a copy of a document with one changed value."""
    if not path:
        return change(deepcopy(document))
    document = holder = deepcopy(document)
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = change(holder[path[-1]])
    return document


@pytest.mark.parametrize("name", CASES)
def test_any_value_in_the_place_of_another(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "FOLDER", tmp_path)
    document, read, dumps, values = CASES[name]
    read(dumps(document))
    texts = (
        dumps(changed(document, path, lambda _: PLACE)).replace(f'"{PLACE}"', PLACE)
        for path in kinds_of_places(document)
    )
    refused = 0
    for text, value in sampled(itertools.product(texts, values), name):
        try:
            assert text.count(PLACE) == 1
            read(text.replace(PLACE, value))
        except InvalidInput as error:
            refused += 1
            assert len(str(error)) <= LONGEST_SENTENCE and "\n" not in str(error)
    assert refused > 5


def sampled(cases: Iterable[Any], seed: str) -> list[Any]:
    """Return a few of the cases in CI, otherwise all."""
    cases = list(cases)
    return cases if EXAMPLES else random.Random(seed).sample(cases, min(USUAL, len(cases)))


def test_any_scalar_in_the_place_of_a_name() -> None:
    text = RULE_FILES["a.yml"]
    parts = ("data", "fsdp", "embed", "batch", "'data'", "'embed'", "None", "-1", "[mlp]")
    for part, value in sampled(itertools.product(parts, YAML), "a.yml"):
        accepted(lambda part=part, value=value: read_rule_file("a.yml")(text.replace(part, value)))


def of_other_length(document: Any) -> Iterator[tuple[tuple[Any, ...], str, Any]]:
    """Yield each list of a document with one entry more, one less, and none, as (path, how, document)."""
    changes: dict[str, Callable[[list[Any]], list[Any]]] = {
        "longer": lambda entries: [*entries, *entries[-1:]],
        "shorter": lambda entries: entries[:-1],
        "empty": lambda entries: [],
    }
    for path in kinds_of_places(document):
        value = document
        for key in path:
            value = value[key]
        if isinstance(value, list) and value:
            for how, change in changes.items():
                yield path, how, changed(document, path, change)


LENGTHS = list(of_other_length(PLAIN))


@examples(40)
@given(randoms)
def test_a_list_of_another_length_is_shown_or_refused(draw: random.Random) -> None:
    _, _, document = draw.choice(LENGTHS)
    refused_or_shown(document, draw)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not EXAMPLES, reason="takes ten minutes: HOSTILE_EXAMPLES=1 runs it")
def test_every_list_of_another_length_is_shown_or_refused() -> None:
    for _, _, document in LENGTHS:
        refused_or_shown(document, random.Random(0))


def refused_or_shown(document: Any, draw: random.Random) -> None:
    shown: Snapshot | None = accepted(lambda: snapshot.from_json(document, "a.json"))
    if shown is not None:
        draw_all(drawn.one(shown), draw)


PARTNERS = [
    ("mesh", "devices"),
    ("mesh", "processes"),
    ("mesh", "topology"),
    ("mesh", "wraps"),
    ("mesh", "coordinates"),
    ("mesh", "coordinates", 1),
    ("mesh", "cores"),
    ("other_meshes", 0, "slice_index"),
    ("reshards", 0, "source_devices"),
    ("reshards", 0, "target_mesh", "slice_index"),
    ("reshards", 0, "arrays", 0, "source_spec"),
    ("arrays", 1, "spec"),
    ("arrays", 1, "logical_axes"),
    ("arrays", 1, "shard_shape"),
    ("programs", 1, "conflicts", 0, "sides", 1, "spec"),
    ("programs", 1, "conflicts", 0, "sides", 0, "used"),
    ("programs", 1, "sharding_error", "operands", 0, "spec"),
    ("arrays", 11, "shard_map", "other_axes"),
    ("programs", 1, "memory_use", "phases"),
    ("programs", 1, "memory_use", "points"),
    ("programs", 1, "memory_use", "groups", 0, "bytes"),
]  # fmt: skip


@pytest.mark.parametrize("path", PARTNERS, ids=lambda path: ".".join(map(str, path)))
def test_lists_that_belong_together_have_one_length(path: tuple[Any, ...]) -> None:
    for change in (lambda entries: [*entries, *entries[-1:]], lambda entries: entries[:-1]):
        with pytest.raises(InvalidInput):
            snapshot.from_json(changed(PLAIN, path, change), "a.json")


def test_the_sentence_names_the_field_and_its_partner() -> None:
    plain = changed(PLAIN, ("programs", 1, "conflicts", 0, "sides", 1, "spec"), lambda _: [None] * 60)
    with pytest.raises(InvalidInput, match=r"conflicts\[0\]\.sides\[1\]\.spec has 60 entries.* 2 dim"):
        snapshot.from_json(plain, "a.json")
