"""Split the output of a verb into sentences, and match them with the forms of the table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

_SIZE = r"(?:at least )?[\d.,]+ (?:B|KiB|MiB|GiB)(?: \([\d,]+ bytes\))?"
_TIME = r"(?:< )?[\d.,]+ (?:ns|µs|ms|s|min)"
_NAME = r"[^\s,:]+(?: at [\w.]+:\d+)?(?: \(\d+\))?"
_COLLECTIVE = r"(?:ragged-)?all-[a-z-]*?[a-z]|reduce-scatter|collective-permute|collective-broadcast"
_ONE_COUNT = rf"(?:up to )?[\d,]+ (?:{_COLLECTIVE})s?"
_PART = rf"(?:\d+ parts of )?[a-z][\w +×]*? (?:{_SIZE})"  # of a bar
FIELDS = {
    "size": _SIZE,
    "sent": _SIZE,
    "payload": _SIZE,
    "part": _SIZE,
    "whole": _SIZE,
    "time": _TIME,
    "low": rf"{_TIME}|{_SIZE}",
    "middle": _TIME,
    "high": _TIME,
    "interval": r"[^()]+",
    "n": r"[\d,]+",
    "count": r"[\d,]+",
    "times": r"[\d,]+",
    "copies": r"[\d.,]+",
    "members": r"\d+",
    "collectives": rf"(?:{_COLLECTIVE}|collective)s?",
    "status": r"\d+",
    "share": r"[\d.]+",
    "flops": r"[\d.,]+ [kMGTP]?FLOP",
    "axes": r"[\w-]+(?:(?:, | and | × |\+)[\w-]+)*",
    "mesh": r"[\w-]+ \d+(?: × [\w-]+ \d+)*,?",
    "collective": _COLLECTIVE,
    "counts": rf"{_ONE_COUNT}(?:(?:, | and ){_ONE_COUNT})*",
    "spec": r"P\(.*?\)",
    "type": r"[\w<>]+\[[^\]]*\]",
    "line": r"[\w./-]+\.py:\d+(?: \(\d+\))?|unknown",
    "lines": r"[\w./-]+\.py:\d+(?:(?:, | and )[\w./-]+\.py:\d+)*(?: and \d+ more)?|unknown",
    "file": r"\S+\.py(?: \S+)*",
    "program": rf"(?:[Tt]he |An? )?(?:{_NAME}|[Tt]rain step|<unnamed function>)(?: and {_NAME})*",
    "op": r"[\w./<>()-]+",
    "call": r"\w+(?:(?:, | or )\w+)*",
    "array": r"[^\s,:][^,:]*?",
    "name": r"\S+?",
    "code": r"[a-z]+(?:-[a-z]+)*",
    "error": r"\w+(?:Error|Exception|Interrupt)",
    "level": r"error|warning|note",
    "group": r"[a-z][a-z ]*",
    "parts": r".*",
    "phase": r"[a-z]+(?: [a-z]+| \+ [a-z]+)*",
    "text": r".*?",
    "less": r"(?:< )?",
    "period": r"run|step",
    "does": r"(?:collects|combines|exchanges|sends|moves) .*?",
    "reduced": r"the (?:sum|largest value|smallest value|product)|whether all are true|whether one is true",
    "numbers": r"[\d .]+|\.",
    "them": r"it|them|the parameters|these arrays",
    "recomputed": (
        r"(?:none|no matrix product) again"
        r"|[\d.]+ [kMGT]?FLOP of matrix products again, (?:below )?[\d.]+% of its FLOPs"
    ),
    "held": r"(?:parameters|optimizer state)(?: and optimizer state)?",
    "ratio": r"[\d.]+",
    "most": r"(?:at most )?",
    "why": r"with the most (?:known )?FLOPs.*|that comes first|whose measured steps take longest",
    "legend": rf"▏?{_PART}(?:, [▓▒] {_PART})*(?:, ░ the rest)?",
    "programs": r".*",
    "findings": r"\d+ (?:error|warning|note)s?(?:, \d+ (?:warning|note)s?)*|No problems found",
    "operands": (
        r"(?:operand|result) \d+[: ].*|(?:constraint|explicit sharding) .*, called at .*|→ P\(.*\)"
        r"|\S+:\d+ and \d+ more"
    ),
}
_PLURALS = {"{s}": "s?", "{ies}": "(?:y|ies)"}


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of an output, and cells of tables that have five words or more."""
    for line in text.splitlines():
        for cell in re.split(r" {2,}", line.strip()):
            plain = re.sub(r"^- ", "", cell.strip(" ▏▎▍▌▋▊▉█"))
            for sentence in re.split(r"(?<=[.?!])\s+(?=\S)", plain):
                if sentence.endswith((".", ":")) or len(sentence.split()) >= 5:
                    yield sentence


@cache
def pattern(template: str) -> re.Pattern[str]:
    """Return the pattern of a template: `[[…]]` is optional, `{field}` one of FIELDS."""

    def piece(text: str) -> str:
        found = ""
        for part in re.split(r"(\{\w+\}|\[\[|\]\])", text):
            if part == "[[":
                found += "(?:"
            elif part == "]]":
                found += ")?"
            elif re.fullmatch(r"[a-z_ ]+(?:\|[a-z_ ]+)+", part):
                found += part
            elif part in _PLURALS:
                found += _PLURALS[part]
            elif re.fullmatch(r"\{\w+\}", part):
                field = part[1:-1]
                found += f"(?P<{field}>{FIELDS[field.rstrip('0123456789')]})"
            else:
                found += re.escape(part)
        return found

    return re.compile(piece(template))
