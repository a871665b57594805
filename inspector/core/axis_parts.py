"""Parts of mesh axes, as Shardy writes them: `data:(1)2` for the two halves of `data`."""

import re
from collections.abc import Callable

_PART = re.compile(r"(?P<axis>.+):\((?P<before>\d+)\)(?P<size>\d+)", re.DOTALL)


def axis_of(name: str) -> str:
    """Return the mesh axis of a part of it; the name itself if it is that of a whole axis.

    >>> axis_of("data:(1)2"), axis_of("data")
    ('data', 'data')
    """
    part = _PART.fullmatch(name)
    return name if part is None else part["axis"]


def axis_text(name: str, mark: Callable[[str], str] = str) -> str:
    """Return a mesh axis or a part of it in words. `mark` escapes or marks the name of the axis.

    >>> axis_text("data:(1)2"), axis_text("data:(2)4")
    ('2 parts of data', '4 parts of each half of data')
    """
    part = _PART.fullmatch(name)
    if part is None:
        return mark(name)
    before = int(part["before"])
    whole = "" if before == 1 else "each half of " if before == 2 else f"each of {before} parts of "
    return f"{part['size']} parts of {whole}{mark(part['axis'])}"
