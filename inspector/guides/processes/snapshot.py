"""The result of a HostLocal as a Snapshot."""

from dataclasses import replace

from inspector.core import typed_json
from inspector.core.snapshot import Snapshot
from inspector.guides import processes
from inspector.guides.array_fields import REFUSED, result_snapshot
from inspector.guides.processes import Exchanged, HostLocal

DIFFERENT_COPIES = "different-copies"


def snapshot(request: HostLocal, exchanged: Exchanged) -> Snapshot:
    """Return the global array. The key `host_local` has the request and the view of each process."""
    error = None
    if exchanged.refusal is not None or processes.differing_copies(exchanged):
        code = DIFFERENT_COPIES if exchanged.refusal is None else REFUSED
        error = code, processes.verdict(request, exchanged)
    result = result_snapshot(
        exchanged.mesh,
        () if exchanged.array is None else (exchanged.array,),
        error,
        exchanged.versions,
        request.processes,
    )
    return replace(result, host_local={"asked": request.to_json(), "made": typed_json.encode(exchanged)})
