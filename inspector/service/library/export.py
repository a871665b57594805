"""The whole library, or what was found in it, as a zip of Snapshot files with a list of them."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import zipfile
from collections.abc import Sequence

from inspector.core.errors import InvalidInput
from inspector.service.library.entry import Entry
from inspector.service.library.kept import Library

INDEX = "library.json"
_UNSAFE = re.compile(r"[^\w.()+-]+", re.ASCII)
_LONGEST = 80  # characters of a file's name, far within any file system's limit


def zipped(library: Library, entries: Sequence[Entry]) -> bytes:
    """A zip with a JSON file for each entry, and `library.json`, which has names, notes and files.

    One that cannot be read is in the list with its `problem`, and has no file.
    """
    files = file_names([entry.name for entry in entries])
    index = []
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, entry in zip(files, entries, strict=True):
            row = dataclasses.asdict(entry)
            try:
                archive.writestr(file, library.text(entry.name))
                index.append({"file": file, **row})
            except InvalidInput as refused:  # damaged, or deleted meanwhile
                index.append({"file": None, "problem": str(refused), **row})
        archive.writestr(INDEX, json.dumps(index, ensure_ascii=False, indent=1) + "\n")
    return packed.getvalue()


def file_name(name: str) -> str:
    """A file's name that every system takes, as near to a Snapshot's name as that allows."""
    return f"{_stem(name)}.json"


def file_names(names: Sequence[str]) -> list[str]:
    """Those of several Snapshots, each another, also where a system does not tell cases apart."""
    taken = {INDEX}
    files = []
    for name in names:
        stem, number = _stem(name), 1
        file = f"{stem}.json"
        while file.lower() in taken:
            number += 1
            file = f"{stem}-{number}.json"
        taken.add(file.lower())
        files.append(file)
    return files


def _stem(name: str) -> str:
    # A name of dots alone, or with one in front, would be a folder or hidden.
    return _UNSAFE.sub("-", name)[:_LONGEST].strip(".-") or "snapshot"
