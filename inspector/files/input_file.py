"""Read files that may be hostile: regular files only, and with a limit on their bytes."""

import os
import stat

from inspector.text.errors import InvalidInput, file_name
from inspector.text.printable import one_line

ZIP = (b"PK\x03\x04", b"PK\x05\x06")  # the beginning of a zip file
MOST_TEXT_BYTES = 4 * 1024**2  # of a file that somebody writes by hand, such as a policy


def read_bytes(path: str | os.PathLike[str], most: int, what: str | None = None) -> bytes:
    """Return the content of a regular file of at most `most` bytes. `what` names it in errors.

    A pipe or a device is refused, because it may never end.

    Raises:
      InvalidInput: the file cannot be read, is not a regular file, or is too large.
    """
    name = one_line(file_name(path)) if what is None else what
    content = head(path, most + 1, name)
    if len(content) > most:
        raise InvalidInput(f"{name} has more than {most:,} bytes, the most that is read")
    return content


def head(path: str | os.PathLike[str], most: int, what: str) -> bytes:
    """Return the first bytes of a regular file, at most `most`.

    Raises:
      InvalidInput: the file cannot be read, or is not a regular file.
    """
    try:
        # Without O_NONBLOCK, opening a pipe waits for its writer.
        with open(path, "rb", opener=lambda file, flags: os.open(file, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InvalidInput(
                    f"{what} is a pipe or a device, but must be a file: write its content to a file first"
                )
            return file.read(most)
    except InvalidInput:
        raise
    except OSError as error:
        raise InvalidInput(f"{what} cannot be read: {error.strerror}") from None
    except ValueError as error:  # a zero byte in the path
        raise InvalidInput(f"{what} cannot be read: {error}") from None
    except MemoryError:
        raise InvalidInput(f"{what} needs more memory than is available") from None


def read_text(path: str | os.PathLike[str], most: int = MOST_TEXT_BYTES) -> str:
    """Return the UTF-8 text of a regular file of at most `most` bytes.

    Raises:
      InvalidInput: as `read_bytes`, or the file is not UTF-8 text.
    """
    try:
        return read_bytes(path, most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{one_line(str(path))} is not UTF-8 text (byte {error.start})") from None
