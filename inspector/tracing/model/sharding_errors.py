"""Read the reason why JAX refuses a program on explicit mesh axes, from the exception of its trace."""

import contextlib
import functools
import itertools
import math
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import jax
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from inspector.compiled import program_text
from inspector.jax_private import explicit_axis_errors as internals
from inspector.layout import Layout
from inspector.model import PyTree
from inspector.records.snapshot import Collective, OperandType, Program, ShardingChoice, ShardingError, Spec
from inspector.sharding.placement import jax_entry
from inspector.sharding.sharding_text import refusal_text
from inspector.text.errors import InvalidInput
from inspector.tracing.leaves import mesh_record, spec_of
from inspector.tracing.mlir import xla_partitioner
from inspector.tracing.model.describe import is_model_code

# Find changes of an operation that JAX accepts if it refuses the operation on explicit mesh axes.
#
# Each candidate is traced alone, on the abstract mesh of its operands. XLA's partitioner gives its
# collectives.


_MOST_CHOICES = 3
_MOST_CANDIDATES = 24

# Operations with a parameter for the sharding of the result.
_PARAMETERS = {
    "dot_general": "out_sharding",
    "reduce_sum": "out_sharding",
    "reshape": "sharding",
    "broadcast_in_dim": "sharding",
    "iota": "sharding",
}
# The number of first candidates that are choices whatever they send.
_USUAL = {"dot_general": 2, "gather": 2}
# How a user passes the sharding of the result, if not as `out_sharding=` of the operation itself.
_CODE = {
    "gather": ".at[…].get(out_sharding={})",
    "scatter": ".at[…].set(…, out_sharding={})",
    "scatter-add": ".at[…].add(…, out_sharding={})",
    "reshape": "jnp.reshape(…, out_sharding={})",
}


@dataclass(frozen=True)
class RefusedOperation:
    """An operation that JAX refuses.

    Attributes:
      primitive: JAX's primitive; None for a sharding constraint.
      types: the `ShapedArray` of each operand.
      wanted: the spec of a sharding constraint.
      order: for each dimension of the result in the user's code, the dimension of the operation's result.
        None if they are the same.
    """

    name: str
    primitive: jax.extend.core.Primitive | None
    types: tuple[Any, ...]
    operand_names: tuple[str, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    wanted: PartitionSpec | None = None
    order: tuple[int, ...] | None = None

    @property
    def specs(self) -> tuple[Spec, ...]:
        """Return the spec of each operand."""
        return tuple(spec_of(type_.sharding.spec, type_.ndim) for type_ in self.types)

    @property
    def mesh(self) -> AbstractMesh:
        """Return the mesh of the operands."""
        return next(
            type_.sharding.mesh for type_ in (*self.types, self.types[0]) if not type_.sharding.mesh.empty
        )


@dataclass(frozen=True)
class _Candidate:
    """New specs of some operands, by number, and of the result; None leaves the result to JAX."""

    operands: tuple[tuple[int, Spec], ...] = ()
    result: Spec | None = None


def choices(operation: RefusedOperation) -> tuple[ShardingChoice, ...]:
    """Return the changes that JAX accepts, those with the least traffic first."""
    choices: dict[Any, ShardingChoice] = {}
    for candidate in itertools.islice(dict.fromkeys(_candidates(operation)), _MOST_CANDIDATES):
        try:
            choice = _tried(operation, candidate)
        except Exception:  # JAX refuses this candidate too, for whatever reason
            continue
        choices.setdefault(_effect(choice), choice)
    distinct = list(choices.values())
    usual = _USUAL.get(operation.name, 0)
    chosen = [*distinct[:usual], *sorted(distinct[usual:], key=_traffic)][:_MOST_CHOICES]
    return tuple(sorted(chosen, key=_traffic))


def _effect(choice: ShardingChoice) -> tuple[object, ...]:
    """Return a key that two choices share if they give the same result with the same transfers."""
    transfers = [
        (collective.op, collective.mesh_axes, collective.wire_bytes_per_device)
        for collective in choice.collectives or ()
    ]
    return choice.result, tuple(transfers)


def _traffic(choice: ShardingChoice) -> float:
    """Return the bytes that one device sends; infinite if unknown."""
    if choice.collectives is None:
        return math.inf
    return sum(collective.wire_bytes_per_device or 0 for collective in choice.collectives)


def _candidates(operation: RefusedOperation) -> Iterator[_Candidate]:
    match operation.name:
        case "with_sharding_constraint":
            if operation.wanted is not None:
                yield _Candidate(((0, spec_of(operation.wanted, operation.types[0].ndim)),))
        case "dot_general":
            yield from _of_product(operation)
        case "reshape":
            yield from _of_reshape(operation)
        case "gather":
            yield from _of_gather(operation)
        case "scatter" | "scatter-add":
            yield _Candidate(result=operation.specs[0])
            yield _Candidate(result=(None,) * len(operation.specs[0]))
        case _:
            yield from _equal_operands(operation)
            yield from _unsharded_dimension(operation)


def _of_product(operation: RefusedOperation) -> Iterator[_Candidate]:
    """Yield the natural results of a product, results with scattered sums, and gathered operands."""
    left, right = operation.specs
    (left_sum, right_sum), (left_batch, right_batch) = operation.parameters["dimension_numbers"]
    free_left = [d for d in range(len(left)) if d not in (*left_sum, *left_batch)]
    free_right = [d for d in range(len(right)) if d not in (*right_sum, *right_batch)]
    shape = [
        *(operation.types[0].shape[d] for d in (*left_batch, *free_left)),
        *(operation.types[1].shape[d] for d in free_right),
    ]
    batch = [left[a] or right[b] for a, b in zip(left_batch, right_batch, strict=True)]
    other_batch = [right[b] or left[a] for a, b in zip(left_batch, right_batch, strict=True)]
    lefts, rights = [left[d] for d in free_left], [right[d] for d in free_right]
    whole = [*batch, *lefts, *rights]
    start = len(batch) + len(lefts)
    by_left = _without_repeats(whole, range(len(whole)))
    by_right = _without_repeats(
        [*other_batch, *lefts, *rights],
        [*range(len(batch)), *range(start, len(whole)), *range(len(batch), start)],
    )
    yield _Candidate(result=by_left)
    yield _Candidate(result=by_right)
    summed = [axes for a, b in zip(left_sum, right_sum, strict=True) for axes in (left[a], right[b])]
    used = {axis for axes in by_left for axis in axes or ()}
    for axes in dict.fromkeys(axes for axes in summed if axes and used.isdisjoint(axes)):
        ways = math.prod(operation.mesh.shape[axis] for axis in axes)
        for place in (len(whole) - 1, start - 1, 0):
            if 0 <= place < len(whole) and by_left[place] is None and shape[place] % ways == 0:
                yield _Candidate(result=(*by_left[:place], axes, *by_left[place + 1 :]))
    for number, spec, gathered in ((1, right, right_sum), (0, left, left_sum)):
        new = tuple(None if d in gathered else axes for d, axes in enumerate(spec))
        yield _Candidate(((number, new),))
    yield from _unsharded_dimension(operation)


def _of_reshape(operation: RefusedOperation) -> Iterator[_Candidate]:
    """Yield every place for the axes of one sharded dimension, with the others if they divide."""
    (spec,), sizes = operation.specs, operation.parameters["new_sizes"]
    sharded = [axes for axes in spec if axes]
    places = [
        [
            d
            for d, size in enumerate(sizes)
            if size % math.prod(operation.mesh.shape[axis] for axis in axes) == 0
        ]
        + [None]
        for axes in sharded
    ]
    for chosen in itertools.islice(itertools.product(*places), _MOST_CANDIDATES):
        filled = [place for place in chosen if place is not None]
        if len(set(filled)) == len(filled):
            result: list[tuple[str, ...] | None] = [None] * len(sizes)
            for place, axes in zip(chosen, sharded, strict=True):
                if place is not None:
                    result[place] = axes
            yield _Candidate(result=tuple(result))


def _of_gather(operation: RefusedOperation) -> Iterator[_Candidate]:
    """Yield the result sharded as the indices and as the rest of the operand."""
    operand, indices = operation.specs[:2]
    numbers, slices = (operation.parameters[key] for key in ("dimension_numbers", "slice_sizes"))
    dropped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    shape = operation.types[0].shape
    kept = iter(
        [operand[d] if slices[d] == shape[d] else None for d in range(len(shape)) if d not in dropped]
    )
    by_index = iter(indices[:-1])
    rank = len(numbers.offset_dims) + len(indices) - 1
    offsets = set(numbers.offset_dims)
    whole = [next(kept) if d in offsets else next(by_index) for d in range(rank)]
    index_first = sorted(range(rank), key=lambda d: d in offsets)
    yield _Candidate(result=_without_repeats(whole, index_first))
    yield _Candidate(result=_without_repeats(whole, index_first[::-1]))
    yield _Candidate(result=tuple(None if d in offsets else whole[d] for d in range(rank)))


def _equal_operands(operation: RefusedOperation) -> Iterator[_Candidate]:
    """Yield the other operands resharded as one of them, or without the axes that two dimensions have."""
    arrays = [n for n, type_ in enumerate(operation.types) if type_.ndim]
    for model in arrays:
        spec = operation.specs[model]
        changed = []
        for number in arrays:
            shape = operation.types[number].shape
            if number == model or len(shape) != len(spec):
                continue
            new = tuple(
                axes if size % math.prod(operation.mesh.shape[axis] for axis in axes or ()) == 0 else None
                for axes, size in zip(spec, shape, strict=True)
            )
            if new != operation.specs[number]:
                changed.append((number, new))
        if changed:
            yield _Candidate(tuple(changed))
        taken = {axis for axes in spec for axis in axes or ()}
        for number in arrays:
            if number != model:
                new = tuple(None if axes and taken & set(axes) else axes for axes in operation.specs[number])
                if new != operation.specs[number]:
                    yield _Candidate(((number, new),))


def _unsharded_dimension(operation: RefusedOperation) -> Iterator[_Candidate]:
    """Yield each operand with one dimension gathered, or with its axes moved to another dimension.

    Operands of the same type change together.
    """
    alike: dict[Any, list[int]] = {}
    for number, (type_, spec) in enumerate(zip(operation.types, operation.specs, strict=True)):
        alike.setdefault((type_.shape, spec), []).append(number)
    for (shape, spec), numbers in alike.items():
        for dimension, axes in enumerate(spec):
            if not axes:
                continue
            gathered = tuple(None if d == dimension else entry for d, entry in enumerate(spec))
            yield _Candidate(tuple((number, gathered) for number in numbers))
            ways = math.prod(operation.mesh.shape[axis] for axis in axes)
            for other, size in enumerate(shape):
                if other != dimension and spec[other] is None and size % ways == 0:
                    moved = tuple(axes if d == other else entry for d, entry in enumerate(gathered))
                    yield _Candidate(tuple((number, moved) for number in numbers))


def _without_repeats(spec: Sequence[tuple[str, ...] | None], order: Sequence[int]) -> Spec:
    """Return the spec with each mesh axis only in the first dimension with it, in this order."""
    used: set[str] = set()
    result: list[tuple[str, ...] | None] = [None] * len(spec)
    for dimension in order:
        kept = tuple(axis for axis in spec[dimension] or () if axis not in used)
        used |= set(kept)
        result[dimension] = kept or None
    return tuple(result)


def _tried(operation: RefusedOperation, candidate: _Candidate) -> ShardingChoice:
    """Trace a candidate, and return it as a choice. Raises JAX's error if JAX refuses it."""
    mesh = operation.mesh

    def changed(*operands: jax.Array) -> PyTree:
        values = list(operands)
        for number, spec in candidate.operands:
            values[number] = jax.sharding.reshard(values[number], _partition_spec(spec))
        if operation.primitive is None:
            return values[0]
        parameters = dict(operation.parameters)
        bind = functools.partial(operation.primitive.bind, **parameters)
        if candidate.result is None:
            return bind(*values)
        wanted = NamedSharding(mesh, _partition_spec(candidate.result))
        if operation.name in _PARAMETERS:
            parameters[_PARAMETERS[operation.name]] = wanted
            return operation.primitive.bind(*values, **parameters)
        return jax.sharding.auto_axes(bind, axes=mesh.explicit_axes, out_sharding=wanted)(*values)

    with jax.sharding.use_abstract_mesh(mesh):
        arguments = [
            jax.ShapeDtypeStruct(type_.shape, type_.dtype, sharding=type_.sharding)
            for type_ in operation.types
        ]
        traced = jax.jit(changed).trace(*arguments)
        result = traced.jaxpr.out_avals[0]
        collectives = _collectives(traced, mesh)
    spec = spec_of(result.sharding.spec, result.ndim)
    return ShardingChoice(_code(operation, candidate), _in_order(spec, operation), collectives)


def _collectives(traced: jax.stages.Traced, mesh: AbstractMesh) -> tuple[Collective, ...] | None:
    record = mesh_record(mesh)
    try:
        module = traced.lower(lowering_platforms=("cpu",)).compiler_ir("stablehlo")
        text = xla_partitioner.partitioned(module, record.size)
    except InvalidInput:
        return None
    return program_text.read(text, record, local=True).collectives


def _in_order(spec: Spec, operation: RefusedOperation) -> Spec:
    """Return the spec of an operation's result with the dimensions of the user's code."""
    if operation.order is None or len(operation.order) != len(spec):
        return spec
    return tuple(spec[dimension] for dimension in operation.order)


def _code(operation: RefusedOperation, candidate: _Candidate) -> str:
    """Return a candidate as Python code."""
    lines = []
    for number, spec in candidate.operands:
        name = operation.operand_names[number].replace(" ", "_")
        lines.append(f"{name} = jax.sharding.reshard({name}, {_spec_text(spec)})")
    if candidate.result is not None:
        result = _spec_text(_in_order(candidate.result, operation))
        lines.append(_CODE.get(operation.name, "out_sharding={}").format(result))
    return "; ".join(lines)


def _spec_text(spec: Spec) -> str:
    return str(_partition_spec(spec)).replace("PartitionSpec", "P")


def _partition_spec(spec: Spec) -> PartitionSpec:
    return PartitionSpec(*map(jax_entry, spec))


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
        super().__init__(refusal_text(error))
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


def _operation(frames: list[FrameType]) -> RefusedOperation | None:
    """Return the operation that was traced when the error was raised, or None if there is none."""
    traced = internals.traced_operation(frames)
    if traced is None:
        return None
    types = tuple(map(internals.type_of, traced.operands))
    if not types or None in types:
        return None
    return RefusedOperation(
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
