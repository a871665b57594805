"""The settings of a team server, which `serve` passes to the process of the server.

They travel as JSON in an environment variable. Without it, the server is a dashboard for one local user.
"""

import functools
import os
from dataclasses import dataclass

from inspector.core import strict_json, typed_json
from inspector.core.typed_json import Amount, PositiveInt, Record
from inspector.service.engine import Limits

VARIABLE = "SHARDING_INSPECTOR_SERVE"


@dataclass(frozen=True)
class Serving(Record):
    """How a server is shared.

    Attributes:
      team: several people use it, as opposed to one local user.
      providers: the sign-in providers: sections of `[auth]` in the secrets file, or `default` for `[auth]`
        itself. Empty without sign-in.
      domains: if any, only users with a verified e-mail address in one of these domains may sign in.
      jobs_per_user: runs that one owner may have at the same time; None for no limit.
      queued_per_user: runs of one owner that may wait.
      shutdown_seconds: how long running jobs may go on after SIGTERM; None ends them at once.
      audit_log: the file of the audit log, or None.
      json_log: write the log as JSON lines.
    """

    team: bool = False
    providers: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    jobs_per_user: PositiveInt | None = None
    queued_per_user: PositiveInt = 8
    shutdown_seconds: Amount | None = None
    audit_log: str | None = None
    json_log: bool = False

    @property
    def limits(self) -> Limits:
        return Limits(self.jobs_per_user, self.queued_per_user)


@functools.cache
def current() -> Serving:
    """Return the settings of this process."""
    text = os.environ.get(VARIABLE)
    if text is None:
        return Serving()
    return typed_json.decode(Serving, strict_json.parse(text, VARIABLE), VARIABLE)
