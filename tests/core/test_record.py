"""Records are read from JSON exactly, written back, and refused by the path of what is wrong."""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inspector.core import record
from inspector.core.errors import InvalidInput


@dataclass(frozen=True)
class Wheel:
    inches: int
    brand: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Car:
    name: str
    weight: float
    electric: bool
    colour: Literal["red", "blue"]
    wheels: tuple[Wheel, ...]
    range_: tuple[float, float] | None = None
    owners: tuple[str | None, ...] = ()
    prices: dict[str, tuple[int, ...]] = field(default_factory=dict)
    notes: Any = None
    spare: Wheel | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Strict:
    """A record that keeps no unknown keys."""

    n: int


CAR = {
    "name": "a",
    "weight": 1.5,
    "electric": True,
    "colour": "red",
    "wheels": [{"inches": 17}, {"inches": 18, "brand": "b", "worn": [1, {"x": None}]}],
    "range_": [1.0, 2.0],
    "owners": ["o", None],
    "prices": {"eur": [1, 2]},
    "notes": {"any": [1, "thing"]},
    "spare": {"inches": 0},
    "later": {"deep": [1.5, None]},
}

plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=5,
)
FIELDS = {known.name for kind in (Car, Wheel) for known in dataclasses.fields(kind)}
extras = st.dictionaries(st.text().filter(lambda key: key not in FIELDS), plain, max_size=2)
naturals = st.integers(0, record.LARGEST)
numbers = st.floats(allow_nan=False, allow_infinity=False)
wheels = st.builds(Wheel, naturals, st.none() | st.text(), extras)
cars = st.builds(
    Car,
    st.text(),
    numbers,
    st.booleans(),
    st.sampled_from(("red", "blue")),
    st.lists(wheels, max_size=3).map(tuple),
    st.none() | st.tuples(numbers, numbers),
    st.lists(st.none() | st.text(), max_size=3).map(tuple),
    st.dictionaries(st.text(), st.lists(naturals, max_size=3).map(tuple), max_size=2),
    plain,
    st.none() | wheels,
    extras,
)


@given(cars)
def test_a_record_survives_json(car: Car) -> None:
    assert record.decode(Car, json.loads(json.dumps(record.encode(car)))) == car


def test_json_survives_a_record_with_keys_that_it_does_not_know() -> None:
    read = record.decode(Car, CAR)
    assert read.extra == {"later": {"deep": [1.5, None]}}
    assert read.wheels[1].extra == {"worn": [1, {"x": None}]}
    filled = CAR | {
        "wheels": [{"inches": 17, "brand": None}, CAR["wheels"][1]],
        "spare": {"inches": 0, "brand": None},
    }
    assert record.encode(read) == filled


def test_an_unknown_key_named_extra_is_kept_as_any_other() -> None:
    value = {"inches": 1, "brand": None, "extra": {"a": 1}}
    assert record.encode(record.decode(Wheel, value)) == value


def test_a_record_without_extra_drops_what_it_does_not_know() -> None:
    assert record.decode(Strict, {"n": 1, "m": 2}) == Strict(1)


def test_a_whole_number_is_a_float_where_a_float_is_asked() -> None:
    weight = record.decode(Car, CAR | {"weight": 3}).weight
    assert weight == 3.0 and type(weight) is float


def test_missing_keys_have_their_defaults() -> None:
    needed = {key: CAR[key] for key in ("name", "weight", "electric", "colour", "wheels")}
    assert record.decode(Car, needed) == Car("a", 1.5, True, "red", record.decode(Car, CAR).wheels)


def deep(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


@pytest.mark.parametrize(
    ("change", "where", "words"),
    [
        ({"name": 1}, "name", ["1", "text"]),
        ({"name": None}, "name", ["null", "text"]),
        ({"weight": "1"}, "weight", ["'1'", "number"]),
        ({"weight": True}, "weight", ["true", "number"]),
        ({"weight": float("nan")}, "weight", ["NaN", "finite"]),
        ({"weight": float("-inf")}, "weight", ["-Infinity", "finite"]),
        ({"weight": 10**400}, "weight", ["1000", "finite"]),
        ({"electric": 1}, "electric", ["1", "true or false"]),
        ({"colour": "green"}, "colour", ["'green'", "red, blue"]),
        ({"colour": ["red"]}, "colour", ["a list of 1", "red, blue"]),
        ({"wheels": {}}, "wheels", ["an object of 0", "a list"]),
        ({"wheels": "ab"}, "wheels", ["'ab'", "a list"]),
        ({"wheels": [{"inches": 1}, 2]}, "wheels[1]", ["2", "an object"]),
        ({"wheels": [{}]}, "wheels[0].inches", ["missing"]),
        ({"wheels": [{"inches": -1}]}, "wheels[0].inches", ["-1", "from 0"]),
        ({"wheels": [{"inches": 1.0}]}, "wheels[0].inches", ["1.0", "integer"]),
        ({"wheels": [{"inches": True}]}, "wheels[0].inches", ["true", "integer"]),
        ({"wheels": [{"inches": 2**63}]}, "wheels[0].inches", [str(2**63), "2^63 - 1"]),
        ({"wheels": [{"inches": 1, "brand": 2}]}, "wheels[0].brand", ["2", "text"]),
        ({"wheels": [{"inches": 1, "x\ny": deep(70)}]}, "wheels[0].'x\\ny'", ["too deep"]),
        ({"range_": [1.0]}, "range_", ["a list of 1", "a list of 2"]),
        ({"range_": [1.0, None]}, "range_[1]", ["null", "number"]),
        ({"range_": {}}, "range_", ["an object of 0", "a list of 2"]),
        ({"owners": ["a", 2]}, "owners[1]", ["2", "text"]),
        ({"prices": []}, "prices", ["a list of 0", "an object"]),
        ({"prices": {"a\nb": [1, "x"]}}, "prices.'a\\nb'[1]", ["'x'", "integer"]),
        ({"prices": {"eur": [1, -1]}}, "prices.'eur'[1]", ["-1", "from 0"]),
        ({"prices": {"eur": [1, 2**63]}}, "prices.'eur'[1]", [str(2**63), "2^63 - 1"]),
        ({"notes": deep(70)}, "notes", ["too deep"]),
        ({"later": deep(100_000)}, "'later'", ["too deep"]),
        ({"spare": {"inches": "17"}}, "spare.inches", ["'17'", "integer"]),
        ({"name": [0] * 9}, "name", ["a list of 9", "text"]),
    ],
    ids=lambda part: repr(part)[:40] if not isinstance(part, dict) else "",
)
def test_what_is_wrong_is_named_by_its_path(
    change: dict[str, Any], where: str, words: list[str]
) -> None:
    for prefix, path in (("", where), ("the_car", f"the_car.{where}")):
        with pytest.raises(InvalidInput) as refused:
            record.decode(Car, CAR | change, prefix)
        sentence = str(refused.value)
        assert sentence.startswith(f"{path} ")
        assert all(word in sentence for word in words)
        assert "\n" not in sentence and len(sentence) < 300


@pytest.mark.parametrize("key", ["name", "weight", "electric", "colour", "wheels"])
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{key} is missing$"):
        record.decode(Car, {name: value for name, value in CAR.items() if name != key})


@pytest.mark.parametrize("value", [None, [], "x", 1, True])
def test_what_is_no_object_is_no_record(value: Any) -> None:
    with pytest.raises(InvalidInput, match="must be an object"):
        record.decode(Car, value)


def test_what_is_read_can_be_written_however_deep_it_is() -> None:
    """The limit on depth lies within Python's own on recursion, with room for the caller's frames."""
    for levels in range(1, 80):
        try:
            read = record.decode(Car, CAR | {"notes": deep(levels)})
        except InvalidInput:
            assert levels > record.DEEPEST
        else:
            assert levels <= record.DEEPEST
            assert json.loads(json.dumps(record.encode(read)))["notes"] == deep(levels)
    assert sys.getrecursionlimit() > 10 * record.DEEPEST


@settings(max_examples=120)
@given(
    st.dictionaries(st.sampled_from([*CAR, "x"]), plain, max_size=4), st.sampled_from([Car, Wheel])
)
def test_any_value_is_read_or_refused(change: dict[str, Any], kind: type) -> None:
    value = (CAR if kind is Car else {"inches": 1}) | change
    try:
        read = record.decode(kind, value)
    except InvalidInput:
        return
    written = record.encode(read)
    assert all(written[key] == kept for key, kept in value.items() if key not in FIELDS)
    assert record.decode(kind, json.loads(json.dumps(written))) == read


def test_a_type_that_json_does_not_have_is_a_mistake_of_the_programmer() -> None:
    @dataclass(frozen=True)
    class Wrong:
        n: complex

    Wrong.__annotations__["n"] = complex
    with pytest.raises(TypeError, match="cannot hold"):
        record.decode(Wrong, {"n": 1})
