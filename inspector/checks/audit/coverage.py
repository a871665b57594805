"""The checks that the audit of a Snapshot leaves out, because the facts are unknown."""

from collections.abc import Sequence

from inspector.core.formatting import and_text, counted
from inspector.core.snapshot import Array, Snapshot
from inspector.core.totals import STATE_GROUPS

_MOST_NAMES = 3  # in a sentence


def gaps(snapshot: Snapshot) -> tuple[str, ...]:
    """Return one sentence per kind of fact that is missing; empty if every check has its facts."""
    if snapshot.mesh is None:
        return ("The mesh is unknown, so shardings are not checked.",)
    said = []
    if not snapshot.programs:
        unknown = "Activations, gradients and collectives are unknown, so they are not checked."
        if snapshot.source.kind == "plan":
            unknown += " They are known once the programs are partitioned, compiled or run."
        said.append(unknown)
    without = [
        program.name
        for program in snapshot.programs
        if program.collectives is None and program.sharding_error is None
    ]
    if without:
        said.append(f"The collectives of {_listed(without)} are unknown, so they are not checked.")
    held = [array for array in snapshot.arrays if array.group in (*STATE_GROUPS, "cache", "batch")]
    nowhere = [array.path for array in held if _is_unknown(array)]
    if nowhere:
        said.append(
            f"The {'sharding' if len(nowhere) == 1 else 'shardings'} of {_listed(nowhere)} "
            f"{'is' if len(nowhere) == 1 else 'are'} unknown, so {counted(len(nowhere), 'array')} "
            f"{'is' if len(nowhere) == 1 else 'are'} not checked."
        )
    return tuple(said)


def _is_unknown(array: Array) -> bool:
    return array.spec is None and array.shards is None and array.bytes_per_device is None


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    if more > 0:
        return f"{', '.join(names[:_MOST_NAMES])} and {more} more"
    return and_text(names)
