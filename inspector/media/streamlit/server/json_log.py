"""The log of the server as JSON lines on standard error."""

import datetime
import json
import logging
import sys

from inspector.media.streamlit import streamlit_internals


class JsonFormatter(logging.Formatter):
    """Writes time (UTC), level, logger and message of a record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def install() -> None:
    """Send all log records of this process to standard error as JSON, those of Streamlit included."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    logging.captureWarnings(True)
    streamlit_internals.log_to(handler)
    for logger in list(logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger) and logger.handlers:
            logger.handlers = [handler]
            logger.propagate = False
