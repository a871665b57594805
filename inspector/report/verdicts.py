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


def mark(answer: Answer) -> str:
    """`✓ −25% better`, `≠ different`; empty for the baseline, and for what is as in the baseline."""
    if answer.verdict in ("baseline", "equal"):
        return ""
    if answer.verdict == "unknown":
        return "" if answer.text == "unknown" else f"{SIGNS['unknown']} not known to compare"
    sign = SIGNS[answer.verdict]
    if answer.verdict in ("better", "worse"):
        return " ".join(part for part in (sign, answer.change, answer.verdict) if part)
    if answer.verdict == "different":
        return f"{sign} {answer.change or 'different'}"
    return f"{sign} {answer.verdict}"
