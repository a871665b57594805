"""Read the reason why JAX refuses a program on explicit mesh axes, from the exception of its trace."""

import contextlib
import traceback
from collections.abc import Iterator
from types import FrameType

from inspector.core.errors import InvalidInput
from inspector.core.sharding_errors import sentence
from inspector.core.snapshot import OperandType, Program, ShardingError
from inspector.layout import Layout
from inspector.producers.arrays.records import spec_of
from inspector.producers.jax_internals import explicit_axis_errors as internals
from inspector.producers.model.describe import is_model_code
from inspector.producers.model.sharding_choices import Operation, choices

_LONGEST = 600  # characters of JAX's message
# Words of errors about shardings that are not of the class ShardingTypeError.
_WORDS = ("sharding", "explicit", "partitionspec", "must have equal types")
_WRAPPERS = ("reraise_with_filtered_traceback", "cache_miss", "wrapper", "wrapped", "fun")
# Operands of operations with different roles.
_NAMES = {
    "dot_general": ("lhs", "rhs"),
    "gather": ("operand", "indices"),
    "scatter": ("operand", "indices", "updates"),
    "scatter-add": ("operand", "indices", "updates"),
    "dynamic_update_slice": ("operand", "update"),
    "select_n": ("which", "on_false", "on_true"),
}


class Refused(Exception):
    """A program that JAX cannot trace on explicit axes."""

    def __init__(self, error: ShardingError) -> None:
        super().__init__(sentence(error))
        self.error = error


@contextlib.contextmanager
def reading(layout: Layout) -> Iterator[None]:
    """Turn errors about shardings on explicit axes into `Refused`. Other errors pass unchanged."""
    if not layout.explicit_axes:
        yield
        return
    try:
        with internals.with_all_frames():  # the frames of JAX have the operands
            yield
    except (Refused, InvalidInput):
        raise
    except Exception as error:
        if not _is_about_shardings(error):
            raise
        raise Refused(_record(error)) from error


@contextlib.contextmanager
def as_invalid_input(layout: Layout) -> Iterator[None]:
    """Turn errors about shardings on explicit axes into `InvalidInput`, for jobs that need every program."""
    try:
        with reading(layout):
            yield
    except Refused as refused:
        raise InvalidInput(str(refused)) from refused


class RefusedPrograms:
    """Collects the programs that JAX refuses to trace on the explicit axes of a layout."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.programs: list[Program] = []

    @contextlib.contextmanager
    def keeping(self, name: str) -> Iterator[None]:
        """Keep the reason if JAX refuses the program that is traced in this context."""
        try:
            with reading(self._layout):
                yield
        except Refused as refused:
            self.programs.append(Program(name, stage="propagated", sharding_error=refused.error))


def _is_about_shardings(error: Exception) -> bool:
    if isinstance(error, internals.ShardingTypeError):
        return True
    text = str(error).lower()
    return any(word in text for word in _WORDS)


def _record(error: Exception) -> ShardingError:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    operation = _operation(frames)
    text = " ".join(str(error).split())
    if len(text) > _LONGEST:
        text = text[: _LONGEST - 1].rstrip() + "…"
    source = _source(error)
    if operation is None:
        return ShardingError(type(error).__name__, text, _function(frames), source=source)
    operands = tuple(
        OperandType(name, tuple(type_.shape), str(type_.dtype), spec_of(type_.sharding.spec, type_.ndim))
        for name, type_ in zip(operation.operand_names, operation.types, strict=True)
        if type_.ndim
    )
    return ShardingError(type(error).__name__, text, operation.name, operands, source, choices(operation))


def _operation(frames: list[FrameType]) -> Operation | None:
    """Return the operation that was traced when the error was raised, or None if there is none."""
    traced = internals.traced_operation(frames)
    if traced is None:
        return None
    types = tuple(map(internals.type_of, traced.operands))
    if not types or None in types:
        return None
    return Operation(
        traced.name,
        traced.primitive,
        types,
        _operand_names(traced.name, len(types)),
        traced.parameters,
        traced.wanted,
        order=None if traced.primitive is None else _einsum_order(frames),
    )


def _function(frames: list[FrameType]) -> str | None:
    """Return the function of JAX that the model called; None if JAX called it."""
    names = [(frame.f_code.co_filename, frame.f_code.co_name) for frame in frames]
    last = max((n for n, (file, _) in enumerate(names) if is_model_code(file)), default=len(names))
    inside = [name for file, name in names[last + 1 :] if internals.FOLDER in file]
    public = [name for name in inside if not name.startswith("_") and name not in _WRAPPERS]
    return public[0] if public else None


def _operand_names(operation: str, count: int) -> tuple[str, ...]:
    named = _NAMES.get(operation, ("lhs", "rhs") if count == 2 else ())
    if count == 1:
        return ("operand",)
    return (*named[:count], *(f"operand {n + 1}" for n in range(len(named), count)))


def _einsum_order(frames: list[FrameType]) -> tuple[int, ...] | None:
    """Return, for each dimension of the result of an einsum, the dimension of its matrix product."""
    einsum = internals.einsum_names(frames)
    if einsum is None:
        return None
    names, result = einsum
    return tuple(names.index(name) for name in result)


def _source(error: Exception) -> str | None:
    """Return the innermost line of the model, such as `mlp.py:31`; None if no frame is in the model.

    For an error in a backward pass, return the line of the forward pass.
    """
    cause: BaseException | None = error
    while cause is not None:
        is_forward = type(cause).__name__ == "JaxStackTraceBeforeTransformation"
        if is_forward and (place := _place(cause)) is not None:
            return place
        cause = cause.__cause__
    return _place(error)


def _place(error: BaseException) -> str | None:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_model_code(frame.filename)]
    return f"{own[-1].filename.rpartition('/')[2]}:{own[-1].lineno}" if own else None
