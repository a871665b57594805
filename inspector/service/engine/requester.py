"""Who asked for a job, and its task."""

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Requester:
    """The owner of a job.

    Attributes:
      owner: identifies the owner: a signed-in user, a browser, or a browser session.
      name: the owner's name, as shown to others.
      session: the browser session that waits for the job; None outside of a browser.
      signed_in: the owner is a user, who remains when the browser session ends.
    """

    owner: str
    name: str
    session: str | None = None
    signed_in: bool = False

    @property
    def session_digest(self) -> str | None:
        """Return a name of the session for logs. Who knows the session itself can take it over."""
        return None if self.session is None else digest_of_session(self.session)


# The command line and the server's own jobs, whose number has no bound.
LOCAL = Requester("", "this machine")


def digest_of_session(session: str) -> str:
    """Return 16 hexadecimal digits that identify a session, but do not open it."""
    return hashlib.sha256(session.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Subject:
    """The task of a job, for the list of jobs and the audit log.

    Attributes:
      title: the model and the mesh; empty without a layout.
      target: the target of the layout; None without a layout.
      layout: a digest of the layout's JSON, or of the whole request without a layout.
    """

    title: str = ""
    target: str | None = None
    layout: str | None = None


NO_SUBJECT = Subject()
