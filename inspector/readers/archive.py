"""Unpack a zip file into a folder: nothing is written outside of it, and no more than the limits allow.

The names and declared sizes of all entries are judged before the first one is written. Sizes are counted
again while unpacking, because those that an archive declares can be wrong.
"""

import io
import os
import re
import stat
import unicodedata
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from inspector.readers import limits
from inspector.readers.content import GZIP, Report, is_macos_metadata, no_report
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import bytes_text

_TAR = b"ustar"
_TAR_OFFSET = 257  # of the magic in the header of the first entry
_CHUNK = 1 << 18
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1
_DRIVE = re.compile(r"[A-Za-z]:")


class _BoundedFile(io.BufferedReader):
    """A file with a limit on each read: zipfile reads the whole directory of an archive at once."""

    def __init__(self, path: str | os.PathLike[str], what: str) -> None:
        super().__init__(io.FileIO(path))
        self._what = what
        self._size = os.fstat(self.fileno()).st_size

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            size = self._size - self.tell()
        if size > limits.MOST_BYTES_AT_ONCE:
            raise InvalidInput(
                f"{self._what} has a directory of {bytes_text(size)}, but at most "
                f"{bytes_text(limits.MOST_BYTES_AT_ONCE)} are read"
            )
        return super().read(size)


def unpack(path: str | os.PathLike[str], folder: Path, what: str, report: Report = no_report) -> None:
    """Unpack a zip file into an empty folder.

    Raises:
      InvalidInput: the zip file is damaged or too large, or it has an entry that is a link, is encrypted,
        occurs twice or leads out of the folder.
    """
    try:
        with _BoundedFile(path, what) as file, zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            if len(entries) > limits.MOST_ENTRIES:
                raise InvalidInput(
                    f"{what} has {len(entries):,} entries, but at most {limits.MOST_ENTRIES:,} are unpacked"
                )
            if not entries:
                raise InvalidInput(f"{what} is an empty zip file")
            places = _places(entries, what)
            if not places:
                raise InvalidInput(f"{what} contains only metadata files of macOS")
            left = limits.MOST_UNPACKED_BYTES
            if sum(entry.file_size for entry, _ in places) > left:
                raise _too_large(what)
            for number, (entry, place) in enumerate(places):
                report(number, len(places))
                target = folder.joinpath(*place.parts)
                if entry.is_dir():
                    target.mkdir(parents=True, exist_ok=True)
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                left -= _unpack_entry(archive, entry, target, left, what)
    except InvalidInput:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        raise InvalidInput(f"{what} is a damaged zip file: {_one_line(error)}") from None
    except RuntimeError as error:  # zipfile raises it for an entry that it cannot decrypt
        raise InvalidInput(f"{what} cannot be unpacked: {_one_line(error)}") from None
    except (OSError, MemoryError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or _one_line(error)
        raise InvalidInput(f"{what} cannot be unpacked: {reason}") from None


def is_tar(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a tar archive, plain or gzip.

    Raises:
      OSError: it cannot be read.
    """
    end = _TAR_OFFSET + len(_TAR)
    with open(path, "rb") as file:
        head = file.read(_CHUNK)
    if head.startswith(GZIP):
        try:
            head = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(head, end)
        except zlib.error:
            return False
    return head[_TAR_OFFSET:end] == _TAR


def safe_path(name: str, what: str) -> PurePosixPath:
    """Return the relative path of an entry.

    Raises:
      InvalidInput: the name is not a relative path without `..`, or exceeds a limit.
    """
    entry = f"{what} has the entry {shown(name)}"
    # Only text that can be encoded is printable.
    if not name or not name.isprintable() or len(name.encode()) > limits.LONGEST_PATH:
        raise InvalidInput(
            f"{entry}, but a path must be printable and have at most {limits.LONGEST_PATH:,} bytes"
        )
    if name.startswith(("/", "\\")) or _DRIVE.match(name):
        raise InvalidInput(f"{entry}, which is an absolute path")
    parts = name.rstrip("/").split("/")
    if ".." in parts or "\\" in name:
        raise InvalidInput(f"{entry}, which leads out of the archive")
    if any(part in ("", ".") or len(part.encode()) > 255 for part in parts):
        raise InvalidInput(f"{entry}, which is not the path of a file")
    if len(parts) > limits.DEEPEST_PATH:
        raise InvalidInput(f"{entry}, which is more than {limits.DEEPEST_PATH} folders deep")
    return PurePosixPath(*parts)


def _places(entries: list[zipfile.ZipInfo], what: str) -> list[tuple[zipfile.ZipInfo, PurePosixPath]]:
    """Return each entry with its path. All are checked before the first one is written."""
    places = []
    files: set[str] = set()
    folders: set[str] = set()
    for entry in entries:
        # `filename` ends at a zero byte and has replaced separators; `orig_filename` is as written.
        name = entry.orig_filename
        if not name or name.startswith("\0"):  # zipfile fails for it
            raise InvalidInput(f"{what} has an entry without a name")
        if not entry.is_dir() and is_macos_metadata(name.split("/")):
            continue
        if "\0" in name:
            raise InvalidInput(f"{what} has the entry {shown(name)}, which has a zero byte")
        place = safe_path(name, what)
        called = f"{what} has the entry {shown(str(place))}"
        mode = entry.external_attr >> 16
        if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
            kind = "a link" if stat.S_ISLNK(mode) else "neither a file nor a folder"
            raise InvalidInput(f"{called}, which is {kind}")
        if entry.flag_bits & _ENCRYPTED:
            raise InvalidInput(f"{called}, which is encrypted")
        if entry.compress_type not in _METHODS:
            raise InvalidInput(f"{called}, but must be stored or deflated")
        # Some file systems ignore case and how letters are composed.
        key = unicodedata.normalize("NFC", str(place)).casefold()
        if key in files or (key in folders and not entry.is_dir()):
            raise InvalidInput(f"{called} twice, or once as a file and once as a folder")
        (folders if entry.is_dir() else files).add(key)
        while "/" in key and (key := key.rpartition("/")[0]) not in folders:
            folders.add(key)
        if len(files) + len(folders) > limits.MOST_ENTRIES:
            raise InvalidInput(
                f"{what} makes more than {limits.MOST_ENTRIES:,} files and folders, the most that are "
                "unpacked"
            )
        places.append((entry, place))
    clash = next(iter(files & folders), None)
    if clash is not None:
        raise InvalidInput(
            f"{what} has the entry {shown(clash)} twice, or once as a file and once as a folder"
        )
    return places


def _unpack_entry(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path, left: int, what: str
) -> int:
    """Write one entry and return its size in bytes."""
    size = 0
    with archive.open(entry) as packed, open(target, "xb") as file:
        while chunk := packed.read(_CHUNK):
            size += len(chunk)
            if size > left:
                raise _too_large(what)
            file.write(chunk)
    return size


def _too_large(what: str) -> InvalidInput:
    return InvalidInput(
        f"{what} unpacks to more than {bytes_text(limits.MOST_UNPACKED_BYTES)}, the most that is unpacked"
    )


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".")[:120] or type(error).__name__
