"""Lexical elements of HLO text: comments, brackets, strings and attributes; and the log of the partitioner.

All patterns are possessive (`++`, `*+`), so none backtracks and parsing takes linear time.
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import TypeVar

from inspector.records.snapshot import Rematerialization

# Nesting depth of brackets. Shapes and backend configurations of real programs stay below 7.
DEEPEST = 12

NAME = r'[^\s,=(){}"\[\]:]++'
STRING = r'"(?:[^"\\]++|\\.)*+"'


def _nested(depth: int) -> str:
    pattern = rf'[({{](?:[^(){{}}"]++|{STRING})*+[)}}]'
    for _ in range(depth):
        pattern = rf'[({{](?:[^(){{}}"]++|{STRING}|{pattern})*+[)}}]'
    return pattern


# From an opening round or curly bracket to its closing bracket.
GROUP = _nested(DEEPEST)
SQUARE = r"\[(?:[^\[\]]++|\[[^\[\]]*+\])*+\]"
ARRAY_SHAPE = r"[a-z]\w*+\[[^\[\]]*+\](?:\{[^{}\n]*+\})?+"
# A tuple, a buffer `b(…)`, or an array.
SHAPE = rf"(?:b?+(?=\(){GROUP}|{ARRAY_SHAPE})"
# The value of an attribute. Mesh groups and literals, `s32[] 1` or `s32[2] {1, 2}`, contain spaces.
VALUE = (
    rf"(?:mesh{SQUARE}(?:\s*+,\s*+device_ids\s*+=\s*+\((?:[^()]++|\([^()]*+\))*+\))?+\s*+\{{[^{{}}]*+\}}"
    rf'|{ARRAY_SHAPE}[ \t]++(?:[^\s,(){{}}"\[\]]++|{GROUP})'
    rf'|(?:[^\s,(){{}}"\[\]]++|{SQUARE}|{STRING}|{GROUP})++)'
)
ATTRIBUTES = rf"(?:\s*+,\s*+[\w\-]++\s*+=\s*+{VALUE})*+"

_ATTRIBUTE = re.compile(rf",\s*+([\w\-]++)\s*+=\s*+({VALUE})", re.S)
_ITEM = re.compile(rf'\s*+((?:[^,(){{}}"\[\]]++|{SQUARE}|{STRING}|{GROUP})++)', re.S)
_FIELD = re.compile(rf'([\w\-]++)\s*+=\s*+({STRING}|[^\s,{{}}"]++)', re.S)

# Long tuples contain `/*index=5*/`, which never hides a bracket. `items` removes it.
_OTHER_COMMENT = re.compile(r"//|/\*(?!index=\d++\*/)")
_COMMENT_OR_STRING = re.compile(
    r'\\.|"(?:[^"\\]++|\\.)*+(?:"|\Z)|(//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/|\Z))', re.S
)
_INDEX_COMMENT = re.compile(r"/\*[^*]*+\*/")
# The start of a module, or a separator in XLA's test files.
_BOUNDARY = re.compile(r"^[ \t]*+(?://[ \t]*+-{3,}+[^\n]*+$|(?=HloModule\s))", re.M)
_LONGEST_INDENT = 100
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{2})|(.))", re.S)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_LONGEST_KEPT = 1000  # characters
_MOST_KEPT = 8192  # texts
_MOST_LONG = 8  # longer ones: the operands of the few tuples that have all arrays

Parsed = TypeVar("Parsed")


def kept(parse: Callable[[str], Parsed]) -> Callable[[str], Parsed]:
    """Keep the results of a function for short texts, and for the last long ones.

    Several passes over a program read each instruction, many instructions have the same attributes, and a
    program that is partitioned again for other rules has most of them again.
    """
    short = functools.lru_cache(maxsize=_MOST_KEPT)(parse)
    long = functools.lru_cache(maxsize=_MOST_LONG)(parse)

    @functools.wraps(parse)
    def either(text: str) -> Parsed:
        return short(text) if len(text) <= _LONGEST_KEPT else long(text)

    return either


def pieces(text: str) -> Iterator[tuple[int, str]]:
    """Yield (first line, text without comments) of each module; skip blank ones."""
    start, line = 0, 1
    ends = [match.span() for match in _BOUNDARY.finditer(text) if not _quoted(text, match.start())]
    for end, following in [*ends, (len(text), len(text))]:
        piece = without_comments(text[start:end])
        if not piece.isspace() and piece:
            yield line, piece
        line += text.count("\n", start, following)
        start = following


def _quoted(text: str, start: int) -> bool:
    """Return whether the previous line is a single quotation mark.

    XLA writes programs in a module's `origin_recovery_table` this way, each as one string.
    """
    before = text[max(text.rfind("\n", 0, max(start - 1, 0)) + 1, start - _LONGEST_INDENT) : start]
    return before.strip() == '"'


def without_comments(text: str) -> str:
    """Remove all comments except `/*index=5*/`; keep the number of lines."""
    if not _OTHER_COMMENT.search(text):
        return text
    return _COMMENT_OR_STRING.sub(lambda match: "\n" * match[1].count("\n") if match[1] else match[0], text)


@kept
def attributes(text: str) -> Mapping[str, str]:
    """Parse `, key=value, …` into unparsed values; the first of equal keys counts."""
    values: dict[str, str] = {}
    for match in _ATTRIBUTE.finditer(text):
        values.setdefault(match[1], match[2])
    return values


def without_positions(group: str) -> str:
    """Remove the comments with the positions of items: `/*index=5*/`."""
    return _INDEX_COMMENT.sub("", group) if "/*" in group else group


def items(group: str) -> list[str]:
    """Return the items of a bracketed, comma-separated list."""
    inner = without_positions(group[1:-1])
    return [item for match in _ITEM.finditer(inner) if (item := match[1].strip())]


@kept
def fields(group: str) -> Mapping[str, str]:
    """Parse `{op_name="…" source_line=3}`, with strings unquoted."""
    return {match[1]: unquoted(match[2]) for match in _FIELD.finditer(group)}


def unquoted(value: str) -> str:
    """Return the content of a quoted string; return any other value unchanged."""
    if not value.startswith('"'):
        return value
    inner = value[1:-1]
    if "\\" not in inner:
        return inner
    # Octal and hexadecimal escapes are the bytes of UTF-8.
    raw = _ESCAPE.sub(_unescaped, inner)
    return raw.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _unescaped(match: re.Match[str]) -> str:
    octal, hexadecimal, other = match.groups()
    if other is not None:
        return _ESCAPED.get(other, other)
    byte = int(octal, 8) & 0xFF if octal else int(hexadecimal, 16)
    return chr(byte) if byte < 0x80 else chr(0xDC00 + byte)


_WARNING = re.compile(
    r"Involuntary full rematerialization\. The compiler cannot go from sharding (?P<before>[^\n]{1,500}?) to "
    r"(?P<after>[^\n]{1,500}?) efficiently for HLO operation %?\S+ = (?P<shape>[a-z]\w*\[[\d,]*\])\S* "
    r"(?P<operation>[\w-]+)\((?P<rest>[^\n]*)"
)
_METADATA = re.compile(rf"metadata=({GROUP})", re.S)
_MOST = 100


def rematerializations(log: str) -> tuple[Rematerialization, ...]:
    """Return the warnings *Involuntary full rematerialization* in a log, each once."""
    found: dict[Rematerialization, None] = {}
    for warning in _WARNING.finditer(log):
        written = _METADATA.search(warning["rest"])
        metadata = fields(written[1]) if written else {}
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
