"""Read a policy file. `RULES` is the table of all rules."""

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NamedTuple

from inspector.audit.policy import array_rules, program_rules
from inspector.audit.policy.fields import Check, PolicyTable, RuleOutcome, nearest
from inspector.files import input_file
from inspector.records.snapshot import Snapshot
from inspector.text.errors import InvalidInput, shown

# The time and memory of `tomllib` for one key are quadratic in its parts: a key of 50,000 parts, 100 kB,
# takes 10 GB. A key is on one line, and has a dot between its parts.
_MOST_DOTS = 100  # in one line
_MOST_BITS = 64  # of an integer, as in TOML; one in hexadecimal can have more digits than Python prints


def parse_toml(text: str, what: str, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Return the tables in a text. `what` names it in errors.

    Raises:
      InvalidInput: the text is not TOML, is nested too deeply, or has a line with too many dots or an
        integer of more than 64 bits.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > _MOST_DOTS:
            raise InvalidInput(
                f"{what} has more than {_MOST_DOTS} dots in line {number}: write it in several lines"
            )
    try:
        tables = tomllib.loads(text, parse_float=parse_float)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{what} is not TOML: {error}") from None
    except (RecursionError, InvalidOperation, ValueError):
        raise InvalidInput(f"{what} is nested too deeply, or has a number with too many digits") from None
    _refuse_long_integers(tables, what)
    return tables


def _refuse_long_integers(tables: dict[str, Any], what: str) -> None:
    waiting: list[tuple[str, Any]] = list(tables.items())
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.items()
        elif isinstance(value, list):
            waiting += [(key, item) for item in value]
        elif isinstance(value, int) and value.bit_length() > _MOST_BITS:
            raise InvalidInput(
                f"{what}: {shown(key)} is {shown(value)}, but integers of TOML have at most {_MOST_BITS} bits"
            )


RULES: dict[str, Callable[[PolicyTable], Check]] = {
    "replicated": array_rules.replicated,
    "duplicated": array_rules.duplicated,
    "not_fully_sharded": array_rules.not_fully_sharded,
    "bytes_per_device": array_rules.bytes_per_device,
    "memory": program_rules.program_memory,
    "collectives": program_rules.collectives,
    "specs": program_rules.specs,
    "findings": program_rules.findings,
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

    def check(self, snapshot: Snapshot) -> tuple[RuleOutcome, ...]:
        """Check a Snapshot. A rule about something that the Snapshot lacks is unknown."""
        outcomes = []
        for title, check in self.rules:
            try:
                violations, unknown = check(snapshot)
            except InvalidInput as error:
                violations, unknown = [], str(error)
            outcomes.append(RuleOutcome(title, tuple(violations), unknown))
        return tuple(outcomes)


def read(path: str | os.PathLike[str]) -> Policy:
    """Read a policy file, and the files that its rules name."""
    return parse(input_file.read_text(path, MOST_BYTES), str(path), Path(path).parent)


def parse(text: str, what: str = "the policy", folder: Path = Path()) -> Policy:
    """Return the policy in a text; raise InvalidInput if it is none. Paths in it are relative to `folder`."""
    tables = parse_toml(text, what, parse_float=Decimal)
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
    fields = PolicyTable(table, where, folder)
    check = RULES[kind](fields)
    fields.finish()
    return Rule(kind, check)
