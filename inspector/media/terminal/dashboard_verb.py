"""`dashboard`: start the Streamlit server of this package."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from inspector.core import program_run
from inspector.media.terminal.options import argument, verb
from inspector.model import own_model
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.service.engine import memory_limit

SCRIPT = Path(__file__).resolve().parents[1] / "streamlit/server/sharding_inspector_app.py"
MODEL = argument(
    "--model",
    action="append",
    default=[],
    metavar="PACKAGE.MODULE:FUNCTION",
    help="add your own model to the list of models; may be repeated",
)
WORKER_MEMORY = argument(
    memory_limit.OPTION,
    metavar="SIZE",
    help=f"the most memory that one worker process may use, such as 8GiB "
    f"({memory_limit.SHARE:.0%}% of this machine or container)",
)


def limit_workers(size: str | None) -> None:
    """Set the memory limit of workers for the server that this process becomes; None leaves the default.

    Raises:
      InvalidInput: the option or the environment variable is not a size, or too small.
    """
    if size is not None:
        memory_limit.parse(size, memory_limit.OPTION)
        os.environ[memory_limit.VARIABLE] = size
    memory_limit.of_worker()


def model_arguments(names: Sequence[str]) -> list[str]:
    """Return the arguments of the server for the models of --model, which come last.

    Raises:
      InvalidInput: a name has another form. Whether its module can be imported is known to the server alone.
    """
    for name in names:
        if name not in CATALOGUE:
            own_model.parse_name(name)
    models = [argument for name in names for argument in ("--model", name)]
    return ["--", *models] if models else []


def _pass_on_other_options(parser: argparse.ArgumentParser) -> None:
    parser.allow_abbrev = False
    parser.usage = (
        "%(prog)s [--model PACKAGE.MODULE:FUNCTION]... [--run FOLDER] [--worker-memory SIZE] "
        "[STREAMLIT OPTIONS]"
    )
    parser.epilog = "All other options go to `streamlit run`, for example --server.port 8502."
    # `main` puts the options here that the verb does not know.
    parser.set_defaults(unknown=[])


@verb(
    "dashboard",
    "start the dashboard, at http://127.0.0.1:8501 unless the options say otherwise",
    _pass_on_other_options,
    MODEL,
    argument(
        "--run",
        dest="recorded",
        metavar="FOLDER",
        help="show a recorded program, also while it runs",
    ),
    WORKER_MEMORY,
)
def dashboard(options: argparse.Namespace) -> None:
    """Replace this process by the Streamlit server."""
    limit_workers(options.worker_memory)
    if options.recorded is not None:
        program_run.read(options.recorded)
        os.environ[program_run.FOLDER_VARIABLE] = os.path.abspath(options.recorded)
    command = [
        *(sys.executable, "-m", "streamlit", "run", str(SCRIPT), *options.unknown),
        *model_arguments(options.model),
    ]
    sys.stdout.flush()
    os.execv(sys.executable, command)
