"""`inspector.inspect`: the Snapshot of a function that is compiled here or for a target."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
from jax import numpy as jnp
from jax.extend.core import ClosedJaxpr

from inspector import audit
from inspector.compiled import program_text
from inspector.compiled.donation import with_donation
from inspector.files import output
from inspector.jax_private import arrays, custom_partitions, moved_lowering, programs
from inspector.jax_private.checkpoint_names import checkpoint_names
from inspector.machines import targets
from inspector.model import PyTree
from inspector.recording.capture import capture_compiled
from inspector.recording.own_names import argument_paths, with_argument_names
from inspector.recording.recorder import lowered_settings
from inspector.records.snapshot import CheckpointName, Snapshot, write
from inspector.sharding.array_groups import with_roles
from inspector.text.errors import InvalidInput, shown
from inspector.tracing.mlir import walk
from inspector.tracing.mlir.kernel_bodies import with_costs

if TYPE_CHECKING:  # imported when the first worker is needed
    from inspector.jobs.engine import Pool

_NOT_A_FUNCTION = "must be a function, or the result of jax.jit, nnx.jit or eqx.filter_jit"


def inspect(
    function: Callable[..., object],
    *arguments: PyTree,
    target: str | None = None,
    path: str | os.PathLike[str] | None = None,
    **keywords: PyTree,
) -> Snapshot:
    """Compile a function for its arguments without running it, and return the Snapshot.

    Use it to see the collectives and the memory of a step before the job runs, also for a machine that is
    not here. The Snapshot has the findings of the audit.

    Args:
      function: a jitted function. Another function is jitted.
      arguments: arrays, or `jax.ShapeDtypeStruct` objects with shardings, as for a call.
      target: such as `tpu:v5e:4x4`: compile for this machine instead, with the shardings rebuilt there. Its
        compiler runs in another process. The target has at least as many devices as the function uses.
      path: the file to write; None writes none.
      keywords: the function's keyword arguments.

    Raises:
      InvalidInput: `function` or `target` is invalid, the compiler fails, or the file cannot be written.

    Example:
      >>> import inspector, jax
      >>> from jax.sharding import AxisType, NamedSharding, PartitionSpec
      >>> mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
      >>> def sharded(shape, *axes):
      ...     sharding = NamedSharding(mesh, PartitionSpec(*axes))
      ...     return jax.ShapeDtypeStruct(shape, "float32", sharding=sharding)
      >>> x, kernel = sharded((8, 64), "data", "model"), sharded((64, 32), "model", None)
      >>> snapshot = inspector.inspect(jax.jit(jax.numpy.matmul), x, kernel)
      >>> [(c.op, c.mesh_axes, c.payload_bytes) for c in snapshot.programs[0].collectives]
      [('all-reduce', ('model',), 512)]
    """
    if not callable(function):
        raise InvalidInput(f"the function is {shown(str(function))}, but {_NOT_A_FUNCTION}")
    wanted = None if target is None else targets.parse(target)
    if wanted is not None and (lacking := targets.missing_compiler(wanted)):
        raise InvalidInput(lacking)
    jitted = function if hasattr(function, "lower") else jax.jit(function)
    name = str(getattr(function, "__name__", "program"))
    named: list[tuple[CheckpointName, ...]] = []
    with _lowered_for(None if wanted is None else targets.PLATFORMS[wanted.kind], named) as lowered:
        lowered_here = jitted.lower(*arguments, **keywords)
        compiled = lowered_here.compile()
    snapshot = _with_names(capture_compiled(compiled, name=name), compiled, name)
    if named:
        recorded = tuple(replace(program, checkpoint_names=named[-1]) for program in snapshot.programs)
        snapshot = replace(snapshot, programs=recorded)
    if wanted is None:
        snapshot = _with_ideal(snapshot, lambda: lowered_here.as_text(dialect="hlo"))
        snapshot = _with_causes(snapshot, lambda: lowered_here.compiler_ir("stablehlo"))
    else:
        if not lowered:
            raise InvalidInput(f"{name} was not lowered by JAX, so it cannot be compiled for {target}")
        snapshot = _with_ideal(snapshot, lambda: lowered[-1].hlo().as_hlo_text())
        snapshot = _for_target(snapshot, lowered[-1], wanted)
        snapshot = _with_causes(snapshot, lowered[-1].stablehlo)
    snapshot = audit.audited(with_donation(with_roles(snapshot)))
    if path is not None:
        output.refuse_unwritable(path)
        write(snapshot, path)
    return snapshot


def _with_ideal(snapshot: Snapshot, hlo: Callable[[], str]) -> Snapshot:
    """Add the work before partitioning, if the lowered function has its text as HLO."""
    try:
        text = hlo()
    except (AttributeError, TypeError, NotImplementedError, jax.errors.JaxRuntimeError):
        return snapshot  # Flax and Equinox wrap what JAX lowers
    ideal = program_text.ideal_work(with_costs(text))
    return replace(snapshot, programs=tuple(replace(program, ideal=ideal) for program in snapshot.programs))


def _with_causes(snapshot: Snapshot, module: Callable[[], Any]) -> Snapshot:
    """Add the partitioned program and the causes of the collectives, which a worker process finds."""
    (program,) = snapshot.programs
    if program.collectives is None or snapshot.mesh_of(program) is None:
        return snapshot
    try:
        lowered = module()
    except (AttributeError, TypeError, NotImplementedError):
        return snapshot  # Flax and Equinox wrap what JAX lowers
    from inspector.jobs.program_run.causes import CauseFinder

    return CauseFinder(_pool())(snapshot, walk.of_module(lowered))


def _with_names(snapshot: Snapshot, compiled: object, name: str) -> Snapshot:
    """Name inputs by parameter if JAX says its names. Flax and Equinox wrap the compiled program."""
    executable = getattr(compiled, "_executable", None)
    arguments = getattr(executable, "_all_args_info", None)
    if not isinstance(compiled, jax.stages.Compiled) or arguments is None:
        return snapshot
    names = [arg_name for arg_name in arguments.debug_info.arg_names or () if arg_name]
    return with_argument_names(snapshot, name, argument_paths(compiled.in_tree, compiled.out_tree, names))


@contextlib.contextmanager
def _lowered_for(platform: str | None, named: list[tuple[CheckpointName, ...]]) -> Iterator[list[Any]]:
    """Lower functions for another platform only, if one is given, and yield what JAX lowers.

    The names of activations in each function are appended to `named`.

    Whatever wraps `jax.jit` ends in the same function. It gets a function with the same arguments and results
    that does nothing, which JAX can compile here: kernels for another platform cannot be compiled here.
    """
    lowerings: list[Any] = []

    def replacement(original: Callable[..., Any]) -> Callable[..., Any]:
        def resolve_and_lower(args: Any, jaxpr: Any, **params: Any) -> Any:
            # Operations that run now, and not those that are compiled ahead of time, need their results.
            if moved_lowering.runs_now(sys._getframe(1)) or params.get("lowering_platforms"):
                return original(args, jaxpr=jaxpr, **params)
            named.append(checkpoint_names(jaxpr))
            if platform is None:
                return original(args, jaxpr=jaxpr, **params)
            lower = functools.partial(original, args, jaxpr=jaxpr, **params)
            before = custom_partitions.known()
            lowered = lower(lowering_platforms=(platform,))
            if theirs := list(custom_partitions.since(before)):
                _record_partitions(lower, lowered, theirs, platform)
            lowerings.append(lowered)
            return original(args, jaxpr=_without_body(jaxpr, lowered), **params)

        return resolve_and_lower

    with moved_lowering.replaced(replacement):
        yield lowerings


def _record_partitions(
    lower: Callable[[], Any], lowered: jax.stages.Lowered, names: list[str], platform: str | None
) -> None:
    """Compile here too, to record what the partitioning functions answer.

    The compiler of the target runs in another process, which lacks these functions. If the function cannot be
    compiled here, because it has a kernel for the target, nothing is recorded, and that compiler says so.
    """
    before = custom_partitions.known()
    with contextlib.suppress(NotImplementedError, ValueError, jax.errors.JaxRuntimeError):
        computation = lower()
        own = list(custom_partitions.since(before).values())
        calls = custom_partitions.watch(own, names, platform or "cpu")
        setattr(lowered, custom_partitions.ATTRIBUTE, calls)
        computation.compile()


def _without_body(jaxpr: ClosedJaxpr, lowered: Any) -> ClosedJaxpr:
    """Return a function as JAX traces it, with the types of `jaxpr`. It uses the same arguments."""
    constants = len(lowered.const_args)
    kept = [place - constants for place in lowered.compile_args["kept_var_idx"]]

    def body(*arguments: jax.Array) -> list[Any]:
        # JAX would leave out arguments that nothing depends on.
        used = [arguments[place] for place in kept if place >= 0]
        results = [_empty(aval) for aval in jaxpr.out_avals]
        return jax.lax.optimization_barrier((results, used))[0]

    empty = jax.jit(body).trace(*jaxpr.in_avals).jaxpr
    moved_lowering.use_debug_info(empty, jaxpr)
    return empty


def _empty(aval: jax.core.ShapedArray) -> jax.Array:
    if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key):
        shape = arrays.physical_aval(aval).shape
        return jax.random.wrap_key_data(
            jnp.zeros(shape, "uint32"), impl=arrays.key_implementation(aval.dtype)
        )
    value = jnp.zeros(aval.shape, aval.dtype)
    spec = aval.sharding.spec
    if any(part is not None for part in spec) and not aval.sharding.mesh.empty:
        return jax.sharding.reshard(value, aval.sharding)
    return value


def _for_target(snapshot: Snapshot, lowered: programs.MeshComputation, target: targets.Target) -> Snapshot:
    from inspector.jobs.program_run.causes import TargetCompiler

    used = len(programs.devices_of(lowered))
    if used > target.devices:
        raise InvalidInput(f"the function uses {used} devices, but {target.text} has {target.devices}")
    # The compiler's devices are numbered from 0, in the order of `jax.devices()`.
    places = {device.id: place for place, device in enumerate(jax.devices())}
    mesh = snapshot.mesh
    if mesh is not None and mesh.device_kind is not None:
        mesh = replace(mesh, devices=tuple(places[device] for device in mesh.devices))
    settings = lowered_settings(lowered, places)
    compiler = TargetCompiler(target, _pool())
    return compiler(replace(snapshot, mesh=mesh), walk.of_module(lowered.stablehlo()), settings)


@functools.cache
def _pool() -> Pool:
    """Return the worker of all calls in this process: to start one takes longer than most programs need."""
    from inspector.jobs.engine import Pool

    return Pool(workers=1)
