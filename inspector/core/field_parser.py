"""Reading a record from texts, one for each field, with a sentence for each that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from inspector.core.errors import InvalidInput, shown

Record = TypeVar("Record")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Parsed(Generic[Record]):
    """What came of some fields: a record, or a sentence for each field that is wrong."""

    value: Record | None
    problems: Mapping[str, str] = field(default_factory=dict)

    def unwrap(self) -> Record:
        """The record.

        Raises:
          InvalidInput: a field is wrong; the sentences of all of them.
        """
        if self.value is None:
            raise InvalidInput("; ".join(self.problems.values()))
        return self.value


class Reader:
    """Reads fields one by one and keeps the sentence of each that is wrong."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self.fields = fields
        self.problems: dict[str, str] = {}

    def read(
        self,
        name: str,
        parser: Callable[[str], Value],
        otherwise: Value,
        needs: Collection[str] = (),
    ) -> Value:
        """What the field says; `otherwise` where it is absent or wrong.

        What a field means hangs on those it `needs`: where one of them is wrong, only that is said.
        """
        if name not in self.fields or not self.problems.keys().isdisjoint(needs):
            return otherwise
        try:
            return parser(self.fields[name])
        except InvalidInput as refused:
            self.problems[name] = str(refused)
            return otherwise

    def refuse_unknown(self, known: Collection[str], of: str) -> None:
        """Keep a sentence for each field that is not among the known ones `of` something."""
        for name in self.fields.keys() - set(known):
            self.problems[name] = (
                f"{shown(name)} is not a field of {of}, which has {', '.join(sorted(known))}"
            )
