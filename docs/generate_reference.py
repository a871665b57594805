"""Write the reference pages that are made from the code: `python -m docs.generate_reference`.

The command line comes from its argument parsers, the Snapshot from its JSON Schema, the models from their
catalogue. `tests/docs` fails when a page is stale.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from inspector.media.terminal import VERBS
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.records import snapshot

FOLDER = Path(__file__).parent / "reference"
_NOTE = "<!-- Written by docs/generate_reference.py. Do not edit. -->\n"


def pages() -> dict[str, str]:
    """Return every generated page by its file name."""
    return {
        "command-line.md": command_line(),
        "snapshot.md": snapshot_format(),
        "models.md": models(),
    }


def command_line() -> str:
    """Return the page about the verbs and their options."""
    os.environ["COLUMNS"] = "88"  # argparse wraps its text to the terminal
    parts = [
        "# Command line\n",
        _NOTE,
        "`sharding-inspector VERB …` and `python -m inspector VERB …` are the same. "
        "Data goes to `-o` or standard output, progress to standard error.\n",
        "The exit status is 0 for success, 1 if `check` found a violation or a change or `same` a "
        "difference, and 2 for input that cannot be used, with one line on standard error.\n",
        "A rule to several mesh axes is `embed=fsdp+tensor`, to none `embed=`.\n",
    ]
    for verb in VERBS:
        parser = argparse.ArgumentParser(prog=f"sharding-inspector {verb.name}", description=verb.help)
        verb.add_arguments(parser)
        parts.append(f"## {verb.name}\n\n```text\n{parser.format_help().rstrip()}\n```\n")
    return "\n".join(parts)


def snapshot_format() -> str:
    """Return the page about the Snapshot's JSON."""
    schema = json.loads(snapshot.SCHEMA_PATH.read_text(encoding="utf-8"))
    parts = [
        "# Snapshot\n",
        _NOTE,
        "A Snapshot is one JSON file that records a mesh, arrays and programs. Bytes are integers, times "
        "are seconds, and null means unknown. Unknown keys are kept. Its JSON Schema is "
        "[`inspector/records/snapshot.schema.json`](../../inspector/records/snapshot.schema.json).\n",
        "## Snapshot\n",
        _fields(schema),
    ]
    for name, record in schema["$defs"].items():
        if "properties" in record:
            description = record.get("description")
            parts += [
                f"## {name}\n",
                *([f"{description}\n"] if description else []),
                _fields(record),
            ]
    return "\n".join(parts)


def _fields(record: Mapping[str, Any]) -> str:
    required = record.get("required", ())
    rows = [
        (
            f"`{name}`",
            _type(field),
            "yes" if name in required else "no",
            field.get("description", ""),
        )
        for name, field in record["properties"].items()
    ]
    return _table(("key", "type", "required", "meaning"), rows)


def _type(field: Mapping[str, Any]) -> str:
    """Return the type of a JSON Schema in words."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    if "enum" in field:
        return ", ".join(f"`{json.dumps(value)}`" for value in field["enum"])
    for key in ("anyOf", "oneOf"):
        if key in field:
            return " or ".join(dict.fromkeys(_type(each) for each in field[key]))
    kind = field.get("type", "any")
    if kind == "array":
        items = field.get("items")
        return f"list of {_type(items)}" if isinstance(items, dict) and items else "list"
    return " or ".join(kind) if isinstance(kind, list) else kind


def models() -> str:
    """Return the page about the models and their sizes."""
    parts = [
        "# Models\n",
        _NOTE,
        "Choose a model with `--model`, a size with `--set NAME=VALUE`, and the sizes of a published model "
        "with `--sizes`. A scanned model compiles faster and has one stacked array per parameter; a "
        "Python loop has one array per block.\n",
    ]
    for entry in CATALOGUE.values():
        parts.append(f"## {entry.name}\n\n{entry.title}.\n")
        if entry.presets:
            names = ", ".join(f"`{preset.name}`" for preset in entry.presets)
            parts.append(f"Published sizes: {names}.\n")
        axes = [(f"`{name}`", meaning) for name, meaning in entry.logical_axes.items()]
        parts.append(_table(("logical axis", "meaning"), axes))
        sizes = [(f"`{size.name}`", json.dumps(size.default), size.meaning) for size in entry.sizes]
        parts.append(_table(("size", "default", "meaning"), sizes))
    return "\n".join(parts)


def _table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = [*headings]
    lines = [head, ["---"] * len(head), *rows]
    return "".join(
        f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in line)} |\n"
        for line in lines
    )


def main(arguments: Sequence[str]) -> int:
    """Write all pages, or with `--check` only compare them; return the exit status."""
    written = {name: FOLDER / name for name in pages()}
    if "--check" in arguments:
        stale = [
            str(path.name)
            for name, path in written.items()
            if not path.is_file() or path.read_text(encoding="utf-8") != pages()[name]
        ]
        if stale:
            print(
                f"stale: {', '.join(stale)}; run `python -m docs.generate_reference`",
                file=sys.stderr,
            )
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    for name, path in written.items():
        path.write_text(pages()[name], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
