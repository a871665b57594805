"""The folder of the files that a user keeps: the library and the own runs."""

import os
from pathlib import Path

import platformdirs

VARIABLE = "SHARDING_INSPECTOR_LIBRARY"  # a folder instead of the user's data folder


def user_folder() -> Path:
    """Return the folder. It need not exist."""
    chosen = os.environ.get(VARIABLE)
    return Path(chosen) if chosen else platformdirs.user_data_path("sharding-inspector")
