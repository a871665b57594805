"""The result of a HostLocal as a Snapshot."""

from __future__ import annotations

import datetime

from inspector.core import typed_json
from inspector.core.snapshot import Finding, Snapshot, Source
from inspector.guides import processes
from inspector.guides.processes import Exchanged, HostLocal

REFUSED = "refused-by-jax"
DIFFERENT_COPIES = "different-copies"


def snapshot(wanted: HostLocal, exchanged: Exchanged) -> Snapshot:
    """Return the global array. The key `host_local` has the request and the view of each process."""
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Snapshot(
        source=Source("cpu", "cpu", created, exchanged.versions, processes=wanted.processes),
        layout=None,
        mesh=exchanged.mesh,
        arrays=() if exchanged.array is None else (exchanged.array,),
        findings=_findings(wanted, exchanged),
        extra={"host_local": {"asked": wanted.to_json(), "made": typed_json.encode(exchanged)}},
    )


def _findings(wanted: HostLocal, exchanged: Exchanged) -> tuple[Finding, ...]:
    if exchanged.refusal is not None:
        code = REFUSED
    elif processes.differing_copies(exchanged):
        code = DIFFERENT_COPIES
    else:
        return ()
    return (Finding("error", code, processes.verdict(wanted, exchanged)),)
