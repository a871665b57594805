"""A batch that every device has whole, so that all compute the same rows."""

from __future__ import annotations

from inspector.checks.audit.examined import Examined, finding, names_text
from inspector.core.folding import fold
from inspector.core.snapshot import Array, Finding
from inspector.core.totals import STATE_GROUPS

WHAT = "a batch that is not split"

CODE = "batch-not-sharded"


def findings(examined: Examined) -> list[Finding]:
    """One for all arrays of the batch that are whole; a note where every mesh axis splits parameters."""
    whole = [
        array for array in examined.of_group("batch") if array.shape and examined.is_whole(array)
    ]
    if not whole:
        return []
    used = {
        axis
        for array in examined.of_group(*STATE_GROUPS)
        for axes in array.spec or ()
        for axis in axes or ()
    }
    idle = [axis.name for axis in examined.mesh.axes if axis.size > 1 and axis.name not in used]
    saved = sum(examined.saved(array) for array in whole)
    held = sum(array.bytes_per_device or 0 for array in whole)
    name = next(iter(_row_names(whole)), None)
    start = (
        f"The batch ({examined.amount(held)}) is whole on each of the {examined.mesh.size} devices, so that "
        "all of them read and compute the same rows"
    )
    if not idle:
        return [
            finding(
                "note",
                CODE,
                f"{start}. Every mesh axis splits parameters; what each device does then differs in columns, "
                "not in rows, as in pure tensor parallelism.",
                folds=fold(whole),
                saved=saved,
            )
        ]
    return [
        finding(
            "warning",
            CODE,
            f"{start}, though mesh axis {names_text(idle, 'or')} is free: splitting the batch over it would "
            f"divide that work, and save {examined.amount(saved)} of input a device and as large a part "
            "of the activations.",
            folds=fold(whole),
            saved=saved,
            remedy=f"Give {name} a rule to {names_text(idle, 'or')}."
            if name
            else f"Split the first dimension of the batch over {names_text(idle, 'or')}.",
            axes=idle,
            logical_axes=_row_names(whole),
        )
    ]


def _row_names(arrays: list[Array]) -> list[str]:
    """The logical axes of their first dimensions, which are the rows of a batch."""
    names = [array.logical_axes[0] for array in arrays if array.logical_axes]
    return list(dict.fromkeys(name for name in names if name))
