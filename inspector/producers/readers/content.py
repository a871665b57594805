"""The content of a file that nobody vouches for: so many bytes at most, and text only as UTF-8."""

from __future__ import annotations

import os
import re
import stat
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inspector.core import strict_json
from inspector.core.errors import InvalidInput
from inspector.core.formatting import bytes_text
from inspector.producers.readers import limits

GZIP = b"\x1f\x8b"
_CHUNK = 1 << 20
_TEXTS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.S)
_WINDOW = 16 + zlib.MAX_WBITS  # of a gzip stream, as zlib counts


@dataclass(frozen=True)
class Text:
    """A file's text. `cut` says in a sentence where a packed file ends too early; None where it is whole."""

    text: str
    cut: str | None = None


def read_bytes(path: str | os.PathLike[str], most: int, what: str) -> bytes:
    """The whole content of a regular file.

    Raises:
      InvalidInput: it is no file, cannot be read, or has more than `most` bytes.
    """
    try:
        # A pipe would be waited for, and a device never ends.
        with open(
            path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)
        ) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InvalidInput(f"{what} is not a file")
            content = file.read(most + 1)
    except InvalidInput:
        raise
    except OSError as error:
        raise InvalidInput(f"{what} cannot be read: {error.strerror}") from None
    except ValueError as error:  # a zero byte in the path
        raise InvalidInput(f"{what} cannot be read: {error}") from None
    if len(content) > most:
        raise InvalidInput(
            f"{what} has more than {bytes_text(most)}, which is all that is read of it"
        )
    if not content:
        raise InvalidInput(f"{what} is empty")
    return content


def read_json(
    path: str | os.PathLike[str], what: str, most_values: int = limits.MOST_JSON_VALUES
) -> Any:
    """The strict JSON in a file.

    Raises:
      InvalidInput: it cannot be read, is too large, holds too many values, or is not such JSON.
    """
    return parse_json(read_bytes(path, limits.MOST_JSON_BYTES, what), what, most_values)


def parse_json(raw: bytes, what: str, most_values: int = limits.MOST_JSON_VALUES) -> Any:
    """Strict JSON of so many values at most, counted before one is made.

    Raises:
      InvalidInput: it holds more, or is not such JSON.
    """
    if _holds_more(raw, most_values):
        raise InvalidInput(
            f"{what} holds more than {most_values:,} values, which are all that is read"
        )
    return strict_json.parse(raw, what)


def _holds_more(raw: bytes, most: int) -> bool:
    """Whether there are more lists, objects and commas than so many, those inside of texts left out."""
    if _values(raw, 0, len(raw)) <= most:
        return False
    seen = at = 0
    for text in _TEXTS.finditer(raw):
        seen += 1 + _values(raw, at, text.start())
        at = text.end()
        if seen > most:
            return True
    return seen + _values(raw, at, len(raw)) > most


def _values(raw: bytes, start: int, end: int) -> int:
    return sum(raw.count(mark, start, end) for mark in (b"[", b"{", b","))


def read_text(path: str | os.PathLike[str], what: str, most: int = limits.MOST_TEXT_BYTES) -> Text:
    """The text in a file, unpacked if it is gzip, with the line ends of Windows as others'.

    Raises:
      InvalidInput: it cannot be read, is too large as it is or unpacked, or is not UTF-8 text.
    """
    content = read_bytes(path, most, what)
    cut = None
    if content.startswith(GZIP):
        content, whole = unpack_gzip(content, most, what)
        if not whole:
            cut = f"{what} is a gzip file that ends early, after {bytes_text(len(content))} of text"
    text = decode(content, what, cut is not None)
    return Text(text.replace("\r\n", "\n") if "\r\n" in text else text, cut)


def unpack_gzip(content: bytes, most: int, what: str) -> tuple[bytes, bool]:
    """What a gzip file holds, and whether it ends where it should; counted while it is unpacked.

    Raises:
      InvalidInput: it is damaged, or holds more than `most` bytes.
    """
    parts: list[bytes] = []
    size = 0
    rest = content
    while rest.startswith(GZIP):  # several streams one after the other are one file
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
                raise InvalidInput(
                    f"{what} unpacks to more than {bytes_text(most)}, which is all that is read of it"
                )
            rest = stream.unconsumed_tail
            if not part and not rest and not stream.eof:
                return b"".join(parts), False
        rest = stream.unused_data
    if rest and GZIP.startswith(rest):
        return b"".join(parts), False  # the first byte of one more stream
    if rest.strip(b"\0"):
        raise InvalidInput(f"{what} has {bytes_text(len(rest))} after the end of its gzip stream")
    return b"".join(parts), True


def decode(content: bytes, what: str, cut: bool = False) -> str:
    """Bytes as UTF-8 text; where they are `cut`, without the half of a character at their end.

    Raises:
      InvalidInput: they are not such text; the sentence names the encoding that they begin with.
    """
    other = strict_json.encoding_of(content)
    if other is not None:
        raise InvalidInput(f"{what} is written as {other}, but must be plain UTF-8")
    if b"\0" in content:
        raise InvalidInput(f"{what} is not text: it holds a zero byte")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        if cut and error.start >= len(content) - 3:
            return content[: error.start].decode("utf-8")
        raise InvalidInput(f"{what} is not UTF-8 text (byte {error.start})") from None


def files_below(folder: Path, what: str) -> list[Path]:
    """Every regular file below a folder, in order, without litter; links are not followed.

    Raises:
      InvalidInput: there are too many, or the folder cannot be read.
    """
    found: list[Path] = []

    def refuse(error: OSError) -> None:
        raise InvalidInput(f"{what} cannot be read: {error.strerror}")

    for where, folders, names in os.walk(folder, onerror=refuse):
        folders.sort()
        inside = Path(where).relative_to(folder).parts
        found += [
            path
            for name in sorted(names)
            if not is_litter((*inside, name)) and (path := Path(where, name)).is_file()
        ]
        if len(found) > limits.MOST_FILES:
            raise InvalidInput(
                f"{what} holds more than {limits.MOST_FILES:,} files, which is all that is looked at"
            )
    return found


_FOLDER = "__MACOSX"
_FILE = ".DS_Store"
_PREFIX = "._"  # of a file that has the attributes of another, whose name follows


def is_litter(parts: Sequence[str]) -> bool:
    """Whether the last of a path's parts is such a file or folder, or any is such a folder."""
    last = parts[-1] if parts else ""
    return _FOLDER in parts or last == _FILE or last.startswith(_PREFIX)
