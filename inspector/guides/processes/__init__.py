"""Arrays of several processes: what is asked for, its script, and what came of it."""

from inspector.guides.processes.record import (
    DEFAULTS,
    MOST_MESH_AXES,
    PROCESS_COUNTS,
    Exchanged,
    Held,
    HostLocal,
    Refusal,
    Step,
    View,
    differing_copies,
    from_json,
    global_shape,
    local_mesh,
    parse,
    verdict,
)

__all__ = [
    "DEFAULTS",
    "MOST_MESH_AXES",
    "PROCESS_COUNTS",
    "Exchanged",
    "Held",
    "HostLocal",
    "Refusal",
    "Step",
    "View",
    "differing_copies",
    "from_json",
    "global_shape",
    "local_mesh",
    "parse",
    "verdict",
]
