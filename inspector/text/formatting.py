"""Format quantities, axes and devices as plain text without markup, and read numbers of bytes."""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

from inspector.text.errors import InvalidInput, shown

_PART = re.compile(r"(?P<axis>.+):\((?P<before>\d+)\)(?P<size>\d+)", re.DOTALL)


def part_of(name: str) -> tuple[str, int, int | None]:
    """Return the mesh axis of a part, the number of larger parts it is in, and its size, None if it is whole.

    >>> part_of("data:(2)4"), part_of("data")
    (('data', 2, 4), ('data', 1, None))
    """
    part = _PART.fullmatch(name)
    return (name, 1, None) if part is None else (part["axis"], int(part["before"]), int(part["size"]))


def axis_of(name: str) -> str:
    """Return the mesh axis of a part of it; the name itself if it is that of a whole axis."""
    return part_of(name)[0]


def axis_text(name: str, mark: Callable[[str], str] = str) -> str:
    """Return a mesh axis or a part of it in words. `mark` escapes or marks the name of the axis.

    >>> axis_text("data:(1)2"), axis_text("data:(2)4")
    ('2 parts of data', '4 parts of each half of data')
    """
    axis, before, size = part_of(name)
    if size is None:
        return mark(name)
    whole = "" if before == 1 else "each half of " if before == 2 else f"each of {before} parts of "
    return f"{size} parts of {whole}{mark(axis)}"


UNKNOWN_AXES = "unknown axes"

_THOUSANDS = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"))
_SECONDS_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def numbered(names: Iterable[str]) -> Iterator[str]:
    """Yield each name. A name that occurred before gets a number: `loss`, `loss (2)`."""
    taken: set[str] = set()
    for name in names:
        unique, number = name, 1
        while unique in taken:
            number += 1
            unique = f"{name} ({number})"
        taken.add(unique)
        yield unique


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return `1 device`, `8 devices`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def capitalized(text: str) -> str:
    """Return the text with a capital letter at its begin, and the others as they are."""
    return text[:1].upper() + text[1:]


def and_text(words: Sequence[str], conjunction: str = "and") -> str:
    """Return `a`, `a and b`, `a, b and c`; empty without words."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {conjunction} {words[-1]}"


def some_text(words: Sequence[str], most: int = 4) -> str:
    """Return at most `most` words, of which the last can be a number: `a, b, c and 5 more`."""
    return and_text(words if len(words) <= most else [*words[: most - 1], f"{len(words) - most + 1} more"])


def devices_text(devices: Sequence[int], most: int = 4) -> str:
    """Return device ids: `0, 4`, `0–63 (64×)`, `0, 8, … 504 (64×)`. Up to `most` ids are listed."""
    if len(devices) <= most:
        return ", ".join(map(str, devices))
    count = f"({len(devices)}×)"
    runs = _runs(devices)
    if len(runs) <= 2:
        return ", ".join(_run_text(*run) for run in runs) + f" {count}"
    steps = {after - before for before, after in itertools.pairwise(devices)}
    if len(steps) == 1:
        return f"{devices[0]}, {devices[1]}, … {devices[-1]} {count}"
    if all(stop > start for start, stop in runs):
        return f"{_run_text(*runs[0])}, … {_run_text(*runs[-1])} {count}"
    return f"{devices[0]}, {devices[1]}, {devices[2]}, … {devices[-1]} {count}"


def bytes_text(count: int | None) -> str:
    """Return bytes in binary units: `1.0 MiB`, `73.2 GiB`, `512 MiB`, `unknown` for None."""
    if count is None:
        return "unknown"
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, len(_BINARY_UNITS) - 1)
    value = count / 1024**power
    # Avoid 1024 KiB for 1023.96 KiB.
    if value >= 999.5 and power < len(_BINARY_UNITS) - 1:
        value, power = value / 1024, power + 1
    return f"{value:.{0 if value >= 99.95 else 1}f} {_BINARY_UNITS[power]}"


def share_text(share: float | None, decimals: int = 1) -> str:
    """Return a share from 0 to 1 as a percentage: `64%`, `99.7%`, `unknown` for None.

    A share below 1 is never shown as 100%, and one above 0 never as 0%.
    """
    if share is None:
        return "unknown"
    for places in (decimals, max(decimals, 1)):
        text = f"{share:.{places}%}"
        if (float(text[:-1]) < 100 or share >= 1) and (float(text[:-1]) > 0 or share <= 0):
            return text
    return "below 0.1%" if share < 0.5 else "above 99.9%"


def signed_text(change: float, text: Callable[[Any], str]) -> str:
    """Return a change with its sign: `+8.0 MiB`, `−1.25 s`, `0`. `text` formats its size."""
    if not change:
        return "0"
    return f"{'+' if change > 0 else '−'}{text(abs(change))}"


def elements_text(count: int | None) -> str:
    """Return `1.36 billion elements`, `1,024 elements`, `unknown` for None."""
    if count is None:
        return "unknown"
    for size, name in _THOUSANDS:
        if abs(count) >= size:
            return f"{count / size:.3g} {name} elements"
    return counted(count, "element")


def parameters_text(count: int | None, name: str = "parameter") -> str:
    """Return the number of parameters: `8.03B parameters`, `640 parameters`; "" for None and 0."""
    if not count:
        return ""
    for size, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K")):
        if count >= size:
            return f"{count / size:.3g}{letter} {name}s"
    return counted(count, name)


def exact_bytes_text(count: int | None) -> str:
    """Return rounded and exact bytes: `1.0 MiB (1,048,576 bytes)`."""
    if count is None or count < 1024:
        return bytes_text(count)
    return f"{bytes_text(count)} ({count:,} bytes)"


def seconds_text(seconds: float | None) -> str:
    """Return a time: `2 min 30 s`, `1.25 s`, `50.0 µs`, `6.72 ns`, `< 1 ns`, `0 s`, `unknown` for None."""
    if seconds is None:
        return "unknown"
    if seconds == 0:
        return "0 s"
    if seconds >= 120:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    shortest, _ = _SECONDS_UNITS[-1]
    if 0 < seconds < shortest * 0.995:
        return "< 1 ns"
    units = (pair for pair in _SECONDS_UNITS if seconds >= pair[0] * 0.9995)
    scale, unit = next(units, _SECONDS_UNITS[-1])
    value = seconds / scale
    return f"{value:,.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f} {unit}"


def left_text(seconds: float) -> str:
    """Return an estimated time until something ends: `about 4 s left`."""
    return f"about {whole_seconds_text(seconds)} left"


def whole_seconds_text(seconds: float) -> str:
    """Return a time that changes while it is read in whole seconds, at least one: `4 s`."""
    return seconds_text(max(round(seconds), 1)).replace(".00", "").replace(".0", "")


def times_text(factor: float | None) -> str:
    """Return a factor: `1.25`, `12.5`, `1,250`, `unknown` for None."""
    if factor is None:
        return "unknown"
    return f"{factor:.3g}" if factor < 999.5 else f"{factor:,.0f}"


def ratio_text(ratio: float) -> str:
    """Return a ratio with three digits, a large one with all before the point: `1.32`, `0.0123`, `1,618`."""
    if ratio >= 999.5:
        return f"{ratio:,.0f}"
    return f"{ratio:.2f}" if 0.1 <= ratio < 9.995 else f"{ratio:.3g}"


def shape_text(shape: Sequence[int] | None) -> str:
    """Return `1024×256`, `scalar` for no dimensions, `unknown` for None."""
    if shape is None:
        return "unknown"
    return "×".join(map(str, shape)) if shape else "scalar"


def dtype_text(dtype: str) -> str:
    """Return the dtype to print after a shape: `float32`, `of unknown dtype`."""
    return "of unknown dtype" if dtype == "unknown" else dtype


def logical_text(logical_axes: Sequence[str | None] | None) -> str:
    """Return logical axes: `(embed, hidden)`, `(–, hidden)`, an empty text for None."""
    if logical_axes is None:
        return ""
    return f"({', '.join(name or '–' for name in logical_axes)})"


def mesh_axes_text(axes: Sequence[str] | None, name: Callable[[str], str] = str) -> str:
    """Return mesh axes: `data × model`, `no axis` if empty, `unknown axes` for None.

    Parts of an axis are in words: `2 parts of data`. `name` escapes or marks the name of an axis.
    """
    if axes is None:
        return UNKNOWN_AXES
    return " × ".join(axis_text(axis, name) for axis in axes) or "no axis"


def mesh_sizes_text(axis_names: Iterable[str], sizes: Iterable[int], *, max_axes_of_size_1: int = 3) -> str:
    """Return names and sizes of mesh axes: `data 2 × model 4`.

    If too many axes have size 1, they are counted: `fsdp 16, and 11 axes of size 1`.
    """
    axes = [*zip(axis_names, sizes, strict=True)]
    small = sum(size == 1 for _, size in axes)
    if small <= max_axes_of_size_1:
        small = 0
    else:
        axes = [(name, size) for name, size in axes if size > 1]
    texts = [" × ".join(f"{name} {size}" for name, size in axes)]
    texts += [f"{counted(small, 'axis', 'axes')} of size 1"] if small else []
    return ", and ".join(filter(None, texts))


def ranges_text(index: Sequence[Sequence[int]]) -> str:
    """Return index ranges as NumPy slices: `[0:1024, 256:512]`."""
    return f"[{', '.join(f'{start}:{stop}' for start, stop in index)}]" if len(index) else "[ ]"


def _runs(devices: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and the last id of each run of consecutive ids."""
    breaks = [
        place for place, (device, after) in enumerate(itertools.pairwise(devices)) if after != device + 1
    ]
    starts, stops = [0, *(place + 1 for place in breaks)], [*breaks, len(devices) - 1]
    return [(devices[start], devices[stop]) for start, stop in zip(starts, stops, strict=True)]


def _run_text(start: int, stop: int) -> str:
    return str(start) if start == stop else f"{start}–{stop}"


# Decimal units as in SI, binary units as in IEC 80000-13.
UNITS = {
    "b": 1,
    **{f"{letter}b": 1000 ** (power + 1) for power, letter in enumerate("kmgt")},
    **{f"{letter}ib": 1024 ** (power + 1) for power, letter in enumerate("kmgt")},
}
ALLOWED = 'a size such as "16 GiB" (B, kB, MB, GB, TB, KiB, MiB, GiB, TiB)'
MOST = 2**63 - 1
_SIZE = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)\s*([A-Za-z]+)", re.ASCII)


def at_least(text: str, least: int, what: str) -> int:
    """Return the bytes that a person wrote. Errors call them `what`.

    Raises:
      InvalidInput: the text is not a size, or less than `least`.
    """
    count = parse(text)
    if count is None or count < least:
        raise InvalidInput(f"{what} is {shown(text)}, but must be {ALLOWED} from {bytes_text(least)} up")
    return count


def parse(text: str) -> int | None:
    """Return the bytes, rounded down to an integer; None if the text is not a size, or above `MOST`.

    >>> parse("1.5 GiB"), parse("2GB"), parse("many")
    (1610612736, 2000000000, None)
    """
    parts = _SIZE.fullmatch(text.strip())
    if parts is None or parts[2].lower() not in UNITS:
        return None
    # A float cannot hold 0.1 GiB exactly.
    count = int(Decimal(parts[1]) * UNITS[parts[2].lower()])
    return count if count <= MOST else None
