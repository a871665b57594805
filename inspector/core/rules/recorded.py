"""The rules of a Snapshot's layout, and whether its model reads them as Linen or as nnx does."""

from __future__ import annotations

from inspector.core.errors import InvalidInput
from inspector.core.rules.rule import Rule
from inspector.core.rules.written import rule_of
from inspector.core.snapshot import Snapshot
from inspector.model import RulesSemantics
from inspector.models.catalogue import CATALOGUE


def recorded(found: Snapshot) -> tuple[Rule, ...] | None:
    """Return the rules of the layout. Return None if it has no rules or they are not valid."""
    plain = (found.layout or {}).get("rules")
    if not isinstance(plain, list):
        return None
    try:
        return tuple(rule_of(pair) for pair in plain)
    except InvalidInput:
        return None


def semantics(found: Snapshot) -> RulesSemantics:
    """Return how the model reads rules. Return `linen` for a model that is not in the catalogue."""
    model = (found.layout or {}).get("model")
    known = isinstance(model, str) and model in CATALOGUE
    return CATALOGUE[model].rules_semantics if known else "linen"
