"""A model's programs, lowered once for every mesh and every set of rules.

A model with logical axes is lowered on an abstract mesh whose axes are the logical axes themselves, each of
size 1, with rules that map every name to itself. The module then has logical names instead of mesh axes at
its arguments, results and sharding constraints. Rules, a mesh and the axes of the optimizer state are put in
afterwards, without tracing again (`rewritable`).

Models that read the rules as nnx does, models with mesh axes or a `shard_map`, and a user's own models are
lowered on the layout's own mesh, because their code may depend on it.
"""

import contextlib
import functools
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, cast

import jax
from cachetools import LRUCache, cached
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy
from jax.interpreters import mlir as jax_mlir

from inspector.compiled.argument_uses import ArgumentUses
from inspector.compiled.assumed import KernelCosts
from inspector.jax_private.checkpoint_names import checkpoint_names
from inspector.jax_private.moved_lowering import with_whole_specs
from inspector.layout import Layout
from inspector.model.built_in.watching import marking
from inspector.partition import shardy
from inspector.partition.history import is_mark
from inspector.partition.numbers import OperationNames, for_partitioner, numbered
from inspector.partition.origins import LogicalAxes, note_axes
from inspector.partition.rewritable import RewritableModule
from inspector.partition.xla_form import remove_dead_code, xla_form
from inspector.records.snapshot import CheckpointName, Program
from inspector.records.statistics import by_key
from inspector.sharding.memory_kinds import PINNED, UNPINNED
from inspector.text.errors import InvalidInput
from inspector.tracing.mlir import xla_partitioner
from inspector.tracing.mlir.locations import SourceLine, lines_at, named_at
from inspector.tracing.mlir.walk import operations
from inspector.tracing.model.abstract import abstract_mesh
from inspector.tracing.model.build import (
    Signature,
    argument_paths,
    build_model,
    first_used,
    reading_rules,
    signatures,
    traced_under,
)
from inspector.tracing.model.describe import code_of
from inspector.tracing.model.sharding_errors import RefusedPrograms

# Sharding constraints of a lowered program, by source line or by name, and their removal.
#
# A constraint is identified by its position among the constraints of the program, which copies keep.


_CONSTRAINT = "sdy.sharding_constraint"
_ACTIVATION = "activation/"  # of the path of a value that a model watches after it constrains it
_Call: TypeAlias = "tuple[SourceLine | None, SourceLine | None]"


def positions_by_line(module: ir.Operation) -> Mapping[str, list[int]]:
    """Return the positions of the constraints of each source line: `layer.py:60`."""
    places = ((named_at(constraint.location)[1], n) for n, constraint in enumerate(_constraints(module)))
    return by_key((place, n) for place, n in places if place)


def positions_by_name(module: ir.Operation) -> Mapping[str, list[int]]:
    """Return the positions of the constraints of each name of a built-in model, in both passes.

    A built-in model marks each value that it constrains in `constrained`, so the mark has the name. The
    constraints of the backward pass have the source lines of the forward pass: `constrained` and its call.
    The result is empty if the name of a constraint in `constrained` is unknown or ambiguous.
    """
    constraints = _constraints(module)
    names: dict[_Call, set[str]] = {}
    for mark in filter(is_mark, operations(module)):
        owner = mark.operands[0].owner
        if isinstance(owner, ir.Block) or owner.operation.name != _CONSTRAINT:
            continue
        path = json.loads(ir.StringAttr(mark.attributes["backend_config"]).value)["path"]
        if path.startswith(_ACTIVATION):
            names.setdefault(_call(owner.operation), set()).add(path.rpartition("/")[2])
    inside = {line for line, _ in names}
    calls = [_call(constraint) for constraint in constraints]
    named = [(names.get(call, set()), n) for n, call in enumerate(calls) if call[0] in inside]
    if any(len(found) != 1 for found, _ in named):
        return {}
    return by_key((name, n) for found, n in named for name in found)


def remove(module: ir.Operation, positions: Collection[int]) -> None:
    """Remove the constraints at these positions from a module's operation."""
    for position, constraint in enumerate(_constraints(module)):
        if position in positions:
            constraint.results[0].replace_all_uses_with(constraint.operands[0])
            constraint.erase()


def _constraints(module: ir.Operation) -> list[ir.Operation]:
    return [op for op in operations(module, inner_first=True) if op.name == _CONSTRAINT]


def _call(constraint: ir.Operation) -> _Call:
    """Return the line of a constraint, and the line that calls the function around it."""
    lines = (*lines_at(constraint.location), None, None)
    return lines[0], lines[1]


# The platform decides how JAX lowers some operations, such as random numbers; shardings do not depend on it.
PLATFORM = "cpu"
_KERNEL_PLATFORMS = ("tpu", "cuda")


@dataclass(frozen=True)
class Lowered:
    """One lowered program.

    Attributes:
      name: `init`, `train_step` or `apply`.
      module: StableHLO with `sdy` shardings. All arguments are kept, also unused ones.
      inputs, outputs: path of each flattened argument and result, in order.
      logical_axes: the logical axes of arguments and results by path. Empty if the module has mesh axes.
      offloads: whether arguments or results are in host memory.
      kernel_costs: those that the model states.
      checkpoint_names: those in its code. None if its trace is unknown.
      first_used: the paths of the inputs that it computes with, in the order of its code. Empty if its trace
        is unknown.
      donated: number of each result that its code writes over an argument, with that of the argument.
      uses: the uses of its inputs, the same on every mesh. Empty until a partitioned text was read.
    """

    name: str
    module: ir.Module
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    logical_axes: Mapping[str, LogicalAxes]
    offloads: bool = False
    kernel_costs: KernelCosts = ()
    checkpoint_names: tuple[CheckpointName, ...] | None = None
    first_used: tuple[str, ...] = ()
    donated: Mapping[int, int] = field(default_factory=dict)
    uses: list[ArgumentUses] = field(default_factory=list, compare=False)

    @functools.cached_property
    def numbered(self) -> RewritableModule:
        """A copy whose operations have numbers."""
        return RewritableModule(numbered(self.module))

    @functools.cached_property
    def for_partitioner(self) -> RewritableModule:
        """A copy for XLA's partitioner, with the numbers of the operations as their locations."""
        return self._for_partitioner(with_numbers=True)

    @functools.cached_property
    def without_names(self) -> RewritableModule:
        """A copy for XLA's partitioner, without locations."""
        return self._for_partitioner(with_numbers=False)

    def apart(self, removed: Collection[int] = ()) -> RewritableModule:
        """Return a copy of `without_names` with its own context, for another thread.

        removed: positions of the sharding constraints that the copy lacks.
        """
        module = self.without_names.restore()
        with module.context, ir.Location.unknown():
            copy = module.operation.clone()
            remove(copy, removed)
            text = str(copy.get_asm(enable_debug_info=False, large_elements_limit=None))
        with jax_mlir.make_ir_context(), ir.Location.unknown():
            return RewritableModule(ir.Module.parse(text))

    def _for_partitioner(self, with_numbers: bool) -> RewritableModule:
        with self.module.context, ir.Location.unknown():
            copy = for_partitioner(numbered(self.module), with_numbers)
            return RewritableModule(xla_partitioner.prepare(copy))

    @functools.cached_property
    def names(self) -> OperationNames:
        """Names and source lines of the operations by their numbers."""
        return OperationNames(self.numbered.module)

    @functools.cached_property
    def constraints_by_line(self) -> Mapping[str, Collection[int]]:
        """Positions of its sharding constraints by their source lines."""
        return positions_by_line(self.module.operation)

    @functools.cached_property
    def constraints_by_name(self) -> Mapping[str, Collection[int]]:
        """Positions of its sharding constraints by the names that a built-in model gives them."""
        return positions_by_name(self.module.operation)


@dataclass(frozen=True)
class Template:
    """The programs of a layout; `logical` if their mesh axes are names of logical axes.

    `refused` are the programs that JAX refuses to trace on explicit axes, `failed` the names of those that
    cannot be lowered, each with the reason.
    """

    programs: tuple[Lowered, ...]
    logical: bool
    refused: tuple[Program, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the programs that are lowered or refused."""
        return (*(program.name for program in self.programs), *(program.name for program in self.refused))


def _is_logical(layout: Layout) -> bool:
    entry = layout.entry
    sizes = dict(layout.sizes)
    if layout.explicit_axes or any(sizes.get(name) == value for name, value in entry.on_mesh.items()):
        return False  # the trace depends on the mesh
    return entry.has_rules and entry.rules_semantics == "linen" and not entry.own


def template_key(layout: Layout) -> str:
    """Return text that two layouts share if their template is the same."""
    # Mesh and rules change neither shapes nor constraints of a model with logical axes.
    if _is_logical(layout):
        return layout.key("model", "sizes", "unconstrained")
    return replace(layout, donate=False).key()


def template_of(layout: Layout, only: Collection[str] = ()) -> Template:
    """Return the layout's lowered programs, from the cache if only mesh or rules changed.

    only: names of the programs that are needed now; all if it is empty. The others are lowered when they are
      first needed.

    Raises:
      InvalidInput: the model cannot be built or traced.
    """
    return programs_of(layout).template(only)


def template_of_program(like: Layout, layout: Layout, name: str) -> Template:
    """Return a template with at least the program `name`, without a place in the cache.

    Args:
      like: a layout whose template is cached. It is returned if `layout` has the same one.

    Raises:
      InvalidInput: the model cannot be built or traced.
    """
    if template_key(like) == template_key(layout):
        return template_of(like, (name,))
    return _Programs(layout).template((name,))


class _Programs:
    """The programs of a layout, each of which is lowered once."""

    def __init__(self, layout: Layout) -> None:
        self._logical = _is_logical(layout)
        if self._logical:
            names = tuple(layout.entry.logical_axes)
            layout = replace(
                layout,
                mesh_shape=(1,) * len(names),
                axis_names=names,
                rules=tuple((name, (name,)) for name in names),
                optimizer_axes=(),
            )
        self._layout = layout
        self._mesh = abstract_mesh(layout)
        self._refused = RefusedPrograms(layout)
        self._waiting: dict[str, Signature] = {}
        self._programs: dict[str, Lowered] = {}
        self._failed: dict[str, str] = {}
        model = build_model(layout)
        with self._tracing(), self._refused.keeping("init"):
            self._waiting = {signature.name: signature for signature in signatures(model, layout, self._mesh)}
        self._names = tuple(self._waiting)
        self._template = self._so_far()

    def template(self, only: Collection[str] = ()) -> Template:
        """Return the template with at least these programs, in their order; with all if `only` is empty."""
        missing = [name for name in self._waiting if not only or name in only]
        if missing:
            with self._tracing():
                for name in missing:
                    self._lower(self._waiting.pop(name))
            self._template = self._so_far()
        return self._template

    def _lower(self, signature: Signature) -> None:
        name = signature.name
        with self._refused.keeping(name):
            try:
                watched = name == self._layout.step_program
                self._programs[name] = _lower(signature, self._logical, watched)
            except InvalidInput as error:
                self._failed[name] = str(error)

    def _so_far(self) -> Template:
        return Template(
            tuple(self._programs[name] for name in self._names if name in self._programs),
            self._logical,
            tuple(self._refused.programs),
            tuple(self._failed.items()),
        )

    @contextlib.contextmanager
    def _tracing(self) -> Iterator[None]:
        layout = self._layout
        whole = with_whole_specs() if self._logical else contextlib.nullcontext()
        with traced_under(layout, self._mesh), reading_rules(layout), code_of(layout), whole:
            yield


# Of the last layouts by their template.
programs_of = cached(LRUCache(8), key=template_key, info=True)(_Programs)


def _lower(signature: Signature, logical: bool, watched: bool) -> Lowered:
    wanted = tuple(signature.outputs.values())
    shardings = tuple(sharding for _, sharding in signature.inputs.values())
    jitted = jax.jit(
        signature.function,
        in_shardings=shardings,
        out_shardings=wanted[0] if len(wanted) == 1 else wanted,
        keep_unused=True,
    )
    with marking() if watched else contextlib.nullcontext():
        traced = jitted.trace(*signature.arguments)
        lowered = _lowered_for_a_platform(traced, signature.name)
    module = xla_form(cast(ir.Module, lowered.compiler_ir("stablehlo")))
    with module.context, ir.Location.unknown():
        shardy.inline_calls(module.operation)
        remove_dead_code(module.operation)  # as JAX does if it may drop unused arguments
        if logical:
            note_logical_axes(module.operation)
    results = lowered.out_info
    inputs = tuple(argument_paths(zip(signature.inputs, signature.arguments, strict=True)))
    ends = (results,) if len(wanted) == 1 else results
    outputs = tuple(argument_paths(zip(signature.outputs, ends, strict=True)))
    names = dict(shardy.names_of_arguments(module, inputs, outputs)) if logical else {}
    kinds = {getattr(leaf, "memory_kind", None) for leaf in jax.tree.leaves((wanted, shardings))}
    offloads = not kinds.isdisjoint((PINNED, UNPINNED))
    costs, named = signature.kernel_costs, checkpoint_names(traced.jaxpr)
    used = first_used(traced.jaxpr, inputs)
    return Lowered(
        signature.name,
        module,
        inputs=inputs,
        outputs=outputs,
        logical_axes=names,
        offloads=offloads,
        kernel_costs=costs,
        checkpoint_names=named,
        first_used=used,
    )


def note_logical_axes(module: ir.Operation) -> None:
    """Write the logical axes of each sharding constraint at it, before mesh axes replace them."""
    for operation in operations(module):
        if operation.name == "sdy.sharding_constraint":
            sharding = sdy.TensorShardingAttr(operation.attributes["sharding"])
            note_axes(operation, shardy.logical_axes(sharding))


def _lowered_for_a_platform(traced: jax.stages.Traced, name: str) -> jax.stages.Lowered:
    """Lower for CPUs, or for the first platform that supports its operations, such as a Pallas kernel.

    Propagation needs no compiler, so it does not depend on the platform.

    Raises:
      InvalidInput: JAX can lower it for none of them, such as a callback, which needs devices.
    """
    reason = ""
    for platform in (PLATFORM, *_KERNEL_PLATFORMS):
        try:
            return traced.lower(lowering_platforms=(platform,))
        except (ValueError, NotImplementedError) as error:
            reason = reason or str(error).strip().partition("\n")[0]
    raise InvalidInput(f"JAX cannot lower {name} without devices: {reason}")
