"""Optimizer state that takes more of a device than its parameters explain."""

from __future__ import annotations

from collections import defaultdict

from inspector.checks.audit.examined import Examined, finding, subject, worth_telling
from inspector.core.folding import Fold
from inspector.core.formatting import spec_text
from inspector.core.snapshot import Array, Finding

WHAT = "optimizer state that does not follow its parameters"

NOT_FOLLOWING = "optimizer-not-following"
UNEXPLAINED = "state-larger-than-parameters"


def findings(examined: Examined) -> list[Finding]:
    """Moments split less finely than their parameter, and state that belongs to no parameter."""
    return [*_not_following(examined), *_unexplained(examined)]


def explained_bytes(moment: Array, parameter: Array) -> int | None:
    """What a device would hold of the moment if it lay as its parameter does; None where not known."""
    if not parameter.bytes or parameter.bytes_per_device is None or moment.bytes is None:
        return None
    return moment.bytes * parameter.bytes_per_device // parameter.bytes


def _not_following(examined: Examined) -> list[Finding]:
    clusters: dict[str, list[tuple[int, Array]]] = defaultdict(list)
    owner = {array.path: one.path for one in examined.folds("params") for array in one.arrays}
    for moment in examined.of_group("opt_state"):
        parameter = examined.parameters.get(moment.path)
        if parameter is None or moment.bytes_per_device is None:
            continue
        explained = explained_bytes(moment, parameter)
        if explained is not None and moment.bytes_per_device > explained:
            clusters[owner[parameter.path]].append((moment.bytes_per_device - explained, moment))
    candidates = [
        (sum(more for more, _ in held), Fold(path, tuple(array for _, array in held)))
        for path, held in clusters.items()
    ]
    alone, rest = worth_telling(candidates, examined.least)
    found = []
    for saved, one in alone:
        parameter = examined.parameters[one.first.path]
        held = one.bytes_per_device
        found.append(
            finding(
                "warning",
                NOT_FOLLOWING,
                f"The optimizer's state of {one.path} takes {examined.amount(held)} of each device although "
                f"the parameter is split more finely: {one.first.path} lies as {spec_text(one.first.spec)}, "
                f"the parameter as {spec_text(parameter.spec)}. Laid out like its parameter it would take "
                f"{examined.amount(saved)} less.",
                folds=[one],
                saved=saved,
                remedy="Give the optimizer's state the shardings of its parameters, for instance by "
                "building it inside jit with out_shardings taken from theirs.",
            )
        )
    if rest:
        saved = sum(number for number, _ in rest)
        found.append(
            finding(
                "warning",
                NOT_FOLLOWING,
                f"The optimizer's state of {len(rest)} smaller parameters is split less finely than they "
                f"are, {examined.amount(saved)} of each device together.",
                folds=[one for _, one in rest],
                saved=saved,
            )
        )
    return found


def _unexplained(examined: Examined) -> list[Finding]:
    parameters = sum(array.bytes_per_device or 0 for array in examined.of_group("params"))
    if not parameters:
        return []
    candidates = []
    for one in examined.folds("opt_state", "other"):
        alone = [array for array in one.arrays if array.path not in examined.parameters]
        # What every device holds whole is told as that, with the same bytes.
        if alone and not examined.is_whole(alone[0]):
            kept = Fold(one.path, tuple(alone))
            candidates.append((kept.bytes_per_device or 0, kept))
    large, _ = worth_telling(candidates, max(examined.least, parameters))
    return [
        finding(
            "note",
            UNEXPLAINED,
            f"{subject(one)} takes {examined.amount(held)} of each device, more than all parameters "
            f"({examined.amount(parameters)}), and has the shape of none of them.",
            folds=[one],
        )
        for held, one in large
    ]
