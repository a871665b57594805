"""Read typed records from JSON and write them.

A record is a frozen dataclass that derives from `Record`. msgspec converts and checks its fields. This
module adds what msgspec lacks: unknown keys are kept and written back, and an error names the path of the
field, its value and the allowed values.

The annotations are `NonNegativeInt`, `PositiveInt`, `Amount`, `FiniteFloat`, `str`, `bool`, `X | None`,
`tuple[X, ...]`, `tuple[X, Y]`, `dict[str, X]`, `Literal`, `Any` and other records.
"""

import dataclasses
import functools
import json
import re
import sys
import threading
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from inspector.text.errors import InvalidInput, shown

LARGEST = 2**63 - 1  # the largest int64, so that NumPy can hold every integer of a record

_LARGEST_FLOAT = sys.float_info.max

NonNegativeInt = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
PositiveInt = Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]
# Bounded so that sums and products of some of them stay finite.
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e30)]
FiniteFloat = Annotated[float, msgspec.Meta(ge=-_LARGEST_FLOAT, le=_LARGEST_FLOAT)]

# Metadata of a field that is left out of the JSON form if it is None. The metadata can also have `key`, the
# key of this field in JSON if that is not its name.
OMIT_NONE = {"omit_none": True}
# Metadata of a field that is left out of the JSON form if it has its default.
OMIT_DEFAULT = {"omit_default": True}
_OMITTED = ("omit_none", "omit_default")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """The base class of all records.

    `extra` holds the keys that this version does not know, so that it writes them back. Code never reads a
    key of it or adds one: a key that this version knows is a field.
    """

    extra: dict[str, Any] = dataclasses.field(default_factory=dict, hash=False)


AnyRecord = TypeVar("AnyRecord", bound=Record)


def decode(kind: type[AnyRecord], value: Any, what: str = "") -> AnyRecord:
    """Return the record of type `kind` that parsed JSON contains. `what` names the value in errors.

    Raises:
      InvalidInput: a field is missing or has a wrong type.
    """
    lifted = _lift(kind)(value)
    _prepare(kind)
    try:
        return msgspec.convert(lifted, kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(_explain(str(error), kind, lifted, what)) from None


_prepared: set[type[Record]] = set()
_preparing = threading.Lock()


def _prepare(kind: type[Record]) -> None:
    """Let msgspec build its description of a type.

    Without a lock, a second thread that needs the type meanwhile reads an unfinished description, and the
    process ends with a segmentation fault (msgspec 0.22).
    """
    if kind not in _prepared:
        with _preparing:
            msgspec.json.Decoder(kind)
            _prepared.add(kind)


@typing.overload
def encode(value: Record) -> dict[str, Any]: ...


@typing.overload
def encode(value: Any) -> Any: ...


def encode(value: Any) -> Any:
    """Return the plain JSON value of a record, of another dataclass, or of anything inside one."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _encode_record(value)
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, (dict, types.MappingProxyType)):
        return {key: encode(item) for key, item in value.items()}
    return value


def _encode_record(value: Any) -> dict[str, Any]:
    plain = {}
    kind: Any = type(value)
    for name, key, left_out, encoder in _field_encoders(kind):
        item = getattr(value, name)
        if item not in left_out:
            plain[key] = item if item is None or encoder is None else encoder(item)
    extra = getattr(value, "extra", None)
    return plain | extra if extra else plain


@functools.cache
def _field_encoders(kind: Any) -> tuple[tuple[str, str, tuple[Any, ...], Callable[[Any], Any] | None], ...]:
    """Return name, JSON key, the values that are left out, and the encoder, for each field but `extra`."""
    types_of, by_name = hints(kind), {field.name: field for field in dataclasses.fields(kind)}
    return tuple(
        (
            name,
            key,
            (None if "omit_none" in by_name[name].metadata else by_name[name].default,) if optional else (),
            _encoder(types_of[name]),
        )
        for name, key, optional in fields(kind)
    )


def _encoder(kind: Any) -> Callable[[Any], Any] | None:
    """Return the function that encodes values of a type; None for numbers and text, which stay as they are.

    `encode` looks at every number of a list. The type of the list says that it does not need to.
    """
    members = [part for part in typing.get_args(kind) if part is not type(None)]
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return _encoder(members[0]) if len(members) == 1 else encode
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return _encoder(arguments[0])
    if kind in (int, float, str, bool) or origin is typing.Literal:
        return None
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return encode
    if origin is tuple:
        encoders = {_encoder(argument) for argument in arguments if argument is not Ellipsis}
        encoder = encoders.pop() if len(encoders) == 1 else encode
        if encoder is None:
            return list
        return lambda items: [item if item is None else encoder(item) for item in items]
    return encode


def decode_file(kind: type[AnyRecord], value: Any, what: str, format_name: str, version: int) -> AnyRecord:
    """Return the record in a file with the keys `format` and `version`.

    Raises:
      InvalidInput: the file has another format, a newer version, or a wrong field.
    """
    if not isinstance(value, dict) or value.get("format") != format_name:
        raise InvalidInput(f'{what} is not a {format_name} file: it must have "format": "{format_name}"')
    file_version = value.get("version")
    if type(file_version) is not int or file_version < 1:
        raise InvalidInput(f"{what} has version {shown(file_version)}, but must have an integer from 1")
    if file_version > version:
        raise InvalidInput(
            f"{what} has version {shown(file_version)}, but this program reads up to version {version}: "
            "open it with a newer Sharding Inspector"
        )
    body = {key: part for key, part in value.items() if key not in ("format", "version")}
    try:
        return decode(kind, body)
    except InvalidInput as error:
        raise InvalidInput(f"{what}: {error}") from None


def encode_file(record: Record, format_name: str, version: int) -> dict[str, Any]:
    """Return the plain JSON value of a file, with the keys `format` and `version` first."""
    return {"format": format_name, "version": version, **encode(record)}


def dumps(plain: Mapping[str, Any]) -> str:
    """Return JSON text with one line for each object of a top-level list, for line-by-line diffs."""
    parts = []
    for key, value in plain.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows = ",\n  ".join(json.dumps(row, allow_nan=False) for row in value)
            parts.append(f"{json.dumps(key)}: [\n  {rows}\n ]")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}")
    return "{" + ",\n ".join(parts) + "}\n"


def fields(kind: Any) -> tuple[tuple[str, str, bool], ...]:
    """Return name, JSON key, and whether it can be left out, for each field but `extra`."""
    return _fields(kind)


@functools.cache
def _fields(kind: Any) -> tuple[tuple[str, str, bool], ...]:
    return tuple(
        (field.name, field.metadata.get("key", field.name), not field.metadata.keys().isdisjoint(_OMITTED))
        for field in dataclasses.fields(kind)
        if field.name != "extra"
    )


def hints(kind: Any) -> dict[str, Any]:
    return _hints(kind)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


# --- Unknown keys ---------------------------------------------------------------------------------


def _lift(kind: Any) -> Callable[[Any], Any]:
    return _lifter(kind) or (lambda value: value)


@functools.cache
def _lifter(kind: Any) -> Callable[[Any], Any] | None:
    """Return the function that prepares JSON for msgspec. Return None if `kind` contains no record.

    In every record the function moves unknown keys into `extra` and gives keys the names of their fields.
    """
    if isinstance(kind, type) and issubclass(kind, Record):
        return _record_lifter(kind)
    inner = next(filter(None, map(_lifter, typing.get_args(kind))), None)
    if inner is None:
        return None

    def lift(value: Any) -> Any:
        return [inner(item) for item in value] if isinstance(value, list) else inner(value)

    def lift_mapping(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: inner(item) for key, item in value.items()}

    return lift_mapping if typing.get_origin(kind) is dict else lift


def _record_lifter(kind: type[Record]) -> Callable[[Any], Any]:
    names = frozenset(name for name, _, _ in fields(kind))
    renamed = {key: name for name, key, _ in fields(kind) if key != name}
    types_of = hints(kind)
    nested = [(name, lifter) for name in names if (lifter := _lifter(types_of[name]))]

    def lift(value: Any) -> Any:
        if not isinstance(value, dict) or (value.keys() <= names and not nested):
            return value
        fields = value
        if not value.keys() <= names:
            extra = {}
            fields = {}
            for key, item in value.items():
                name = renamed.get(key, key)
                if name in names and (name == key or name not in value):
                    fields[name] = item
                else:
                    extra[key] = item
            if extra:
                fields["extra"] = extra
        elif nested:
            fields = dict(value)
        for name, lifter in nested:
            if name in fields:
                fields[name] = lifter(fields[name])
        return fields

    return lift


# --- Errors ---------------------------------------------------------------------------------------

_STEP = re.compile(r"\.(\w+)|\[(\d+)\]|\[\.\.\.\]")
_MISSING = re.compile(r"Object missing required field `(\w+)`")


def _explain(message: str, kind: Any, value: Any, where: str) -> str:
    """Return msgspec's error as a sentence: the field's path, its value, and the allowed values."""
    path = message.rpartition(" - at `$")[2].rstrip("`") if " - at `$" in message else ""
    for name, index in _STEP.findall(path):
        kind = _without_none(kind)
        arguments = typing.get_args(kind)
        if name:
            kind, value = hints(kind)[name], value[name]
            where = f"{where}.{name.rstrip('_')}" if where else name.rstrip("_")
        elif index:
            kind = arguments[0] if arguments[-1] is Ellipsis else arguments[int(index)]
            value, where = value[int(index)], f"{where}[{index}]"
        else:  # msgspec does not say which key of a dict it is
            kind = arguments[1]
            key, value = next((k, v) for k, v in value.items() if not _converts(v, kind))
            where = f"{where}.{shown(key)}"
    if missing := _MISSING.match(message):
        return f"{where}.{missing[1]} is missing".removeprefix(".")
    return f"{where or 'the file'} is {shown(value)}, but must be {_allowed(kind)}"


def _converts(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _without_none(kind: Any) -> Any:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        (kind,) = (part for part in typing.get_args(kind) if part is not type(None))
    return kind


def _allowed(kind: Any) -> str:
    """Return the allowed values of this type, in words."""
    inner = _without_none(kind)
    if inner is not kind:
        return f"{_allowed(inner)} or null"
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin is tuple:
        return "a list" if arguments[-1] is Ellipsis else f"a list of {len(arguments)}"
    words = {
        NonNegativeInt: "an integer from 0 to 2^63 - 1",
        PositiveInt: "an integer from 1 to 2^63 - 1",
        Amount: "a number from 0 to 1e30",
        FiniteFloat: "a finite number",
        str: "a string",
        bool: "true or false",
    }
    return words.get(kind, "an object")
