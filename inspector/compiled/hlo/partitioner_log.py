"""Warnings in the log of XLA's partitioner."""

import re
from pathlib import PurePath

from inspector.compiled.hlo import text
from inspector.core.snapshot import Rematerialization

_WARNING = re.compile(
    r"Involuntary full rematerialization\. The compiler cannot go from sharding (?P<before>[^\n]{1,500}?) to "
    r"(?P<after>[^\n]{1,500}?) efficiently for HLO operation %?\S+ = (?P<shape>[a-z]\w*\[[\d,]*\])\S* "
    r"(?P<operation>[\w-]+)\((?P<rest>[^\n]*)"
)
_METADATA = re.compile(rf"metadata=({text.GROUP})", re.S)
_MOST = 100


def rematerializations(log: str) -> tuple[Rematerialization, ...]:
    """Return the warnings *Involuntary full rematerialization* in a log, each once."""
    found: dict[Rematerialization, None] = {}
    for warning in _WARNING.finditer(log):
        written = _METADATA.search(warning["rest"])
        metadata = text.fields(written[1]) if written else {}
        file, line = metadata.get("source_file"), metadata.get("source_line")
        found[
            Rematerialization(
                operation=warning["operation"],
                shape=warning["shape"],
                before=warning["before"],
                after=warning["after"],
                op_name=metadata.get("op_name") or None,
                source=f"{PurePath(file).name}:{line}" if file and line else None,
            )
        ] = None
    return tuple(found)[:_MOST]
