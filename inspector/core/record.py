"""Frozen records that read from and write to JSON, and say exactly what is wrong when they cannot.

A record is a frozen dataclass whose annotations are JSON's own types: ``int``, ``float``, ``str``,
``bool``, ``X | None``, ``tuple[X, ...]``, ``tuple[X, Y]``, ``dict[str, X]``, ``Any``, ``Literal`` and
other records. An ``int`` counts or numbers something, so it is never negative. Keys that a record does
not know are kept in its ``extra`` and written back, so that a file made by a later version of the same
format survives being read and written by this one.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from inspector.core.errors import InvalidInput, shown

Record = TypeVar("Record")
Decoder = Callable[[Any, str], Any]

LARGEST = 2**63 - 1  # the largest int64, so that NumPy can hold every integer of a record
_LARGEST_FLOAT = sys.float_info.max
DEEPEST = 64  # levels inside `Any` and unknown keys; far within Python's limit on recursion

_JSON_NAMES = {
    dict: "an object",
    list: "a list",
    str: "text",
    bool: "true or false",
    int: "an integer from 0 to 2^63 - 1",
    float: "a finite number",
    type(None): "null",
}


def decode(kind: type[Record], value: Any, where: str = "") -> Record:
    """Read a record of type `kind` from parsed JSON; `where` names the value in error sentences.

    Raises:
      InvalidInput: the value does not have the record's form; the sentence names field, value and need.
    """
    return _decoder(kind)(value, where)


def encode(value: Any) -> Any:
    """The plain JSON value (dicts, lists, numbers, text) of a record or of anything inside one."""
    if dataclasses.is_dataclass(value):
        plain = {name: encode(getattr(value, name)) for name in _field_names(type(value))}
        for key, kept in value.extra.items() if hasattr(value, "extra") else ():
            plain[key] = kept
        return plain
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, (dict, types.MappingProxyType)):
        return {key: encode(item) for key, item in value.items()}
    return value


@functools.cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind) if field.name != "extra")


@functools.cache
def _decoder(kind: Any) -> Decoder:
    if kind is Any:
        return _decode_anything
    if kind in (int, float, str, bool):
        return functools.partial(_decode_scalar, kind)
    if dataclasses.is_dataclass(kind):
        return _record_decoder(kind)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _optional_decoder(arguments)
    if origin is typing.Literal:
        return functools.partial(_decode_choice, arguments)
    if origin is tuple:
        return _tuple_decoder(arguments)
    if origin is dict:
        return _mapping_decoder(arguments[1])
    raise TypeError(f"a record cannot hold {kind!r}")


def _decode_scalar(kind: type, value: Any, where: str) -> Any:
    if kind is int:
        fits = type(value) is int and 0 <= value <= LARGEST
    elif kind is float:
        # An integer need not fit in a float.
        fits = type(value) in (int, float) and abs(value) <= _LARGEST_FLOAT
    else:
        fits = type(value) is kind
    if not fits:
        raise InvalidInput(f"{where} is {shown(value)}, but must be {_JSON_NAMES[kind]}")
    return kind(value)


def _decode_anything(value: Any, where: str) -> Any:
    level, depth = [value], 0
    while level := [
        item
        for outer in level
        if isinstance(outer, (dict, list))
        for item in (outer.values() if isinstance(outer, dict) else outer)
    ]:
        depth += 1
        if depth > DEEPEST:
            raise InvalidInput(
                f"{where} is nested {DEEPEST} levels deep or more, which is too deep"
            )
    return value


def _decode_choice(choices: tuple[Any, ...], value: Any, where: str) -> Any:
    if value in choices:
        return value
    raise InvalidInput(
        f"{where} is {shown(value)}, but must be one of {', '.join(map(str, choices))}"
    )


def _optional_decoder(arguments: tuple[Any, ...]) -> Decoder:
    (inner,) = (argument for argument in arguments if argument is not type(None))
    decoder = _decoder(inner)
    return lambda value, where: None if value is None else decoder(value, where)


def _tuple_decoder(arguments: tuple[Any, ...]) -> Decoder:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        decoder = _decoder(arguments[0])
        plain = arguments[0] if arguments[0] in (int, str) else None

        def decode_list(value: Any, where: str) -> tuple[Any, ...]:
            if not isinstance(value, list):
                raise InvalidInput(f"{where} is {shown(value)}, but must be a list")
            if (
                plain is not None
                and all(type(item) is plain for item in value)
                and (plain is str or not value or (min(value) >= 0 and max(value) <= LARGEST))
            ):
                return tuple(value)
            return tuple(decoder(item, f"{where}[{i}]") for i, item in enumerate(value))

        return decode_list

    decoders = tuple(_decoder(argument) for argument in arguments)

    def decode_fixed(value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) != len(decoders):
            raise InvalidInput(f"{where} is {shown(value)}, but must be a list of {len(decoders)}")
        return tuple(
            decoder(item, f"{where}[{i}]")
            for i, (decoder, item) in enumerate(zip(decoders, value, strict=True))
        )

    return decode_fixed


def _mapping_decoder(kind: Any) -> Decoder:
    decoder = _decoder(kind)

    def decode_mapping(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise InvalidInput(f"{where} is {shown(value)}, but must be an object")
        return {key: decoder(item, f"{where}.{shown(key)}") for key, item in value.items()}

    return decode_mapping


def _record_decoder(kind: Any) -> Decoder:
    hints = typing.get_type_hints(kind)
    fields = [field for field in dataclasses.fields(kind) if field.name != "extra"]
    known = {field.name for field in fields}
    keeps_extra = any(field.name == "extra" for field in dataclasses.fields(kind))
    decoders = [
        (
            field.name,
            _decoder(hints[field.name]),
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
        )
        for field in fields
    ]

    def decode_record(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise InvalidInput(f"{where or 'the file'} is {shown(value)}, but must be an object")
        dot = f"{where}." if where else ""
        arguments = {}
        for name, decoder, required in decoders:
            if name in value:
                arguments[name] = decoder(value[name], dot + name)
            elif required:
                raise InvalidInput(f"{dot}{name} is missing")
        if keeps_extra and len(arguments) < len(value):
            arguments["extra"] = {
                key: _decode_anything(kept, dot + shown(key))
                for key, kept in value.items()
                if key not in known
            }
        return kind(**arguments)

    return decode_record
