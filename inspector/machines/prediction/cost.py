"""Time that one chip needs: FLOPs over its peak, bytes over its bandwidth, and where the two are equal.

A lower bound each, as if the chip did nothing else; "How to Scale Your Model", chapter 1 (rooflines).
Every number comes with its formula, numbers filled in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from inspector.core.errors import InvalidInput, shown
from inspector.machines.hardware import Chip

_DECIMAL_UNITS = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")


@dataclass(frozen=True)
class Estimate:
    """Modelled seconds, and the formula that gave them with its numbers."""

    seconds: float
    formula: str


def compute_time(flops: float, chip: Chip, dtype: str) -> Estimate:
    """Seconds of one device for so many FLOPs of matrix products with operands of this type.

    Raises:
      InvalidInput: the FLOPs are no such number, or no peak is known for the type.
    """
    amount("FLOPs", flops)
    peak = chip.peak(dtype)
    if peak is None:
        known = ", ".join(chip.flops_per_second)
        raise InvalidInput(f"no peak of {chip.title} is known for {shown(dtype)}, only for {known}")
    return Estimate(
        flops / peak.flops_per_second,
        f"{si_text(flops, 'FLOP')} of {dtype} ÷ {si_text(peak.flops_per_second, 'FLOP/s')}"
        f" ({peak.runs_as} peak)",
    )


def hbm_time(count: float, chip: Chip) -> Estimate:
    """Seconds of one device to read or write so many bytes of its HBM.

    Raises:
      InvalidInput: the bytes are no such number.
    """
    amount("bytes", count)
    rate = chip.hbm_bytes_per_second_per_device
    return Estimate(count / rate, f"{si_text(count, 'B')} ÷ {si_text(rate, 'B/s')} of HBM")


def critical_intensity(flops_per_second: float, bytes_per_second: float) -> float:
    """FLOPs per byte above which a program is bound by compute and below which by these bytes.

    Raises:
      InvalidInput: a rate is not above zero.
    """
    amount("FLOP/s", flops_per_second)
    positive("bytes per second", bytes_per_second)
    return flops_per_second / bytes_per_second


def si_text(value: float, unit: str) -> str:
    """A quantity in decimal units with three figures: `33.6 GFLOP`, `90.0 GB/s`."""
    power = 0
    while abs(value) >= 999.5 and power < len(_DECIMAL_UNITS) - 1:
        value, power = value / 1000, power + 1
    size = abs(value)
    whole = not power and value == int(value)
    decimals = 0 if whole or size >= 99.95 else 1 if size >= 9.995 else 2
    return f"{value:.{decimals}f} {_DECIMAL_UNITS[power]}{unit}"


def amount(what: str, value: float) -> None:
    """Refuse what is no amount: negative, infinite or not a number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise InvalidInput(f"{what} is {value!r}, but must be a finite number from 0")


def positive(what: str, value: float) -> None:
    """Refuse what is not above zero, infinite or not a number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise InvalidInput(f"{what} is {value!r}, but must be a finite number above 0")
