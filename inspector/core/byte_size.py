"""Read a number of bytes that a person wrote, such as `16 GiB`."""

import re
from decimal import Decimal

from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import bytes_text

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
