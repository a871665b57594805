"""The user whom a provider of OpenID Connect has signed in, and whether this server is for that user.

`claims` are the fields of the provider's ID token, which Streamlit keeps in a signed cookie with
`is_logged_in`.
"""

import re
from collections.abc import Mapping
from typing import Any

from inspector.core.printable import one_line
from inspector.service import serving
from inspector.service.engine import Requester

_LONGEST_NAME = 80  # characters of a user's name
# An address: a name that is quoted if it contains @, and a domain (RFC 5321). Of `a@b@my.org`, mail servers
# disagree on which domain it belongs to.
_ADDRESS = re.compile(r'(?:[^@"\s]+|"(?:[^"\\]|\\.)+")@(?P<domain>[^@"\s]+)')


def has_signed_in(claims: Mapping[str, Any]) -> bool:
    """Return whether a user has signed in, allowed or not."""
    return claims.get("is_logged_in") is True and bool(claims.get("sub") and claims.get("iss"))


def problem(claims: Mapping[str, Any]) -> str | None:
    """Return why a user may not use this server, or None."""
    if not has_signed_in(claims):
        return "no user has signed in"
    domains = serving.current().domains
    name = requester(claims).name
    if domains and claims.get("email_verified") is not True:
        return f"{name} has no verified e-mail address, which this server requires"
    address = _ADDRESS.fullmatch(str(claims.get("email", "")))
    if domains and address is None:
        return f"{name} has no valid e-mail address, which this server requires"
    if domains and address is not None and address["domain"].lower() not in domains:
        return f"{name} is not a user of this server, which is for {' and '.join(domains)}"
    return None


def requester(claims: Mapping[str, Any], session: str | None = None) -> Requester:
    """Return the user that the provider signed, allowed or not, as the owner of jobs and entries."""
    # Only both together identify a user. An e-mail address can be given to another person.
    owner = f"{claims['iss']} {claims['sub']}"
    names = [claims.get(key) for key in ("email", "preferred_username", "name")]
    name = next(
        (candidate for candidate in names if isinstance(candidate, str) and candidate.strip()),
        claims["sub"],
    )
    return Requester(owner, one_line(str(name)).strip()[:_LONGEST_NAME], session, signed_in=True)
