"""Export entries of the library as a zip of Snapshot files with an index."""

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
_LONGEST = 80  # characters of a file name


def zipped(library: Library, entries: Sequence[Entry]) -> bytes:
    """Return a zip with a JSON file for each entry, and `library.json` with names, notes and files.

    An unreadable entry has no file; the index has its `problem`.
    """
    files = file_names([entry.name for entry in entries])
    index = []
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, entry in zip(files, entries, strict=True):
            row = dataclasses.asdict(entry)
            del row["changeable"]  # by who exported it
            try:
                archive.writestr(file, library.text(entry.name))
                index.append({"file": file, **row})
            except InvalidInput as error:  # damaged, or deleted by now
                index.append({"file": None, "problem": str(error), **row})
        archive.writestr(INDEX, json.dumps(index, ensure_ascii=False, indent=1) + "\n")
    return packed.getvalue()


def file_name(name: str) -> str:
    """Return a file name that is valid on every system and similar to the Snapshot's name."""
    return f"{_stem(name)}.json"


def file_names(names: Sequence[str]) -> list[str]:
    """Return unique file names, also for file systems that ignore case."""
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
    # Leading dots would make a hidden file or a folder.
    return _UNSAFE.sub("-", name)[:_LONGEST].strip(".-") or "snapshot"
