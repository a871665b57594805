"""Time of one chip by a roofline: FLOPs over its peak, or bytes over its HBM bandwidth.

Each time is a lower bound, as in "How to Scale Your Model", chapter 1 (rooflines), and comes with its
formula, numbers filled in.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from inspector.core.errors import InvalidInput, shown
from inspector.machines.hardware import Chip

_DECIMAL_UNITS = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")


@dataclass(frozen=True)
class Estimate:
    """Modelled seconds, and a function that writes their formula. A search reads few of its formulas."""

    seconds: float
    written: Callable[[], str]

    @property
    def formula(self) -> str:
        """The formula with numbers filled in."""
        return self.written()


def compute_time(flops: float, chip: Chip, dtype: str) -> Estimate:
    """Return the seconds of one device for matrix products with operands of this type."""
    require_amount("FLOPs", flops)
    peak = chip.peak(dtype)
    if peak is None:
        known = ", ".join(chip.flops_per_second)
        raise InvalidInput(f"dtype is {shown(dtype)}, but the peak of {chip.title} is known for {known}")
    return Estimate(
        flops / peak.flops_per_second,
        lambda: (
            f"{si_text(flops, 'FLOP')} of {dtype} ÷ {si_text(peak.flops_per_second, 'FLOP/s')}"
            f" ({peak.runs_as} peak)"
        ),
    )


def hbm_time(count: float, chip: Chip) -> Estimate:
    """Return the seconds of one device to read or write `count` bytes of its HBM."""
    require_amount("bytes", count)
    rate = chip.hbm_bytes_per_second_per_device
    return Estimate(count / rate, lambda: f"{si_text(count, 'B')} ÷ {si_text(rate, 'B/s')} of HBM")


def critical_intensity(flops_per_second: float, bytes_per_second: float) -> float:
    """Return the FLOPs per byte above which compute is the bottleneck, and below it the bytes."""
    require_amount("FLOP/s", flops_per_second)
    require_amount("bytes per second", bytes_per_second, above_0=True)
    return flops_per_second / bytes_per_second


def si_text(value: float, unit: str) -> str:
    """Format a quantity with a decimal prefix and three digits: `33.6 GFLOP`, `90.0 GB/s`."""
    power = 0
    while abs(value) >= 999.5 and power < len(_DECIMAL_UNITS) - 1:
        value, power = value / 1000, power + 1
    size = abs(value)
    whole = not power and value == int(value)
    decimals = 0 if whole or size >= 99.95 else 1 if size >= 9.995 else 2
    return f"{value:.{decimals}f} {_DECIMAL_UNITS[power]}{unit}"


def require_amount(what: str, value: float, above_0: bool = False) -> None:
    """Raise InvalidInput unless the value is a finite number from 0, or above 0."""
    number = not isinstance(value, bool) and isinstance(value, (int, float))
    if not number or not 0 <= value < math.inf or (above_0 and value == 0):
        least = "above" if above_0 else "from"
        raise InvalidInput(f"{what} is {value!r}, but must be a finite number {least} 0")
