"""A Layout survives every form it is written in, and every mistake gets one sentence."""

from __future__ import annotations

import json
import math
import re
import string
import urllib.parse
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from inspector import layout as layouts
from inspector.layout import Layout
from inspector.machines import targets
from inspector.machines.compiler_options import OPTIONS
from inspector.model import Size
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.sharding import rules
from inspector.text.errors import InvalidInput
from inspector.text.field_parser import Parsed
from tests.examples import costly

MESH_SHAPES = [
    shape
    for rank in range(1, layouts.LARGE_AXES + 1)
    for shape in product((1, 2, 3, 4, 7, 8, 64, 512), repeat=rank)
    if math.prod(shape) <= layouts.MOST_DEVICES
] + [(2, 1, 4, 1, 1, 3), (1,) * 12 + (8,), (2,) * 9, (1,) * layouts.MOST_AXES]
FIELDS = sorted(
    {"model", "mesh", "axes", "rules", "specs", "target", "steps", "unconstrained", "timeit"}
    | {"processes", "donate", "trace", "device_order", "axis_types", "compiler_options"}
    | {"optimizer_axes"}
    | {size.name for name in ("logical_mlp", "mlp") for size in CATALOGUE[name].sizes}
)

names = st.one_of(
    st.sampled_from(("data", "model", "fsdp", "x", "_", "none", "True", "batch", "embed", "a1")),
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True),
).filter(lambda name: name != "None")


def option_value(name: str, number: int) -> str:
    """Return an allowed value of an option of the compiler."""
    option = OPTIONS[name]
    if option.words:
        return option.words[number % len(option.words)]
    text = str(int(option.least + number % (option.most - option.least)))
    return text if option.whole else f"{text}.25"


def size_values(size: Size) -> st.SearchStrategy[Any]:
    if isinstance(size.default, bool):
        return st.booleans()
    if isinstance(size.default, str):
        return st.sampled_from(size.choices)
    if isinstance(size.default, int):
        return st.integers(int(size.least), int(size.most))
    return st.floats(size.least, size.most)


def axes_of_a_dimension(free: list[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(free), unique=True, max_size=len(free)).map(tuple)


@st.composite
def layout_values(draw: st.DrawFn) -> Layout:
    """A valid Layout built directly, not through the parser."""
    entry = CATALOGUE[draw(st.sampled_from(sorted(CATALOGUE)))]
    shape = draw(st.sampled_from(MESH_SHAPES))
    axis_names = layouts.default_names(len(shape))
    if draw(st.booleans()):
        unique = st.lists(names, unique=True, min_size=len(shape), max_size=len(shape))
        axis_names = tuple(draw(unique))
    rule_list, specs = (), {}
    if entry.has_rules:
        axes = axes_of_a_dimension(list(axis_names))
        rule_list = tuple(draw(st.lists(st.tuples(names, axes), max_size=6)))
    else:
        for place, dimensions in entry.partitions.items():
            owners = draw(
                st.lists(
                    st.integers(-1, len(dimensions) - 1),
                    min_size=len(axis_names),
                    max_size=len(axis_names),
                )
            )
            specs[place] = tuple(
                tuple(a for a, owner in zip(axis_names, owners, strict=True) if owner == d) or None
                for d in range(len(dimensions))
            )
    target = draw(st.sampled_from(layouts.TARGETS))
    counts = [n for n in layouts.PROCESS_COUNTS if math.prod(shape) % n == 0]
    return Layout(
        model=entry.name,
        sizes={size.name: draw(st.one_of(st.just(size.default), size_values(size))) for size in entry.sizes},
        mesh_shape=shape,
        axis_names=axis_names,
        rules=rule_list,
        specs=specs,
        target=target,
        steps=draw(st.integers(1, layouts.MOST_STEPS)),
        unconstrained=tuple(name for name in entry.constraints if draw(st.booleans())),
        timeit=draw(st.booleans()),
        processes=1 if target == "local" else draw(st.sampled_from(counts)),
        donate=draw(st.booleans()),
        trace=draw(st.booleans()),
        device_order=draw(st.sampled_from(layouts.DEVICE_ORDERS)),
        optimizer_axes=tuple(draw(st.lists(st.sampled_from(axis_names), unique=True))),
        compiler_options=draw(
            st.dictionaries(st.sampled_from(sorted(OPTIONS)), st.integers(0, 10**6), max_size=3).map(
                lambda options: tuple(
                    sorted((name, option_value(name, number)) for name, number in options.items())
                )
            )
        ),
        axis_types=draw(
            st.just(())
            | st.tuples(*[st.sampled_from(layouts.AXIS_TYPES)] * len(shape)).filter(
                lambda types: "explicit" in types
            )
        ),
    )


@given(layout_values(), st.booleans())
def test_what_is_printed_is_read_back(layout: Layout, url: bool) -> None:
    fields = layouts.to_query(layout) if url else layouts.to_fields(layout)
    assert layouts.parse(fields).unwrap() == layout
    assert layouts.parse_leniently(fields) == Parsed(layout, {})


@given(layout_values())
def test_json_is_read_back(layout: Layout) -> None:
    plain = json.loads(json.dumps(layout.to_json(), allow_nan=False))
    assert layouts.from_json(plain) == layout
    assert layouts.from_json(plain).key() == layout.key()


@given(layout_values())
def test_the_url_has_only_changed_fields_in_plain_characters(
    layout: Layout,
) -> None:
    query = layouts.to_query(layout)
    encoded = urllib.parse.urlencode(query)
    assert encoded == "&".join(f"{name}={text}" for name, text in query.items())
    assert "%" not in encoded and "+" not in encoded
    decoded = dict(urllib.parse.parse_qsl(encoded, keep_blank_values=True, strict_parsing=True))
    assert layouts.parse_leniently(decoded) == Parsed(layout, {})
    for name in query:
        less = {other: text for other, text in query.items() if other != name}
        assert layouts.parse(less).value != layout, f"{name} could have been left out"


def test_a_link_has_options_whose_values_have_colons() -> None:
    for value in ("enabled:true", "enabled:false"):
        option = f"xla_tpu_memory_bound_loop_optimizer_options={value}"
        layout = layouts.parse({"target": "tpu:v5e:2x4", "compiler_options": option}).unwrap()
        query = layouts.to_query(layout)
        assert query["compiler_options"] == option.replace("=", ".").replace(":", ".")
        assert layouts.parse(query).unwrap() == layout


def test_the_default_layout_has_an_empty_url() -> None:
    assert layouts.to_query(layouts.parse({}).unwrap()) == {}


@given(layout_values(), layout_values())
def test_layouts_that_differ_have_keys_that_differ(one: Layout, other: Layout) -> None:
    assert (one.key() == other.key()) == (one == other)


def test_the_defaults_are_those_of_the_guide() -> None:
    layout = layouts.parse({}).unwrap()
    assert layout.model == "logical_mlp"
    assert (layout.mesh_shape, layout.axis_names) == ((2, 4), ("data", "model"))
    assert layout.rules == (("batch", ("data",)), ("hidden", ("model",)))
    chosen = {name: layout.sizes[name] for name in ("batch", "layers", "depth", "scan")}
    assert chosen == {"batch": 8, "layers": 4, "depth": 1024, "scan": False}
    assert (layout.sizes["optimizer"], layout.sizes["dtype"]) == ("adam", "float32")
    assert layout.target == "cpu"


def test_the_mesh_of_a_layout_is_emulated_devices_in_order() -> None:
    mesh = layouts.parse({"mesh": "2x3", "axes": "a,b"}).unwrap().mesh()
    assert (mesh.shape, mesh.axis_names, mesh.devices) == ((2, 3), ("a", "b"), (0, 1, 2, 3, 4, 5))
    assert mesh.processes == (0,) * 6


# Few models have partitions.
@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(layout_values())
def test_default_specs_are_the_default_rules_on_each_place(layout: Layout) -> None:
    assume(layout.entry.partitions)
    on_mesh = [rule for rule in layout.entry.rules if set(rule[1]) <= set(layout.axis_names)]
    assert layouts.default_specs(layout.entry, layout.axis_names) == {
        place: rules.partition_spec(axes, on_mesh) for place, axes in layout.entry.partitions.items()
    }


@pytest.mark.parametrize(
    ("fields", "same"),
    [
        ({"mesh": " 2 X 4 "}, {"mesh": "2x4"}),
        ({"mesh": "2×4"}, {"mesh": "2x4"}),
        ({"mesh": "02*4"}, {"mesh": "2x4"}),
        ({"axes": "data.model"}, {"axes": "data,model"}),
        ({"axes": " data , model "}, {"axes": "data,model"}),
        ({"axes": "data:explicit,model"}, {"axis_types": "explicit,auto"}),
        ({"axes": "data : Explicit . model"}, {"axis_types": "explicit.auto"}),
        (
            {"axes": "data:explicit,model", "axis_types": "auto,auto"},
            {"axes": "data:explicit,model:auto"},
        ),
        ({"axis_types": "auto,auto"}, {}),
        ({"rules": "batch=data, hidden = model ,"}, {"rules": "batch=data,hidden=model"}),
        ({"rules": "batch.data~hidden.data-model"}, {"rules": "batch=data,hidden=data+model"}),
        ({"rules": "batch=data\nhidden=\n"}, {"rules": "batch=data,hidden=None"}),
        ({"rules": "batch->data;hidden→model"}, {"rules": "batch=data,hidden=model"}),
        ({"scan": "YES"}, {"scan": "true"}),
        ({"depth": " 64 "}, {"depth": "64"}),
        ({"timeit": "false", "unconstrained": ""}, {}),
        ({"unconstrained": "z.y"}, {"unconstrained": "y, z"}),
        ({"learning_rate": "1e-3"}, {}),
        ({"optimizer_axes": ""}, {}),
        ({"optimizer_axes": " model ,data"}, {"optimizer_axes": "model.data"}),
        (
            {"compiler_options": " --xla_tpu_pcie_bandwidth_multiplier=1.5,xla_gpu_ftz=true\n"},
            {"compiler_options": "xla_gpu_ftz.true~xla_tpu_pcie_bandwidth_multiplier.1.5"},
        ),
        (
            {"compiler_options": "--xla_gpu_ftz=true  --xla_tpu_pcie_bandwidth_multiplier=1.5"},
            {"compiler_options": "xla_gpu_ftz=true,xla_tpu_pcie_bandwidth_multiplier=1.5"},
        ),
        (
            {"model": "mlp", "specs": "W1=None.model"},
            {"model": "mlp", "specs": "W1.None.model~W2.model.None"},
        ),
        (
            {"model": "mlp", "specs": "x.data-model.None"},
            {"model": "mlp", "specs": "x=data+model.None"},
        ),
    ],
)
def test_ways_of_writing_the_same(fields: dict[str, str], same: dict[str, str]) -> None:
    assert layouts.parse(fields).unwrap() == layouts.parse(same).unwrap()


# Field, value, and the allowed values that the error must name.
BROKEN = [
    ("model", "mpl", ["mlp", "logical_mlp"]),
    ("model", "", ["mlp"]),
    ("model", "<b>mlp</b>", ["mlp"]),
    ("mesh", "2y4", ["joined by x", "2x4"]),
    ("mesh", "", ["joined by x"]),
    ("mesh", "2x", ["joined by x"]),
    ("mesh", "-2x4", ["joined by x"]),
    ("mesh", "2.5x4", ["joined by x"]),
    ("mesh", "٢x٤", ["joined by x"]),
    ("mesh", "0x4", ["at least 1"]),
    ("mesh", "1x" * 16 + "1", ["17 axes", "at most 16"]),
    ("mesh", "32x17", ["544 devices", "at most 512"]),
    ("mesh", "999999999x999999999", ["at most 512"]),
    ("mesh", "9" * 5000, ["joined by x"]),
    ("axes", "data", ["1 name", "2x4 has 2 axes"]),
    ("axes", "a,b,c", ["3 names", "2 axes"]),
    ("axes", "data,data", ["must differ"]),
    ("axes", "data,2", ["letters, digits and _"]),
    ("axes", "data,", ["letters, digits and _"]),
    ("axes", "data,None", ["letters, digits and _"]),
    ("axes", "data,mod el", ["letters, digits and _"]),
    ("axes", "дата,model", ["letters, digits and _"]),
    ("axes", "", ["letters, digits and _"]),
    ("axes", "data:fast,model", ["type", "auto or explicit"]),
    ("axes", "data:manual,model", ["auto or explicit", "jax.shard_map"]),
    ("axis_types", "fast,auto", ["auto or explicit"]),
    ("axis_types", "manual,auto", ["auto or explicit", "jax.shard_map"]),
    ("axis_types", "explicit", ["1 type", "data, model"]),
    ("axis_types", "", ["auto or explicit"]),
    ("rules", "batch=dta", ["dta", "data, model"]),
    ("rules", "batch", ["mesh axes"]),
    ("rules", "batch=data+data", ["only once"]),
    ("rules", "=data", ["letters, digits and _"]),
    ("rules", "ba tch=data", ["letters, digits and _"]),
    ("rules", "2=data", ["letters, digits and _"]),
    ("rules", "batch=data=model", ["data, model"]),
    ("rules", "batch=data+", ["data, model"]),
    ("specs", "W3=None.model", ["W1, W2"]),
    ("specs", "W1=None", ["2 entries", "embed, hidden"]),
    ("specs", "W1=", ["2 entries"]),
    ("specs", "W1", ["W1, W2"]),
    ("specs", "layer=None.None", ["1 entry"]),
    ("specs", "W1=None.mdl", ["mdl", "data, model"]),
    ("specs", "W1=model.model", ["only once"]),
    ("specs", "W1=data.model+data", ["only once"]),
    ("target", "cuda", ["cpu, local, plan"]),
    ("target", "", ["cpu, local, plan"]),
    ("steps", "0", ["whole number from 1 to 10,000"]),
    ("steps", "10001", ["from 1 to 10,000"]),
    ("steps", "-1", ["from 1 to 10,000"]),
    ("steps", "1.5", ["whole number"]),
    ("steps", "", ["whole number"]),
    ("steps", "nan", ["whole number"]),
    ("steps", "9" * 5000, ["from 1 to 10,000"]),
    ("batch", "0", ["from 1 to"]),
    ("batch", "eight", ["whole number from 1 to"]),
    ("batch", "٨", ["whole number from 1 to"]),
    ("batch", "1_000", ["whole number from 1 to"]),
    ("layers", "1025", ["from 1 to 1,024"]),
    ("depth", "1e3", ["whole number"]),
    ("depth", str(10**30), ["from 1 to 1,048,576"]),
    ("bias", "maybe", ["true or false"]),
    ("scan", "maybe", ["true or false"]),
    ("scan", "", ["true or false"]),
    ("optimizer", "Adam", ["adam, adamw"]),
    ("learning_rate", "nan", ["a number from 0 to 10"]),
    ("learning_rate", "inf", ["a number from 0 to 10"]),
    ("learning_rate", "1e999", ["a number from 0 to 10"]),
    ("learning_rate", "-1e-9", ["a number from 0 to 10"]),
    ("learning_rate", "", ["a number from 0 to 10"]),
    ("learning_rate", "0,1", ["a number from 0 to 10"]),
    ("dtype", "float64", ["float32, bfloat16"]),
    ("loss", "mae", ["sum, mse"]),
    ("unconstrained", "y,W1", ["constraints on y, z"]),
    ("timeit", "7", ["true or false"]),
    ("donate", "state", ["true or false"]),
    ("trace", "", ["true or false"]),
    ("device_order", "random", ["row-major, torus"]),
    ("optimizer_axes", "fsdp", ["data, model"]),
    ("optimizer_axes", "data,data", ["each once"]),
    ("compiler_options", "xla_dump_to=/tmp/a", ["xla_dump_to", "--unsafe-compiler-options"]),
    ("compiler_options", "xla_gpu_ftz=2", ["xla_gpu_ftz", "true, false"]),
    ("compiler_options", "xla_a", ["the value of each option"]),
    ("compiler_options", "xla_a=", ["the value of each option"]),
    ("compiler_options", "xla-a=1", ["the value of each option"]),
    ("compiler_options", f"xla_a={'1' * 300}", ["the value of each option"]),
    ("compiler_options", "xla_a=1,xla_a=2", ["'xla_a' twice"]),
    ("compiler_options", ",".join(f"xla_{n}=1" for n in range(101)), ["at most 100"]),
    ("target", "tpu:v5p:3x3x3", ["2x2x1", "multiples of 4"]),
    ("target", "gpu:h100:9", ["1 to 8", "a multiple of 8"]),
    ("processes", "3", ["one of 1, 2, 4"]),
    ("processes", "2.0", ["one of 1, 2, 4"]),
    ("processes", "", ["one of 1, 2, 4"]),
    ("colour", "red", ["not a field", "batch"]),
]


@pytest.mark.parametrize(("name", "text", "allowed"), BROKEN, ids=lambda x: str(x)[:30])
def test_the_error_of_a_wrong_field(name: str, text: str, allowed: list[str]) -> None:
    rest = {"model": "mlp"} if name == "specs" else {}
    parsed = layouts.parse({**rest, name: text})
    assert parsed.value is None
    assert list(parsed.problems) == [name]
    sentence = parsed.problems[name]
    # The error names a single rule or spec, not the whole field.
    assert {"rules": "rule", "specs": "spec"}.get(name, name) in sentence
    # The error has the value or its wrong part, or the name of an unknown field.
    parts = [text[:20], *re.split(r"[,:=.+]", text)]
    assert name == "colour" or any((part or "''") in sentence for part in parts)
    for words in allowed:
        assert words in sentence
    assert "\n" not in sentence and len(sentence) < 300
    # A lenient parse has the same error, and the default of that field.
    assert layouts.parse_leniently({**rest, name: text}) == Parsed(
        layouts.parse(rest).unwrap(), {name: sentence}
    )
    with pytest.raises(InvalidInput) as refused:
        parsed.unwrap()
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("model", "size"),
    [(entry.name, size.name) for entry in CATALOGUE.values() for size in entry.sizes],
)
def test_every_size_of_every_model_is_refused_by_its_name(model: str, size: str) -> None:
    parsed = layouts.parse({"model": model, size: "∞"})
    assert list(parsed.problems) == [size]
    assert parsed.problems[size].startswith(f"{size} is '∞', but must be ")


def test_every_field_is_broken_once() -> None:
    assert {name for name, _, _ in BROKEN} >= set(FIELDS)


@costly()
@given(layout_values(), st.sampled_from(BROKEN))
def test_a_field_broken_in_any_layout_is_the_only_one_named(
    layout: Layout, broken: tuple[str, str, list[str]]
) -> None:
    """Fields that depend on the broken one are not blamed for it."""
    name, text, _ = broken
    fields = layouts.to_fields(layout)
    assume(name in fields or name == "colour")
    # Right on another mesh.
    assume(name not in ("axes", "axis_types", "optimizer_axes", "rules", "specs"))
    assume(text != "32x17" or layout.target != "plan")  # a plan may have more devices
    parsed = layouts.parse(fields | {name: text})
    assert parsed.value is None
    assert list(parsed.problems) == [name]


def test_several_broken_fields_are_all_named() -> None:
    fields = {"mesh": "2y4", "batch": "x", "target": "moon", "colour": "red"}
    parsed = layouts.parse(fields)
    assert set(parsed.problems) == set(fields)
    with pytest.raises(InvalidInput) as refused:
        parsed.unwrap()
    assert str(refused.value) == "; ".join(parsed.problems.values())
    lenient = layouts.parse_leniently(fields)
    assert lenient.value == layouts.parse({}).value
    assert lenient.problems == parsed.problems


def test_what_hangs_on_a_broken_mesh_is_said_when_it_is_replaced() -> None:
    """The strict parser blames the mesh alone; the lenient one must also give up what needs it."""
    fields = {"mesh": "2y2x2", "axes": "a,b,c", "rules": "batch=a"}
    assert set(layouts.parse(fields).problems) == {"mesh"}
    lenient = layouts.parse_leniently(fields)
    assert set(lenient.problems) == {"mesh", "axes", "rules"}
    assert lenient.value == layouts.parse({}).value


def pieces() -> Iterator[str]:
    yield from (".", ",", "=", "~", "-", "+", "x", "data", "model", "batch", "W1", "None", "\n")
    yield from ("8", "0", "-1", "1e9", "nan", "٣", "½", "<br>", "\x00", "\ud800", "🙂", " ", "true")


texts = st.one_of(
    st.text(),
    st.lists(st.sampled_from(list(pieces())), max_size=8).map("".join),
    st.text(string.digits + "x.,=~-+"),
)


@given(st.dictionaries(st.one_of(st.sampled_from(FIELDS), st.text(max_size=5)), texts, max_size=6))
def test_any_text_gives_a_layout_leniently(fields: dict[str, str]) -> None:
    lenient = layouts.parse_leniently(fields)
    assert lenient.value is not None
    assert set(lenient.problems) <= set(fields)
    for sentence in lenient.problems.values():
        assert sentence and "\n" not in sentence and "\x00" not in sentence
    kept = {name: text for name, text in fields.items() if name not in lenient.problems}
    assert layouts.parse(kept).value == lenient.value
    assert layouts.parse(layouts.to_fields(lenient.value)).value == lenient.value
    assert (layouts.parse(fields).value is None) == bool(lenient.problems)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts, st.sampled_from(FIELDS)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(names, texts), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(
    st.one_of(
        json_values,
        st.dictionaries(st.sampled_from([*FIELDS, "sizes"]), json_values, max_size=4),
        st.tuples(layout_values(), st.sampled_from([*FIELDS, "sizes"]), json_values).map(
            lambda made: made[0].to_json() | {made[1]: made[2]}
        ),
    )
)
def test_any_json_is_a_layout_or_refused_in_a_sentence(value: Any) -> None:
    try:
        layout = layouts.from_json(value, "a.json")
    except InvalidInput as refused:
        assert str(refused).startswith("a.json") and "\n" not in str(refused)
    else:
        assert layouts.from_json(layout.to_json()) == layout


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mesh": None}, ["mesh", "null", "text, a number"]),
        ({"mesh": [2, [4]]}, ["mesh", "a list of 1"]),
        ({"axes": [1, 2]}, ["axes", "'1'"]),
        ({"sizes": [8]}, ["sizes", "a list of 1", "an object"]),
        ({"sizes": {"batch": [8]}}, ["batch", "a list of 1"]),
        ({"sizes": {"batch": 8.5}}, ["batch", "8.5", "whole number"]),
        ({"sizes": {"batch": True}}, ["batch", "true", "whole number"]),
        ({"sizes": {"mesh": "8"}}, ["sizes", "'mesh'"]),
        ({"sizes": {"batch": 8}, "batch": 4}, ["sizes", "'batch'", "once"]),
        ({"sizes": {"colour": "red"}}, ["'colour'", "not a field"]),
        ({"rules": [["batch"]]}, ["rules", "'batch'", "a logical axis, =, and mesh axes"]),
        ({"rules": [["batch=data,hidden", "model"]]}, ["rules", "'batch=data,hidden'"]),
        ({"rules": [["batch", 1]]}, ["rule batch", "'1'", "data, model"]),
        ({"rules": [["batch", ["dta"]]]}, ["rule batch", "'dta'", "data, model"]),
        ({"specs": {"W1": []}}, ["'specs'", "not a field"]),
        ({"model": "mlp", "specs": {"W1": "model"}}, ["W1", "'model'", "2 entries"]),
        ({"model": "mlp", "specs": {"W1": ["model"]}}, ["W1", "2 entries"]),
        ({"colour": "red"}, ["'colour'", "not a field"]),
    ],
)
def test_a_layout_file_that_is_wrong_is_refused_by_field(change: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InvalidInput) as refused:
        layouts.from_json(change, "a.json")
    for word in ("a.json", *words):
        assert word in str(refused.value)


def test_a_layout_file_may_say_everything_as_text_or_little() -> None:
    assert layouts.from_json({}) == layouts.parse({}).unwrap()
    written = {"mesh": [4, 2], "axes": "data,model", "rules": {"batch": "data", "embed": None}}
    said = {"mesh": "4x2", "rules": "batch=data,embed="}
    assert layouts.from_json(written | {"batch": 16}) == layouts.parse(said | {"batch": "16"}).unwrap()


def test_axis_types_are_in_the_mesh_and_in_the_json_of_the_layout() -> None:
    layout = layouts.parse({"axes": "data:explicit,model"}).unwrap()
    assert [axis.type for axis in layout.mesh().axes] == ["explicit", "auto"]
    assert layout.explicit_axes == ("data",)
    assert layout.to_json()["axis_types"] == ["explicit", "auto"]
    assert "axis_types" not in layouts.parse({}).unwrap().to_json()
    assert layouts.to_query(layout) == {"axis_types": "explicit.auto"}


def test_another_mesh_keeps_the_types_of_axes_with_the_same_name() -> None:
    layout = layouts.parse({"axes": "data:explicit,model"}).unwrap()
    assert layout.on_mesh((8,), ("model",)).axis_types == ()
    assert layout.on_mesh((2, 2, 2), ("x", "model", "data")).explicit_axes == ("data",)


def test_each_process_has_an_equal_range_of_device_ids() -> None:
    mesh = layouts.parse({"mesh": "2x4", "processes": "4"}).unwrap().mesh()
    assert mesh.processes == (0, 0, 1, 1, 2, 2, 3, 3)
    assert mesh.devices == (0, 1, 2048, 2049, 4096, 4097, 6144, 6145)
    problems = layouts.parse({"mesh": "2x3", "processes": "4"}).problems
    assert problems == {"processes": "processes is 4, but must divide the 6 devices of mesh 2x3"}
    # A mesh that cannot be read is the only mistake there is.
    assert layouts.parse({"mesh": "2y4", "processes": "4"}).problems.keys() == {"mesh"}


@pytest.mark.parametrize(
    ("target", "shape"),
    [
        ("tpu:v5p:2x2x1", (2, 2)),
        ("tpu:v5p:2x2x2", (2, 4)),
        ("tpu:v5p-128", (8, 8)),
        ("tpu:v5p:16x20x28", (80, 112)),
        ("gpu:h100:8", (2, 4)),
        ("gpu:a100:1", (1, 1)),
        ("cpu", (2, 4)),
    ],
)
def test_the_default_mesh_of_a_target_has_all_its_devices(target: str, shape: tuple[int, ...]) -> None:
    layout = layouts.parse({"target": target}).unwrap()
    assert layout.mesh_shape == shape
    assert layout.machine is None or math.prod(shape) == layout.machine.devices
    assert set(layouts.to_query(layout)) <= {"target"}


@given(
    st.sampled_from(["tpu:v5p:4x4x8", "tpu:tpu7x:4x4x4", "gpu:b200:24", "tpu:v5e:1x1"]),
    st.integers(1, layouts.MOST_AXES),
)
def test_a_mesh_of_any_rank_has_all_devices_of_a_target(target: str, axes: int) -> None:
    shape = layouts.mesh_of(target, axes)
    large = shape[: layouts.LARGE_AXES]
    assert len(shape) == axes and list(large) == sorted(large)
    assert math.prod(large) == targets.parse(target).devices == math.prod(shape)


@given(
    st.sampled_from(["tpu:v5e:16x16*2", "tpu:v5e:2x2*64", "tpu:tpu7x:4x4x4*3"]),
    st.integers(1, layouts.MOST_AXES),
)
def test_the_first_axis_of_a_mesh_crosses_the_slices(target: str, axes: int) -> None:
    machine, shape = targets.parse(target), layouts.mesh_of(target, axes)
    assert len(shape) == axes and math.prod(shape) == machine.devices
    # The other axes fit in one slice.
    assert shape[0] % machine.slices == 0
    assert shape[0] == machine.slices or axes <= 2


def test_a_machine_is_not_run_by_processes() -> None:
    parsed = layouts.parse({"target": "gpu:h100:8", "processes": "2"})
    assert list(parsed.problems) == ["processes"]
    assert "must be 1" in parsed.problems["processes"]
