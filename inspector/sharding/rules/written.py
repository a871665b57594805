"""Parse rules from text: the form of the command line, JSON, or a Python list from a configuration file.

`batch=data,embed=fsdp+tensor,layer=` · `[["batch", "data"], ["embed", ["fsdp", "tensor"]], ["layer", null]]`
· `[['batch', 'data'], ['embed', ['fsdp', 'tensor']], ['layer', []]]`, as in MaxText's files,
with or without the name that they have there (`logical_axis_rules: [`, `RULES = (`).
"""

import json
import re
from typing import Any

from inspector.files import strict_json
from inspector.records.snapshot import Snapshot
from inspector.sharding.rules.rule import Rule
from inspector.text.errors import InvalidInput, shown

# What Python and YAML in flow style write otherwise than JSON: comments, quotes, names without quotes, the
# comma after a last entry, and tuples. `ast.parse` needs 500 times the memory of its text.
_TOKEN = re.compile(
    r"""(?P<dropped>\#[^\n]*+|,(?=(?:\s++|\#[^\n]*+)*+[\])}]))
      |'(?P<quoted>[^'\\\n]*+)'
      |"[^"\\\n]*+"
      |(?P<name>\b[^\W\d]\w*+)
      |(?P<tuple>[()])""",
    re.VERBOSE,
)
_VALUES = {"None": "null", "null": "null"} | {
    name: name for name in ("NaN", "Infinity", "True", "False", "true", "false")
}
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
            return strict_json.parse(as_json(text), "rules")
        except InvalidInput as other:
            if "is not JSON" not in str(other):
                raise
            if "'" not in text and "(" not in text:
                raise refused from None
    raise InvalidInput("rules cannot be read: it must be a list of ['logical axis', ['mesh axis', …]]")


def as_json(text: str) -> str:
    """Return lists and texts of Python or YAML as JSON. A tuple becomes a list.

    Example:
      >>> as_json("[('batch', (data, 'fsdp',)), ('embed', None)]")
      '[["batch", ["data", "fsdp"]], ["embed", null]]'
    """

    def json_of(token: re.Match[str]) -> str:
        if token["dropped"] is not None:
            return ""
        if token["tuple"] is not None:
            return "[" if token[0] == "(" else "]"
        if token["name"] in _VALUES:
            return _VALUES[token[0]]
        plain = token["name"] or token["quoted"]
        return token[0] if plain is None else json.dumps(plain, ensure_ascii=False)

    return _TOKEN.sub(json_of, text)


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
