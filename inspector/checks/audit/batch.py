"""A batch that every device holds whole, so all devices compute the same rows."""

from __future__ import annotations

from inspector.checks.audit.context import AuditContext, finding, names_text
from inspector.core.folding import fold
from inspector.core.snapshot import Array, Finding
from inspector.core.totals import STATE_GROUPS

CODE = "batch-not-sharded"


def findings(context: AuditContext) -> list[Finding]:
    """Return one finding for all replicated arrays of the batch.

    It is a note if every mesh axis shards parameters, as in pure tensor parallelism.
    """
    whole = [a for a in context.of_group("batch") if a.shape and context.is_replicated(a)]
    if not whole:
        return []
    used = {
        axis
        for array in context.of_group(*STATE_GROUPS)
        for axes in array.spec or ()
        for axis in axes or ()
    }
    idle = [axis.name for axis in context.mesh.axes if axis.size > 1 and axis.name not in used]
    saved = sum(context.saved(array) for array in whole)
    held = context.amount(sum(array.bytes_per_device or 0 for array in whole))
    start = f"Each of the {context.mesh.size} devices holds the whole batch ({held}) and computes all rows."
    if not idle:
        message = f"{start} Every mesh axis shards parameters, as in pure tensor parallelism."
        return [finding("note", CODE, message, folds=fold(whole), saved=saved)]
    axes, names = names_text(idle, "or"), _row_names(whole)
    message = (
        f"{start} Mesh axis {axes} is free: sharding the batch over it would save {context.amount(saved)} "
        "of input per device, and the same share of activations and work."
    )
    remedy = (
        f"Add the rule `{names[0]} → {idle[0]}`."
        if names
        else f"Shard the first dimension of the batch over {axes}."
    )
    return [
        finding(
            "warning",
            CODE,
            message,
            folds=fold(whole),
            saved=saved,
            remedy=remedy,
            axes=idle,
            logical_axes=names,
        )
    ]


def _row_names(arrays: list[Array]) -> list[str]:
    """Return the logical axes of the first dimensions, which are the rows of a batch."""
    names = [array.logical_axes[0] for array in arrays if array.logical_axes]
    return list(dict.fromkeys(name for name in names if name))
