"""Build a Layout's model and mesh, the sharding of every array, and the signatures of its programs."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import jax
import numpy as np
from flax import linen as nn
from flax.core import meta, spmd
from jax.extend.core import ClosedJaxpr, Jaxpr, Var
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from inspector.compiled.assumed import KernelCosts
from inspector.jax_private.checkpoint_names import functions_of
from inspector.jobs.engine import environment
from inspector.layout import Layout, emulation
from inspector.machines.compiler_options import Options
from inspector.model import Model, PyTree
from inspector.records.job_report import JobReport
from inspector.sharding.placement import jax_entry
from inspector.text.errors import InvalidInput, shown
from inspector.tracing.leaves import (
    has_named_arrays,
    has_variables,
    leaves_of,
    map_variables,
    nnx_rules,
    without_eager_sharding,
)
from inspector.tracing.model import describe, placeholder_devices, sharding_errors
from inspector.tracing.model.describe import code_of, costs_of_kernels, own_code
from inspector.tracing.model.state_specs import given_specs, shardings_by_path, with_optimizer_axes
from inspector.tracing.model.traceable import batch_function, returns_state


def build_model(layout: Layout) -> Model:
    """Build the layout's model with its sizes.

    Raises:
      InvalidInput: the function of a user's model fails or returns something else.
    """
    if layout.entry.own:
        return _own_model(layout)
    module_name, function_name = layout.entry.build.split(":")
    build = getattr(importlib.import_module(module_name), function_name)
    options: dict[str, Any] = dict(layout.sizes)
    if layout.unconstrained:
        options["unconstrained"] = layout.unconstrained
    if layout.entry.has_rules:
        return build(**options)
    partitions = {place: tuple(jax_entry(axes) for axes in spec) for place, spec in layout.specs.items()}
    return build(**options, partitions=partitions)


def model_and_mesh(layout: Layout, report: JobReport) -> tuple[Model, Mesh]:
    """Build the model and the mesh of a layout that runs on the devices of this process."""
    report("build")
    return build_model(layout), make_mesh(layout)


def refuse_too_large(bytes_per_device: int, layout: Layout, memory: int | None, what: str) -> None:
    """Refuse to run `what` if it exceeds the usable bytes of this machine, which are measured if None."""
    available = environment.available_bytes() if memory is None else memory
    emulation.refuse_too_large(bytes_per_device * layout.devices, available, what)


def _own_model(layout: Layout) -> Model:
    placeholder_devices.provide(layout.devices)
    build = describe.function_named(layout.entry.build)
    model = describe.built(layout.model, build, dict(layout.sizes))
    with own_code(layout.model):
        batch = jax.eval_shape(batch_function(model), abstract_key())
    describe.checked_batch(layout.model, batch)
    unnamed = {name: (None,) * len(value.shape) for name, value in batch.items()}
    for name, axes in model.batch_axes.items():
        where = f"{layout.model}: batch_axes has {shown(name)}"
        if name not in unnamed:
            raise InvalidInput(f"{where}, but the batch has {', '.join(unnamed) or 'no arrays'}")
        if len(axes) > len(unnamed[name]):
            raise InvalidInput(
                f"{where} with {len(axes)} names, but the array has {len(unnamed[name])} dimensions"
            )
    # As in JAX, missing entries at the end are not sharded.
    given = {name: (*axes, *unnamed[name][len(axes) :]) for name, axes in model.batch_axes.items()}
    return replace(model, batch_axes=unnamed | given)


def make_mesh(layout: Layout) -> Mesh:
    """Return the layout's mesh on the devices of all processes, in row-major order."""
    devices = np.array(jax.devices()[: layout.devices]).reshape(layout.mesh_shape)
    return Mesh(devices, layout.axis_names, axis_types=axis_types(layout))


def axis_types(layout: Layout) -> tuple[AxisType, ...]:
    """Return JAX's type of each mesh axis."""
    explicit = layout.explicit_axes
    return tuple(AxisType.Explicit if name in explicit else AxisType.Auto for name in layout.axis_names)


def abstract_key() -> jax.ShapeDtypeStruct:
    """Return an abstract random key."""
    return jax.eval_shape(lambda: jax.random.key(0))


def first_inputs(model: Model, init: Signature) -> tuple[jax.Array, Any]:
    """Return a random key and a batch, with the shardings that init requests."""
    key = jax.device_put(jax.random.key(0), init.sharding("key"))
    # Not jitted: compiling another program costs more than it saves.
    return key, jax.device_put(batch_function(model)(key), init.sharding("batch"))


@contextlib.contextmanager
def tracing(layout: Layout, mesh: Mesh | AbstractMesh) -> Iterator[None]:
    """Set the rules that the sharding constraints of the model use, and the mesh if its code allows that."""
    with (
        traced_under(layout, mesh),
        reading_rules(layout),
        code_of(layout),
        sharding_errors.as_invalid_input(layout),
    ):
        yield


def traced_under(layout: Layout, mesh: Mesh | AbstractMesh) -> contextlib.AbstractContextManager[Any]:
    """Return a context with the mesh, or without if the model's code fails under one.

    Explicit axes always need the mesh.
    """
    if not layout.entry.set_mesh and not layout.explicit_axes:
        return contextlib.nullcontext()
    if isinstance(mesh, AbstractMesh):
        return jax.sharding.use_abstract_mesh(mesh)
    return jax.set_mesh(mesh)


@contextlib.contextmanager
def reading_rules(layout: Layout) -> Iterator[None]:
    """Set the layout's rules for Linen and nnx."""
    rules = linen_rules(layout)
    with nn.logical_axis_rules(rules), nnx_rules(rules), without_eager_sharding():
        yield


def linen_rules(layout: Layout) -> tuple[tuple[str, Any], ...]:
    """Return the layout's rules in the form of Flax Linen."""
    return tuple((name, jax_entry(axes)) for name, axes in layout.rules)


def abstract_outputs(layout: Layout, function: Callable[..., Any], *arguments: PyTree) -> PyTree:
    """Return `jax.eval_shape` of a function. On explicit axes, every array also has its sharding type.

    A result of a jitted function with `out_shardings` has that sharding, as it has if the function runs
    outside of any jit. Inside a jit, JAX leaves it out of the type.
    """
    if not layout.explicit_axes:
        return jax.eval_shape(function, *arguments)
    traced = jax.jit(function).trace(*arguments)
    leaves = []
    for type_, asked in zip(traced.jaxpr.out_avals, _asked_of_jits(traced.jaxpr.jaxpr), strict=True):
        sharding = type_.sharding if asked is None else NamedSharding(type_.sharding.mesh, asked)
        leaves.append(jax.ShapeDtypeStruct(type_.shape, type_.dtype, sharding=sharding))
    return jax.tree.unflatten(jax.tree.structure(traced.out_info), leaves)


def _asked_of_jits(body: Jaxpr) -> list[PartitionSpec | None]:
    """Return the spec of each result that comes from a jitted function with `out_shardings`, else None."""
    asked: dict[Any, PartitionSpec] = {}
    for operation in body.eqns:
        shardings = operation.params.get("out_shardings", ())
        for value, sharding in zip(operation.outvars, shardings, strict=False):
            if isinstance(sharding, NamedSharding):
                asked[value] = sharding.spec
    # A result can be a number, which is not a key of a dict.
    return [asked.get(value) if isinstance(value, Var) else None for value in body.outvars]


def abstract_batch(model: Model, layout: Layout, mesh: Mesh | AbstractMesh) -> dict[str, Any]:
    """Return the abstract arrays of a batch. On explicit axes they have the model's shardings."""
    batch = jax.eval_shape(batch_function(model), abstract_key())
    if not layout.explicit_axes:
        return batch
    axes = {name: model.batch_axes.get(name) for name in batch}
    return _typed(batch, {name: named_sharding(own, model, layout, mesh) for name, own in axes.items()})


def _typed(tree: PyTree, shardings: PyTree) -> PyTree:
    """Return abstract arrays with shardings, whose tree is a prefix of theirs.

    JAX takes the explicit axes of a sharding as the type of an array.
    """
    return jax.tree.map(
        lambda sharding, part: jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), part
        ),
        shardings,
        tree,
    )


def state_shardings(
    abstract_state: PyTree, model: Model, layout: Layout, mesh: Mesh | AbstractMesh
) -> PyTree:
    """Return the pytree of shardings of a train state, with `optimizer_axes` for the optimizer state."""
    shardings = _state_shardings(abstract_state, model, layout, mesh)
    if not layout.optimizer_axes:
        return shardings
    return with_optimizer_axes(abstract_state, shardings, layout.optimizer_axes, mesh)


def _state_shardings(
    abstract_state: PyTree, model: Model, layout: Layout, mesh: Mesh | AbstractMesh
) -> PyTree:
    """Return the pytree of shardings of a train state, from the boxes of its abstract leaves.

    On explicit axes, a leaf without a box has the sharding of its type. The specs of `state_specs` come
    before both.
    """
    if model.state_specs is not None or has_named_arrays(abstract_state):
        given = given_specs(abstract_state, model.state_specs, layout.state_specs, mesh, layout.model)
        return shardings_by_path(
            abstract_state,
            given,
            mesh,
            lambda leaf: (
                NamedSharding(mesh, leaf.value.sharding.spec)
                if leaf.names is None and layout.explicit_axes
                else named_sharding(leaf.names, model, layout, mesh)
            ),
        )
    if has_variables(abstract_state):
        return map_variables(
            abstract_state,
            lambda variable: named_sharding(
                None if variable is None else variable.get_metadata().get("out_sharding"),
                *(model, layout, mesh),
            ),
        )

    def of_leaf(leaf: PyTree) -> NamedSharding:
        names = getattr(leaf, "names", None)
        if names is None and layout.explicit_axes:
            return NamedSharding(mesh, leaf.sharding.spec)
        return named_sharding(names, model, layout, mesh)

    if layout.explicit_axes or (model.names != "mesh" and model.rules_semantics == "nnx"):
        return jax.tree.map(of_leaf, abstract_state, is_leaf=meta.is_axis_metadata)
    if model.names == "mesh":
        return nn.get_sharding(abstract_state, cast(Mesh, mesh))
    specs = nn.get_partition_spec(abstract_state)
    return nn.logical_to_mesh_sharding(specs, cast(Mesh, mesh), linen_rules(layout))


def named_sharding(
    axes: Sequence[Any] | None, model: Model, layout: Layout, mesh: Mesh | AbstractMesh
) -> NamedSharding:
    """Return the sharding of an array with these dimension names; replicated if `axes` is None."""
    if axes is None:
        return NamedSharding(mesh, PartitionSpec())
    if model.names == "logical" and model.rules_semantics == "nnx":
        named = spmd.from_sharding_rules(tuple(axes), linen_rules(layout))
        return NamedSharding(mesh, PartitionSpec(*named))
    if model.names == "logical":
        spec = nn.logical_to_mesh_axes(axes, linen_rules(layout))
        return NamedSharding(mesh, spec or PartitionSpec())
    return NamedSharding(mesh, PartitionSpec(*axes))


def argument_paths(named: Iterable[tuple[str, PyTree]]) -> Iterator[str]:
    """Yield the path of each flattened argument or result. The name `state` is not part of paths."""
    for name, value in named:
        for leaf in leaves_of(value):
            yield "/".join(part for part in (name, leaf.path) if part not in ("state", ""))


def first_used(jaxpr: ClosedJaxpr, paths: Sequence[str]) -> tuple[str, ...]:
    """Return the paths of the arrays that a traced function computes with, in the order of its code.

    A use is an operation on an array and another one. What is made of one array alone, such as its transpose,
    its cast or its part for a layer, is followed as that array. Numbers do not count as arrays.

    Args:
      jaxpr: `jax.jit(function).trace(...).jaxpr`.
      paths: those of its flattened arguments, by `argument_paths`. If JAX flattens them to others, as it does
        with a variable that an nnx module has twice, the result is empty.
    """
    arguments, used = jaxpr.jaxpr.invars, dict[str, None]()
    if len(arguments) == len(paths):
        _note_uses(jaxpr.jaxpr, dict(zip(arguments, paths, strict=True)), used)
    return tuple(used)


def _note_uses(function: Jaxpr, known: dict[Any, str], used: dict[str, None]) -> list[str | None]:
    """Add the arrays that a function uses to `used`. Return the array that each result is made of alone."""

    def of(values: Iterable[Any]) -> list[str | None]:
        return [known.get(value) if isinstance(value, Var) else None for value in values]

    for operation in function.eqns if known else ():
        given = operation.invars
        arrays = dict.fromkeys(of(value for value in given if getattr(value.aval, "ndim", 0)))
        inner = [body for body in functions_of(operation) if len(body.invars) <= len(given)]
        if operation.primitive.name == "while":
            inner = [operation.params["body_jaxpr"].jaxpr]
        ends = [*arrays] * len(operation.outvars) if len(arrays) == 1 else []
        for body in inner:  # of a loop, a branch or a call: its arguments are the last ones of the operation
            own = zip(reversed(body.invars), reversed(of(given)), strict=False)
            ends = _note_uses(body, {value: path for value, path in own if path is not None}, used)
        if not inner and len(arrays) > 1:
            used.update(dict.fromkeys(path for path in arrays if path is not None))
        known |= {
            value: path for value, path in zip(operation.outvars, ends, strict=False) if path is not None
        }
    return of(function.outvars)


@dataclass(frozen=True)
class Signature:
    """A function with its abstract arguments and requested shardings, before it is lowered.

    Attributes:
      inputs: name -> (abstract argument, sharding of each leaf), in the order of the function.
      outputs: name -> sharding of each leaf; None lets the compiler choose.
      donated: names of inputs whose buffers the outputs may reuse.
      compiler_options: name and value of options of XLA, those of the layout.
      kernel_costs: those that the model states.
    """

    name: str
    function: Callable[..., Any]
    inputs: dict[str, tuple[Any, Any]]
    outputs: dict[str, Any]
    donated: tuple[str, ...] = ()
    compiler_options: Options = ()
    kernel_costs: KernelCosts = ()

    @property
    def changes_state(self) -> bool:
        """Whether the program takes the state and returns the new one first."""
        return "state" in self.inputs and "state" in self.outputs

    @property
    def arguments(self) -> tuple[Any, ...]:
        return tuple(argument for argument, _ in self.inputs.values())

    def sharding(self, name: str) -> PyTree:
        """Return the requested sharding of each leaf of an input."""
        return self.inputs[name][1]

    def jitted(self) -> jax.stages.Wrapped:
        """Return `jax.jit` of the function with the requested shardings and donations."""
        outputs = tuple(self.outputs.values())
        return jax.jit(
            self.function,
            in_shardings=tuple(shardings for _, shardings in self.inputs.values()),
            out_shardings=outputs[0] if len(outputs) == 1 else outputs,
            donate_argnums=tuple(n for n, name in enumerate(self.inputs) if name in self.donated),
        )


def signatures(model: Model, layout: Layout, mesh: Mesh | AbstractMesh) -> tuple[Signature, ...]:
    """Return the signatures of init, and of the train step, inference and other programs of the model.

    Must be called inside of `tracing`.
    """
    key = abstract_key()
    batch = abstract_batch(model, layout, mesh)
    state = abstract_outputs(layout, model.init, key, batch)
    state_sharding = state_shardings(state, model, layout, mesh)
    batch_sharding = {
        name: named_sharding(axes, model, layout, mesh) for name, axes in model.batch_axes.items()
    }
    if layout.explicit_axes:
        state = _typed(state, state_sharding)
    key_in = (key, NamedSharding(mesh, PartitionSpec()))
    inputs = {"state": (state, state_sharding), "batch": (batch, batch_sharding)}
    donated = ("state",) if layout.donate else ()
    init = Signature("init", model.init, {"key": key_in, "batch": inputs["batch"]}, {"state": state_sharding})
    programs = [init]
    if model.step is not None:
        outputs = {"state": state_sharding, "loss": None}
        programs.append(Signature("train_step", model.step, dict(inputs), outputs, donated))
    if model.apply is not None:
        output = None
        if model.output_axes is not None or not layout.explicit_axes:
            output = named_sharding(model.output_axes, model, layout, mesh)
        programs.append(Signature("apply", model.apply, dict(inputs), {"output": output}))
    for name, function in model.programs.items():
        if returns_state(function, state, batch):
            outputs = {"state": state_sharding, "output": None}
            over = ("state",) if name in model.donates else donated
            programs.append(Signature(name, function, dict(inputs), outputs, over))
        else:
            programs.append(Signature(name, function, dict(inputs), {"output": None}))
    sizes = dict(zip(layout.axis_names, layout.mesh_shape, strict=True))
    options, costs = layout.compiler_options, costs_of_kernels(model, layout.model, sizes)
    return tuple(replace(program, compiler_options=options, kernel_costs=costs) for program in programs)
