"""Messages between server and worker: each a JSON object on one line.

Server to worker, on the worker's standard input:

    run        run, job, payload, memory run this job; `run` is its number from now on, and `memory` the
                                         bytes that it may use beyond those of the worker, or null
    cancel     run                       stop that run at its next report
    warm       devices                   import JAX and check that it has this many devices

Worker to server, on the worker's original standard output:

    started    run                       the job has begun
    dropped    run                       it has not begun after all; the worker ends after this
    progress   run, phase, figures       progress of the job
    done       run, result               ┐
    failed     run, error, details       ├ exactly one of these ends a run
    cancelled  run                       ┘
    warmed
    unusable   error                     warming failed; the worker ends after this
"""

import json
from typing import Any

# A worker writes this line on its standard error when a run begins. A message cannot replace it, because
# the two streams are not synchronized.
NEW_RUN = "-- a run begins --"


def encode(kind: str, **fields: Any) -> bytes:
    """Return one message as one line, newline included.

    Raises TypeError or ValueError for values that strict JSON does not have, such as NaN.
    """
    # ASCII only, so that neither a line separator nor a lone surrogate in a name can break a line.
    text = json.dumps({"kind": kind, **fields}, allow_nan=False, separators=(",", ":"))
    return text.encode("ascii") + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Return the message of one line. Raises ValueError if there is none."""
    message = json.loads(line)
    if isinstance(message, dict) and isinstance(message.get("kind"), str):
        return message
    raise ValueError("A message is a JSON object with a text under `kind`.")


def canonical(payload: dict[str, Any]) -> str:
    """Return the same text for equal payloads, whatever the order of their keys.

    Raises TypeError or ValueError for values that strict JSON does not have.
    """
    return json.dumps(payload, allow_nan=False, sort_keys=True, separators=(",", ":"))
