"""The folder of a recorded program that `dashboard --run` names. A browser cannot choose it."""

import os
from pathlib import Path

from inspector.core import program_run


def path() -> Path | None:
    """Return the folder, or None if the dashboard shows no run."""
    folder = os.environ.get(program_run.FOLDER_VARIABLE)
    return Path(folder) if folder else None
