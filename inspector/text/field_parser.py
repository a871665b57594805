"""Parse a record from texts, one for each field, and collect one error for each wrong field."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from inspector.text.errors import InvalidInput, shown

Record = TypeVar("Record")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Parsed(Generic[Record]):
    """The record, or the error of each wrong field by field name."""

    value: Record | None
    problems: Mapping[str, str] = field(default_factory=dict)

    def unwrap(self) -> Record:
        """Return the record.

        Raises:
          InvalidInput: a field is wrong. The message has the errors of all fields.
        """
        if self.value is None:
            raise InvalidInput(*self.problems.values())
        return self.value


class FieldParser:
    """Parses fields one by one and collects the errors in `problems`."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self.fields = fields
        self.problems: dict[str, str] = {}

    def parse(
        self, name: str, parser: Callable[[str], Value], default: Value, requires: Collection[str] = ()
    ) -> Value:
        """Return the value of a field. Return `default` if the field is absent or wrong.

        If a field in `requires` is wrong, this field is not parsed, so that only that error is reported.
        """
        if name not in self.fields or not self.problems.keys().isdisjoint(requires):
            return default
        try:
            return parser(self.fields[name])
        except InvalidInput as error:
            self.problems[name] = str(error)
            return default

    def reject_unknown(self, known: Collection[str], owner: str) -> None:
        """Add an error for each field that is not in `known`. `owner` names the object in the error."""
        for name in self.fields.keys() - set(known):
            self.problems[name] = (
                f"{shown(name)} is not a field of {owner}, which has {', '.join(sorted(known))}"
            )
