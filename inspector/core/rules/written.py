"""Parse rules from text: the form of the command line, JSON, or a Python list from a configuration file.

`batch=data,embed=fsdp+tensor,layer=` · `[["batch", "data"], ["embed", ["fsdp", "tensor"]], ["layer", null]]`
· `[['batch', 'data'], ['embed', ['fsdp', 'tensor']], ['layer', []]]`, as in MaxText's files,
with or without the name that they have there (`logical_axis_rules: [`, `RULES = (`).
"""

import re
from dataclasses import dataclass, field
from typing import Any

from inspector.core import strict_json
from inspector.core.errors import InvalidInput, shown
from inspector.core.rules.rule import Rule
from inspector.core.snapshot import Snapshot

# Read lists of names from Python or YAML in flow style: quoted text, None, brackets. One pass, no code.
#
# `ast.parse` needs 500 times the memory of its text, and deep brackets can overflow the stack of the process.


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


def literal(text: str, what: str, names: bool = False) -> Any:
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


MOST_CHARACTERS = 100_000  # MaxText's longest list has 6,000
MOST_RULES = 1000
MOST_AXES = 64  # of a rule; NumPy's arrays have at most 64 dimensions, so JAX's meshes do
# The name in front of a list in a file: `logical_axis_rules: [`, `RULES: tuple = (`.
_NAME = re.compile(r"[A-Za-z_]\w*\s*(?::[^=\[({\n]*)?(?:=|(?<=:))\s*(?=[\[({])")


def parse(text: str) -> tuple[Rule, ...]:
    """Return the rules in a text, in order. Axis names are not checked against a mesh.

    Raises:
      InvalidInput: the text is not in one of the three forms.
    """
    text = text.removeprefix("\ufeff").strip()
    if len(text) > MOST_CHARACTERS:
        raise InvalidInput(f"rules has {len(text):,} characters, at most {MOST_CHARACTERS:,} are allowed")
    text = _NAME.sub("", text, count=1) if _NAME.match(text) else text
    pairs = _parsed(text) if text[:1] in ("[", "(", "{") else _short(text)
    if isinstance(pairs, dict):
        pairs = list(pairs.items())
    if not isinstance(pairs, (list, tuple)):
        raise InvalidInput(f"rules is {shown(repr(pairs))}, but must be a list of [logical axis, mesh axes]")
    if len(pairs) > MOST_RULES:
        raise InvalidInput(f"rules has {len(pairs):,} entries, at most {MOST_RULES:,} are allowed")
    rules = tuple(rule_of(pair) for pair in pairs)
    for name, axes in rules:
        if not all(one and one.isprintable() for one in (name, *axes)):
            raise InvalidInput(f"rule {shown(name)} has an axis without a name that can be printed")
    return rules


def _parsed(text: str) -> Any:
    try:
        return strict_json.parse(text, "rules")
    except InvalidInput as refused:
        try:
            return literal(text, "rules", names=True)
        except InvalidInput:
            raise
        except ValueError:
            if "'" not in text and "(" not in text:
                raise refused from None
    raise InvalidInput("rules cannot be read: it must be a list of ['logical axis', ['mesh axis', …]]")


def _short(text: str) -> list[tuple[str, list[str]]]:
    pairs = []
    for entry in re.split(r"[,;\n]", text):
        name, separator, axes = entry.partition("=")
        if not entry.strip():
            continue
        if not separator:
            raise InvalidInput(f"rules has {shown(entry)}, but a rule is a logical axis, =, and mesh axes")
        pairs.append((name.strip(), [axis.strip() for axis in axes.split("+") if axis.strip()]))
    return pairs


def recorded(snapshot: Snapshot) -> tuple[Rule, ...] | None:
    """Return the rules of a Snapshot's layout. Return None if it has no rules or they are not valid."""
    plain = (snapshot.layout or {}).get("rules")
    try:
        return tuple(map(rule_of, plain)) if isinstance(plain, list) else None
    except InvalidInput:
        return None


def rule_of(pair: Any) -> Rule:
    """Return the rule `["embed", ["fsdp", "tensor"]]`, `["embed", "fsdp"]` or `["embed", null]`.

    Raises:
      InvalidInput: the value is not such a pair.
    """
    if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not isinstance(pair[0], str):
        raise InvalidInput(f"rules has {shown(repr(pair))}, but a rule is [logical axis, mesh axes]")
    name, axes = pair
    axes = [axes] if isinstance(axes, str) else [] if axes is None else axes
    if not isinstance(axes, (list, tuple)) or not all(isinstance(axis, str) for axis in axes):
        raise InvalidInput(
            f"rule {shown(name)} goes to {shown(repr(axes))}, "
            "but must go to a mesh axis, a list of them or null"
        )
    if len(axes) > MOST_AXES:
        raise InvalidInput(f"rule {shown(name)} has {len(axes):,} mesh axes, at most {MOST_AXES} are allowed")
    return name, tuple(axis for axis in axes if axis != "None")
