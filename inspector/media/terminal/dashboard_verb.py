"""`dashboard`: start the Streamlit server of this package."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

NAME = "dashboard"
HELP = "start the dashboard, at http://127.0.0.1:8501 unless the options say otherwise"

_MEDIA = Path(__file__).resolve().parents[1]
_SCRIPT = _MEDIA / "streamlit" / "server" / "sharding_inspector_app.py"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.allow_abbrev = False
    parser.usage = "%(prog)s [--model PACKAGE.MODULE:FUNCTION]... [STREAMLIT OPTIONS]"
    parser.epilog = "All other options go to `streamlit run`, for example --server.port 8502."
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="PACKAGE.MODULE:FUNCTION",
        help="add your own model to the list of models; may be repeated",
    )
    # `main` puts the options here that the verb does not know.
    parser.set_defaults(unknown=[])


def run(options: argparse.Namespace) -> None:
    """Replace this process by the Streamlit server."""
    sys.stdout.flush()
    os.execv(sys.executable, command(options))


def command(options: argparse.Namespace) -> list[str]:
    """Return the command that starts the server."""
    models = [argument for name in options.model for argument in ("--model", name)]
    streamlit = ["-m", "streamlit", "run", str(_SCRIPT), *options.unknown]
    return [sys.executable, *streamlit, *(["--", *models] if models else [])]
