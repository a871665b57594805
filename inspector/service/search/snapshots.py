"""Snapshots of the best layouts of a search, to compare and report them."""

from inspector.compare.search.result import SearchResult, layout_of
from inspector.core.formatting import mesh_sizes_text, numbered
from inspector.core.snapshot import Snapshot
from inspector.service import known_results
from inspector.service.inspection import Inspection

MOST = 4  # layouts, the current one included


def snapshots_of(result: SearchResult, service: Inspection) -> tuple[list[tuple[str, Snapshot]], int]:
    """Return names and Snapshots: the layout that the search began with, then the best ones.

    Compiled ones, and those that the search ran on this machine, come from the cache. Others are plans with
    partitioned programs. Also return how many of these the search had compiled or run, on another machine or
    with other versions.

    Raises:
      InvalidInput: a layout is not valid, or its model cannot be traced.
    """
    chosen = [candidate for candidate in result.candidates if candidate.current]
    chosen += [
        candidate
        for candidate in result.candidates
        if not candidate.current and candidate.stage != "rejected"
    ]
    snapshots, names, lost = [], [], 0
    for candidate in chosen[:MOST]:
        layout = layout_of(candidate)
        # On emulated devices a search for a chip runs layouts too; the median is in no result then.
        snapshot = known_results.compiled(layout) or known_results.measured(layout, candidate.measured)
        lost += snapshot is None and candidate.stage == "compiled"
        snapshots.append(snapshot or service.with_programs(service.plan(layout), layout))
        name = mesh_sizes_text(layout.axis_names, layout.mesh_shape)
        names.append(f"{name} (current)" if candidate.current else name)
    return list(zip(numbered(names), snapshots, strict=True)), lost
