"""The folder whose files the tools read: no path, link or folder leads out of it."""

import os
from collections.abc import Iterator
from pathlib import Path

from inspector.core import program_run
from inspector.core.errors import InvalidInput, choices, shown

_MOST_LISTED = 1000  # names in an error or at the start
_MOST_ENTRIES = 100_000  # of a folder of a run


class Folder:
    """A folder, and the files below it. It is the current folder of the process, so paths begin in it.

    Raises:
      InvalidInput: it is not a folder.
    """

    def __init__(self, path: str) -> None:
        try:
            self._root = Path(path or "\0").resolve(strict=True)  # an empty path is not the current folder
            os.chdir(self._root)
        except (OSError, RuntimeError, ValueError):
            raise InvalidInput(f"FOLDER is {shown(path, 200)}, but must be an existing folder") from None

    def inside(self, text: str, field: str) -> str:
        """Return the path of a file or of a folder of a run below this folder.

        Raises:
          InvalidInput: it is absolute, has `..`, does not exist, or leads out of the folder.
        """
        if not text or "\0" in text or Path(text).is_absolute() or ".." in Path(text).parts:
            raise InvalidInput(
                f"{field} is {shown(text, 200)}, but must be a path below the folder, without a leading / "
                "and without .."
            )
        path = Path(text)
        self._check(path, text, field)
        if not os.path.exists(path):
            raise InvalidInput(f"{field} is {shown(text, 200)}, but {self.allowed(text)}")
        if path.is_dir():
            for number, entry in enumerate(_entries(path)):
                if number >= _MOST_ENTRIES:
                    raise InvalidInput(f"{field} is {shown(text, 200)}, which has too many files")
                if entry.is_symlink():
                    self._check(entry, text, field)
        return str(path)

    def allowed(self, text: str) -> str:
        """Return which files there are, for an error about another one."""
        names = list(self.names())
        return f"must be {choices(text, names)}" if names else "the folder has no Snapshot, layout or run"

    def names(self) -> Iterator[str]:
        """Yield the paths of JSON files and of folders of runs, at most the first thousand."""
        listed = 0
        for entry in _entries(Path()):
            is_run = entry.name == program_run.FILE and entry.parent != Path()
            if is_run or (entry.suffix == ".json" and entry.is_file()):
                yield str(entry.parent if is_run else entry)
                listed += 1
            if listed >= _MOST_LISTED:
                return

    def _check(self, path: Path, text: str, field: str) -> None:
        """Refuse a path whose links lead out of the folder."""
        try:
            is_inside = path.resolve().is_relative_to(self._root)
        except (OSError, RuntimeError, ValueError):  # links that go round, or a name that is too long
            is_inside = False
        if not is_inside:
            raise InvalidInput(f"{field} is {shown(text, 200)}, which leads out of the folder")


def _entries(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, in order. Links are not followed."""
    for parent, folders, files in os.walk(folder):
        folders.sort()
        yield from (Path(parent, name) for name in sorted([*folders, *files]))
