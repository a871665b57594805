"""Convert rules and specs from the forms of Flax."""

from __future__ import annotations

from typing import Any

from inspector.records.snapshot import Spec
from inspector.sharding.rules import Rule


def as_rule(name: str, target: Any) -> Rule:
    """Return a rule to a name, a tuple of names or None."""
    if target is None:
        return name, ()
    return name, (target,) if isinstance(target, str) else tuple(target)


def normal(spec: Any) -> Spec:
    """Return a PartitionSpec, or a list from a file, with tuples of mesh axes or None as entries."""
    return tuple(
        None if not entry else (entry,) if isinstance(entry, str) else tuple(entry) for entry in spec
    )
