"""What kind of file somebody gave, by its content first and its name second."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, get_args

from inspector.core import snapshot
from inspector.core.errors import InvalidInput, shown
from inspector.producers.readers import content, limits, maxtext, orbax_folder

ImportKind = Literal["orbax", "sharding", "maxtext", "hlo"]
FileKind = Literal["snapshot", "orbax", "sharding", "maxtext", "hlo"]
IMPORT_KINDS: tuple[ImportKind, ...] = get_args(ImportKind)

_BOARD = "sharding-board"
_HEAD = 4096  # bytes; enough for the first key of a JSON file
_FORMAT = re.compile(r'\s*\{\s*"format"\s*:\s*"([^"]{1,60})"')
_FIRST_KEY = re.compile(r'\s*\{\s*"((?:[^"\\]|\\.)*)"\s*:\s*(.?)', re.S)
_BASE64 = re.compile(r"[\w\-]{4,}={0,2}")
_CHECKPOINT_FILES = frozenset(
    {
        *(orbax_folder.TREE, orbax_folder.OCDBT, orbax_folder.STEP, orbax_folder.SHARDING),
        *(".zarray", "zarr.json"),
    }
)


def kind_of(path: Path, what: str) -> FileKind:
    """The kind of a file or, unpacked, of a folder.

    Raises:
      InvalidInput: it is none that can be read; the sentence says what it is instead, where that is known.
    """
    return _of_folder(path, what) if path.is_dir() else _of_file(path, what)


def _of_folder(path: Path, what: str) -> FileKind:
    files = content.files_below(path, what)
    names = {one.name for one in files}
    if maxtext.NAMED in names:
        return "maxtext"
    if names & _CHECKPOINT_FILES and names != {orbax_folder.SHARDING}:
        return "orbax"
    if len(files) == 1:
        return _of_file(files[0], files[0].name)
    if any(name.lower().endswith((".hlo", ".txt", ".hlo.gz", ".txt.gz")) for name in names):
        return "hlo"
    some = ", ".join(shown(name, 40) for name in sorted(names)[:4])
    raise InvalidInput(
        f"{what} holds neither an Orbax checkpoint, a MaxText golden nor HLO texts, but {some or 'nothing'}"
    )


def _of_file(path: Path, what: str) -> FileKind:
    try:
        with path.open("rb") as file:
            raw = file.read(_HEAD)
    except OSError as error:
        raise InvalidInput(f"{what} cannot be read: {error.strerror}") from None
    if not raw:
        raise InvalidInput(f"{what} is empty")
    if raw.startswith(content.GZIP):
        return "hlo"
    head = content.decode(raw, what, cut=True)
    if not head.lstrip().startswith(("{", "[")):
        return "hlo"
    form = _FORMAT.match(head)
    first = _FIRST_KEY.match(head)
    if form is None and first is not None:
        if first[1].startswith((".", "[")) or first[1] == "Activation Sharding Dump":
            return "maxtext"
        if _BASE64.fullmatch(first[1]) and first[2] == '"' and "sharding_type" in head:
            return "sharding"
        # The keys of a Snapshot may be in any order.
        plain = content.read_json(path, what, limits.MOST_SNAPSHOT_VALUES)
        name = plain.get("format") if isinstance(plain, dict) else None
    else:
        name = form[1] if form is not None else None
    if name == snapshot.FORMAT:
        return "snapshot"
    if name == _BOARD:
        raise InvalidInput(f"{what} is a board of several layouts: open it on the Board page")
    raise InvalidInput(
        f"{what} is JSON, but neither a Snapshot, Orbax's _sharding nor a MaxText golden"
        + (f": its format is {shown(name)}" if name else "")
    )
