"""Host-local arrays of several processes: the request, the script and the result."""

from inspector.guides.processes.request import (
    DEFAULTS,
    PROCESS_COUNTS,
    HostLocal,
    from_json,
    global_shape,
    local_mesh,
    parse,
)
from inspector.guides.processes.result import (
    Exchanged,
    Held,
    View,
    differing_copies,
    verdict,
)
