"""Orbax's `_sharding` file: one JSON object, from each array's key path in base64 to JSON text.

It says how arrays are sharded, but not how large they are. A file that was cut off is read as far as it is
whole, because the beginning of one is what people pass around.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from inspector.core import strict_json
from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import counted
from inspector.core.snapshot import Finding, Snapshot, Source
from inspector.layout.plan import now
from inspector.producers.readers import content, limits, orbax_leaves, saved_sharding
from inspector.producers.readers.imported_array import Room, Stored, placed
from inspector.producers.readers.saved_sharding import Meshes, SavedSharding

# One member of the object: two JSON strings, and what follows them.
_MEMBER = re.compile(
    r'\s*("(?:[^"\\\x00-\x1f]|\\.)*")\s*:\s*("(?:[^"\\\x00-\x1f]|\\.)*")\s*([,}])', re.S
)
SHAPES_UNKNOWN = "shapes-unknown"
CUT = "file-cut"


@dataclass(frozen=True)
class Entries:
    """The shardings of a file by dotted key path; `cut` says in a sentence where it ends too early."""

    by_key: dict[str, SavedSharding]
    cut: str | None = None


def read(path: str | os.PathLike[str], what: str) -> Snapshot:
    """A Snapshot whose arrays have no shapes and types, because the file has none.

    Raises:
      InvalidInput: it is no such file, or nothing of it is whole.
    """
    entries = read_entries(path, what)
    mesh = saved_sharding.common_mesh(one.mesh for one in entries.by_key.values())
    arrays, findings = [], []
    if entries.cut is not None:
        findings.append(Finding("warning", CUT, entries.cut))
    findings.append(
        Finding(
            "note",
            SHAPES_UNKNOWN,
            f"{what} says how {counted(len(entries.by_key), 'array')} are sharded, but neither their "
            "shapes nor their types, so that no bytes are known; the checkpoint that it belongs to "
            "has them.",
        )
    )
    paths = paths_of(entries.by_key)
    room = Room()
    for key, saved in entries.by_key.items():
        array, finding = placed(paths[key], Stored(), saved, mesh, room=room)
        arrays.append(array)
        if finding is not None:
            findings.append(finding)
    return Snapshot(
        source=Source("sharding", None, now(), extra={"file": what}),
        layout=None,
        mesh=mesh,
        arrays=tuple(arrays),
        findings=tuple(findings),
    )


def read_entries(path: str | os.PathLike[str], what: str) -> Entries:
    """Every entry of a `_sharding` file.

    Raises:
      InvalidInput: it is no such file, or nothing of it is whole.
    """
    raw = content.read_bytes(path, limits.MOST_JSON_BYTES, what)
    if raw.startswith(content.GZIP):
        raise InvalidInput(
            f"{what} is a gzip file, but must be the _sharding file as Orbax wrote it"
        )
    try:
        plain = content.parse_json(raw, what)
    except InvalidInput as refused:
        return _whole_part(content.decode(raw, what, cut=True), len(raw), what, refused)
    if not isinstance(plain, dict) or not plain:
        raise InvalidInput(
            f"{what} is {shown(plain)}, but must be an object with an entry an array"
        )
    if isinstance(plain.get("format"), str):
        raise InvalidInput(f"{what} is a {shown(plain['format'])} file, not Orbax's _sharding")
    _refuse_many(len(plain), what)
    meshes = Meshes()
    return Entries(
        {_key(key, what): _entry(key, value, what, meshes) for key, value in plain.items()}
    )


def paths_of(keys: Iterable[str]) -> dict[str, str]:
    """Dotted key paths as paths, every point taken for the end of a key."""
    return orbax_leaves.paths_of({key: key.split(".") for key in keys})


def _whole_part(text: str, size: int, what: str, refused: InvalidInput) -> Entries:
    """The entries before the place where a file was cut off; refused where it is damaged otherwise."""
    start = re.match(r"\s*\{", text)
    if start is None:
        raise refused
    found: dict[str, SavedSharding] = {}
    meshes = Meshes()
    at = start.end()
    while member := _MEMBER.match(text, at):
        key, value = (strict_json.parse(member[place], what) for place in (1, 2))
        name = _key(key, what)
        if name in found:
            raise InvalidInput(f"{what} has the key {shown(name)} twice in one object")
        found[name] = _entry(key, value, what, meshes)
        _refuse_many(len(found), what)
        at = member.end()
        if member[3] == "}":
            raise refused  # something follows that is not part of the object
    rest = text[at:]
    # What is left of a cut file is the beginning of one member, not something else.
    if not re.fullmatch(
        r'\s*(?:"(?:[^"\\\x00-\x1f]|\\.)*(?:\\|"\s*(?::\s*(?:"(?:[^"\\\x00-\x1f]|\\.)*(?:\\|"\s*)?)?)?)?)?',
        rest,
        re.S,
    ):
        raise refused
    if not found:
        raise InvalidInput(f"{what} ends after {size:,} bytes, inside its first entry")
    cut = (
        f"{what} was cut off after {size:,} bytes: {counted(len(found), 'array')} of it are whole, "
        "and how many there were is not known."
    )
    return Entries(found, cut)


def _key(key: str, what: str) -> str:
    """The key path behind the base64.

    Raises:
      InvalidInput: it is no base64 of text.
    """
    try:
        decoded = base64.b64decode(key.encode("ascii"), altchars=b"-_", validate=True)
        name = decoded.decode("utf-8")
    except (binascii.Error, ValueError):
        raise InvalidInput(
            f"{what} has the key {shown(key)}, which is no base64 of a key path, as in Orbax's _sharding"
        ) from None
    return name


def _entry(key: str, value: object, what: str, meshes: Meshes) -> SavedSharding:
    if not isinstance(value, str):
        raise InvalidInput(
            f"{what} has {shown(value)} at {shown(_key(key, what))}, but must have JSON as text"
        )
    where = f"{what} at {shown(_key(key, what))}"
    try:
        return saved_sharding.read_text(value, where, meshes)
    except InvalidInput as refused:
        return SavedSharding(problem=f"a sharding that cannot be read: {refused}")


def _refuse_many(count: int, what: str) -> None:
    if count > limits.MOST_ARRAYS:
        raise InvalidInput(
            f"{what} has more than {limits.MOST_ARRAYS:,} arrays, which are all it may have"
        )
