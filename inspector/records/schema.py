"""Generate the JSON Schema of Snapshot files: `python -m inspector.records.schema` writes it.

The types come from the records, and the descriptions from their docstrings: each docstring has a section
`Attributes:` with an entry for each field.
"""

import inspect
import json
import re
import sys
import typing
from collections.abc import Iterator
from typing import Any

import msgspec

from inspector.files import output
from inspector.records import snapshot
from inspector.records.typed_json import Record, fields, hints


def schema(kind: type[Record], title: str, format_name: str, version: int) -> dict[str, Any]:
    """Return the JSON Schema of a file that contains a record of type `kind`."""
    _, definitions = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    for record in set(_records(kind)):
        definition = definitions[record.__name__]
        definition["description"], descriptions = _descriptions(record)
        definition["properties"] = {
            key: _property(definition["properties"][name], descriptions.get(name, ""))
            for name, key, _ in fields(record)
        }
        renamed = {name: key for name, key, _ in fields(record)}
        definition["required"] = [renamed[name] for name in definition["required"]]
        del definition["title"]
    top = definitions.pop(kind.__name__)
    top["properties"] = {
        "format": {"description": "The kind of file.", "const": format_name},
        "version": {
            "description": "The version of the format. It changes if a key changes its meaning, not if a "
            "key is added.",
            "type": "integer",
            "const": version,
        },
        **top["properties"],
    }
    top["required"] = ["format", "version", *top["required"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **top,
        "$defs": dict(sorted(definitions.items())),
    }


def snapshot_schema_text() -> str:
    """Return the text of `snapshot.schema.json`."""
    plain = schema(snapshot.Snapshot, "Sharding Snapshot, version 1", snapshot.FORMAT, snapshot.VERSION)
    return json.dumps(plain, ensure_ascii=False, indent=1) + "\n"


def _records(kind: Any) -> Iterator[type[Record]]:
    """Yield `kind` and every record inside it."""
    if isinstance(kind, type) and issubclass(kind, Record):
        yield kind
        inside = [hints(kind)[name] for name, _, _ in fields(kind)]
    else:
        inside = list(typing.get_args(kind))
    for part in inside:
        yield from _records(part)


def _descriptions(kind: type[Record]) -> tuple[str, dict[str, str]]:
    """Return the description of a record, and that of each field by name."""
    text, _, attributes = (inspect.getdoc(kind) or "").partition("\n\nAttributes:\n")
    entries = re.findall(r"^  (\w+): (.*(?:\n    .*)*)", attributes, re.MULTILINE)
    return _json_words(text), {name: _json_words(entry) for name, entry in entries}


def _json_words(text: str) -> str:
    return re.sub(r"\bNone\b", "null", " ".join(text.split()))


def _property(definition: dict[str, Any], description: str) -> dict[str, Any]:
    nullable = {"type": "null"} in definition.get("anyOf", [])
    if nullable and "null" not in description:
        description += " null if unknown."
    if definition.get("default", ()) is None:
        del definition["default"]
    plain: dict[str, Any] = _without_float_bounds(definition)
    return {"description": description} | plain


def _without_float_bounds(definition: Any) -> Any:
    """Remove the bounds of finite numbers: JSON has no infinite ones."""
    if isinstance(definition, list):
        return [_without_float_bounds(part) for part in definition]
    if not isinstance(definition, dict):
        return definition
    bounds = ("minimum", "maximum") if definition.get("type") == "number" else ()
    return {
        key: _without_float_bounds(part)
        for key, part in definition.items()
        if key not in bounds or abs(part) < sys.float_info.max
    }


if __name__ == "__main__":
    output.write_text(snapshot_schema_text(), snapshot.SCHEMA_PATH)
