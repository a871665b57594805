"""The log without the ids of sessions: who reads one could reconnect as this session."""

import logging
import re
from typing import Any

from inspector.service.engine.requester import digest_of_session

_SESSION = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


def hide_ids() -> None:
    """Write the digest of each session's id in the place of the id, in the log records of all libraries."""
    make = logging.getLogRecordFactory()

    def record_without_ids(*arguments: Any, **named: Any) -> logging.LogRecord:
        record = make(*arguments, **named)
        record.msg = _hidden(record.msg)
        if isinstance(record.args, tuple):  # formatters read some of them one by one
            record.args = tuple(map(_hidden, record.args))
        return record

    logging.setLogRecordFactory(record_without_ids)


def _hidden(part: Any) -> Any:
    if not isinstance(part, str):
        return part
    return _SESSION.sub(lambda session: digest_of_session(session[0]), part)
