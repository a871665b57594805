"""The rules that a Snapshot was made by, where it tells them, and how they were read."""

from __future__ import annotations

from inspector.core.errors import InvalidInput
from inspector.core.rules.rule import Rule
from inspector.core.rules.written import rule_of
from inspector.core.snapshot import Snapshot
from inspector.model import RulesSemantics
from inspector.models.catalogue import CATALOGUE


def recorded(found: Snapshot) -> tuple[Rule, ...] | None:
    """The rules of the Snapshot's layout; None where it has none, as one from elsewhere.

    A layout in a file is anybody's JSON: what is no list of rules counts as none.
    """
    plain = (found.layout or {}).get("rules")
    if not isinstance(plain, list):
        return None
    try:
        return tuple(rule_of(pair) for pair in plain)
    except InvalidInput:
        return None


def semantics(found: Snapshot) -> RulesSemantics:
    """How the Snapshot's model has its rules read; as Linen does where the model is not known here."""
    model = (found.layout or {}).get("model")
    known = isinstance(model, str) and model in CATALOGUE
    return CATALOGUE[model].rules_semantics if known else "linen"
