"""Run the server, and write each path that it opens to a file: `audited_server.py FOLDER LOG`."""

from __future__ import annotations

import os
import sys

OPENS = ("open", "os.listdir", "os.scandir", "sqlite3.connect")


def main() -> int:
    """Serve the folder until standard input ends."""
    folder, path = sys.argv[1:]
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def record(event: str, arguments: tuple[object, ...]) -> None:
        if event in OPENS and isinstance(arguments[0], (str, os.PathLike)):
            os.write(log, f"{os.path.realpath(arguments[0])!r}\n".encode())

    sys.addaudithook(record)
    from inspector.media import terminal

    return terminal.main(["mcp", folder])


if __name__ == "__main__":
    sys.exit(main())
