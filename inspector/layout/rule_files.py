"""Rules from the configuration files of MaxText and Levanter, as presets. No code in them is run.

* MaxText: YAML with `mesh_axes` and `logical_axis_rules` (base.yml, custom_mesh_and_rule/*.yml).
* Levanter: YAML whose `trainer` has `axis_resources`, `tensor_parallel_axes` and others.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from inspector.files import input_file
from inspector.layout.fields import MOST_AXES, NAME
from inspector.layout.layout import Layout
from inspector.layout.mesh_shapes import LARGE_AXES, mesh_shape
from inspector.layout.presets import Preset
from inspector.records.typed_json import Record
from inspector.sharding.rules import Rule
from inspector.sharding.rules.written import MOST_RULES, rule_of
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import counted, mesh_sizes_text

# Characters of rules, and the suffixes of files: no rule contains a slash, and one rule alone has no reason
# to have a suffix.
_OF_RULES = re.compile(r"[=,~;\n]")
_OF_FILES = (".yml", ".yaml", ".py", ".json", ".txt")
MOST_BYTES = 1_000_000  # MaxText's base.yml has 78,000
SUFFIXES = ("yml", "yaml")
_MOST_NAMES = 5
_LONGEST_PATH = 1000

_MOST_NODES = 20_000  # values of a YAML file; MaxText's base.yml has 3,000
_DEEPEST = 20  # of YAML
_LONGEST_VALUE = 10_000  # characters of a value of YAML
_MOST_BITS = 64  # of an integer of YAML: the size of a mesh axis

# Logical axes of the models of this project by their name in a file.
_ALIASES = {
    "MaxText": {
        "activation_batch": "batch",
        "activation_length": "seq",
        "q_heads": "heads",
        "kv": "head_dim",
        "exp": "expert",
    },
    "Levanter": {"position": "seq", "head_size": "head_dim", "experts": "expert"},
}


@dataclass(frozen=True)
class RuleSet(Record):
    """A list of rules in a file.

    Attributes:
      project: the project whose form the file has.
      axes: the mesh axes that the file names, in its order.
      large: those that the file makes larger than 1.
    """

    name: str
    project: Literal["MaxText", "Levanter"]
    axes: tuple[str, ...]
    rules: tuple[Rule, ...]
    large: tuple[str, ...] = ()

    def applied_to(self, layout: Layout, keep_mesh: bool | None = None) -> Layout:
        """Return the layout with these rules. Mesh axes of the file that its mesh lacks have size 1.

        Args:
          keep_mesh: whether to keep the mesh of the layout. None keeps it if the file has all its axes.

        Raises:
          InvalidInput: the model of the layout has no rules.
        """
        if not layout.entry.has_rules:
            raise InvalidInput(f"model {layout.model} has no rules, so a file of rules does not apply")
        if keep_mesh is None:
            keep_mesh = set(layout.axis_names) <= set(self.axes)
        names = () if keep_mesh else self._default_axes()
        if names:  # a file can name no axis at all
            layout = layout.on_mesh(mesh_shape(layout.devices, len(names)), names)
        rules = tuple(self._rules_for(layout))
        preset = Preset(self.name, "", layout.axis_names, rules)
        return replace(layout, rules=preset.rules_for(layout.entry))

    def unused(self, layout: Layout) -> tuple[str, ...]:
        """Return the logical axes with rules in the file that the layout's model lacks."""
        kept = {name for name, _ in self._rules_for(layout)}
        aliases = _ALIASES[self.project]
        names = dict.fromkeys(name for name, _ in self.rules)
        return tuple(name for name in names if not {name, aliases.get(name)} & kept)

    def _rules_for(self, layout: Layout) -> Iterator[Rule]:
        """Yield the rules that the layout's model can use, on the axes of its mesh.

        A rule whose axes all have size 1 leaves its dimension whole, as in the file. The code of a user's
        model can have more logical axes than its state, so it gets every rule.
        """
        entry = layout.entry
        for name, axes in self.rules:
            if name not in entry.logical_axes and not entry.own:
                name = _ALIASES[self.project].get(name, name)
            if name in entry.logical_axes or entry.own:
                yield name, tuple(axis for axis in axes if axis in layout.axis_names)

    def _default_axes(self) -> tuple[str, ...]:
        """Return the axes that the file makes larger than 1, else those that most rules use."""
        chosen = list(self.large[:MOST_AXES])
        if not chosen:
            used = [axis for _, axes in self.rules for axis in axes]
            chosen = sorted(dict.fromkeys(used), key=used.count, reverse=True)[:LARGE_AXES]
        return tuple(axis for axis in self.axes if axis in chosen)


@dataclass(frozen=True)
class RuleFile(Record):
    """The lists of rules in a file, as a worker returns them."""

    sets: tuple[RuleSet, ...]


def rule_sets(text: str, name: str) -> tuple[RuleSet, ...]:
    """Return the lists of rules in a file. `name` is its name in errors.

    Raises:
      InvalidInput: the file is too large, cannot be read, or has no rules.
    """
    if len(text) > MOST_BYTES:
        raise InvalidInput(
            f"{name} has {len(text):,} characters, but a file of rules must have at most {MOST_BYTES:,}"
        )
    rule_sets = tuple(_of_yaml(text, name))
    if not rule_sets:
        raise InvalidInput(
            f"{name} contains no rules: it must be YAML of MaxText (logical_axis_rules) or Levanter (trainer)"
        )
    return rule_sets


def is_file(path: str) -> bool:
    """Return whether the text is the path of a file rather than rules."""
    try:
        return len(path) < _LONGEST_PATH and Path(path).is_file()
    except (OSError, ValueError):
        return False


def is_file_name(text: str) -> bool:
    """Return whether the text is the name of a file, whether it exists or not, rather than rules."""
    text = text.strip()
    return _OF_RULES.search(text) is None and ("/" in text[:-1] or text.endswith(_OF_FILES))


def check_exists(text: str) -> None:
    """Check that rules of `--rules` are not the name of a file that does not exist.

    Raises:
      InvalidInput: they are.
    """
    if is_file_name(text) and not is_file(text):
        raise InvalidInput(
            f"--rules is {shown(text)}, but must be rules, such as batch=data, or an existing file"
        )


def read(path: str) -> str:
    """Return the text of a file.

    Raises:
      InvalidInput: it cannot be read, is too large, or is not text.
    """
    return input_file.read_text(path, MOST_BYTES)


def applied_text(rule_set: RuleSet, layout: Layout) -> str:
    """Return which mesh a layout with these rules has, and which rules it does not use."""
    mesh = mesh_sizes_text(layout.axis_names, layout.mesh_shape)
    whole = [axis for axis in rule_set.axes if axis not in layout.axis_names]
    said = f"{counted(len(layout.rules), 'rule')} on {mesh}"
    if whole:
        said += f"; of size 1: {', '.join(whole)}"
    unused = rule_set.unused(layout)
    if unused:
        names = ", ".join(unused[:_MOST_NAMES]) + (", …" if len(unused) > _MOST_NAMES else "")
        said += f"; no such logical axis in the model: {len(unused)} ({names})"
    return said


def chosen(sets: tuple[RuleSet, ...], name: str | None) -> RuleSet:
    """Return the list of this name, the first one by default.

    Raises:
      InvalidInput: there is no such list.
    """
    rule_set = next((rule_set for rule_set in sets if name in (None, rule_set.name)), None)
    if rule_set is None:
        raise InvalidInput(
            f"--rule-set is {shown(name)}, but the file has {', '.join(rule_set.name for rule_set in sets)}"
        )
    return rule_set


def meaning(rule_set: RuleSet) -> str:
    """Return the content of a list, in words."""
    rules = counted(len(rule_set.rules), "rule")
    return f"{rule_set.project}: {rules} over {', '.join(rule_set.axes)}"


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """Reads plain values only, in bounded time and memory.

    A value with a local tag, such as `!include`, is None. Aliases are refused: they can make a few bytes into
    gigabytes.
    """

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self._name = name
        self._nodes = self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        where = f"{self._name}, line {event.start_mark.line + 1},"
        if event.anchor is not None:
            mark = "*" if isinstance(event, yaml.AliasEvent) else "&"
            raise InvalidInput(
                f"{where} has {shown(mark + event.anchor)}, but aliases and anchors are not allowed: write "
                "the value in full"
            )
        tag = getattr(event, "tag", None)
        if tag is not None and tag.startswith("tag:"):
            raise yaml.composer.ComposerError(None, None, f"tag {tag}", event.start_mark)
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise InvalidInput(f"{self._name} has more than {_MOST_NODES:,} values of YAML")
        if len(getattr(event, "value", "")) > _LONGEST_VALUE:
            raise InvalidInput(f"{where} has a value of more than {_LONGEST_VALUE:,} characters")
        if self._depth == _DEEPEST:
            raise InvalidInput(f"{where} is nested too deeply: at most {_DEEPEST} levels are allowed")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def bounded_integer(self, node: Any) -> int:
        """Return an integer.

        Raise InvalidInput if it has more digits than Python prints, as in hexadecimal.
        """
        value: int = self.construct_yaml_int(node)
        if value.bit_length() > _MOST_BITS:
            raise InvalidInput(
                f"{self._name}, line {node.start_mark.line + 1}, has {shown(value)}, but must have integers "
                f"of at most {_MOST_BITS} bits"
            )
        return value


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.bounded_integer)
_Loader.add_multi_constructor("!", lambda loader, suffix, node: None)


def _of_yaml(text: str, name: str) -> Iterator[RuleSet]:
    try:
        loader = _Loader(text, name)
        try:
            plain = loader.get_single_data()
        finally:
            loader.dispose()
    except InvalidInput:
        raise
    # PyYAML has other errors than its own for numbers and dates that look like some.
    except (yaml.YAMLError, RecursionError, ValueError, ArithmeticError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        where = "" if line is None else f" at line {line + 1}"
        raise InvalidInput(f"{name} is not valid YAML{where}") from None
    if not isinstance(plain, dict):
        return
    if isinstance(plain.get("logical_axis_rules"), list):
        rules = _rules(plain["logical_axis_rules"], name)
        given = plain.get("mesh_axes")
        listed = _axes_of(rules) if given is None else _listed(given, "mesh_axes", name)
        sizes = {axis: plain.get(f"ici_{axis}_parallelism", 1) for axis in listed}
        large = tuple(axis for axis, size in sizes.items() if isinstance(size, int) and size != 1)
        yield RuleSet("rules", "MaxText", listed, rules, large)
    if isinstance(plain.get("trainer"), dict):
        yield from _of_levanter(plain["trainer"], name)


def _of_levanter(trainer: dict[str, Any], name: str) -> Iterator[RuleSet]:
    """Yield the mapping of parameters and that of activations (levanter/trainer.py, `*_axis_mapping`).

    A layout has one list. In the list of parameters the rules of activations come first, so that an
    activation whose batch has taken an axis is not sharded over it twice.
    """
    compute = dict(_mapping(trainer, "axis_resources", name))
    tensor_parallel = _listed(trainer.get("tensor_parallel_axes"), "trainer.tensor_parallel_axes", name)
    compute |= dict.fromkeys(tensor_parallel, "model")
    batch = _listed(trainer.get("batch_axis", "batch"), "trainer.batch_axis", name)
    compute |= {axis: ["replica", "data"] for axis in batch}
    parameters = compute | _mapping(trainer, "parameter_axis_resources", name)
    fully_sharded = _listed(trainer.get("fsdp_axis", "embed"), "trainer.fsdp_axis", name)
    parameters |= dict.fromkeys(fully_sharded, "data")
    axes = ("replica", "data", "model")
    large = ("data",) if trainer.get("model_axis_size", 2) == 1 else ("data", "model")
    for title, mapping in (("parameters", parameters), ("compute", compute)):
        rules = _rules([[key, value] for key, value in mapping.items()], name)
        first = [rule for rule in rules if rule[0] in batch]
        ordered = (*first, *(rule for rule in rules if rule[0] not in batch))
        more = tuple(axis for axis in _axes_of(ordered) if axis not in axes)
        yield RuleSet(title, "Levanter", (*axes, *more), ordered, large)


def _mapping(trainer: dict[str, Any], key: str, name: str) -> dict[str, Any]:
    value = trainer.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidInput(f"{name}: trainer.{key} is {shown(value)}, but must be a mapping")
    return value


def _listed(value: Any, field: str, name: str) -> tuple[str, ...]:
    """Return the names in a field that has one name, a list of names, or none."""
    if value is None:
        return ()
    if not isinstance(value, (str, list)):
        raise InvalidInput(f"{name}: {field} is {shown(value)}, but must be a name or a list of names")
    return _names([value] if isinstance(value, str) else value, name)


def _rules(value: Any, name: str) -> tuple[Rule, ...]:
    """Return the rules in a list of pairs, with one rule per pair.

    Raises:
      InvalidInput: a pair is not a rule.
    """
    if not isinstance(value, (list, tuple)):
        raise InvalidInput(f"{name}: rules is {shown(value)}, but must be a list")
    if len(value) > MOST_RULES:
        raise InvalidInput(f"{name} has a list of {len(value):,} rules, at most {MOST_RULES:,} are allowed")
    try:
        rules = tuple(map(rule_of, value))
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from None
    for logical, axes in rules:
        _names((logical, *axes), name)
        if len(set(axes)) != len(axes):
            raise InvalidInput(
                f"{name}: rule {logical} is {shown('+'.join(axes))}, but may use each mesh axis only once"
            )
    return rules


def _names(value: Any, name: str) -> tuple[str, ...]:
    for one in value:
        if not isinstance(one, str) or not NAME.fullmatch(one):
            raise InvalidInput(
                f"{name} has the axis {shown(one)}, but names must be ASCII letters, digits and _"
            )
    return tuple(value)


def _axes_of(rules: tuple[Rule, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(axis for _, axes in rules for axis in axes))
