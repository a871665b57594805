"""Text in GitHub-flavored Markdown, displayed literally.

GitHub reads more than Markdown: `@team` mentions people, `#123` and commit hashes become links, `:tada:` an
emoji, `$x$` a formula. GitHub does so after Markdown's escapes are gone, so escapes do not prevent it. An
invisible word joiner inside the text does, and so does code formatting.
"""

import html
import re
from collections.abc import Iterable, Sequence

from inspector.core.printable import EMOJI_NAME, one_line, printable

_WORD_JOINER = "\u2060"
# Markup anywhere, and markup only at the beginning of a line. An underscore inside a word is not markup.
_MARKUP = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])")
_BEGINNING = re.compile(r"^(?:[#+=-]|\d+(?=[.)](?:\s|$)))")
_ENTITIES = str.maketrans({"<": "&lt;", ">": "&gt;", "&": "&amp;"})
# A word joiner goes after each: mentions, issues, addresses, emoji, commits and `GH-12`.
_READ_BY_GITHUB = re.compile(
    rf"@(?=\w)|#(?=\d)|:(?=//)|www(?=\.)|:(?={EMOJI_NAME}:)|\bGH(?=-\d)|[0-9a-f]{{6}}(?=[0-9a-f])",
    re.IGNORECASE,
)
_CODE_WOULD_END = re.compile(r"[`|]|^\s|\s$|^$")

MAX_CHARACTERS = 600  # of one text; a comment on GitHub holds 65,536


def plain(text: str) -> str:
    """Return the text escaped for any place in Markdown, including table cells."""
    escaped = _MARKUP.sub(r"\\\g<0>", _unread(text))
    return _BEGINNING.sub(_escape_beginning, escaped).translate(_ENTITIES)


def html_text(text: str) -> str:
    """Return the text escaped for an HTML element, where Markdown's escapes have no effect."""
    return html.escape(_unread(text))


def code(text: str) -> str:
    """Return a name as inline code, also valid in table cells. GitHub reads no mentions in code."""
    line = _short(printable(text))
    if not _CODE_WOULD_END.search(line):
        return f"`{line}`"
    entities = "".join(
        character if character.isalnum() or character in " /," else f"&#{ord(character)};"
        for character in line
    )
    return f"<code>{entities}</code>"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = ()) -> str:
    """Return a table whose cells are Markdown. `numbers` are the columns aligned to the right."""
    right = set(numbers)
    rules = ["---:" if column in right else "---" for column in range(len(headings))]
    return "".join(f"| {' | '.join(line)} |\n" for line in (headings, rules, *rows))


def listing(items: Iterable[str]) -> str:
    """Return a list whose items are Markdown."""
    return "".join(f"- {item}\n" for item in items)


def folded(summary: str, body: str) -> str:
    """Return a part that opens when its summary is clicked. The summary is HTML, the body Markdown."""
    return f"<details><summary>{summary}</summary>\n\n{body}\n</details>\n"


def quoted(text: str) -> str:
    """Return a text of one or more lines as a quotation."""
    return "".join(f"> {plain(line)}\\\n" for line in text.splitlines()).removesuffix("\\\n") + "\n"


def _escape_beginning(match: re.Match[str]) -> str:
    """Escape the beginning of a line that would start a heading, a list or a rule: `1.` becomes `1\\.`."""
    return f"{match[0]}\\" if match[0].isdigit() else f"\\{match[0]}"


def _unread(text: str) -> str:
    """Return the text on one line with word joiners where GitHub would read more than text."""
    line = _short(one_line(text)).strip()
    return _READ_BY_GITHUB.sub(lambda match: match[0] + _WORD_JOINER, line)


def _short(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"
