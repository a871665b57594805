"""How an answer compares with the baseline's, as a sign and a word: colour alone tells nobody."""

from __future__ import annotations

from collections.abc import Sequence

from inspector.compare.difference import Answer, Question

SIGNS = {
    "better": "✓",
    "worse": "✗",
    "different": "≠",
    "not comparable": "∅",
    "equal": "=",
    "unknown": "?",
}


_MOST_TITLES = 3
_QUALIFIED = ("better", "worse", "different")

# How answers begin whose remarks, which begin so, only say the same in other words.
_SAID_AGAIN = (
    ("no axis ", "its mesh has no axis "),
    ("no chip chosen", "no chip was chosen"),
)


def mark(answer: Answer) -> str:
    """`✓ −25% better`, `≠ different`; empty for the baseline, and for what is as in the baseline."""
    if answer.verdict in ("baseline", "equal"):
        return ""
    if answer.verdict == "unknown":
        return "" if answer.text == "unknown" else f"{SIGNS['unknown']} not known of both"
    sign = SIGNS[answer.verdict]
    if answer.verdict in ("better", "worse"):
        return " ".join(part for part in (sign, answer.change, answer.verdict) if part)
    if answer.verdict == "different":
        return f"{sign} {answer.change or 'different'}"
    return f"{sign} {answer.verdict}"


def remarks(rows: Sequence[Question]) -> list[list[str]]:
    """The remark of each answer, row by row.

    One that stands above in its column and section is left out, unless it qualifies a figure: nobody reads
    from `better` upwards to find that it is of another model.
    """
    made: list[list[str]] = []
    above, section = [], None
    for row in rows:
        if row.section != section:
            above, section = [""] * len(row.answers), row.section
        said = [remark(answer) for answer in row.answers]
        made.append(
            [
                "" if one == last and answer.verdict not in _QUALIFIED else one
                for answer, one, last in zip(row.answers, said, above, strict=True)
            ]
        )
        above = [one or last for one, last in zip(said, above, strict=True)]
    return made


def titles_text(titles: Sequence[str]) -> str:
    """What a note is about: the titles of its rows, three at most; points part them, for they have commas."""
    more = len(titles) - _MOST_TITLES
    shown = list(titles) if more <= 1 else [*titles[:_MOST_TITLES], f"{more} more rows"]
    return " · ".join(shown)


def remark(answer: Answer) -> str:
    """What to keep in mind of an answer, unless the answer says so itself, as `no axis fsdp` does."""
    for said, again in _SAID_AGAIN:
        if answer.text.startswith(said) and answer.remark.startswith(again):
            return ""
    return answer.remark
