"""Read lists of names from Python or YAML in flow style: quoted text, None, brackets. One pass, no code.

`ast.parse` needs 500 times the memory of its text, and deep brackets can overflow the stack of the process.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from inspector.core.errors import InvalidInput, shown

DEEPEST = 4  # brackets inside each other; a list of pairs whose second is a list has 3

_TOKEN = re.compile(
    r"""(?:\s++|\#[^\n]*+)*+
    (?:(?P<quoted>'[^'\\\n]*+'|"[^"\\\n]*+")
      |(?P<number>-?[0-9][\w.]*+)
      |(?P<name>\w++)
      |(?P<mark>[\[\](){},:]))""",
    re.VERBOSE,
)
_REST = re.compile(r"(?:\s++|#[^\n]*+)*+")
_CLOSES = {"]": "[", ")": "(", "}": "{"}
_NOTHING = ("None", "null")
_NO_NAMES = ("NaN", "Infinity", "True", "False")  # names of values


@dataclass
class _Bracket:
    """A bracket that is not closed yet.

    Attributes:
      items: its values; for an object, keys and values in turn.
      due: whether a value can come next, and no comma.
      comma: whether it has a comma, so that round brackets are a tuple.
    """

    opening: str
    items: list[Any] = field(default_factory=list)
    due: bool = True
    comma: bool = False

    def add(self, value: Any) -> None:
        if not self.due:
            raise ValueError("no comma between values")
        self.items.append(value)
        self.due = False

    def separate(self, mark: str) -> None:
        """Read a comma, or the colon after a key.

        Raises:
          ValueError: the mark cannot be here.
        """
        after_key = self.opening == "{" and len(self.items) % 2 == 1
        if self.due or (mark == ":") != after_key:
            raise ValueError(f"{mark} is not expected")
        self.due, self.comma = True, self.comma or mark == ","

    def value(self, what: str) -> Any:
        """Return the list, or for an object a list of [key, value].

        Raises:
          ValueError: a key has no value.
          InvalidInput: a key is repeated.
        """
        if self.opening == "(" and len(self.items) == 1 and not self.comma:
            return self.items[0]
        if self.opening != "{":
            return self.items
        keys, values = self.items[::2], self.items[1::2]
        known = set()
        for key in keys:
            if not isinstance(key, str):
                raise ValueError("a key is no text")
            if key in known:
                raise InvalidInput(f"{what} has the key {shown(key)} twice in one object")
            known.add(key)
        return [[key, value] for key, value in zip(keys, values, strict=True)]


def parse(text: str, what: str, names: bool = False) -> Any:
    """Return the lists and texts in a text that begins with a bracket, such as `[('embed', None)]`.

    Tuples become lists, and an object becomes a list of [key, value]. A number is a float. `what` names the
    text in errors. With `names`, a name without quotes is a text, as in YAML.

    Raises:
      InvalidInput: the brackets are nested too deeply, or a key is repeated.
      ValueError: the text is anything else.

    Example:
      >>> parse("[('batch', ('data', 'fsdp')), ('embed', None)]", "rules")
      [['batch', ['data', 'fsdp']], ['embed', None]]
    """
    opened: list[_Bracket] = []
    at = 0
    while (token := _TOKEN.match(text, at)) is not None:
        at = token.end()
        mark = token["mark"]
        if mark in ("[", "(", "{"):
            if len(opened) == DEEPEST:
                raise InvalidInput(
                    f"{what} is nested too deeply: a list of [logical axis, mesh axes] is allowed"
                )
            opened.append(_Bracket(mark))
            continue
        if not opened:
            break
        if mark in (",", ":"):
            opened[-1].separate(mark)
            continue
        if mark is None:
            value = _value(token, names)
        else:
            if opened[-1].opening != _CLOSES[mark]:
                raise ValueError(f"{mark} does not close {opened[-1].opening}")
            value = opened.pop().value(what)
        if opened:
            opened[-1].add(value)
        elif _REST.fullmatch(text, at):
            return value
        else:
            break
    raise ValueError("not a list of names")


def _value(token: re.Match[str], names: bool) -> str | float | None:
    if token["quoted"] is not None:
        return token["quoted"][1:-1]
    if token["number"] is not None:
        return float(token["number"])
    name = token["name"]
    if name in _NOTHING:
        return None
    if not names or name in _NO_NAMES:
        raise ValueError("a name without quotes")
    return name
