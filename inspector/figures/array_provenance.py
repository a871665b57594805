"""What pictures of arrays that no model has are of, in a line: how they were made, mesh, versions and date.

It stands on the pictures of Assemble, Processes and Learn, as `provenance` stands on those of layouts.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping

from inspector.core.snapshot import Mesh, Snapshot, Source
from inspector.figures import provenance


def line(made: Iterable[str], mesh: Mesh, versions: Mapping[str, str], processes: int = 1) -> str:
    """The facts in the order in which they are said. Plain text.

    Args:
      made: what the arrays are and how they were made, a few words each.
      mesh: of emulated devices.
      versions: of the packages that made them, by name.
      processes: how many real processes they were made in.
    """
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    source = Source("cpu", "cpu", created, dict(versions), processes=processes)
    facts = provenance.facts(Snapshot(source=source, layout=None, mesh=mesh, arrays=()))
    within = f" of {processes} processes" if processes > 1 else ""
    # CompileCache are kept for a while and nobody wrote down when they came: the date is the picture's.
    return " · ".join(
        [
            *made,
            f"mesh {facts['mesh']}",
            facts["target"] + within,
            f"versions {facts['versions']}",
            f"drawn {facts['date']}",
        ]
    )
