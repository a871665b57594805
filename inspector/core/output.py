"""Write files, whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from inspector.core.errors import InvalidInput


def write_text(text: str, path: str | os.PathLike[str]) -> None:
    """Write a text file, whole or not at all: write a temporary file, then rename it.

    Raises:
      InvalidInput: the file cannot be written.
    """
    try:
        content = text.encode("utf-8")
    except UnicodeEncodeError as error:  # half a character
        raise InvalidInput(f"{str(path)!r} cannot be written: {error}") from None
    write_bytes(content, path)


def write_bytes(content: bytes, path: str | os.PathLike[str]) -> None:
    """Write a file, whole or not at all.

    A link is followed, and a file that exists keeps its permissions. A pipe or a device such as /dev/null is
    written to, not replaced.

    Raises:
      InvalidInput: the file cannot be written.
    """
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            Path(path).write_bytes(content)
            return
        target = Path(os.path.realpath(path))
        # The name of the temporary file must not exceed the limit of the file system.
        beside = target.with_name(f".{target.name[:32]}.{secrets.token_hex(8)}")
        try:
            with open(beside, "xb") as file:
                file.write(content)
            if target.exists():
                beside.chmod(stat.S_IMODE(target.stat().st_mode))
            os.replace(beside, target)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}") from None
    except ValueError as error:  # a zero byte in the path
        raise InvalidInput(f"{str(path)!r} cannot be written: {error}") from None


def refuse_unwritable(path: str | os.PathLike[str]) -> None:
    """Check that the folder of an output exists and that the output is not a folder itself.

    Raises:
      InvalidInput: the output cannot be written.
    """
    target = Path(path)
    if target.is_dir():
        raise InvalidInput(f"{path} cannot be written: it is a folder")
    if not target.parent.is_dir():
        raise InvalidInput(f"{path} cannot be written: the folder {target.parent} does not exist")
