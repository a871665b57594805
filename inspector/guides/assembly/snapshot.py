"""The result of an Assembly as a Snapshot."""

from __future__ import annotations

import datetime

from inspector.core import typed_json
from inspector.core.snapshot import Finding, Snapshot, Source
from inspector.guides.assembly import Assembled, Assembly, pieces

REFUSED = "refused-by-jax"
WRONG_NUMBERS = "wrong-numbers"


def snapshot(assembly: Assembly, made: Assembled) -> Snapshot:
    """Return the arrays that JAX made. The key `assembly` has the request, the pieces and all numbers."""
    stages = [stage for stage in (made.joined, made.resharded) if stage is not None]
    return Snapshot(
        source=Source(
            kind="cpu",
            target="cpu",
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            versions=made.versions,
        ),
        layout=None,
        mesh=assembly.mesh(),
        arrays=tuple(stage.array for stage in stages),
        findings=_findings(assembly, made),
        extra={"assembly": {"asked": assembly.to_json(), "made": typed_json.encode(made)}},
    )


def _findings(assembly: Assembly, made: Assembled) -> tuple[Finding, ...]:
    code = REFUSED if made.refusal is not None else WRONG_NUMBERS
    sentences = [fault.sentence for fault in pieces.faults(assembly, made)]
    if made.refusal is None and not (made.joined and pieces.wrong_elements(assembly, made.joined)):
        return ()
    verdict = pieces.verdict(assembly, made)
    return (Finding("error", code, " ".join([verdict, *sentences])),)
