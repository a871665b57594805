"""Paths of arguments from the names that JAX writes into a program: `state['params']['w']`, `args[0].mu`."""

import functools
import re

_KEY = re.compile(
    r"""\.(?P<name>[A-Za-z_]\w*+)"""
    r"""|\[(?P<quoted>'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")\]"""
    r"""|\[(?:<flat\ index\ )?(?P<other>[^\[\]<>]*+)>?\]""",
    re.X | re.S,
)
_FIRST = re.compile(r"[A-Za-z_]\w*+")
_ESCAPE = re.compile(r"\\(.)", re.S)
_MOST_KEYS = 100


@functools.lru_cache(maxsize=4096)
def keys_of(name: str) -> tuple[str, ...] | None:
    """Return the argument's name and its keys, or None if the text is something else.

    The keys equal those of `jax.tree_util.keystr(…, simple=True)`.
    """
    first = _FIRST.match(name)
    if first is None:
        return None
    keys, at = [first[0]], first.end()
    while at < len(name):
        match = _KEY.match(name, at)
        if match is None or len(keys) == _MOST_KEYS:
            return None
        quoted = match["quoted"]
        keys.append(_ESCAPE.sub(r"\1", quoted[1:-1]) if quoted else match["name"] or match["other"] or "")
        at = match.end()
    return tuple(keys)


def path_of(name: str) -> str | None:
    """Return the keys joined by "/", or None if the text is not the name of an argument."""
    keys = keys_of(name)
    return None if keys is None else "/".join(keys)
