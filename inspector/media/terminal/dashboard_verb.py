"""`dashboard`: start the Streamlit server of this package."""

import argparse
import ipaddress
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from inspector.jobs import start
from inspector.jobs.engine import environment
from inspector.media.terminal.options import argument, number, verb
from inspector.model import own_model
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.records import program_run
from inspector.text.errors import InvalidInput, shown

SERVER = "inspector.media.streamlit.streamlit_run"
SCRIPT = Path(__file__).resolve().parents[1] / "streamlit/server/sharding_inspector_app.py"
MODEL = argument(
    "--model",
    action="append",
    default=[],
    metavar="PACKAGE.MODULE:FUNCTION",
    help="add your own model to the list of models; may be repeated",
)
WORKER_MEMORY = argument(
    environment.OPTION,
    metavar="SIZE",
    help=f"the most memory that one worker process may use, such as 8GiB "
    f"({environment.SHARE:.0%}% of this machine or container)",
)


def limit_workers(size: str | None) -> None:
    """Set the memory limit of workers for the server that this process becomes; None leaves the default.

    Raises:
      InvalidInput: the option or the environment variable is not a size, or too small.
    """
    if size is not None:
        environment.parse(size, environment.OPTION)
        os.environ[environment.VARIABLE] = size
    environment.of_worker()


def model_arguments(names: Sequence[str]) -> list[str]:
    """Return the arguments of the server for the models of --model, which come last.

    Raises:
      InvalidInput: a name has another form. Whether its module can be imported is known to the server alone.
    """
    for name in names:
        if name not in CATALOGUE:
            start.name_own_model(own_model.parse_name(name)[0])
    models = [argument for name in names for argument in ("--model", name)]
    return ["--", *models] if models else []


def become_server(arguments: Sequence[str]) -> NoReturn:
    """Replace this process by the Streamlit server, with these arguments of `streamlit run`."""
    command = start.command(SERVER, "run", str(SCRIPT), *arguments)
    sys.stdout.flush()
    os.execve(sys.executable, command, start.variables())


def _pass_on_other_options(parser: argparse.ArgumentParser) -> None:
    parser.allow_abbrev = False
    parser.usage = (
        "%(prog)s [--address ADDRESS] [--port PORT] [--model PACKAGE.MODULE:FUNCTION]... [--run FOLDER] "
        "[--worker-memory SIZE] [STREAMLIT OPTIONS]"
    )
    parser.epilog = "All other options go to `streamlit run`, for example --server.fileWatcherType none."
    # `main` puts the options here that the verb does not know.
    parser.set_defaults(unknown=[])


def _place(address: str | None, port: str | None) -> list[str]:
    """Return Streamlit's options for where to listen. None leaves the default.

    Raises:
      InvalidInput: the address is not one of this machine, the port is not a port, or is in use.
    """
    if address is not None and not is_loopback(address):
        raise InvalidInput(
            f"--address is {address}, so other machines reach the dashboard without sign-in: use `serve`"
        )
    place = [] if address is None else ["--server.address", address]
    if port is not None:
        known = number(port, "--port", "a port from 1 to 65535", 1, 65535)
        refuse_taken(address or "127.0.0.1", known)
        place += ["--server.port", str(known)]
    return place


def is_loopback(address: str) -> bool:
    """Return whether only this machine reaches the address.

    Raises:
      InvalidInput: it is not an IP address.
    """
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        raise InvalidInput(
            f"--address is {shown(address)}, but must be an IP address of this machine such as 0.0.0.0"
        ) from None


def refuse_taken(address: str, port: int) -> None:
    """Raise InvalidInput if the server cannot listen there."""
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
    except OSError as error:
        raise InvalidInput(f"the server cannot listen on {address}, port {port}: {error.strerror}") from None


@verb(
    "dashboard",
    "start the dashboard, at http://127.0.0.1:8501 unless the options say otherwise",
    _pass_on_other_options,
    argument(
        "--address",
        help="IP address of this machine to listen on (127.0.0.1); `serve` is for other machines",
    ),
    argument("--port", help="port to listen on (8501)"),
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
    models = model_arguments(options.model)
    if options.unknown:
        # Imported late and only here: Streamlit takes a second.
        from inspector.media.streamlit.streamlit_internals import check_run_options

        check_run_options(options.unknown)
    become_server([*options.unknown, *_place(options.address, options.port), *models])
