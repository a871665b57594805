"""A Snapshot survives its file, the file obeys the published schema, and bad files are refused."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import math
import sys
import types
import typing
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from inspector.files import strict_json
from inspector.records import snapshot, typed_json
from inspector.records.collectives import OPS
from inspector.records.snapshot import (
    Array,
    Collective,
    Conflict,
    ConflictSide,
    Finding,
    GroupUse,
    LiveValue,
    Memory,
    MemoryUse,
    Mesh,
    MeshAxis,
    OperandType,
    Phase,
    Program,
    Reshard,
    ReshardedArrays,
    ScheduledOperation,
    Seconds,
    Shard,
    ShardMap,
    Snapshot,
    Source,
    UseGroup,
)
from inspector.text.errors import InvalidInput
from tests.examples import costly

SCHEMA = json.loads(snapshot.SCHEMA_PATH.read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)
# What every key may be, drawn from each field's own annotation, and then made to fit together.

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
naturals = st.one_of(st.integers(0, 9), st.integers(0, 2**20))  # whose sums and products are allowed
numbers = st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), numbers, texts),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
extras = st.dictionaries(texts.map(lambda key: f"later {key}"), plain, max_size=1)


def of(kind: type, **chosen: st.SearchStrategy) -> st.SearchStrategy:
    """Records of a kind, their fields drawn by annotation except for those that are chosen."""
    return st.builds(kind, **(by_field(kind) | CONSISTENT.get(kind, {}) | chosen))


@functools.cache
def by_field(kind: type) -> dict[str, st.SearchStrategy]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return {name: by_annotation(hint) for name, hint in hints.items()} | {"extra": extras}


@functools.cache
def by_annotation(hint: Any) -> st.SearchStrategy:
    simple = {typed_json.NonNegativeInt: naturals, typed_json.PositiveInt: st.integers(1, 9)}
    simple |= {typed_json.FiniteFloat: numbers, typed_json.Amount: st.floats(0, 1e30)}
    simple |= {int: naturals, str: texts, bool: st.booleans(), Any: plain}
    if hint in simple:
        return simple[hint]
    if dataclasses.is_dataclass(hint):
        return of(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*(by_annotation(argument) for argument in arguments))
    if hint is type(None):
        return st.none()
    if origin is dict:
        return st.dictionaries(texts, by_annotation(arguments[1]), max_size=2)
    assert origin is tuple
    if arguments[-1] is Ellipsis:
        return st.lists(by_annotation(arguments[0]), max_size=3).map(tuple)
    return st.tuples(*(by_annotation(argument) for argument in arguments))


PAIR = st.tuples(naturals, naturals)  # of a shape with two dimensions, and its spec
PAIR_SPEC = st.tuples(*[st.none() | st.lists(texts, max_size=2).map(tuple)] * 2)

# Fields that depend on other records: drawn so that they fit to all of them.
CONSISTENT: dict[type, dict[str, st.SearchStrategy]] = {
    Collective: {
        "op": st.sampled_from(OPS),
        "mesh_axes": st.none() | st.just(()),
        "group_size": st.none() | st.just(1),
        "groups": st.none() | st.integers(0, 1),
        "device_groups": st.none() | st.lists(st.just((0,)), max_size=2).map(tuple),
        "source_target_pairs": st.none() | st.lists(st.just((0, 0)), max_size=2).map(tuple),
    },
    ScheduledOperation: {"collective": st.none()},
    OperandType: {"shape": PAIR, "spec": PAIR_SPEC},
    ConflictSide: {"shape": PAIR, "spec": PAIR_SPEC, "used": PAIR_SPEC},
    Conflict: {"sides": st.deferred(lambda: st.tuples(of(ConflictSide)))},
    Finding: {"mesh": st.none()},
    Program: {"mesh": st.none()},
    ReshardedArrays: {"source_spec": st.none(), "target_spec": st.none()},
    Reshard: {
        "source_devices": st.just((0, 1)),
        "target_devices": st.just((0, 2)),
        "source_mesh": st.none(),
        "target_mesh": st.none(),
        "routes": st.none() | st.lists(st.just((1, 2, 64)), max_size=2).map(tuple),
    },
    LiveValue: {"padding": st.just(0)},
    MemoryUse: {
        "instructions": st.just(5),
        "points": st.just((0, 3)),
        "phases": st.tuples(*[st.sampled_from(typing.get_args(Phase))] * 2),
        "groups": st.lists(
            st.builds(
                GroupUse,
                group=st.sampled_from(typing.get_args(UseGroup)),
                bytes=st.tuples(naturals, naturals),
                extra=extras,
            ),
            min_size=1,
            max_size=3,
            unique_by=lambda build: build.group,
        ).map(tuple),
        "peak": st.integers(0, 1),
    },
}


@st.composite
def meshes(draw: st.DrawFn) -> Mesh:
    shape = draw(st.sampled_from([(), (1,), (2,), (2, 3), (1, 4), (2, 1, 2)]))
    names = draw(st.lists(texts, unique=True, min_size=len(shape), max_size=len(shape)))
    axes = tuple(
        draw(of(MeshAxis, name=st.just(name), size=st.just(size)))
        for name, size in zip(names, shape, strict=True)
    )
    each = {"min_size": math.prod(shape), "max_size": math.prod(shape)}
    return draw(
        of(
            Mesh,
            axes=st.just(axes),
            devices=st.lists(naturals, unique=True, **each).map(tuple),
            processes=st.none() | st.lists(naturals, **each).map(tuple),
            slice_index=st.none() | st.lists(naturals, **each).map(tuple),
            cores=st.none() | st.lists(naturals, **each).map(tuple),
            coordinates=st.none() | st.lists(st.tuples(naturals, naturals), **each).map(tuple),
            topology=st.none() | st.tuples(naturals, naturals),
            wraps=st.none() | st.tuples(st.booleans(), st.booleans()),
        )
    )


def per_dimension(entries: st.SearchStrategy, rank: int) -> st.SearchStrategy:
    return st.none() | st.lists(entries, min_size=rank, max_size=rank).map(tuple)


@st.composite
def arrays(draw: st.DrawFn, path: str, every: tuple[Mesh | None, ...]) -> Array:
    place = draw(st.integers(0, len(every) - 1))
    mesh = every[place]
    shape = tuple(draw(st.lists(st.integers(0, 9), max_size=3)))
    owners: list[list[str]] = [[] for _ in shape]
    for axis in mesh.axis_names if mesh else ():
        dimension = draw(st.integers(-1, len(shape) - 1))
        if dimension >= 0:
            owners[dimension].append(axis)
    spec = tuple(tuple(axes) or draw(st.sampled_from((None, ()))) for axes in owners)
    index = st.tuples(
        *(st.tuples(*[st.integers(0, size)] * 2).map(lambda r: tuple(sorted(r))) for size in shape)
    )
    shards = st.lists(of(Shard, index=index), max_size=3).map(tuple)
    return draw(
        of(
            Array,
            path=st.just(path),
            mesh=st.just(place - 1 if place else None),
            shape=st.just(shape),
            spec=st.none() | st.just(spec),
            logical_axes=per_dimension(st.none() | texts, len(shape)),
            shard_shape=per_dimension(st.integers(0, 9), len(shape)),
            shards=st.none() | shards,
            shard_map=st.none() | of(ShardMap, other_axes=st.just((None,) * len(shape))),
        )
    )


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    mesh = draw(st.none() | meshes())
    others = tuple(draw(st.lists(meshes(), max_size=2))) if mesh else ()
    paths = draw(st.lists(texts, unique=True, max_size=3))
    return draw(
        of(
            Snapshot,
            mesh=st.just(mesh),
            other_meshes=st.just(others),
            arrays=st.just(tuple(draw(arrays(path, (mesh, *others))) for path in paths)),
            layout=st.none() | st.dictionaries(texts, plain, max_size=2),
        )
    )


# --- The file -------------------------------------------------------------------------------------


@costly()
@given(snapshots())
def test_a_snapshot_survives_its_text_and_obeys_the_schema(made: Snapshot) -> None:
    parsed = strict_json.parse(snapshot.dumps(made), "it")
    VALIDATOR.validate(parsed)
    assert snapshot.from_json(parsed) == made
    assert snapshot.from_json(parsed).to_json() == parsed


@pytest.mark.nightly
@given(snapshots())
def test_the_text_has_a_line_for_each_array_and_program(made: Snapshot) -> None:
    lines = [line.strip().rstrip(",") for line in snapshot.dumps(made).split("\n")]
    for part in (*made.arrays, *made.programs, *made.findings):
        assert json.dumps(typed_json.encode(part)) in lines


def test_a_snapshot_survives_its_file(tmp_path: Path) -> None:
    snapshot.write(EXAMPLE, tmp_path / "a.json")
    assert snapshot.read(tmp_path / "a.json") == EXAMPLE
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_unknown_keys_are_kept(tmp_path: Path) -> None:
    plain = EXAMPLE.to_json()
    plain["later"] = {"a": [1, None]}
    plain["source"]["later"] = 1
    plain["mesh"]["axes"][0]["later"] = 2
    plain["mesh"]["later"] = 3
    plain["arrays"][0]["later"] = 4
    plain["arrays"][1]["shards"][0]["later"] = 5
    plain["programs"][0]["later"] = 6
    plain["programs"][0]["memory"]["later"] = 7
    plain["programs"][0]["seconds"]["later"] = 8
    plain["programs"][0]["collectives"][0]["later"] = 9
    plain["findings"][0]["later"] = 10
    (tmp_path / "a.json").write_text(json.dumps(plain), encoding="utf-8")
    VALIDATOR.validate(plain)
    snapshot.write(snapshot.read(tmp_path / "a.json"), tmp_path / "b.json")
    assert json.loads((tmp_path / "b.json").read_text(encoding="utf-8")) == plain


EXAMPLE = Snapshot(
    source=Source("cpu", "cpu", "2026-01-01T00:00:00+00:00", {"jax": "0.10.2"}),
    layout={"model": "mlp"},
    mesh=Mesh((MeshAxis("data", 2), MeshAxis("model", 2)), (0, 1, 2, 3), (0, 0, 0, 0), "cpu"),
    arrays=(
        Array(
            "params/kernel", "params", (4, 8), "float32", (None, "hidden"), (None, ("model",)),
            (4, 4), 128, 64, 2,
        ),
        Array(
            "step", "opt_state", (), "int32", None, None, None, 4, 4, 1,
            tuple(Shard(device, (), device, 0) for device in range(4)),
        ),
    ),
    programs=(
        Program(
            "train_step", 1e9, Memory(arguments=192, peak=400),
            (
                Collective(
                    "all-reduce", False, "all-reduce.7", "main", None, False, ("model",), 2, 2, 64, 64
                ),
            ),
            Seconds(0.05, 0.13, 0.07, (0.07, 0.08)),
        ),
    ),
    findings=(Finding("warning", "replicated-parameter", "step is whole everywhere", "step", 12),),
)  # fmt: skip


# --- Mutated files --------------------------------------------------------------------------------


DEEPEST = 40  # levels at which the tests change a file; deeper values are replaced as a whole


def places(value: Any, path: tuple = ()) -> list[tuple]:
    """Every place inside a JSON value, as the keys that lead there."""
    found = [path] if path else []
    if isinstance(value, (dict, list)) and len(path) < DEEPEST:
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            found += places(part, (*path, key))
    return found


def at(value: Any, path: tuple) -> Any:
    for key in path:
        value = value[key]
    return value


REPLACEMENTS = st.one_of(
    st.sampled_from(
        [None, True, False, 0, 1, -1, 2, 8, 2**63 - 1, 2**63, 10**400, 1.5, -0.5, 1e308, "", "x"]
    ),
    st.sampled_from(["data", "params", "cpu", "plan", "error", "auto", "sharding-snapshot", "<b>\n"]),
    st.sampled_from([[], {}, [None], [[]], [1], [[0, 1]], ["model"], [["model"]], [{}], {"a": 1}]),
    plain,
)


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """The JSON of a Snapshot with some places replaced, removed, moved or doubled."""
    value = copy.deepcopy(draw(st.one_of(st.just(EXAMPLE), snapshots())).to_json())
    for _ in range(draw(st.integers(1, 3))):
        every = places(value)
        if not every:
            break
        *parents, last = draw(st.sampled_from(every))
        holder = at(value, tuple(parents))
        action = draw(st.sampled_from(["replace", "replace", "remove", "copy", "double"]))
        if action == "replace":
            # A copy, or a later change would reach the strategy's own lists and other examples.
            holder[last] = copy.deepcopy(draw(REPLACEMENTS))
        elif action == "remove":
            del holder[last]
        elif action == "copy":
            holder[last] = copy.deepcopy(at(value, draw(st.sampled_from(every))))
        elif isinstance(holder, list):
            holder.append(copy.deepcopy(holder[last]))
    return value


# JSON Schema accepts 1.0 as an integer and numbers of any size; the reader does not.
EXACT_VALIDATOR = jsonschema.validators.extend(
    Draft202012Validator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            # The type check also enforces the maximum.
            "integer": lambda _, value: type(value) is int and abs(value) <= sys.float_info.max,
            "number": lambda _, value: type(value) in (int, float) and abs(value) <= sys.float_info.max,
        }
    ),
)(SCHEMA)


@pytest.mark.nightly
@given(mutated())
def test_a_mutated_file_is_read_or_refused(value: Any) -> None:
    try:
        read = snapshot.from_json(value, "a.json")
    except InvalidInput as refused:
        sentence = str(refused)
        assert sentence.startswith("a.json") and "\n" not in sentence and len(sentence) < 500
    else:
        # An accepted file obeys the schema, and can be written and read again.
        VALIDATOR.validate(value)
        written = strict_json.parse(snapshot.dumps(read), "it")
        VALIDATOR.validate(written)
        assert snapshot.from_json(written) == read


@pytest.mark.nightly
@given(mutated())
def test_the_schema_agrees_with_the_types_of_the_reader(value: Any) -> None:
    """Check each value alone: a schema cannot express that values contradict each other."""
    body = {key: part for key, part in value.items() if key not in ("format", "version")}
    form = value.get("format") == "sharding-snapshot"
    form = form and type(value.get("version")) is int and value["version"] == 1
    try:
        typed_json.decode(Snapshot, body)
    except InvalidInput:
        form = False
    assert EXACT_VALIDATOR.is_valid(value) == form


@pytest.mark.nightly
@given(mutated().map(json.dumps), st.data())
def test_a_file_with_bytes_changed_is_read_or_refused(text: str, data: st.DataObject) -> None:
    content = bytearray(text.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(content) - 1))
        content[position : position + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    try:
        snapshot.from_json(strict_json.parse(bytes(content), "a.json"), "a.json")
    except InvalidInput as refused:
        assert "a.json" in str(refused) and "\n" not in str(refused)


@given(st.one_of(plain, st.lists(plain), st.dictionaries(texts, plain)))
def test_other_json_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="not a sharding-snapshot file: it must have"):
        snapshot.from_json(value, "a.json")


# --- Contradictions -------------------------------------------------------------------


def changed(*path: Any, to: Any) -> dict[str, Any]:
    value = EXAMPLE.to_json()
    holder: Any = value
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = to
    return value


COLLECTIVE = EXAMPLE.to_json()["programs"][0]["collectives"][0]


def collective(key: str, to: Any) -> Any:
    """EXAMPLE with one key of its collective changed."""
    return changed("programs", 0, "collectives", 0, key, to=to)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (changed("version", to=2), ["version 2", "up to version 1", "newer"]),
        (changed("version", to=10**4000), ["version 1000", "up to version 1"]),
        (changed("version", to=0), ["version 0", "integer from 1"]),
        (changed("version", to="1"), ["version '1'", "integer from 1"]),
        (changed("version", to=True), ["version true", "integer from 1"]),
        (changed("version", to=None), ["version null", "integer from 1"]),
        (changed("format", to="sharding"), ["not a sharding-snapshot file"]),
        (changed("source", to=None), ["source is null", "an object"]),
        (changed("source", "kind", to="moon"), ["source.kind is 'moon'", "plan, cpu"]),
        (changed("layout", to=[]), ["layout is a list of 0", "an object"]),
        (changed("mesh", "axes", 0, "size", to=0), ["mesh.axes[0].size is 0", "from 1"]),
        (changed("mesh", "axes", 1, "name", to="data"), ["mesh.axes[1].name is 'data'", "unique"]),
        (changed("mesh", "axes", 1, "size", to=3), ["mesh.devices has 4", "'2x3'"]),
        (changed("mesh", "devices", to=[0, 1, 2, 2]), ["mesh.devices", "twice"]),
        (changed("mesh", "devices", to=[0, 1, 2, -3]), ["mesh.devices[3] is -3", "from 0"]),
        (changed("mesh", "processes", to=[0]), ["mesh.processes has 1", "4 devices"]),
        (changed("mesh", to=None), ["'params/kernel'", "'model'", "no such axis"]),
        (changed("arrays", 1, "path", to="params/kernel"), ["'params/kernel'", "twice"]),
        (changed("arrays", 0, "spec", to=[None]), ["spec has 1 entry", "2 dimensions"]),
        (changed("arrays", 0, "spec", to=[["data"], ["data"]]), ["mesh axis twice"]),
        (changed("arrays", 0, "spec", to=[["x"], None]), ["'x'", "no such axis"]),
        (
            changed("arrays", 0, "spec", to=["model", None]),
            ["arrays[0].spec[0] is 'model'", "list"],
        ),
        (changed("arrays", 0, "shape", to=[4, 8, 1]), ["spec has 2 entries", "3 dimensions"]),
        (changed("arrays", 0, "shape", to=[4, -8]), ["arrays[0].shape[1] is -8", "from 0"]),
        (changed("arrays", 0, "logical_axes", to=[]), ["logical_axes has 0 entries"]),
        (changed("arrays", 0, "shard_shape", to=[4]), ["shard_shape has 1 entry"]),
        (changed("arrays", 0, "group", to="weights"), ["arrays[0].group is 'weights'", "params"]),
        (changed("arrays", 1, "shards", 0, "index", to=[[0, 1]]), ["shards[0].index", "0:1"]),
        (
            changed("arrays", 0, "shards", to=[{"device": 0, "index": [[0, 5], [0, 8]], "replica": 0}]),
            ["shards[0].index is '[0:5, 0:8]'", "(4, 8)"],
        ),
        (
            changed("arrays", 0, "shards", to=[{"device": 0, "index": [[2, 1], [0, 8]], "replica": 0}]),
            ["shards[0].index is '[2:1, 0:8]'"],
        ),
        (
            changed("programs", 0, "collectives", 0, "executions", to=1.5),
            ["programs[0].collectives[0].executions is 1.5", "an integer"],
        ),
        (changed("programs", 0, "seconds", "steps", to=[0.1, None]), ["seconds.steps[1] is null"]),
        (collective("op", to="all-gossip"), ["collectives[0].op is 'all-gossip'", "all-reduce"]),
        (collective("mesh_axes", to=["pipe"]), ["mesh_axes has 'pipe'", "data, model"]),
        (collective("mesh_axes", to=["data", "data"]), ["mesh_axes has an axis twice"]),
        (collective("group_size", to=0), ["collectives[0].group_size is 0", "from 1"]),
        (collective("group_size", to=2**21), ["collectives[0].group_size is 2097152", "at most"]),
        (collective("groups", to=2**62), ["collectives[0].groups is 4611", "at most"]),
        (
            collective("device_groups", to=[[0, 2**20]]),
            ["device_groups[0] has the position 1048576", "below"],
        ),
        (collective("source_target_pairs", to=[[2**40, 0]]), ["source_target_pairs[0]", "below"]),
        (collective("payload_bytes", to=-1), ["collectives[0].payload_bytes is -1", "from 0"]),
        (
            changed("programs", 0, "collectives", to=2 * [COLLECTIVE | {"executions": 2**60}]),
            ["programs[0].collectives: the sum of", "at most"],
        ),
        (changed("programs", 0, "seconds", "first", to=-0.5), ["seconds.first is -0.5", "from 0"]),
        (changed("programs", 0, "seconds", "first", to=1e31), ["seconds.first is 1e+31", "1e30"]),
        (changed("arrays", 0, "bytes", to=2**63 - 1), ["arrays: the sum of bytes", "at most"]),
        (changed("arrays", 0, "bytes_per_device", to=2**61), ["bytes_per_device", "at most"]),
        (changed("arrays", 0, "shape", to=[2**40, 2**40]), ["'params/kernel': shape", "at most"]),
        (changed("findings", 0, "level", to="fatal"), ["findings[0].level is 'fatal'", "error"]),
    ],
    ids=lambda part: part[0][:40] if isinstance(part, list) else "",
)
def test_a_snapshot_that_contradicts_itself_is_refused(value: Any, words: list[str]) -> None:
    with pytest.raises(InvalidInput) as refused:
        snapshot.from_json(value, "a.json")
    for word in ("a.json", *words):
        assert word in str(refused.value)


@pytest.mark.parametrize("key", ["source", "layout", "mesh", "arrays"])
def test_a_key_that_is_missing_is_named(key: str) -> None:
    value = EXAMPLE.to_json()
    del value[key]
    with pytest.raises(InvalidInput, match=f"^a.json: {key} is missing$"):
        snapshot.from_json(value, "a.json")
    assert not VALIDATOR.is_valid(value)


def test_a_mesh_that_is_too_large_to_print_is_refused() -> None:
    axes = [{"name": str(i), "size": 2**62} for i in range(1000)]
    value = changed("mesh", to={"axes": axes, "devices": [0]})
    with pytest.raises(InvalidInput, match="devices has 1 entries"):
        snapshot.from_json(value, "a.json")


# --- Files ----------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"gone\.json cannot be read: No such file or directory"):
        snapshot.read(tmp_path / "gone.json")
    with pytest.raises(InvalidInput, match="cannot be read: Is a directory"):
        snapshot.read(tmp_path)
    with pytest.raises(InvalidInput, match="cannot be read: "):
        snapshot.read(f"{tmp_path}/a\0b")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON"),
        (b"\x80\x04K\x01.", "not UTF-8"),
        (b'{"format": "sharding-snapshot", "version": 1, "version": 1}', "twice"),
        (b'{"format": "sharding-snapshot", "version": NaN}', "NaN"),
        (b'{"format": "sharding-snapshot", "version": 1, "layout": ' + b"[" * 10**5, "too deep"),
        (b'{"format": "sharding-snapshot", "version": 7}', "newer"),
        (b"[]", "not a sharding-snapshot file"),
    ],
)
def test_a_file_that_is_no_snapshot_is_refused_by_name(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(InvalidInput) as refused:
        snapshot.read(path)
    assert str(path) in str(refused.value) and words in str(refused.value)


def test_a_snapshot_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="cannot be written"):
        snapshot.write(EXAMPLE, tmp_path / "file" / "a.json")
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


# --- Questions to a Snapshot ----------------------------------------------------------------------


def test_a_wrong_path_suggests_similar_paths() -> None:
    assert EXAMPLE.array("step") is EXAMPLE.arrays[1]
    with pytest.raises(InvalidInput, match=r"no array 'params/kernle'; similar paths: 'params/kernel'"):
        EXAMPLE.array("params/kernle")
    with pytest.raises(InvalidInput, match=r"no array '§§§'$"):
        EXAMPLE.array("§§§")


def test_a_program_is_found_by_its_name() -> None:
    assert EXAMPLE.program("train_step") is EXAMPLE.programs[0]
    assert EXAMPLE.program("init") is None


def test_a_mesh_counts_ways() -> None:
    mesh = Mesh((MeshAxis("a", 2), MeshAxis("b", 3), MeshAxis("c", 1)), tuple(range(6)))
    assert (mesh.shape, mesh.axis_names, mesh.size) == ((2, 3, 1), ("a", "b", "c"), 6)
    counted = [mesh.ways(axes) for axes in (None, (), ("a",), ("b", "a"), ("c",))]
    assert counted == [1, 1, 2, 6, 1]
