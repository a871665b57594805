"""The source of pictures of arrays without a model, in a line: how they were made, mesh, versions and date.

The pictures of Assemble, Processes and Learn have this line, those of layouts have `provenance`.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping

from inspector.core.snapshot import Mesh, Snapshot, Source
from inspector.figures import provenance


def line(made: Iterable[str], mesh: Mesh, versions: Mapping[str, str], processes: int = 1) -> str:
    """Return the facts in one line of plain text.

    Args:
      made: what the arrays are and how they were made, a few words each.
      mesh: a mesh of emulated devices.
      versions: the versions of the packages that made them, by name.
      processes: the number of real processes that made them.
    """
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    source = Source("cpu", "cpu", created, dict(versions), processes=processes)
    facts = provenance.facts(Snapshot(source=source, layout=None, mesh=mesh, arrays=()))
    within = f" of {processes} processes" if processes > 1 else ""
    # Cached results do not record when they were made, so the date is that of the picture.
    return " · ".join(
        [
            *made,
            f"mesh {facts['mesh']}",
            facts["target"] + within,
            f"versions {facts['versions']}",
            f"drawn {facts['date']}",
        ]
    )
