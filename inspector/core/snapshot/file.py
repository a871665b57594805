"""Read and write Snapshot files."""

import os
from pathlib import Path
from typing import Any

from inspector.core import output, strict_json, typed_json
from inspector.core.snapshot import consistency
from inspector.core.snapshot.contents import FORMAT, VERSION, Snapshot

SCHEMA_PATH = Path(__file__).parent.with_name("snapshot.schema.json")


def from_json(value: Any, what: str = "the Snapshot") -> Snapshot:
    """Return the Snapshot in parsed JSON.

    Raises:
      InvalidInput: it is not a Snapshot, has a newer version, or contradicts itself.
    """
    snapshot = typed_json.decode_file(Snapshot, value, what, FORMAT, VERSION)
    consistency.check(snapshot, what)
    return snapshot


def read(path: str | os.PathLike[str]) -> Snapshot:
    """Read a Snapshot file.

    Raises:
      InvalidInput: the file cannot be read or is not a Snapshot.

    Example:
      >>> import jax
      >>> from inspector import capture
      >>> from inspector.core.snapshot import read
      >>> captured = capture({"kernel": jax.numpy.zeros((8, 4))}, "state.json")
      >>> read("state.json") == captured
      True
    """
    return from_json(strict_json.read(path), str(path))


def dumps(snapshot: Snapshot) -> str:
    """Return the Snapshot as JSON text, with one line per array and per program."""
    return typed_json.dumps(snapshot.to_json())


def write(snapshot: Snapshot, path: str | os.PathLike[str]) -> None:
    """Write a Snapshot file, whole or not at all.

    Raises:
      InvalidInput: the file cannot be written.

    Example:
      >>> import jax
      >>> from inspector import capture
      >>> from inspector.core.snapshot import read, write
      >>> captured = capture({"kernel": jax.numpy.zeros((8, 4))})
      >>> write(captured, "copy.json")
      >>> read("copy.json").array("kernel").bytes
      128
    """
    output.write_text(dumps(snapshot), path)
