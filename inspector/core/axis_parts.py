"""Parts of mesh axes, as Shardy writes them: `data:(1)2` for the two halves of `data`."""

import re
from collections.abc import Callable

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
