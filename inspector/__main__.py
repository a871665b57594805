"""Run the command line: `python -m inspector VERB …`, the same as `sharding-inspector VERB …`."""

import sys

from inspector.jobs import start


def main() -> int:
    """Run the command line without the modules of the current folder, and return the exit status."""
    start.leave_out_current_folder(first=__name__ == "__main__")
    # Imported when the path is safe.
    from inspector.media import terminal

    return terminal.main()


if __name__ == "__main__":
    sys.exit(main())
