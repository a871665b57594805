"""A zip file unpacked into a folder: nothing outside of it, and no more than the limits allow.

Nothing that the archive says of itself is believed: sizes are counted while they are unpacked.
"""

from __future__ import annotations

import io
import os
import re
import stat
import unicodedata
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import bytes_text
from inspector.producers.readers import limits
from inspector.producers.readers.content import GZIP, is_litter

ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_TAR = b"ustar"
_TAR_PLACE = 257  # bytes before it, in the header of the first entry
_CHUNK = 1 << 18
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1
_DRIVE = re.compile(r"[A-Za-z]:")


class _BoundedFile(io.BufferedReader):
    """A file that is never read in one piece: a directory of millions of entries would fill the memory."""

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


def unpack(
    path: str | os.PathLike[str],
    folder: Path,
    what: str,
    report: Callable[[int, int], None] = lambda done, of: None,
) -> None:
    """Unpack a zip file into an empty folder; `report` hears how many of how many entries are done.

    Raises:
      InvalidInput: it is no whole zip file, is too large, or an entry leads out of the folder, is a link,
        is encrypted, is there twice or stands where another entry needs a folder.
    """
    try:
        with _BoundedFile(path, what) as file, zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            if len(entries) > limits.MOST_ENTRIES:
                raise InvalidInput(
                    f"{what} has {len(entries):,} entries, at most {limits.MOST_ENTRIES:,} are unpacked"
                )
            if not entries:
                raise InvalidInput(f"{what} is an empty zip file")
            places = _places(entries, what)
            if not places:
                raise InvalidInput(f"{what} holds nothing but what macOS leaves beside files")
            left = limits.MOST_UNPACKED_BYTES
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
    except RuntimeError as error:  # zipfile's word for an entry that it cannot decrypt
        raise InvalidInput(f"{what} cannot be unpacked: {_one_line(error)}") from None
    except (OSError, MemoryError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or _one_line(error)
        raise InvalidInput(f"{what} cannot be unpacked: {reason}") from None


def is_tar(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as a tar archive does, be it packed with gzip; such are not unpacked here.

    Raises:
      OSError: it cannot be read.
    """
    end = _TAR_PLACE + len(_TAR)
    with open(path, "rb") as file:
        head = file.read(_CHUNK)
    if head.startswith(GZIP):
        try:
            head = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(head, end)
        except zlib.error:
            return False
    return head[_TAR_PLACE:end] == _TAR


def safe_path(name: str, what: str) -> PurePosixPath:
    """The path of an entry below the folder that it is unpacked into.

    Raises:
      InvalidInput: it is no such path.
    """
    called = f"{what} has the entry {shown(name)}, "
    if not name or len(name) > limits.LONGEST_PATH or not name.isprintable():
        raise InvalidInput(
            f"{called}but a path must be printable and at most {limits.LONGEST_PATH} characters long"
        )
    if name.startswith(("/", "\\")) or _DRIVE.match(name):
        raise InvalidInput(f"{called}which is an absolute path")
    parts = name.rstrip("/").split("/")
    if ".." in parts or "\\" in name:
        raise InvalidInput(f"{called}which leads out of the archive")
    if any(part in ("", ".") or len(part.encode()) > 255 for part in parts):
        raise InvalidInput(f"{called}which is no path of a file")
    if len(parts) > limits.DEEPEST_PATH:
        raise InvalidInput(f"{called}which is more than {limits.DEEPEST_PATH} folders deep")
    return PurePosixPath(*parts)


def _places(
    entries: list[zipfile.ZipInfo], what: str
) -> list[tuple[zipfile.ZipInfo, PurePosixPath]]:
    """Where each entry goes; all are looked at before the first one is written."""
    places = []
    files: set[str] = set()
    folders: set[str] = set()
    for entry in entries:
        if not entry.is_dir() and is_litter(entry.orig_filename.split("/")):
            continue
        # `filename` ends at a zero byte, and has other separators than the name as written.
        if "\0" in entry.orig_filename:
            raise InvalidInput(
                f"{what} has the entry {shown(entry.orig_filename)}, which holds a zero byte"
            )
        place = safe_path(entry.orig_filename, what)
        called = f"{what} has the entry {shown(str(place))}"
        mode = entry.external_attr >> 16
        if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
            kind = "a link" if stat.S_ISLNK(mode) else "neither a file nor a folder"
            raise InvalidInput(f"{called}, which is {kind}")
        if entry.flag_bits & _ENCRYPTED:
            raise InvalidInput(f"{called}, which is encrypted")
        if entry.compress_type not in _METHODS:
            raise InvalidInput(f"{called}, which is packed in another way than stored or deflated")
        # Some disks take names for the same that differ in case or in how letters are composed.
        key = unicodedata.normalize("NFC", str(place)).casefold()
        if key in files or (key in folders and not entry.is_dir()):
            raise InvalidInput(f"{called} twice, or once as a file and once as a folder")
        (folders if entry.is_dir() else files).add(key)
        folders.update(str(parent) for parent in PurePosixPath(key).parents)
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
    """Write one entry, and give the number of its bytes."""
    size = 0
    with archive.open(entry) as packed, open(target, "xb") as file:
        while chunk := packed.read(_CHUNK):
            size += len(chunk)
            if size > left:
                raise InvalidInput(
                    f"{what} unpacks to more than {bytes_text(limits.MOST_UNPACKED_BYTES)}, "
                    "which is all that is unpacked"
                )
            file.write(chunk)
    return size


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()).rstrip(".")
    return text[:120] or type(error).__name__
