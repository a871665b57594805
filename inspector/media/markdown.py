"""Sections as GitHub-flavored Markdown, for pull requests."""

import html
import re
from collections.abc import Iterable, Mapping, Sequence

from inspector.answers import report, section, subject
from inspector.answers.section import NUMBERS, cell_text, inline, more_text
from inspector.machines.hardware import Chip
from inspector.records.snapshot import Snapshot
from inspector.text.formatting import counted
from inspector.text.printable import EMOJI_NAME, one_line, printable

# Render the blocks of a section as GitHub-flavored Markdown.
#
# A comment cannot hold figures. Those that matter have a form in text, and tables contain their numbers.


# Text in GitHub-flavored Markdown, displayed literally.
#
# GitHub reads more than Markdown: `@team` mentions people, `#123` and commit hashes become links, `:tada:` an
# emoji, `$x$` a formula. GitHub does so after Markdown's escapes are gone, so escapes do not prevent it. An
# invisible word joiner inside the text does, and so does code formatting.


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


MAX_ROWS = 40  # of one table
_MAX_HEADING = 6


def render(blocks: Iterable[section.Block], level: int = 2) -> str:
    """Return the blocks as Markdown. `level` is the heading level of their sections."""
    return "\n".join(part for block in blocks if (part := _block(block, level)))


def parts_text(parts: Sequence[section.Inline]) -> str:
    """Return the parts of a sentence as Markdown on one line."""
    return "".join(map(_part, parts))


def _block(block: section.Block, level: int) -> str:
    match block:
        case section.Text(parts) | section.Notice(_, parts):
            return f"{parts_text(parts)}\n"
        case section.Listing(items):
            return listing(map(parts_text, items))
        case section.Facts(facts):
            return listing(f"{plain(fact.label)}: {plain(fact.value)}" for fact in facts)
        case section.Table():
            return _table(block)
        case section.Picture():
            return render(block.in_text, level)
        case section.Drawing():
            return ""
        case section.Columns(columns):
            return render((block for column in columns for block in column), level)
        case section.Folded(summary, blocks):
            body = render(blocks, level)
            return folded(html_text(summary), body) if body else ""
        case section.Preformatted():
            return _preformatted(block)
        case section.Section(_, heading, blocks):
            body = render(blocks, level + 1)
            return f"{'#' * min(level, _MAX_HEADING)} {plain(heading)}\n\n{body}" if body else ""


def _table(block: section.Table) -> str:
    rows = [
        [_cell(cell, column) for cell, column in zip(row, block.columns, strict=True)]
        for row in block.rows[:MAX_ROWS]
    ]
    numbers = [place for place, column in enumerate(block.columns) if column.kind in NUMBERS]
    text = table([plain(column.heading) for column in block.columns], rows, numbers)
    left_out = len(block.rows) - len(rows)
    return text + (f"\n{more_text(left_out, 'row')}\n" if left_out else "")


def _preformatted(block: section.Preformatted) -> str:
    lines = [printable(line.expandtabs()) for line in block.text.splitlines()]
    # A fence is longer than any run of backticks in the text, so the text cannot end it.
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join((fence + (block.language or ""), *lines, fence)) + "\n"


def _cell(cell: section.Cell, column: section.Column) -> str:
    if cell is None or isinstance(cell, (int, float)):
        return plain(cell_text(cell, column.kind))
    if column.kind == "code" and isinstance(cell, str):
        return code(cell)
    return parts_text(inline(cell))


def _part(part: section.Inline) -> str:
    match part:
        case section.Code(text):
            return code(text)
        case section.Strong(text) | section.Mark(text, _):
            return f"**{plain(text)}**" if text.strip() else ""
        case _:
            # `plain` strips its text, so the spaces around it are put back.
            before = " " if part[:1].isspace() else ""
            after = " " if part[-1:].isspace() and part.strip() else ""
            return f"{before}{plain(part)}{after}"


LONGEST_COMMENT = 60_000  # GitHub accepts comments of 65,536


def page(
    named: Sequence[tuple[str, Snapshot]],
    chip: Chip | None = None,
    notes: Mapping[str, str] | None = None,
) -> str:
    """Return the whole report. The first Snapshot is the baseline of the others."""
    names = [code(name) for name, _ in named]
    against = " against ".join(filter(None, (names[0], ", ".join(names[1:]))))
    parts = [f"## {plain(subject.title(named, chip))}: {against}\n"]
    for name, note in (notes or {}).items():
        parts.append(f"{code(name)}:\n\n{quoted(note)}")
    for block in report.short(named, chip):
        parts.append(render([block], level=3))
    return fitting([part for part in parts if part])


def fitting(parts: Sequence[str]) -> str:
    """Return the parts that fit into a comment, and the number of parts that do not."""
    kept: list[str] = []
    length = left_out = 0
    for part in parts:
        if length + len(part) > LONGEST_COMMENT:
            left_out += 1
            continue
        kept.append(part)
        length += len(part)
    if left_out:
        kept.append(f"{counted(left_out, 'part')} did not fit here: see the HTML report.\n")
    return "\n".join(kept)
