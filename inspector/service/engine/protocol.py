"""What server and worker say to each other: one message a line, each a JSON object.

Server to worker, on the worker's standard input:

    run        run, job, payload         do this job; the number `run` names it from now on
    cancel     run                       stop that run at its next report
    warm       devices                   import JAX now and check that it has this many devices

Worker to server, on what was the worker's standard output:

    started    run                       the job has been picked up
    dropped    run                       it has not, after all; the worker ends after this
    progress   run, phase, figures       where it is
    done       run, result               ┐
    failed     run, error, details       ├ exactly one of these ends a run
    cancelled  run                       ┘
    warmed
    unusable   error                     warming failed; the worker ends after this
"""

from __future__ import annotations

import json
from typing import Any

# A line that a worker writes on its standard error, after whatever was said before, when a run begins.
# A message could not say it: the two streams arrive each in its own time.
NEW_RUN = "-- a run begins --"


def encode(kind: str, **fields: Any) -> bytes:
    """One message as one line, newline included.

    Raises TypeError or ValueError for what JSON cannot hold, NaN and infinity included: both sides
    read strict JSON only.
    """
    # ASCII only, so that neither a line separator nor a lone surrogate in a name can break a line.
    text = json.dumps({"kind": kind, **fields}, allow_nan=False, separators=(",", ":"))
    return text.encode("ascii") + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """The message in one line; raises ValueError if there is none."""
    message = json.loads(line)
    if isinstance(message, dict) and isinstance(message.get("kind"), str):
        return message
    raise ValueError("A message is a JSON object with a text under `kind`.")


def canonical(payload: dict[str, Any]) -> str:
    """The same text for equal payloads, whatever the order of their keys.

    Raises TypeError or ValueError for what JSON cannot hold.
    """
    return json.dumps(payload, allow_nan=False, sort_keys=True, separators=(",", ":"))
