"""The lexical side of HLO text: comments, brackets, strings, and lists of attributes.

Every pattern is possessive (`++`, `*+`), so that none backtracks: reading takes time in proportion to the
text, whatever the text is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Brackets within brackets. The shapes and backend configurations of real programs stay below seven.
DEEPEST = 12

NAME = r'[^\s,=(){}"\[\]:]++'
STRING = r'"(?:[^"\\]++|\\.)*+"'


def _nested(depth: int) -> str:
    pattern = rf'[({{](?:[^(){{}}"]++|{STRING})*+[)}}]'
    for _ in range(depth):
        pattern = rf'[({{](?:[^(){{}}"]++|{STRING}|{pattern})*+[)}}]'
    return pattern


# From an opening round or curly bracket to the one that closes it.
GROUP = _nested(DEEPEST)
SQUARE = r"\[(?:[^\[\]]++|\[[^\[\]]*+\])*+\]"
ARRAY_SHAPE = r"[a-z]\w*+\[[^\[\]]*+\](?:\{[^{}\n]*+\})?+"
# A tuple, a buffer `b(…)`, or an array.
SHAPE = rf"(?:b?+(?=\(){GROUP}|{ARRAY_SHAPE})"
# What may stand behind the equals sign of an attribute. The groups of a mesh
# and a literal, `s32[] 1` or `s32[2] {1, 2}`, hold spaces.
VALUE = (
    rf"(?:mesh{SQUARE}(?:\s*+,\s*+device_ids\s*+=\s*+\((?:[^()]++|\([^()]*+\))*+\))?+\s*+\{{[^{{}}]*+\}}"
    rf'|{ARRAY_SHAPE}[ \t]++(?:[^\s,(){{}}"\[\]]++|{GROUP})'
    rf'|(?:[^\s,(){{}}"\[\]]++|{SQUARE}|{STRING}|{GROUP})++)'
)
ATTRIBUTES = rf"(?:\s*+,\s*+[\w\-]++\s*+=\s*+{VALUE})*+"

_ATTRIBUTE = re.compile(rf",\s*+([\w\-]++)\s*+=\s*+({VALUE})", re.S)
_ITEM = re.compile(rf'\s*+((?:[^,(){{}}"\[\]]++|{SQUARE}|{STRING}|{GROUP})++)', re.S)
_FIELD = re.compile(rf'([\w\-]++)\s*+=\s*+({STRING}|[^\s,{{}}"]++)', re.S)

# `/*index=5*/` stands in every long tuple, and never hides a bracket; it is left for those who split one.
_OTHER_COMMENT = re.compile(r"//|/\*(?!index=\d++\*/)")
_COMMENT_OR_STRING = re.compile(
    r'\\.|"(?:[^"\\]++|\\.)*+(?:"|\Z)|(//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/|\Z))', re.S
)
_INDEX_COMMENT = re.compile(r"/\*[^*]*+\*/")
# What separates the inputs of XLA's own test files, or begins a module.
_BOUNDARY = re.compile(r"^[ \t]*+(?://[ \t]*+-{3,}+[^\n]*+$|(?=HloModule\s))", re.M)
_LONGEST_INDENT = 100
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{2})|(.))", re.S)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


def pieces(text: str) -> Iterator[tuple[int, str]]:
    """The text of each module without comments, with the line where it starts; none is blank."""
    start, line = 0, 1
    ends = [
        (found.start(), found.end())
        for found in _BOUNDARY.finditer(text)
        if not _quoted(text, found.start())
    ]
    for end, following in [*ends, (len(text), len(text))]:
        piece = without_comments(text[start:end])
        if not piece.isspace() and piece:
            yield line, piece
        line += text.count("\n", start, following)
        start = following


def _quoted(text: str, start: int) -> bool:
    """Whether the line before this one is a lone quotation mark.

    So XLA writes the programs in a module's `origin_recovery_table`, each of which is one string.
    """
    before = text[max(text.rfind("\n", 0, max(start - 1, 0)) + 1, start - _LONGEST_INDENT) : start]
    return before.strip() == '"'


def without_comments(text: str) -> str:
    """The text with all comments but `/*index=5*/` taken out, and as many lines as before."""
    if not _OTHER_COMMENT.search(text):
        return text
    return _COMMENT_OR_STRING.sub(
        lambda found: "\n" * found[1].count("\n") if found[1] else found[0], text
    )


def attributes(text: str) -> dict[str, str]:
    """`, key=value, …` as a mapping of the values as written; the first of a name stands."""
    found: dict[str, str] = {}
    for match in _ATTRIBUTE.finditer(text):
        found.setdefault(match[1], match[2])
    return found


def items(group: str) -> list[str]:
    """The parts between the commas of a bracketed list, its own brackets off."""
    inner = group[1:-1]
    if "/*" in inner:
        inner = _INDEX_COMMENT.sub("", inner)
    return [item for match in _ITEM.finditer(inner) if (item := match[1].strip())]


def fields(group: str) -> dict[str, str]:
    """`{op_name="…" source_line=3}` as a mapping, strings without quotes and escapes."""
    return {match[1]: unquoted(match[2]) for match in _FIELD.finditer(group)}


def unquoted(value: str) -> str:
    """What a quoted string says; anything else as it is."""
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
