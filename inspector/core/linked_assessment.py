"""The main figures of an assessment in a link, in about 80 characters: `c_v5e_16_p_0.145_0.122_0.169_…`.

They are a claim of the author of the link, not a result of the server that opens it. So they are numbers
within bounds and names from fixed lists, they are shown as what the link says, and nothing is computed from
them.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from inspector.core.assessment import Assessment, MemoryNeed, Step, Traffic
from inspector.core.errors import InvalidInput, shown
from inspector.core.evidence import Stage
from inspector.core.typed_json import LARGEST

_BASES: dict[str, Stage] = {
    "m": "measured",
    "c": "compiled",
    "x": "partitioned",
    "r": "partitioned",  # of links from before 2026-11-25
    "n": "planned",
}
_FITS: dict[str, bool | None] = {"y": True, "n": False, "u": None}
_NONE = "-"
_FIELDS = 12
_LONGEST = 200
_MOST_SECONDS = 1e9
_MOST_DEVICES = 2**31


def to_text(assessment: Assessment) -> str:
    """Return the figures of an assessment for a link.

    >>> from inspector.core.assessment import FindingCounts
    >>> step = Step(0.145, 0.122, 0.169, "predicted")
    >>> own = Assessment("v5e", 16, "compiled", "train_step", step, None, None, None, FindingCounts())
    >>> to_text(own)
    'c_v5e_16_p_0.145_0.122_0.169_-_-_-_u_-'
    """
    basis = next(letter for letter, name in _BASES.items() if name == assessment.basis)
    step, need, sent = assessment.step, assessment.memory, assessment.traffic
    # A link says nothing about a step of which only a lower bound is known.
    whole = None if step is None or step.at_least is not None else step
    seconds = (None,) * 3 if whole is None else (whole.seconds, whole.low, whole.high)
    fits = None if need is None else need.fits
    fields = [
        basis,
        assessment.chip or _NONE,
        _number(assessment.devices),
        _NONE if step is None else step.kind[0],
        *map(_number, seconds),
        _number(None if need is None else need.peak_bytes),
        _number(None if need is None else need.high),
        _number(None if need is None else need.capacity_bytes),
        next(letter for letter, value in _FITS.items() if value is fits),
        _number(None if sent is None else sent.bytes),
    ]
    return "_".join(fields)


def from_text(text: str, chips: Collection[str]) -> Assessment:
    """Return the assessment that a link claims. Findings, programs and mesh axes are not part of it.

    Args:
      chips: the names of the chips that exist.

    Raises:
      InvalidInput: it is not the text of `to_text`.
    """
    fields = text.split("_")
    if len(text) > _LONGEST or len(fields) != _FIELDS:
        raise _wrong(text)
    basis, chip, devices, kind, seconds, low, high, peak, most, capacity, fits, sent = fields
    kinds = {"m": "measured", "p": "predicted", _NONE: None}
    if basis not in _BASES or fits not in _FITS or kind not in kinds:
        raise _wrong(text)
    if chip != _NONE and chip not in chips:
        raise _wrong(text)
    times = [_read(text, part, _MOST_SECONDS) for part in (seconds, low, high)]
    sizes = [_whole(text, part) for part in (peak, most, capacity, sent)]
    step, need = None, None
    if times[0] is not None:
        if kind == _NONE:
            raise _wrong(text)
        step = Step(times[0], times[1], times[2], "measured" if kind == "m" else "predicted")
    if sizes[0] is not None:
        need = MemoryNeed(sizes[0], sizes[0], sizes[1], sizes[2], _FITS[fits])
    return Assessment(
        chip=None if chip == _NONE else chip,
        devices=_whole(text, devices, _MOST_DEVICES) or None,
        basis=_BASES[basis],
        program=None,
        step=step,
        memory=need,
        traffic=None if sizes[3] is None else Traffic(sizes[3], {}),
        state_bytes_per_device=None,
        findings=None,
    )


def _number(value: float | None) -> str:
    # Fewer digits would be rounded twice, to another text than that of the page.
    return _NONE if value is None else f"{value:.9g}" if isinstance(value, float) else str(value)


def _read(text: str, part: str, most: float) -> float | None:
    if part == _NONE:
        return None
    try:
        value = float(part)
    except ValueError:
        raise _wrong(text) from None
    if not part.isascii() or "_" in part or not math.isfinite(value) or not 0 <= value <= most:
        raise _wrong(text)
    return value


def _whole(text: str, part: str, most: int = LARGEST) -> int | None:
    if part == _NONE:
        return None
    if not (part.isascii() and part.isdecimal() and len(part) <= 19 and int(part) <= most):
        raise _wrong(text)
    return int(part)


def _wrong(text: str) -> InvalidInput:
    return InvalidInput(
        f"the figures of the link are {shown(text)}, but must be those that a page wrote, such as "
        "c_v5e_16_p_0.145_0.122_0.169_-_-_-_u_-"
    )
