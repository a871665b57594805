"""Read a policy file. `RULES` is the table of all rules."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from inspector.checks.policy import array_rules, program_rules, snapshot_rules
from inspector.checks.policy.fields import Fields, nearest
from inspector.checks.policy.outcome import Check, Outcome
from inspector.core import input_file, toml_text
from inspector.core.errors import InvalidInput, shown
from inspector.core.snapshot import Snapshot

RULES: dict[str, Callable[[Fields], Check]] = {
    "replicated": array_rules.replicated,
    "duplicated": array_rules.duplicated,
    "not_fully_sharded": array_rules.not_fully_sharded,
    "bytes_per_device": array_rules.bytes_per_device,
    "memory": program_rules.program_memory,
    "collectives": program_rules.collectives,
    "specs": snapshot_rules.specs,
    "findings": snapshot_rules.findings,
}
MOST_BYTES = 2**20  # of a file; a rule has 100


class Rule(NamedTuple):
    """One rule of a policy. `title` is the name of its table."""

    title: str
    check: Check


@dataclass(frozen=True)
class Policy:
    """The rules of a policy file, in order."""

    rules: tuple[Rule, ...]

    def check(self, snapshot: Snapshot) -> tuple[Outcome, ...]:
        """Check a Snapshot. A rule about something that the Snapshot lacks is unknown."""
        outcomes = []
        for title, check in self.rules:
            try:
                violations, unknown = check(snapshot)
            except InvalidInput as error:
                violations, unknown = [], str(error)
            outcomes.append(Outcome(title, tuple(violations), unknown))
        return tuple(outcomes)


def read(path: str | os.PathLike[str]) -> Policy:
    """Read a policy file, and the files that its rules name."""
    return parse(input_file.read_text(path, MOST_BYTES), str(path), Path(path).parent)


def parse(text: str, what: str = "the policy", folder: Path = Path()) -> Policy:
    """Return the policy in a text. Paths in it are relative to `folder`."""
    tables = toml_text.parse(text, what, parse_float=Decimal)
    rules: list[Rule] = []
    for kind, value in tables.items():
        if kind not in RULES:
            raise InvalidInput(
                f"{what} has the table {shown(kind)}, but the rules are {', '.join(RULES)}"
                f"{nearest(kind, RULES)}"
            )
        for number, table in enumerate(value if isinstance(value, list) else [value]):
            where = f"{what}: {kind}[{number}]" if isinstance(value, list) else f"{what}: {kind}"
            if not isinstance(table, dict):
                raise InvalidInput(f"{where} must be a table, as in [{kind}]")
            rules.append(rule(kind, table, where, folder))
    if not rules:
        raise InvalidInput(f"{what} has no rule; the rules are {', '.join(RULES)}")
    return Policy(tuple(rules))


def rule(kind: str, table: Mapping[str, Any], where: str, folder: Path = Path()) -> Rule:
    """Return the rule of one table. `where` names the table in errors."""
    fields = Fields(table, where, folder)
    check = RULES[kind](fields)
    fields.finish()
    return Rule(kind, check)
