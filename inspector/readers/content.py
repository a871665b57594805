"""Read the content of untrusted files: limited bytes, strict JSON, UTF-8 text, gzip."""

import functools
import os
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from inspector.files import input_file, strict_json
from inspector.readers import limits
from inspector.records.typed_json import LARGEST
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import bytes_text

# Receives the number of parts that are done and the number of all parts.
Report = Callable[[int, int], None]

GZIP = b"\x1f\x8b"
MLIR_BYTECODE = b"ML\xefR"
_CHUNK = 1 << 20
_HEAD = 4096  # bytes; enough for the first key of a JSON file
_WINDOW = 16 + zlib.MAX_WBITS  # zlib's code for a gzip stream
_FORMAT = re.compile(r'\s*\{\s*"format"\s*:\s*"([^"]{1,60})"')
_FIRST_KEY = re.compile(r'\s*\{\s*"((?:[^"\\]|\\.)*)"\s*:\s*(.?)', re.S)


def no_report(done: int, of: int) -> None:
    """Ignore a report of progress."""


class FileText(NamedTuple):
    """The text of a file. `cut` is a sentence if a gzip file ends too early, else None."""

    text: str
    cut: str | None = None


@dataclass(frozen=True)
class Sample:
    """The content by which a reader recognizes a file or a folder.

    Attributes:
      path: the file, the folder, or the only file of a folder.
      names: names of all files in the folder; None if a file was given.
    """

    path: Path
    what: str
    names: frozenset[str] | None = None

    @functools.cached_property
    def head(self) -> str | None:
        """The first characters of a text file; None for a folder, a gzip file or MLIR bytecode.

        Raise InvalidInput if the file is empty.
        """
        if self.path.is_dir():
            return None
        raw = input_file.head(self.path, _HEAD, self.what)
        if not raw:
            raise InvalidInput(f"{self.what} is empty")
        return None if raw.startswith((GZIP, MLIR_BYTECODE)) else decode(raw, self.what, cut=True)

    @property
    def is_json(self) -> bool:
        return self.head is not None and self.head.lstrip().startswith(("{", "["))

    def first_key(self) -> tuple[str, str]:
        """Return the first key of a JSON object and the first character of its value, else empty text."""
        match = _FIRST_KEY.match(self.head or "")
        return (match[1], match[2]) if match else ("", "")

    def json_format(self) -> str | None:
        """Return the value of the key `format` of a JSON file, None without one."""
        if not self.is_json:
            return None
        if match := _FORMAT.match(self.head or ""):
            return match[1]
        if not self.first_key()[0]:
            return None
        plain = read_json(self.path, self.what, strict_json.MOST_VALUES)
        value = plain.get("format") if isinstance(plain, dict) else None
        return value if isinstance(value, str) else None


def sample(path: Path, what: str) -> Sample:
    """Return the sample of a file, of a folder, or of the only file of a folder."""
    if not path.is_dir():
        return Sample(path, what)
    files = files_below(path, what)
    names = frozenset(file.name for file in files)
    return Sample(files[0], files[0].name, names) if len(files) == 1 else Sample(path, what, names)


def read_bytes(path: str | os.PathLike[str], most: int, what: str) -> bytes:
    """Return the content of a regular file of 1 to `most` bytes; raise InvalidInput for another file."""
    content = input_file.read_bytes(path, most, what)
    if not content:
        raise InvalidInput(f"{what} is empty")
    return content


def read_json(path: str | os.PathLike[str], what: str, most_values: int = limits.MOST_JSON_VALUES) -> Any:
    """Return the strict JSON in a file."""
    return parse_json(read_bytes(path, limits.MOST_JSON_BYTES, what), what, most_values)


def parse_json(raw: bytes, what: str, most_values: int = limits.MOST_JSON_VALUES) -> Any:
    """Return strict JSON of at most `most_values` values, which are counted before parsing."""
    return strict_json.parse(raw, what, most_values)


def array_entries(plain: object, what: str, expected: str) -> dict[str, Any]:
    """Return parsed JSON that has an entry per array, or raise InvalidInput. `expected` names such a file."""
    if not isinstance(plain, dict) or not plain:
        raise InvalidInput(f"{what} is {shown(plain)}, but must be an object with an entry per array")
    if isinstance(plain.get("format"), str):
        raise InvalidInput(f"{what} is a {shown(plain['format'])} file, not {expected}")
    refuse_many_arrays(len(plain), what)
    return plain


def refuse_many_arrays(count: int, what: str) -> None:
    """Raise InvalidInput if a file has more than `MOST_ARRAYS` arrays."""
    if count > limits.MOST_ARRAYS:
        raise InvalidInput(f"{what} has more than {limits.MOST_ARRAYS:,} arrays, the most allowed")


def size_list(plain: object, what: str) -> tuple[int, ...]:
    """Return the shape that a JSON list of sizes contains; raise InvalidInput for other JSON."""
    if not isinstance(plain, list) or not all(type(size) is int and 0 <= size <= LARGEST for size in plain):
        raise InvalidInput(f"{what} has the shape {shown(plain)}, but must have a list of sizes")
    return tuple(plain)


def read_text(path: str | os.PathLike[str], what: str, most: int = limits.MOST_TEXT_BYTES) -> FileText:
    """Return the text of a file, unpacked if it is gzip, with Unix line ends."""
    content = read_bytes(path, most, what)
    cut = None
    if content.startswith(GZIP):
        content, whole = unpack_gzip(content, most, what)
        if not whole:
            cut = f"{what} is a gzip file that ends early, after {bytes_text(len(content))} of text"
    text = decode(content, what, cut is not None)
    return FileText(text.replace("\r\n", "\n") if "\r\n" in text else text, cut)


def unpack_gzip(content: bytes, most: int, what: str) -> tuple[bytes, bool]:
    """Return the unpacked bytes of a gzip file, and whether it is complete; raise InvalidInput if damaged."""
    parts: list[bytes] = []
    size = 0
    rest = content
    while rest.startswith(GZIP):  # a gzip file can consist of several streams
        stream = zlib.decompressobj(_WINDOW)
        while not stream.eof:
            try:
                part = stream.decompress(rest, min(_CHUNK, most + 1 - size))
            except zlib.error as error:
                reason = str(error).partition(": ")[2] or str(error)
                raise InvalidInput(f"{what} is a damaged gzip file: {reason}") from None
            parts.append(part)
            size += len(part)
            if size > most:
                raise InvalidInput(f"{what} unpacks to more than {bytes_text(most)}, the most that is read")
            rest = stream.unconsumed_tail
            if not part and not rest and not stream.eof:
                return b"".join(parts), False
        rest = stream.unused_data
    if rest and GZIP.startswith(rest):
        return b"".join(parts), False  # the first byte of another stream
    if rest.strip(b"\0"):
        raise InvalidInput(f"{what} has {bytes_text(len(rest))} after the end of its gzip stream")
    return b"".join(parts), True


def decode(content: bytes, what: str, cut: bool = False) -> str:
    """Return bytes as UTF-8 text. If they are `cut`, drop an incomplete last character.

    Raise InvalidInput if they are in another encoding.
    """
    other = strict_json.encoding_of(content)
    if other is not None:
        raise InvalidInput(f"{what} is encoded as {other}, but must be plain UTF-8")
    if b"\0" in content:
        raise InvalidInput(f"{what} is not text: it has a zero byte")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        if cut and error.start >= len(content) - 3:
            return content[: error.start].decode("utf-8")
        raise InvalidInput(f"{what} is not UTF-8 text (byte {error.start})") from None


def is_macos_metadata(parts: Sequence[str]) -> bool:
    """Return whether a path, given by its parts, is a file that macOS adds to folders and archives."""
    last = parts[-1] if parts else ""
    return "__MACOSX" in parts or last == ".DS_Store" or last.startswith("._")


def files_below(folder: Path, what: str) -> list[Path]:
    """Return the sorted regular files below a folder, without macOS metadata. Links are not followed.

    Raise InvalidInput if it cannot be read, or has too many.
    """
    paths: list[Path] = []

    def refuse(error: OSError) -> None:
        raise InvalidInput(f"{what} cannot be read: {error.strerror}")

    for where, folders, names in os.walk(folder, onerror=refuse):
        folders.sort()
        inside = Path(where).relative_to(folder).parts
        paths += [
            path
            for name in sorted(names)
            if not is_macos_metadata((*inside, name)) and (path := Path(where, name)).is_file()
        ]
        if len(paths) > limits.MOST_FILES:
            raise InvalidInput(
                f"{what} contains more than {limits.MOST_FILES:,} files, the most that are listed"
            )
    return paths


def only_file(path: Path, what: str) -> Path:
    """Return the path of a file, or of the only file below a folder.

    Raise InvalidInput if there are several.
    """
    if not path.is_dir():
        return path
    files = files_below(path, what)
    if len(files) != 1:
        raise InvalidInput(f"{what} contains {len(files)} files, but must contain exactly one")
    return files[0]
