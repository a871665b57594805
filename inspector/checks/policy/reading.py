"""A policy file: TOML with a table, or several, for each kind of rule."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

from inspector.checks.policy import array_rules, no_findings, program_rules, same_specs
from inspector.checks.policy.fields import Fields, nearest
from inspector.checks.policy.outcome import Outcome, Rule
from inspector.core.errors import InvalidInput, shown
from inspector.core.snapshot import Snapshot

Reader = Callable[[Fields], Rule]

RULES: dict[str, Reader] = {
    "replicated": array_rules.read_replicated,
    "duplicated": array_rules.read_duplicated,
    "not_fully_sharded": array_rules.read_not_fully_sharded,
    "bytes_per_device": array_rules.read_bytes_per_device,
    "memory": program_rules.read_memory,
    "collectives": program_rules.read_collectives,
    "findings": no_findings.read_no_findings,
}
SPECS = "specs"  # this rule reads another file, from the policy file's folder
KINDS = (*RULES, SPECS)


@dataclass(frozen=True)
class Policy:
    """The rules of a policy file, in its order."""

    rules: tuple[Rule, ...]

    def check(self, found: Snapshot) -> tuple[Outcome, ...]:
        """What a Snapshot says to each rule; what a rule names and the Snapshot lacks cannot be checked."""
        outcomes = []
        for rule in self.rules:
            try:
                outcomes.append(rule.outcome(found))
            except InvalidInput as refused:
                outcomes.append(Outcome(rule.title, (), str(refused)))
        return tuple(outcomes)


def read(path: str | os.PathLike[str]) -> Policy:
    """Read a policy file, and the files that its rules name.

    Raises:
      InvalidInput: it cannot be opened, is not TOML, or a rule in it cannot be used.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:  # a zero byte in the path
        raise InvalidInput(f"{str(path)!r} cannot be read: {error}") from None
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8 text (byte {error.start})") from None
    return parse(text, str(path), Path(path).parent)


def parse(text: str, what: str = "the policy", folder: Path = Path()) -> Policy:
    """A policy from its text; files that it names are sought from `folder`.

    Raises:
      InvalidInput: it is not TOML, or a rule in it cannot be used.
    """
    try:
        tables = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{what} is not TOML: {error}") from None
    except (RecursionError, InvalidOperation, ValueError):
        raise InvalidInput(
            f"{what} is nested too deeply, or holds a number that cannot be read"
        ) from None
    rules: list[Rule] = []
    for kind, value in tables.items():
        if kind not in KINDS:
            raise InvalidInput(
                f"{what} has the table {shown(kind)}, but the rules are {', '.join(KINDS)}"
                f"{nearest(kind, KINDS)}"
            )
        listed = value if isinstance(value, list) else [value]
        for number, table in enumerate(listed):
            where = f"{what}: {kind}[{number}]" if isinstance(value, list) else f"{what}: {kind}"
            if not isinstance(table, dict):
                raise InvalidInput(f"{where} must be a table, as in [{kind}]")
            fields = Fields(table, where)
            rules.append(
                same_specs.read_same_specs(fields, folder) if kind == SPECS else RULES[kind](fields)
            )
            fields.finish()
    if not rules:
        raise InvalidInput(f"{what} has no rule; the rules are {', '.join(KINDS)}")
    return Policy(tuple(rules))
