"""Changes of one rule that may fix a finding: add, change, move or delete it."""

import difflib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from inspector.checks.audit import unused_rules
from inspector.core.rules import Rule
from inspector.core.rules.rule import rule_text, rule_words
from inspector.core.snapshot import Finding, Snapshot
from inspector.layout import Layout

_KINDS = ("add", "change", "move", "delete")  # the earlier wins if two save the same
_MOST_AXES_PER_DIMENSION = 3


@dataclass(frozen=True)
class Candidate:
    """A changed layout that may fix a finding, before it is planned.

    words: the change as an instruction. count: the number of rules or specs that differ.
    size, order: ranks of changes that save the same; smaller is better.
    """

    layout: Layout
    words: str
    count: int
    size: tuple[int, ...]
    order: int = 0


# Effects of a change, the rules after it, and a change as words; then its mesh axes and position, for ranks.
_Change = tuple[str, tuple[Rule, ...], str, int, int]


def candidates(now: Snapshot, finding: Finding, layout: Layout) -> Iterator[Candidate]:
    """Yield every change of one rule that may fix the finding."""
    seen = set()
    for kind, rules, words, axes, position in _changes(now, finding, layout):
        if (kind, rules) not in seen:
            seen.add((kind, rules))
            size = _KINDS.index(kind), axes
            yield Candidate(replace(layout, rules=rules), words, 1, size, -position)


def axis_choices(finding: Finding, layout: Layout) -> Iterator[tuple[str, ...]]:
    """Yield mesh axes for a dimension: one or more of the finding's axes, or of all."""
    sizes = dict(zip(layout.axis_names, layout.mesh_shape, strict=True))
    axes = [axis for axis in finding.axes or layout.axis_names if sizes.get(axis, 1) > 1]
    for count in range(1, min(len(axes), _MOST_AXES_PER_DIMENSION) + 1):
        yield from itertools.combinations(axes, count)


def _changes(now: Snapshot, finding: Finding, layout: Layout) -> Iterator[_Change]:
    rules, names, number = layout.rules, _names(now, finding), finding.rule
    choices = list(axis_choices(finding, layout))
    for name in names:
        mine = [at for at, (other, _) in enumerate(rules) if other == name]
        for axes in choices:
            for at in sorted({len(rules), 0, *mine[:1]}):
                yield _added(rules, (name, axes), at)
            for at in mine:
                for wanted in (axes, (*rules[at][1], *axes)):
                    if len(set(wanted)) == len(wanted) and wanted != rules[at][1]:
                        yield _changed(rules, at, (name, wanted))
        for at in mine:
            for to in range(len(rules)):
                if to != at:
                    yield _moved(rules, at, to)
            yield _deleted(rules, at)
    if not names and number is not None and number < len(rules):
        near = difflib.get_close_matches(rules[number][0], list(layout.entry.logical_axes), n=1)
        if near:
            yield _changed(rules, number, (near[0], rules[number][1]))
        yield _deleted(rules, number)


def _names(now: Snapshot, finding: Finding) -> list[str]:
    """Return the logical axes whose rules may fix it: the finding's, its array's, or all parameters'."""
    if finding.logical_axes is not None:
        return list(finding.logical_axes)
    if finding.code in (unused_rules.NEVER_USED, unused_rules.ABSENT_AXIS):
        return []
    about = [array for array in now.arrays if array.path == finding.array]
    about = about or [array for array in now.arrays if array.group == "params"]
    return list(dict.fromkeys(name for array in about for name in array.logical_axes or () if name))


def _added(rules: tuple[Rule, ...], rule: Rule, at: int) -> _Change:
    place = "" if at == len(rules) else f" before {rule_words(at, rules)}"
    words = f"add the rule `{rule_text(rule)}`{place}"
    return "add", (*rules[:at], rule, *rules[at:]), words, len(rule[1]), at


def _changed(rules: tuple[Rule, ...], at: int, rule: Rule) -> _Change:
    words = f"change {rule_words(at, rules)}, to `{rule_text(rule)}`"
    return "change", (*rules[:at], rule, *rules[at + 1 :]), words, len(rule[1]), at


def _moved(rules: tuple[Rule, ...], at: int, to: int) -> _Change:
    rest = [*rules[:at], *rules[at + 1 :]]
    rest.insert(to, rules[at])
    place = f"{'before' if to < at else 'after'} {rule_words(to, rules)}"
    return "move", tuple(rest), f"move {rule_words(at, rules)}, {place}", 0, to


def _deleted(rules: tuple[Rule, ...], at: int) -> _Change:
    return "delete", (*rules[:at], *rules[at + 1 :]), f"delete {rule_words(at, rules)}", 0, at
