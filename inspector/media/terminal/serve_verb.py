"""`dashboard` starts the server of this package, and `serve` a team's, behind a proxy, with an audit log."""

import argparse
import errno
import hashlib
import ipaddress
import json
import os
import re
import socket
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from inspector.files import input_file
from inspector.jobs import serving, start
from inspector.jobs.engine import environment
from inspector.jobs.serving import SECRET_HEADER, AuditLog, Serving, TrustedProxy
from inspector.media.terminal.options import argument, number, verb
from inspector.model import own_model
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.records import program_run, typed_json
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


LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
UNIX = "unix:"
_MOST_SECRET_BYTES = 4096
_SHORTEST_SECRET = 32  # characters; the output of `openssl rand -hex 16`
# uvicorn would take the sender's address from a header. Only that of the connection counts.
_TRUSTED_BY_UVICORN = "FORWARDED_ALLOW_IPS"


@verb(
    "serve",
    "start the dashboard for a team, behind a proxy that signs users in",
    argument("--address", default="127.0.0.1", help="IP address to listen on (127.0.0.1)"),
    argument("--port", default="8501", help="port to listen on (8501)"),
    argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="a host name by which browsers reach the server; may be repeated. The names of this machine "
        "are allowed already",
    ),
    argument(
        "--trusted-proxy",
        metavar="ADDRESS",
        help="the IP address of the proxy that signs users in, or unix:PATH to listen on a Unix socket that "
        "only the proxy can open. Connections from elsewhere are refused",
    ),
    argument("--user-header", metavar="NAME", help="the header in which the proxy names the user"),
    argument(
        "--proxy-secret",
        metavar="FILE",
        help=f"also require the content of this file in the header {SECRET_HEADER}: on a machine with other "
        "users, who can connect from its addresses too",
    ),
    argument(
        "--without-sign-in",
        action="store_true",
        help="let everyone in who reaches an address that other machines reach",
    ),
    WORKER_MEMORY,
    argument("--audit-log", metavar="FILE", help="append who ran what, as JSON lines"),
    MODEL,
)
def serve(options: argparse.Namespace) -> None:
    """Replace this process by the Streamlit server.

    Raise InvalidInput for an open address without sign-in.
    """
    limit_workers(options.worker_memory)
    port = number(options.port, "--port", "a port from 1 to 65535", 1, 65535)
    proxy = _proxy(options)
    is_local = is_loopback(options.address)
    if proxy is None and not is_local and not options.without_sign_in:
        raise InvalidInput(
            f"--address is {options.address}, so other machines reach the server without sign-in: give "
            "--trusted-proxy and --user-header, or --without-sign-in to let everyone in"
        )
    audit_log = None if options.audit_log is None else os.path.abspath(options.audit_log)
    AuditLog(audit_log).close()
    settings = Serving(
        team=True,
        proxy=proxy,
        audit_log=audit_log,
    )
    hosts = [*LOOPBACK_NAMES, *_own_name(options.address), *map(_host, options.host)]
    models = model_arguments(options.model)
    # Last, so that an option that can never be used is reported on every machine.
    path = _socket_path(options.trusted_proxy)
    if path is None:
        refuse_taken(options.address, port)
    else:
        _refuse_taken_socket(path)
    os.environ[serving.VARIABLE] = json.dumps(typed_json.encode(settings))
    if proxy is not None:
        os.environ[_TRUSTED_BY_UVICORN] = ""
    users = [] if proxy is None else ["--server.trustedUserHeaders", json.dumps({proxy.user_header: "user"})]
    arguments = [
        *("--server.address", options.address if path is None else f"unix://{path}"),
        *("--server.port", str(port), *users),
        *("--server.headless", "true", "--server.enableAgentApi", "false"),
        *(part for name in dict.fromkeys(hosts) for part in ("--server.allowedHosts", name)),
        *models,
    ]
    become_server(arguments)


def _proxy(options: argparse.Namespace) -> TrustedProxy | None:
    """Return the proxy of the options; None without one.

    Raises:
      InvalidInput: an option is missing or unusable, or the secret cannot be read. Errors never contain it.
    """
    if options.trusted_proxy is None:
        for name, value in (("--user-header", options.user_header), ("--proxy-secret", options.proxy_secret)):
            if value is not None:
                raise InvalidInput(f"{name} needs --trusted-proxy, the address of the proxy that sends it")
        return None
    if options.user_header is None:
        raise InvalidInput("--trusted-proxy needs --user-header, the header in which it names the user")
    if not re.fullmatch(r"[A-Za-z0-9-]{1,64}", options.user_header):
        name = shown(options.user_header)
        raise InvalidInput(
            f"--user-header is {name}, but must be the name of a header such as X-Forwarded-Email"
        )
    address = None
    if _socket_path(options.trusted_proxy) is None:
        try:
            address = serving.plain_address(options.trusted_proxy)
        except ValueError:
            raise InvalidInput(
                f"--trusted-proxy is {shown(options.trusted_proxy)}, but must be an IP address, or unix: and "
                "the path of a socket"
            ) from None
    digest = None if options.proxy_secret is None else _digest(options.proxy_secret)
    if address is not None and digest is None and ipaddress.ip_address(address).is_loopback:
        print(
            f"warning: every user of this machine can connect from {address} and name any user: on a machine "
            "with other users, give --proxy-secret or a Unix socket",
            file=sys.stderr,
        )
    return TrustedProxy(options.user_header, address, digest)


def _digest(path: str) -> str:
    secret = input_file.read_bytes(path, _MOST_SECRET_BYTES).strip()
    if len(secret) < _SHORTEST_SECRET or not re.fullmatch(rb"[!-~]+", secret):
        raise InvalidInput(
            f"--proxy-secret {path} must have {_SHORTEST_SECRET} random characters or more, without spaces, "
            "such as from `openssl rand -hex 32`"
        )
    if Path(path).stat().st_mode & stat.S_IROTH:
        print(f"warning: other users of this machine can read {path}: chmod 600", file=sys.stderr)
    return hashlib.sha256(secret).hexdigest()


def _socket_path(proxy: str | None) -> str | None:
    """Return the path of the Unix socket in --trusted-proxy; None if it is another address."""
    if proxy is None or not proxy.startswith(UNIX):
        return None
    path = proxy.removeprefix(UNIX)
    return os.path.abspath("/" + path.lstrip("/") if path.startswith("//") else path)


def _refuse_taken_socket(path: str) -> None:
    """Raise InvalidInput if the server cannot make this socket. Delete that of a server that has ended."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            if probe.connect_ex(path) == 0:
                raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
            if os.path.lexists(path) and stat.S_ISSOCK(os.lstat(path).st_mode):
                os.unlink(path)
            probe.bind(path)
            os.unlink(path)
        except OSError as error:
            reason = error.strerror or error  # "AF_UNIX path too long" has no number
            raise InvalidInput(f"the server cannot listen on the socket {path}: {reason}") from None


def _own_name(address: str) -> list[str]:
    """Return the host name in the address; none if it is all addresses."""
    if address == "localhost" or ipaddress.ip_address(address).is_unspecified:
        return []
    return [f"[{address}]" if ":" in address else address]


def _host(name: str) -> str:
    parts = urlsplit(f"//{name}")
    if not name or parts.netloc != name or not parts.hostname or "@" in name or _has_port(name):
        raise InvalidInput(f"--host is {shown(name)}, but must be a host name such as shards.my.org")
    return name


def _has_port(name: str) -> bool:
    return ":" in name.rpartition("]")[2]
