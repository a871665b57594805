"""The settings of a team server, which `serve` passes to the process of the server.

They travel as JSON in an environment variable. Without it, the server is a dashboard for one local user.
"""

import functools
import ipaddress
import os
from dataclasses import dataclass

from inspector.core import strict_json, typed_json
from inspector.core.typed_json import Record

VARIABLE = "SHARDING_INSPECTOR_SERVE"
SECRET_HEADER = "X-Proxy-Secret"


@dataclass(frozen=True)
class TrustedProxy(Record):
    """The proxy that signs users in, and through which alone the server is reached.

    Attributes:
      user_header: the header of each request with the name of its user.
      address: the IP address of the proxy; None if the server listens on a Unix socket.
      secret_digest: the SHA-256 of what the proxy sends in `SECRET_HEADER`; None if it sends nothing.
    """

    user_header: str
    address: str | None = None
    secret_digest: str | None = None


@dataclass(frozen=True)
class Serving(Record):
    """How a server is shared.

    Attributes:
      team: several people use it, as opposed to one local user.
      proxy: the proxy that signs users in; None without sign-in.
      audit_log: the file of the audit log, or None.
    """

    team: bool = False
    proxy: TrustedProxy | None = None
    audit_log: str | None = None


@functools.cache
def current() -> Serving:
    """Return the settings of this process."""
    text = os.environ.get(VARIABLE)
    if text is None:
        return Serving()
    return typed_json.decode(Serving, strict_json.parse(text, VARIABLE), VARIABLE)


def plain_address(address: str) -> str:
    """Return an IP address in the only form in which two are compared: `::ffff:10.0.0.2` is `10.0.0.2`.

    Raises:
      ValueError: it is not an IP address.
    """
    known = ipaddress.ip_address(address)
    return str(getattr(known, "ipv4_mapped", None) or known)
