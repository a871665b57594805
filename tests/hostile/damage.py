"""Damage JSON documents and texts at random places, so that readers see what no producer writes."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

# Values by the type of what they replace.
INTEGERS = (
    -1, 0, 1, 2, 3, 5, 7, 8, 9, 64, 1000, 100_000, 2**31, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64, 10**30,
)  # fmt: skip
FLOATS = (0.0, -0.0, -1.0, 5e-324, 1e-300, 1e-12, 0.5, 1e12, 1e200, 1.7976931348623157e308)
TEXTS = (
    "", " ", "/", "//", "a", "data", "model", "absent", "all-reduce", "collective-dance", "0", "-1",
    "x" * 5000, "/".join("s" * 2000), "a/" * 300, "9" * 5000, "1e-999999999", "\x1b[31mred\x1b[0m",
    "\u202egnp", "\u2028", "\x00", "\n", "<b>x</b>", "<script>", "%s", "{x}", "[b]", "`", "|",
    "float32", "int4", "float999999999999", "tpu:v5e:2x4", "tpu:v5e:16x16*2", "gpu:h100:8", "cpu", "plan",
    "tpu:v5p:99999x99999x99999", "params", "activation", "2x4", "1" * 400 + "x2", "embed=fsdp",
)  # fmt: skip
OTHERS = (None, True, False, [], {}, [[]], [None], {"": None}, "", 0, 0.5)


def damaged(document: Any, draw: random.Random) -> Any:
    """Return a copy of a JSON document with one to five random changes."""
    document = copy.deepcopy(document)
    for _ in range(draw.choice((1, 1, 2, 3, 5))):
        if not document:
            break
        holder, key = _place(document, draw)
        draw.choices(_CHANGES, _WEIGHTS)[0](document, holder, key, draw)
    return document


def _place(document: Any, draw: random.Random) -> tuple[Any, Any]:
    """Return a random place: a dict or list, and a key or position in it. Each depth is as likely."""
    holder = document
    while True:
        key = draw.choice(list(holder)) if isinstance(holder, dict) else draw.randrange(len(holder))
        if key in ("format", "version") and draw.random() < 0.95:
            continue  # hardly any document would be read otherwise
        inside = holder[key]
        if not (isinstance(inside, (dict, list)) and inside) or draw.random() < 0.12:
            return holder, key
        holder = inside


def _replace(document: Any, holder: Any, key: Any, draw: random.Random) -> None:
    old = holder[key]
    pools: tuple[tuple[type, tuple[Any, ...]], ...] = (
        (bool, (True, False, None)), (int, INTEGERS), (float, FLOATS), (str, TEXTS),
    )  # fmt: skip
    pool = next((values for kind, values in pools if isinstance(old, kind)), OTHERS)
    # A copy, because a later change can be inside of it.
    holder[key] = copy.deepcopy(draw.choice(pool if draw.random() < 0.97 else OTHERS))


def _nothing(document: Any, holder: Any, key: Any, draw: random.Random) -> None:
    holder[key] = None


def _remove(document: Any, holder: Any, key: Any, draw: random.Random) -> None:
    del holder[key]


def _empty(document: Any, holder: Any, key: Any, draw: random.Random) -> None:
    if isinstance(holder[key], (dict, list)):
        holder[key].clear()
    else:
        holder.clear()


def _double(document: Any, holder: Any, key: Any, draw: random.Random) -> None:
    if isinstance(holder, list):
        holder.insert(draw.randint(0, len(holder)), copy.deepcopy(holder[key]))
    else:
        holder[f"{key}{draw.choice(TEXTS)}"] = copy.deepcopy(holder[key])


def _reverse(document: Any, holder: Any, key: Any, draw: random.Random) -> None:
    if isinstance(holder, list):
        holder.reverse()


def _exchange(document: Any, holder: Any, key: Any, draw: random.Random) -> None:
    """Put a copy of another value of the document here."""
    other, there = _place(document, draw)
    holder[key] = copy.deepcopy(other[there])


def _deepen(document: Any, holder: Any, key: Any, draw: random.Random) -> None:
    for _ in range(draw.choice((1, 3, 80))):
        holder[key] = [holder[key]]


Change = Callable[[Any, Any, Any, random.Random], None]
_WEIGHTS = (16, 2, 1, 1, 3, 1, 2, 0.3)
_CHANGES: tuple[Change, ...] = (
    _replace, _nothing, _remove, _empty, _double, _reverse, _exchange, _deepen,
)  # fmt: skip


def damaged_text(text: str, draw: random.Random, pieces: Sequence[str] = TEXTS) -> str:
    """Return a text with one to five parts cut, inserted, doubled or replaced."""
    for _ in range(draw.choice((1, 1, 2, 3, 5))):
        start = draw.randint(0, len(text))
        end = min(len(text), start + draw.choice((0, 1, 2, 5, 20)))
        middle = draw.choice(("", text[start:end] * 2, draw.choice(pieces), draw.choice(pieces)))
        text = text[:start] + middle + text[end:]
    return text
