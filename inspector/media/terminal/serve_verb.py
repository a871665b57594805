"""`serve`: start the dashboard for a team, with sign-in, limits, an audit log and an orderly end."""

import argparse
import importlib.metadata
import ipaddress
import json
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from inspector.core import input_file, toml_text, typed_json
from inspector.core.errors import InvalidInput, shown
from inspector.media.terminal.dashboard_verb import (
    MODEL,
    WORKER_MEMORY,
    become_server,
    is_loopback,
    limit_workers,
    model_arguments,
    refuse_taken,
)
from inspector.media.terminal.options import argument, number, verb
from inspector.service import serving
from inspector.service.audit_log import AuditLog
from inspector.service.serving import Serving

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
CALLBACK = "/oauth2callback"  # the path of Streamlit that a provider sends users back to
_MOST_SECRETS_BYTES = 2**20
_SHORTEST_COOKIE_SECRET = 32  # characters; the output of `openssl rand -hex 16`
_OLDEST_AUTHLIB = (1, 3, 2)  # Streamlit's own bound
_PROVIDER_FIELDS = ("client_id", "client_secret", "server_metadata_url")


@verb(
    "serve",
    "start the dashboard for a team, with sign-in, limits for each user and an audit log",
    argument("--address", default="127.0.0.1", help="IP address to listen on (127.0.0.1)"),
    argument("--port", default="8501", help="port to listen on (8501)"),
    argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="a host name by which browsers reach the server; may be repeated. The names of this machine "
        "and of redirect_uri are allowed already",
    ),
    argument(
        "--secrets",
        metavar="FILE.toml",
        help="sign in with the OpenID Connect provider of this file: redirect_uri, cookie_secret, "
        "client_id, client_secret and server_metadata_url in a section [auth]",
    ),
    argument(
        "--allow-domain",
        action="append",
        default=[],
        metavar="DOMAIN",
        help="let in only users with a verified e-mail address in this domain; may be repeated",
    ),
    argument(
        "--insecure-open",
        action="store_true",
        help="allow another address than this machine without sign-in",
    ),
    argument("--jobs-per-user", default="2", metavar="N", help="running jobs of one user (2)"),
    argument("--queued-per-user", default="8", metavar="N", help="waiting jobs of one user (8)"),
    WORKER_MEMORY,
    argument(
        "--shutdown-seconds",
        default="60",
        metavar="S",
        help="how long running jobs may go on after SIGTERM (60)",
    ),
    argument("--audit-log", metavar="FILE", help="append who ran what, as JSON lines"),
    argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="the form of the log on standard error",
    ),
    MODEL,
)
def serve(options: argparse.Namespace) -> None:
    """Check the options, and replace this process by the Streamlit server."""
    limit_workers(options.worker_memory)
    port = number(options.port, "--port", "a port from 1 to 65535", 1, 65535)
    secrets = None if options.secrets is None else os.path.abspath(options.secrets)
    auth = {} if secrets is None else _read_auth(secrets)
    if not is_loopback(options.address) and not auth and not options.insecure_open:
        raise InvalidInput(
            f"--address is {options.address}, so other machines reach the server without sign-in: "
            "give --secrets, or --insecure-open to let everyone in"
        )
    if options.allow_domain and not auth:
        raise InvalidInput("--allow-domain needs sign-in: give --secrets")
    audit_log = None if options.audit_log is None else os.path.abspath(options.audit_log)
    AuditLog(audit_log).close()
    settings = Serving(
        team=True,
        providers=_providers(auth),
        domains=tuple(_domain(domain) for domain in options.allow_domain),
        jobs_per_user=_count(options.jobs_per_user, "--jobs-per-user"),
        queued_per_user=_count(options.queued_per_user, "--queued-per-user"),
        shutdown_seconds=float(
            number(options.shutdown_seconds, "--shutdown-seconds", "seconds from 0 to 86400", 0, 86400)
        ),
        audit_log=audit_log,
        json_log=options.log_format == "json",
    )
    hosts = [*LOOPBACK_NAMES, *_own_names(options.address, auth), *map(_host, options.host)]
    models = model_arguments(options.model)
    # Last, so that an option that can never be used is reported on every machine.
    refuse_taken(options.address, port)
    os.environ[serving.VARIABLE] = json.dumps(typed_json.encode(settings))
    arguments = [
        *("--server.address", options.address, "--server.port", str(port)),
        *("--server.headless", "true", "--server.enableAgentApi", "false"),
        *(part for name in dict.fromkeys(hosts) for part in ("--server.allowedHosts", name)),
        *(("--secrets.files", secrets) if secrets is not None else ()),
        *models,
    ]
    become_server(arguments)


def _count(text: str, option: str) -> int:
    return number(text, option, "a number from 1 to 1000", 1, 1000)


def _own_names(address: str, auth: Mapping[str, Any]) -> list[str]:
    """Return the host names in the address and in `redirect_uri`."""
    names = []
    if address != "localhost" and not ipaddress.ip_address(address).is_unspecified:
        names.append(f"[{address}]" if ":" in address else address)
    if auth:
        names.append(_in_brackets(urlsplit(auth["redirect_uri"]).hostname or ""))
    return names


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _host(name: str) -> str:
    parts = urlsplit(f"//{name}")
    if not name or parts.netloc != name or not parts.hostname or "@" in name or _has_port(name):
        raise InvalidInput(f"--host is {shown(name)}, but must be a host name such as shards.my.org")
    return name


def _has_port(name: str) -> bool:
    return ":" in name.rpartition("]")[2]


def _domain(name: str) -> str:
    if "." not in name or name.startswith(".") or not name.replace(".", "").replace("-", "").isalnum():
        raise InvalidInput(f"--allow-domain is {shown(name)}, but must be the part after @ such as my.org")
    return name.lower()


def _read_auth(path: str) -> dict[str, Any]:
    """Return the section `[auth]` of a secrets file. Errors never contain a value of it.

    Raises:
      InvalidInput: the file cannot be read, lacks a field, or Authlib is not installed.
    """
    try:
        content = input_file.read_bytes(path, _MOST_SECRETS_BYTES).decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidInput(f"--secrets {path} is not a TOML file in UTF-8") from None
    try:
        auth = toml_text.parse(content, path).get("auth")
    except InvalidInput:
        # The parser's message can quote the file.
        raise InvalidInput(f"--secrets {path} is not a TOML file in UTF-8") from None
    if not isinstance(auth, dict):
        raise InvalidInput(f"--secrets {path} has no section [auth]")
    redirect = auth.get("redirect_uri")
    parts = urlsplit(redirect) if isinstance(redirect, str) else None
    if parts is None or parts.scheme not in ("http", "https") or parts.path != CALLBACK:
        raise InvalidInput(
            f"--secrets {path}: redirect_uri in [auth] must be the server's address with the path "
            f"{CALLBACK}, such as https://shards.my.org{CALLBACK}"
        )
    secret = auth.get("cookie_secret")
    if not isinstance(secret, str) or len(secret) < _SHORTEST_COOKIE_SECRET:
        raise InvalidInput(
            f"--secrets {path}: cookie_secret in [auth] must be {_SHORTEST_COOKIE_SECRET} random characters "
            "or more, such as from `openssl rand -hex 32`"
        )
    if not _providers(auth):
        raise InvalidInput(
            f"--secrets {path}: [auth] or a section [auth.NAME] without an underscore in its name needs "
            f"{', '.join(_PROVIDER_FIELDS[:-1])} and {_PROVIDER_FIELDS[-1]}"
        )
    if Path(path).stat().st_mode & stat.S_IROTH:
        print(f"warning: other users of this machine can read {path}: chmod 600", file=sys.stderr)
    _refuse_without_authlib()
    return auth


def _providers(auth: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the complete providers in `[auth]`; `default` is the section itself."""
    sections = {"default": auth} | {
        name: section for name, section in auth.items() if isinstance(section, dict) and "_" not in name
    }
    return tuple(
        name
        for name, section in sections.items()
        if all(isinstance(section.get(field), str) and section[field] for field in _PROVIDER_FIELDS)
    )


def _refuse_without_authlib() -> None:
    try:
        version = importlib.metadata.version("authlib")
        importlib.metadata.version("httpx")
    except importlib.metadata.PackageNotFoundError:
        version = "0"
    parts = tuple(int(part) for part in version.split(".")[:3] if part.isdecimal())
    if parts < _OLDEST_AUTHLIB:
        raise InvalidInput(
            "--secrets needs Authlib and httpx, which are not installed: "
            "pip install 'sharding-inspector[team]'"
        )
