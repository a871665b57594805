"""Read Orbax's `_sharding` file: a JSON object from base64 key paths to JSON text.

The file has specs and meshes, but no shapes. A file that was cut off is read up to its last complete entry.
"""

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from inspector.files import strict_json
from inspector.readers import content, imported_array, limits, orbax_folder
from inspector.readers.content import Report, Sample, no_report
from inspector.readers.imported_array import ImportedArrays, Meshes, SavedSharding, Stored
from inspector.readers.orbax_folder import SHARDING
from inspector.records.snapshot import Finding, Snapshot
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import counted

_BASE64 = re.compile(r"[\w\-]{4,}={0,2}")
# One member of the object: two JSON strings, and the character after them.
_MEMBER = re.compile(r'\s*("(?:[^"\\\x00-\x1f]|\\.)*")\s*:\s*("(?:[^"\\\x00-\x1f]|\\.)*")\s*([,}])', re.S)
# The beginning of a member, as at the end of a file that was cut off.
_CUT_MEMBER = re.compile(
    r'\s*(?:"(?:[^"\\\x00-\x1f]|\\.)*(?:\\|"\s*(?::\s*(?:"(?:[^"\\\x00-\x1f]|\\.)*(?:\\|"\s*)?)?)?)?)?',
    re.S,
)
SHAPES_UNKNOWN = "shapes-unknown"
CUT = "file-cut"


@dataclass(frozen=True)
class Entries:
    """The shardings of a file by dotted key path. `cut` is a sentence if the file was cut off."""

    by_key: dict[str, SavedSharding]
    cut: str | None = None


def recognizes(sample: Sample) -> bool:
    """Return whether the first member of a JSON object looks like an entry of a `_sharding` file."""
    key, value = sample.first_key()
    return bool(_BASE64.fullmatch(key) and value == '"' and "sharding_type" in (sample.head or ""))


def read(path: Path, what: str, step: int | None = None, report: Report = no_report) -> Snapshot:
    """Return a Snapshot whose arrays have shardings, but no shapes and dtypes."""
    if path.is_dir():
        own = path / SHARDING
        path = own if own.is_file() else content.only_file(path, what)
    entries = read_entries(path, what)
    arrays = ImportedArrays(entries.by_key.values())
    if entries.cut is not None:
        arrays.findings.append(Finding("warning", CUT, entries.cut))
    note = (
        f"{what} has the sharding of {counted(len(entries.by_key), 'array')}, but no shapes and no "
        "types, so bytes are unknown. Import the whole checkpoint to see them."
    )
    arrays.findings.append(Finding("note", SHAPES_UNKNOWN, note))
    paths = paths_of(entries.by_key)
    for key, saved in entries.by_key.items():
        arrays.add(paths[key], Stored(), saved)
    return arrays.snapshot("sharding", what)


def read_entries(path: Path, what: str) -> Entries:
    """Return every entry of a `_sharding` file; raise InvalidInput for another file."""
    raw = content.read_bytes(path, limits.MOST_JSON_BYTES, what)
    if raw.startswith(content.GZIP):
        raise InvalidInput(f"{what} is a gzip file, but must be the plain _sharding file of Orbax")
    try:
        plain = content.parse_json(raw, what)
    except InvalidInput as refused:
        return _complete_part(content.decode(raw, what, cut=True), len(raw), what, refused)
    members = content.array_entries(plain, what, "Orbax's _sharding")
    meshes = Meshes()
    return Entries(dict(_entry(key, value, what, meshes) for key, value in members.items()))


def paths_of(keys: Iterable[str]) -> dict[str, str]:
    """Return the path of each dotted key path. Every dot separates two keys."""
    return orbax_folder.paths_of({key: key.split(".") for key in keys})


def _complete_part(text: str, size: int, what: str, refused: InvalidInput) -> Entries:
    """Return the entries before the point at which a file was cut off. Raise `refused` for other damage."""
    start = re.match(r"\s*\{", text)
    if start is None:
        raise refused
    shardings: dict[str, SavedSharding] = {}
    meshes = Meshes()
    at = start.end()
    while member := _MEMBER.match(text, at):
        key, value = (strict_json.parse(member[place], what) for place in (1, 2))
        name, saved = _entry(key, value, what, meshes)
        if name in shardings:
            raise InvalidInput(f"{what} has the key {shown(name)} twice in one object")
        shardings[name] = saved
        content.refuse_many_arrays(len(shardings), what)
        at = member.end()
        if member[3] == "}":
            raise refused  # the object is complete, so something wrong follows it
    if not _CUT_MEMBER.fullmatch(text[at:]):
        raise refused
    if not shardings:
        raise InvalidInput(f"{what} ends after {size:,} bytes, inside its first entry")
    cut = (
        f"{what} was cut off after {size:,} bytes: {counted(len(shardings), 'array')} could be read, and "
        "the number of missing arrays is unknown."
    )
    return Entries(shardings, cut)


def _entry(key: str, value: object, what: str, meshes: Meshes) -> tuple[str, SavedSharding]:
    """Return the key path that base64 encodes, and its sharding."""
    try:
        path = base64.b64decode(key.encode("ascii"), altchars=b"-_", validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        raise InvalidInput(
            f"{what} has the key {shown(key)}, but must have base64 of key paths, as Orbax's _sharding"
        ) from None
    where = f"{what} at {shown(path)}"
    if not isinstance(value, str):
        raise InvalidInput(f"{where} has {shown(value)}, but must have JSON as text")
    try:
        return path, imported_array.read_text(value, where, meshes)
    except InvalidInput as refused:
        return path, SavedSharding(problem=f"a sharding that cannot be read: {refused}")
