"""Text in GitHub-flavoured Markdown: what is put in as text is seen as text, and nobody is called by it.

GitHub reads more out of text than Markdown does: `@team` calls people, `#123` and a commit's digits become
links, `:tada:` a picture, `$x$` a formula. It does so after Markdown's own escapes are gone, so that these
do not help. An invisible word joiner inside of them does, and code is never read so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from inspector.media.report.markup import printable

_WORD_JOINER = "\u2060"
# Markup anywhere, and what is markup only at the beginning of a line. An underscore inside of a word is none.
_MARKUP = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])")
_BEGINNING = re.compile(r"^(?:[#+=-]|\d+(?=[.)](?:\s|$)))")
_ENTITIES = str.maketrans({"<": "&lt;", ">": "&gt;", "&": "&amp;"})
# After each of these a word joiner keeps GitHub from reading on: mentions, issues, addresses, pictures,
# commits, and `GH-12`.
_READ_BY_GITHUB = re.compile(
    r"@(?=\w)|#(?=\d)|:(?=//)|www(?=\.)|:(?=[\w+-]+:)|\bGH(?=-\d)|[0-9a-f]{6}(?=[0-9a-f])",
    re.IGNORECASE,
)
_CODE_WOULD_END = re.compile(r"[`|]|^\s|\s$|^$")

MOST_CHARACTERS = 600  # of one text; a comment on GitHub has room for 65,536


def plain(text: object) -> str:
    """A text that stands anywhere in Markdown, also in a table, and is seen as it is."""
    one_line = _short(" ".join(printable_lines(str(text)).split()))
    unread = _READ_BY_GITHUB.sub(lambda found: found[0] + _WORD_JOINER, one_line)
    escaped = _MARKUP.sub(r"\\\g<0>", unread)
    return _BEGINNING.sub(_not_a_block, escaped).translate(_ENTITIES)


def code(text: str) -> str:
    """A name as code, which GitHub does not read; in a table, too."""
    one_line = _short(printable(text))
    if not _CODE_WOULD_END.search(one_line):
        return f"`{one_line}`"
    entities = "".join(
        one if one.isalnum() or one in " /," else f"&#{ord(one)};" for one in one_line
    )
    return f"<code>{entities}</code>"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def listing(items: Iterable[str]) -> str:
    """A list of items that are Markdown already."""
    return "".join(f"- {item}\n" for item in items)


def folded(summary: str, body: str) -> str:
    """What GitHub shows when the summary, HTML without markup of others, is clicked."""
    return f"<details><summary>{summary}</summary>\n\n{body}\n</details>\n"


def quoted(text: str) -> str:
    """A text of several lines as a quotation."""
    return "".join(f"> {plain(line)}\\\n" for line in text.splitlines()).removesuffix("\\\n") + "\n"


def printable_lines(text: str) -> str:
    """The text with its line ends as spaces and no other control character."""
    return printable(re.sub(r"\s", " ", text))


def _not_a_block(beginning: re.Match[str]) -> str:
    """The beginning of a line so that no heading, list or rule begins there: `1.` is `1\\.`."""
    found = beginning[0]
    return f"{found}\\" if found.isdigit() else f"\\{found}"


def _short(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"
