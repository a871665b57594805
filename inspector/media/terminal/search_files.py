"""Read Snapshots for `compare` and `report`, for which the result of a search means its best layouts.

Other files and folders are those that `show` takes.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from inspector.compare.search import result as results
from inspector.core.errors import InvalidInput
from inspector.core.formatting import counted, numbered
from inspector.core.snapshot import Snapshot
from inspector.machines.hardware import CHIPS, Chip
from inspector.media.terminal import options as shared

_MOST_FILES = 64  # each has figures in a column of every table


def read_all(
    paths: Sequence[str], given: Sequence[str] = ()
) -> tuple[list[tuple[str, Snapshot]], Chip | None]:
    """Return names and Snapshots of files. A search result gives the current layout and the best ones.

    Also return the chip for which all search results predicted their times; None if they differ.

    Args:
      given: the names of the first Snapshots.

    Raises:
      InvalidInput: a file is neither a Snapshot nor a search result.
    """
    if len(paths) > _MOST_FILES:
        raise InvalidInput(f"{len(paths):,} files are given, but at most {_MOST_FILES} can be compared")
    names: list[str] = []
    snapshots: list[Snapshot] = []
    chips: set[str | None] = set()
    for path in paths:
        plain = shared.json_with_format(path)
        if plain is None or plain["format"] != results.FORMAT:
            snapshots.append(shared.snapshot_of(path, plain))
            names.append(Path(path).name.removesuffix(".json") or path)
            continue
        # Imported late: a comparison of Snapshots needs no workers.
        from inspector.service.search.snapshots import snapshots_of

        result = results.from_plain(plain, path)
        chips.add(result.chip)
        with shared.workers() as service:
            best, lost = snapshots_of(result, service)
        if lost:
            layouts = f"{lost} of {counted(len(best), 'layout')}"
            print(
                f"{path}: {layouts} are planned again, because this machine has not kept what the "
                "search compiled or ran with this version",
                file=sys.stderr,
            )
        names += [name for name, _ in best]
        snapshots += [of_layout for _, of_layout in best]
    # Names that the user gave stay as they are.
    unique = [*given, *list(numbered([*given, *names[len(given) :]]))[len(given) :]]
    chip = CHIPS.get(chips.pop() or "") if len(chips) == 1 else None
    return list(zip(unique, snapshots, strict=True)), chip
