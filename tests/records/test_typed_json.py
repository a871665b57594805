"""Tests of typed_json: decoding, encoding, unknown keys, and errors."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.records import typed_json
from inspector.records.typed_json import OMIT_NONE, FiniteFloat, NonNegativeInt, Record
from inspector.text.errors import InvalidInput
from tests.paths import ROOT


@dataclass(frozen=True)
class Wheel(Record):
    inches: NonNegativeInt
    brand: str | None = None
    tread: FiniteFloat | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class Car(Record):
    name: str
    weight: FiniteFloat
    electric: bool
    colour: Literal["red", "blue"]
    wheels: tuple[Wheel, ...]
    from_: tuple[FiniteFloat, FiniteFloat] | None = field(default=None, metadata={"key": "from"})
    owners: tuple[str | None, ...] = ()
    prices: dict[str, tuple[NonNegativeInt, ...]] = field(default_factory=dict)
    notes: Any = None
    spare: Wheel | None = None


CAR = {
    "name": "a",
    "weight": 1.5,
    "electric": True,
    "colour": "red",
    "wheels": [{"inches": 17}, {"inches": 18, "brand": "b", "worn": [1, {"x": None}]}],
    "from": [1.0, 2.0],
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
FIELDS = {key for kind in (Car, Wheel) for _, key, _ in typed_json.fields(kind)}
extras = st.dictionaries(st.text().filter(lambda key: key not in FIELDS), plain, max_size=2)
naturals = st.integers(0, typed_json.LARGEST)
numbers = st.floats(allow_nan=False, allow_infinity=False)
wheels = st.builds(Wheel, naturals, st.none() | st.text(), st.none() | numbers, extra=extras)
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
    extra=extras,
)


@given(cars)
def test_decode_inverts_encode(car: Car) -> None:
    assert typed_json.decode(Car, json.loads(json.dumps(typed_json.encode(car)))) == car


@dataclass(frozen=True)
class Mixed:
    """A dataclass that is no record, with fields of several types."""

    one: int | str | None
    several: tuple[int | Wheel | None, ...]
    by_name: dict[str, tuple[Wheel, ...]]


def test_fields_of_several_types_are_encoded_by_their_values() -> None:
    wheel = Wheel(3, "round")
    mixed = Mixed("text", (1, None, wheel), {"front": (wheel, wheel)})
    plain = typed_json.encode(wheel)
    assert typed_json.encode(mixed) == {
        "one": "text", "several": [1, None, plain], "by_name": {"front": [plain, plain]},
    }  # fmt: skip


def test_unknown_keys_are_kept_at_every_level() -> None:
    read = typed_json.decode(Car, CAR)
    assert read.extra == {"later": {"deep": [1.5, None]}}
    assert read.wheels[1].extra == {"worn": [1, {"x": None}]}
    filled = CAR | {
        "wheels": [{"inches": 17, "brand": None}, CAR["wheels"][1]],
        "spare": {"inches": 0, "brand": None},
    }
    assert typed_json.encode(read) == filled


def test_an_unknown_key_named_extra_is_kept_as_any_other() -> None:
    value = {"inches": 1, "brand": None, "extra": {"a": 1}}
    assert typed_json.encode(typed_json.decode(Wheel, value)) == value


def test_a_field_that_is_none_can_be_left_out() -> None:
    assert "tread" not in typed_json.encode(Wheel(1))
    assert typed_json.encode(Wheel(1, tread=2.0))["tread"] == 2.0


def test_an_integer_is_accepted_for_a_float() -> None:
    weight = typed_json.decode(Car, CAR | {"weight": 3}).weight
    assert weight == 3.0 and type(weight) is float


def test_missing_keys_have_their_defaults() -> None:
    needed = {key: CAR[key] for key in ("name", "weight", "electric", "colour", "wheels")}
    assert typed_json.decode(Car, needed) == Car("a", 1.5, True, "red", typed_json.decode(Car, CAR).wheels)


@pytest.mark.parametrize(
    ("change", "where", "words"),
    [
        ({"name": 1}, "name", ["1", "a string"]),
        ({"name": None}, "name", ["null", "a string"]),
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
        ({"wheels": [{"inches": 1, "brand": 2}]}, "wheels[0].brand", ["2", "a string"]),
        ({"from": [1.0]}, "from", ["a list of 1", "a list of 2"]),
        ({"from": [1.0, None]}, "from[1]", ["null", "number"]),
        ({"from": {}}, "from", ["an object of 0", "a list of 2"]),
        ({"owners": ["a", 2]}, "owners[1]", ["2", "a string"]),
        ({"prices": []}, "prices", ["a list of 0", "an object"]),
        ({"prices": {"a\nb": [1, "x"]}}, "prices.'a\\nb'[1]", ["'x'", "integer"]),
        ({"prices": {"eur": [1, -1]}}, "prices.'eur'[1]", ["-1", "from 0"]),
        ({"prices": {"eur": [1, 2**63]}}, "prices.'eur'[1]", [str(2**63), "2^63 - 1"]),
        ({"spare": {"inches": "17"}}, "spare.inches", ["'17'", "integer"]),
        ({"name": [0] * 9}, "name", ["a list of 9", "a string"]),
    ],
    ids=lambda part: repr(part)[:40] if not isinstance(part, dict) else "",
)
def test_an_error_names_path_value_and_allowed_values(
    change: dict[str, Any], where: str, words: list[str]
) -> None:
    for prefix, path in (("", where), ("the_car", f"the_car.{where}")):
        with pytest.raises(InvalidInput) as refused:
            typed_json.decode(Car, CAR | change, prefix)
        sentence = str(refused.value)
        assert sentence.startswith(f"{path} ")
        assert all(word in sentence for word in words)
        assert "\n" not in sentence and len(sentence) < 300


@pytest.mark.parametrize("key", ["name", "weight", "electric", "colour", "wheels"])
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{key} is missing$"):
        typed_json.decode(Car, {name: value for name, value in CAR.items() if name != key})


@pytest.mark.parametrize("value", [None, [], "x", 1, True])
def test_a_value_that_is_no_object_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="must be an object"):
        typed_json.decode(Car, value)


@given(st.dictionaries(st.sampled_from([*CAR, "x"]), plain, max_size=4), st.sampled_from([Car, Wheel]))
def test_any_value_is_decoded_or_refused(change: dict[str, Any], kind: type) -> None:
    value = (CAR if kind is Car else {"inches": 1}) | change
    try:
        read = typed_json.decode(kind, value)
    except InvalidInput:
        return
    written = typed_json.encode(read)
    assert all(written[key] == kept for key, kept in value.items() if key not in FIELDS)
    assert typed_json.decode(kind, json.loads(json.dumps(written))) == read


_DECODE_IN_THREADS = """
import sys, threading
from inspector.records import snapshot, typed_json
plain = typed_json.encode(snapshot.Snapshot(snapshot.Source("plan", None, "2026-01-01"), None, None, ()))
sys.setswitchinterval(1e-7)
barrier, read = threading.Barrier(4), []
def decode():
    barrier.wait()
    read.append(typed_json.decode(snapshot.Snapshot, plain))
threads = [threading.Thread(target=decode) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(read) == 4 and all(typed_json.encode(one) == plain for one in read)
"""


def test_threads_can_decode_the_first_value_of_a_type_together() -> None:
    """A new process, because msgspec builds its description of a type once, and a crash ends the process."""
    subprocess.run([sys.executable, "-c", _DECODE_IN_THREADS], check=True, cwd=ROOT)
