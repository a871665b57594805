"""The result of an Assembly as a Snapshot."""

from dataclasses import replace

from inspector.core import typed_json
from inspector.core.snapshot import Snapshot
from inspector.guides.array_fields import REFUSED, result_snapshot
from inspector.guides.assembly import Assembled, Assembly, pieces

WRONG_NUMBERS = "wrong-numbers"


def snapshot(assembly: Assembly, assembled: Assembled) -> Snapshot:
    """Return the arrays that JAX made. The key `assembly` has the request, the pieces and all numbers."""
    error = None
    if assembled.joined is None or pieces.wrong_elements(assembly, assembled.joined):
        faults = (fault.sentence for fault in pieces.faults(assembly, assembled))
        code = WRONG_NUMBERS if assembled.refusal is None else REFUSED
        error = code, " ".join([pieces.verdict(assembly, assembled), *faults])
    result = result_snapshot(
        assembly.mesh(),
        [stage.array for stage in (assembled.joined, assembled.resharded) if stage is not None],
        error,
        assembled.versions,
    )
    return replace(result, assembly={"asked": assembly.to_json(), "made": typed_json.encode(assembled)})
