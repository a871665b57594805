"""How an answer compares with the baseline's, as a sign and a word: colour alone tells nobody."""

from __future__ import annotations

from inspector.difference import Answer

SIGNS = {
    "better": "✓",
    "worse": "✗",
    "different": "≠",
    "not comparable": "∅",
    "equal": "=",
    "unknown": "?",
}


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


def remark(answer: Answer) -> str:
    """What to keep in mind of an answer, unless the answer says so itself, as `no axis fsdp` does."""
    for said, again in _SAID_AGAIN:
        if answer.text.startswith(said) and answer.remark.startswith(again):
            return ""
    return answer.remark
