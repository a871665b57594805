"""Published runs whose rows contradict the source that they name, and what this source has instead.

The corrected row describes the program that ran. Its correction is shown with its prediction.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Correction:
    """A correction of rows.

    Attributes:
      is_wrong: whether a row has the contradiction.
      changes: returns the fields that replace those of the row.
      reason: the value in the source, and where; it follows "compiled with".
    """

    is_wrong: Callable[[Mapping[str, Any]], bool]
    changes: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    reason: str


# Seconds of a step of Fuji-7B version 1 in AXLearn's file at 4dae7198: on v4, v5e, v5p, and 256 and 512 H100.
_FIRST_FUJI = (3.03, 2.44, 2.85, 2.44, 1.54)


def _is_first_fuji(row: Mapping[str, Any]) -> bool:
    """Return whether a row is one of these times, with flash attention. Version 1 has 2,048 tokens."""
    return (
        _name(row, "source", "repo") == "apple/axlearn"
        and _name(row, "model", "name") == "fuji-7B"
        and row.get("seq") == 2048
        and _name(row, "measured", "step_seconds") in _FIRST_FUJI
        and row.get("attention") == "flash"
    )


def _as_first_measured(row: Mapping[str, Any]) -> Mapping[str, Any]:
    changes: dict[str, Any] = {"attention": "plain", "remat": {"policy": "default"}}
    if _name(row, "hardware", "chip") == "v5e":
        changes["layout"] = {**row["layout"], "axes": {"data": -1, "fsdp": 16}}
    return changes


# Classes of Pax's configs.py that set no policy, which is then SAVE_NOTHING of paxml's model_params.py. It is
# that of repeated layers; those of GPT126M are not repeated.
_PAX_POLICIES = {"gpt-175B": "save_nothing", "gpt-126M": "none"}


def _is_pax_without_policy(row: Mapping[str, Any]) -> bool:
    return (
        _name(row, "layout", "framework") == "Pax"
        and _name(row, "model", "name") in _PAX_POLICIES
        and _name(row, "remat", "policy") == "see configs.py"
    )


CORRECTIONS = (
    Correction(
        _is_pax_without_policy,
        lambda row: {"remat": {"policy": _PAX_POLICIES[row["model"]["name"]]}},
        "the rematerialization of the class in paxml's configs.py",
    ),
    Correction(
        _is_first_fuji,
        _as_first_measured,
        "plain attention, saved projections of the attention, and on v5e the mesh data × fsdp 16, as in "
        "AXLearn when the times were added (4dae7198), a month before flash attention (e0e93105)",
    ),
)


def corrected(row: Mapping[str, Any]) -> tuple[Mapping[str, Any], str | None]:
    """Return the row that its source supports, and the correction; None if it needs none."""
    for correction in CORRECTIONS:
        if correction.is_wrong(row):
            return {**row, **correction.changes(row)}, correction.reason
    return row, None


def _name(row: Mapping[str, Any], part: str, key: str) -> Any:
    value = row.get(part)
    return value.get(key) if isinstance(value, dict) else None
