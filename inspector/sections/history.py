"""The table of what was run, compiled, searched and compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from inspector.core.assessment import MEMORY, STEP, TRAFFIC
from inspector.core.formatting import bytes_text, counted, seconds_text
from inspector.sections.section import Cell, Column, Table

KINDS = {
    "run": "Run",
    "compile": "Compile",
    "search": "Search",
    "compare": "Comparison",
    "damaged": "Damaged entry",
}


class Recorded(Protocol):
    """The fields of an entry that the table needs."""

    @property
    def time(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def target(self) -> str | None: ...
    @property
    def seconds(self) -> float | None: ...
    @property
    def basis(self) -> str | None: ...
    @property
    def peak_bytes(self) -> int | None: ...
    @property
    def wire_bytes(self) -> int | None: ...
    @property
    def bytes(self) -> int: ...
    @property
    def owner(self) -> str | None: ...


def table(entries: Sequence[Recorded]) -> Table:
    """Return one row per entry, with the figures of its step."""
    columns: dict[str | Column, Callable[[Recorded], Cell]] = {
        "Time (UTC)": lambda recorded: recorded.time[:16].replace("T", " "),
        "Kind": lambda recorded: KINDS.get(recorded.kind, recorded.kind),
        "Layout": lambda recorded: recorded.title,
        "Target": lambda recorded: recorded.target or "–",
        STEP: _step,
        MEMORY: lambda recorded: bytes_text(recorded.peak_bytes),
        TRAFFIC: lambda recorded: "none" if recorded.wire_bytes == 0 else bytes_text(recorded.wire_bytes),
    }
    if any(entry.owner for entry in entries):
        columns["Owner"] = lambda recorded: recorded.owner or "–"
    columns["Size"] = lambda recorded: bytes_text(recorded.bytes)
    return Table.of("history", entries, columns)


def size_text(entries: Sequence[Recorded]) -> str:
    """Return the number and the bytes of entries: `3 entries, 20 KiB`."""
    together = bytes_text(sum(entry.bytes for entry in entries))
    return f"{counted(len(entries), 'entry', 'entries')}, {together}"


def _step(recorded: Recorded) -> str:
    return "unknown" if recorded.seconds is None else f"{seconds_text(recorded.seconds)} {recorded.basis}"
