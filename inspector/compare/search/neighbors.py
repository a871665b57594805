"""Layouts that differ from another one in the rule of one logical axis, on the same mesh."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from inspector.core.rules import Rule
from inspector.layout import Layout


def neighbors(layout: Layout, kept: Collection[str] = ()) -> Iterator[Layout]:
    """Yield the layout with each other rule for one logical axis of its model.

    The axis is then sharded over no mesh axis, over one, over one more, or over one fewer. A model without
    rules has no neighbors. Some are equal to the layout, because an array cannot use a mesh axis twice.

    Args:
      kept: logical axes whose rules must stay.
    """
    if not layout.entry.has_rules:
        return
    rules = dict(reversed(layout.rules))  # the first rule of a logical axis counts
    for name in layout.entry.logical_axes:
        if name in kept:
            continue
        own = rules.get(name, ())
        fewer = (tuple(one for one in own if one != axis) for axis in own)
        one = ((axis,) for axis in layout.axis_names)
        more = ((*own, axis) for axis in layout.axis_names if axis not in own)
        for axes in dict.fromkeys([(), *one, *more, *fewer]):
            if axes != own:
                yield replace(layout, rules=_changed(layout.rules, name, axes))


def _changed(rules: tuple[Rule, ...], name: str, axes: tuple[str, ...]) -> tuple[Rule, ...]:
    """Return the rules with these mesh axes for one logical axis, in the place of its first rule."""
    place = next((n for n, (other, _) in enumerate(rules) if other == name), len(rules))
    before = tuple(rule for rule in rules[:place] if rule[0] != name)
    after = tuple(rule for rule in rules[place:] if rule[0] != name)
    return (*before, (name, axes), *after)
