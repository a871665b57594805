"""Tests of the JSON Schema of Snapshot files."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from inspector.records import schema, snapshot, typed_json

SCHEMA = json.loads(snapshot.SCHEMA_PATH.read_text(encoding="utf-8"))
OBJECTS = {"Snapshot": SCHEMA} | SCHEMA["$defs"]


def test_the_file_is_up_to_date() -> None:
    """If this fails, run `python -m inspector.records.schema`."""
    assert snapshot.SCHEMA_PATH.read_text(encoding="utf-8") == schema.snapshot_schema_text()


def test_the_schema_is_valid() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", OBJECTS)
def test_the_schema_has_every_key_of_the_record(name: str) -> None:
    keys = [key for _, key, _ in typed_json.fields(getattr(snapshot, name))]
    head = ["format", "version"] if name == "Snapshot" else []
    assert list(OBJECTS[name]["properties"]) == [*head, *keys]
    assert OBJECTS[name]["type"] == "object"
    assert set(OBJECTS[name]["required"]) <= {*head, *keys}
    assert "additionalProperties" not in OBJECTS[name]  # unknown keys are allowed and kept


def test_a_required_key_and_a_python_keyword_as_a_key() -> None:
    assert OBJECTS["Origin"]["required"] == ["mesh_axis", "from"]
    assert SCHEMA["required"] == ["format", "version", "source", "layout", "mesh", "arrays"]


def test_every_key_is_described_and_every_amount_has_its_unit() -> None:
    units = {"byte", "second", "number of", "elements", "which copy", "id of", "index of"}
    units |= {"how often", "device ids", "floating-point operations", "version of"}
    units |= {
        "clock cycles",
        "position",
        "range",
        "process",
        "without a unit",
        "sender",
        "each device as its index",
    }
    for part in OBJECTS.values():
        assert part["description"]
        for name, value in part["properties"].items():
            description = value.get("description", "")
            assert len(description) > 10 and description.endswith((".", "…")), name
            form = json.dumps({key: item for key, item in value.items() if key != "description"})
            if '"integer"' in form or '"number"' in form:
                assert any(unit in description.lower() for unit in units), (name, description)
            if '"null"' in form:
                assert "null" in description, (name, description)


def test_integers_have_the_bounds_of_the_reader() -> None:
    def integers(part: Any) -> list[dict[str, Any]]:
        if isinstance(part, list):
            return [integer for item in part for integer in integers(item)]
        if not isinstance(part, dict):
            return []
        own = [part] if part.get("type") == "integer" and "const" not in part else []
        return own + [integer for item in part.values() for integer in integers(item)]

    bounds = {(integer["minimum"], integer["maximum"]) for integer in integers(SCHEMA)}
    assert bounds == {(0, typed_json.LARGEST), (1, typed_json.LARGEST)}
