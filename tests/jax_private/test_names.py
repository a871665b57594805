"""Private names of JAX that this project needs: a sentence says which one moved, and what no longer works."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import traceback
from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name
from jax.extend import backend
from jax.extend.mlir import ir, passmanager
from jax.extend.sharding import GSPMDSharding
from jax.interpreters import mlir
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from inspector import jax_private as jax_internals
from inspector.jax_private import (
    arrays,
    checkpoint_names,
    cpu_clients,
    explicit_axis_errors,
    hlo_conversion,
    mosaic,
    moved_lowering,
    partitioner_dump,
    programs,
    shardy_pipeline,
)
from inspector.tracing.mlir.walk import main_function
from tests.paths import ROOT

pytestmark = pytest.mark.close_to_jax

FOLDER = Path(jax_internals.__file__).parent
# These have no function of their own to call here: they replace or register functions of JAX.
ONLY_NAMES = {"compile_hook", "move_hook", "profiler_hook", "custom_partitions"}
RECORDING = "`run` cannot see the programs that a user's program compiles"
QUESTIONS = "`run` misses that a program asks for the platform"
MOVES = "`run` cannot count the arrays that move between devices"
PARTITIONS = "programs with partitioning functions of their own cannot be compiled for a target"
PROFILES = "`run --profile` cannot profile steps"
# (module, name in it, what no longer works)
NAMES = [
    ("jax._src.api", "jit", RECORDING),  # JAX is imported when this module has been executed
    ("jax._src.pjit", "PjitInfo", RECORDING),
    ("jax._src.pjit", "PjitParams", RECORDING),
    ("jax._src.pjit", "_resolve_and_lower", RECORDING),
    ("jax._src.pjit", "_pjit_call_impl_python", RECORDING),
    ("jax._src.interpreters.pxla", "MeshComputation.compile", RECORDING),
    ("jax._src.xla_bridge", "backends_are_initialized", RECORDING),
    ("jax._src.traceback_util", "register_exclusion", "tracebacks of a recorded program change"),
    ("jax._src.source_info_util", "register_exclusion", "operations have lines of the recorder"),
    ("jax._src.source_info_util", "user_frame", "names of activations have no lines"),
    ("jax._src.pmap", "pmap", "`run` cannot name the arguments of `jax.pmap`"),
    ("jax._src.lib", "xla_client.Device.platform", QUESTIONS),
    ("jax._src.lib", "xla_client.Device.device_kind", QUESTIONS),
    ("jax._src.lib", "xla_client.Client.platform", QUESTIONS),
    ("jax._src.xla_bridge", "default_backend", QUESTIONS),
    ("jax._src.mesh", "Mesh.__new__", "`same` cannot run a program on one device"),
    ("jax._src.dispatch", "_batched_device_put_impl", MOVES),
    ("jax._src.array", "ArrayImpl", MOVES),
    ("jax._src.interpreters.pxla", "shard_arg_handlers", MOVES),
    ("jax._src.pjit", "sharding_constraint_p.impl", MOVES),
    ("jax._src.pjit", "reshard_p.impl", MOVES),
    ("jax._src.custom_partitioning", "_sharding_callbacks", PARTITIONS),
    ("jax._src.api", "make_jaxpr", PARTITIONS),
    ("jax._src.core", "extend_axis_env_nd", PARTITIONS),
    ("jax._src.sharding_impls", "SPMDAxisContext", PARTITIONS),
    ("jax._src.interpreters.mlir", "build_mlir_module_helper", PARTITIONS),
    ("jax._src.xla_bridge", "_plugin_callbacks", PARTITIONS),
    ("jax._src.xla_bridge", "register_plugin_callbacks", PARTITIONS),
    ("jax._src.lib", "xla_client.register_custom_call_partitioner", PARTITIONS),
    ("jax._src.lib", "xla_client.Shape.array_shape", PARTITIONS),
    ("jax._src.lib", "xla_client.HloSharding.tuple_sharding", PARTITIONS),
    ("jax._src.lib", "_profiler.ProfilerSession.stop", PROFILES),
    ("jax._src.lib", "_profiler.ProfileOptions", PROFILES),
    ("jax._src.lib", "_profiler.start_server", PROFILES),
    ("jaxlib._jax", "make_gloo_tcp_collectives", "processes use the address of the host name"),
    ("jax._src.xla_bridge", "devices", "a model cannot make its own mesh while it is traced"),
]


@pytest.mark.parametrize(
    ("module", "name", "consequence"), NAMES, ids=[f"{module}.{name}" for module, name, _ in NAMES]
)
def test_a_private_name_is_where_it_was(module: str, name: str, consequence: str) -> None:
    value = importlib.import_module(module)
    for part in name.split("."):
        moved = f"JAX {jax.__version__} has no {module}.{name}, so {consequence}"
        assert hasattr(value, part), moved
        value = getattr(value, part)


@pytest.mark.parametrize("name", ["fun", "ji", "args", "kwargs"])
def test_the_function_that_traces_has_the_arguments_as_local_variables(name: str) -> None:
    from jax._src import pjit

    codes = [getattr(value, "__code__", None) for value in vars(pjit).values()]
    tracing = [code for code in codes if code is not None and "PjitParams" in code.co_names]
    assert any(name in code.co_varnames + code.co_cellvars for code in tracing), (
        f"no function of JAX {jax.__version__} that makes PjitParams has a variable {name}, so {RECORDING}"
    )


def test_the_function_that_compiles_at_a_call_has_the_flat_arguments() -> None:
    from jax._src import pjit

    assert "args" in pjit._pjit_call_impl_python.__code__.co_varnames, (
        f"JAX {jax.__version__} compiles without a variable args, so `run` cannot name the arguments"
    )


def test_each_module_is_tested_here() -> None:
    imported = {
        alias.name
        for node in ast.walk(ast.parse(Path(__file__).read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module == jax_internals.__name__
        for alias in node.names
    }
    assert {path.stem for path in FOLDER.glob("*.py")} - {"__init__"} == ONLY_NAMES | imported


def test_each_module_names_its_replacement_and_the_versions_of_jax() -> None:
    for path in sorted(FOLDER.glob("*.py")):
        if path.stem != "__init__":
            docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            words = " ".join(docstring.split())
            assert "Public replacement: " in words, path.name
            assert "Tried on JAX 0.10.2 and 0.12.0." in words, path.name


def test_no_other_file_names_private_modules_of_jax() -> None:
    private = ("jax._src", "jaxlib._jax", "jaxlib.xla_client", "jaxlib.mlir", "jaxlib import ")
    sources = [*(ROOT / "inspector").rglob("*.py"), *(ROOT / "models").rglob("*.py")]
    assert len(sources) > 300
    assert [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources
        if FOLDER not in path.parents
        for name in private
        if name in path.read_text(encoding="utf-8")
    ] == []


# --- What each module gives -------------------------------------------------------------------------------


def lowered() -> jax.stages.Lowered:
    """A program on the first four devices: three arguments, of which one is donated and one unused."""
    mesh = Mesh(np.array(jax.devices()[:4]), ("x",))
    split, whole = NamedSharding(mesh, PartitionSpec("x")), NamedSharding(mesh, PartitionSpec())

    def step(params: jax.Array, unused: jax.Array, batch: jax.Array) -> jax.Array:
        return params + batch

    jitted = jax.jit(step, in_shardings=(split, whole, split), out_shardings=split, donate_argnums=0)
    argument = jax.ShapeDtypeStruct((8,), "float32")
    return jitted.lower(argument, argument, argument)


def test_programs_have_names_devices_and_shardings() -> None:
    computation = lowered()._lowering
    executable = computation.compile()
    assert programs.name_of(computation) == "jit(step)"
    assert programs.devices_of(computation) == tuple(jax.devices()[:4])
    assert list(programs.donated(computation)) == [True, False]
    assert sorted(programs.used_arguments(executable)) == [0, 2]
    assert [input_sharding.spec for input_sharding in programs.input_shardings(executable)] == [
        PartitionSpec("x")
    ] * 2
    assert [output_sharding.spec for output_sharding in programs.output_shardings(executable)] == [
        PartitionSpec("x")
    ]


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_sharding_that_the_code_gives_to_jit_is_known(kind: AxisType) -> None:
    """With explicit axes, JAX gives each result the sharding of its type."""
    sharding = NamedSharding(jax.make_mesh((4,), ("x",), axis_types=(kind,)), PartitionSpec("x"))
    argument = jax.ShapeDtypeStruct((8,), "float32", sharding=sharding)
    for given in (None, sharding):
        jitted = jax.jit(lambda x: x + 1, out_shardings=given)
        (own,) = jitted.lower(argument)._lowering.compile_args["out_shardings"]
        assert programs.is_given(own) == (given is not None and kind == AxisType.Auto)


def test_a_lowered_program_moves_to_other_devices() -> None:
    before = lowered()
    old, new = moved_lowering.devices_of(before), tuple(jax.devices()[4:8])
    assert old == tuple(jax.devices()[:4])
    after = moved_lowering.moved(
        before, new, lambda one: NamedSharding(Mesh(np.array(new), ("x",)), one.spec)
    ).compile()
    assert after.input_shardings[0][0].device_set == set(new)
    moved = moved_lowering.moved_gspmd(GSPMDSharding.get_replicated(old), dict(zip(old, new, strict=True)))
    assert moved.device_set == set(new) and moved.is_fully_replicated


def test_a_module_becomes_hlo_and_stablehlo_again() -> None:
    text = jax.jit(lambda x: x + 1).lower(1.0).as_text()
    hlo = hlo_conversion.to_hlo(text)
    assert hlo.as_hlo_text().startswith("HloModule jit__lambda")
    with mlir.make_ir_context(), ir.Location.unknown():
        module = ir.Module.parse(hlo_conversion.to_stablehlo(hlo))
        assert "stablehlo.add" in str(module)


def test_a_serialized_module_becomes_the_text_that_jax_prints() -> None:
    compiled = jax.jit(lambda x: x + 1).lower(1.0).compile()
    (module,) = compiled.runtime_executable().hlo_modules()
    printed = hlo_conversion.text_of(module.as_serialized_hlo_module_proto()).splitlines()
    assert printed[0].startswith("HloModule jit__lambda")
    assert [line for line in printed if "fusion" in line] == [
        line for line in compiled.as_text().splitlines() if "fusion" in line
    ]


@pytest.mark.parametrize("compile", [partitioner_dump.compile_module, partitioner_dump.compile_uncached])
def test_a_module_is_compiled_for_devices_of_another_client(compile) -> None:
    devices = cpu_clients.cpu_client(4).devices()
    assert len(devices) == 4 and devices[0].client is not jax.devices()[0].client
    with mlir.make_ir_context():
        module = ir.Module.parse(lowered().as_text())
        options = backend.get_compile_options(
            1, 4, np.array([[device.id for device in devices]]), backend=devices[0].client
        )
        executable = compile(module, devices, options)
    (hlo,) = executable.hlo_modules()
    assert "num_partitions=4" in hlo.to_string()
    mesh = Mesh(np.array(devices), ("x",))
    chosen = [
        hlo_conversion.spec_of(output_sharding, mesh) for output_sharding in executable.get_output_shardings()
    ]
    assert chosen == [PartitionSpec("x")]


def test_arrays_consist_of_arrays_on_one_device_each() -> None:
    devices = jax.devices()[:4]
    sharding = NamedSharding(Mesh(np.array(devices), ("x",)), PartitionSpec("x"))
    value = jax.device_put(jnp.arange(8.0), sharding)
    whole = jax.device_put(np.arange(8.0, dtype=np.float32), NamedSharding(sharding.mesh, PartitionSpec()))
    before = len(jax.live_arrays())
    for array in (value, whole):
        assert [part.devices() for part in arrays.parts(array)] == [{device} for device in devices]
    assert len(jax.live_arrays()) == before
    assert value._committed
    assert [part.unsafe_buffer_pointer() for part in arrays.parts(value)] == [
        shard.data.unsafe_buffer_pointer() for shard in value.addressable_shards
    ]


def test_typed_keys_have_the_shape_and_sharding_of_their_data() -> None:
    sharding = NamedSharding(Mesh(np.array(jax.devices()[:4]), ("x",)), PartitionSpec("x"))
    keys = jax.device_put(jax.random.split(jax.random.key(0), 8), sharding)
    data = jax.random.key_data(keys)
    assert arrays.physical_aval(keys.aval).shape == data.shape
    physical = arrays.physical_sharding(keys.aval, sharding)
    assert physical.is_equivalent_to(data.sharding, data.ndim)
    assert arrays.key_implementation(keys.dtype) == str(jax.random.key_impl(keys))
    typed = arrays.typed_keys(keys.dtype, data)
    assert typed.dtype == keys.dtype and typed.shape == keys.shape
    assert (jax.random.key_data(typed) == data).all()


def test_an_error_on_explicit_axes_has_the_operation_and_its_operands() -> None:
    mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Explicit,), devices=jax.devices()[:4])
    split = NamedSharding(mesh, PartitionSpec(None, "x"))
    type_ = jax.ShapeDtypeStruct((8, 8), "float32", sharding=split)

    def product(left: jax.Array, right: jax.Array) -> jax.Array:
        return jnp.einsum("ij,kj->ki", left, right)  # contracts a sharded dimension

    with (
        jax.set_mesh(mesh),
        explicit_axis_errors.with_all_frames(),
        pytest.raises(explicit_axis_errors.ShardingTypeError) as refused,
    ):
        jax.jit(product).trace(type_, type_)
    frames = [frame for frame, _ in traceback.walk_tb(refused.value.__traceback__)]
    assert any(explicit_axis_errors.FOLDER in frame.f_code.co_filename for frame in frames)
    operation = explicit_axis_errors.traced_operation(frames)
    assert operation is not None and operation.name == "dot_general"
    types = [explicit_axis_errors.type_of(operand) for operand in operation.operands]
    assert [None if shaped_array is None else shaped_array.shape for shaped_array in types] == [
        (8, 8),
        (8, 8),
    ]
    names = explicit_axis_errors.einsum_names(frames)
    assert names is not None and set(names[0]) == set(names[1]) == set("ik")


def test_the_function_that_lowers_is_replaced_and_restored() -> None:
    seen: list[bool] = []

    def make(original):
        def lower(*arguments, **parameters):
            seen.append(moved_lowering.runs_now(sys._getframe(1)))
            return original(*arguments, **parameters)

        return lower

    with moved_lowering.replaced(make):
        assert float(jax.jit(lambda x: x + 1)(1.0)) == 2
        jax.jit(lambda x: x + 2).lower(1.0)
    jax.jit(lambda x: x + 3)(1.0)
    assert seen == [True, False]
    one, other = (jax.jit(f).trace(1.0).jaxpr for f in (lambda x: x, lambda y: y * 2))
    moved_lowering.use_debug_info(one, other)
    named = getattr(other, "jaxpr", other).debug_info
    assert getattr(one, "jaxpr", one).debug_info is named


@pytest.fixture
def sharded_product() -> ir.Module:
    """A product whose contracted dimension is sharded over 4 devices, with a constraint on its result."""
    mesh = Mesh(np.array(jax.devices()[:4]), ("x",))
    split, whole = NamedSharding(mesh, PartitionSpec("x")), NamedSharding(mesh, PartitionSpec())

    def product(left: jax.Array, right: jax.Array) -> jax.Array:
        return jax.lax.with_sharding_constraint(left.T @ right, whole) + 1

    argument = jax.ShapeDtypeStruct((8, 16), "float32")
    return jax.jit(product, in_shardings=(split, split)).lower(argument, argument).compiler_ir("stablehlo")


def names_of_operations(module: ir.Module) -> Counter[str]:
    names: Counter[str] = Counter()

    def visit(operation: ir.Operation) -> ir.WalkResult:
        names[operation.name] += 1
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return names


@pytest.mark.parametrize("origins", [False, True])
def test_the_pipeline_of_shardy_has_the_passes_at_which_it_is_cut(
    origins: bool, sharded_product: ir.Module
) -> None:
    propagation, export = shardy_pipeline.pipelines(origins)
    with sharded_product.context, ir.Location.unknown():
        before = names_of_operations(sharded_product)
        assert before["sdy.sharding_constraint"] == 1
        passmanager.PassManager.parse(propagation).run(sharded_product.operation)
        # Constraints are not merged or replaced yet. Shardy has a name of its own for constants.
        between = names_of_operations(sharded_product)
        assert between - before <= Counter({"sdy.constant": 1}) and between.total() == before.total()
        text = str(sharded_product)
        assert "sdy.sharding_per_value" in text
        assert ("sdy.sharding_origins" in text or "sdy.sharding_origin" in text) == origins
        passmanager.PassManager.parse(export).run(sharded_product.operation)
        after = names_of_operations(sharded_product)
        assert after["sdy.sharding_constraint"] == 0 and after["stablehlo.dot_general"] == 1
        assert after["sdy.all_reduce"] == 0, "the pipeline goes on to explicit reshards"


def test_a_compile_writes_the_partitioned_module_and_ends(tmp_path: Path, sharded_product: ir.Module) -> None:
    devices = cpu_clients.cpu_client(4).devices()
    options = backend.get_compile_options(
        num_replicas=1,
        num_partitions=4,
        device_assignment=np.array([[device.id for device in devices]]),
        env_options_overrides=partitioner_dump.options(str(tmp_path)),
    )
    assert partitioner_dump.text_in(str(tmp_path)) is None
    with sharded_product.context, ir.Location.unknown():
        partitioner_dump.add_end(sharded_product, main_function(sharded_product.operation))
        sharded_product.operation.verify()
        with pytest.raises((jax.errors.JaxRuntimeError, NotImplementedError, ValueError)):
            partitioner_dump.compile_uncached(sharded_product, devices, options)
    # A compile that goes on to its end writes its result, too.
    assert not list(tmp_path.glob("*after_optimizations*"))
    text = partitioner_dump.text_in(str(tmp_path))
    assert text is not None and text.startswith("HloModule jit_product")
    assert text.count(" all-reduce(") == 1 and text.count(" dot(") == 1 and "f32[2,16]" in text
    root = next(line for line in reversed(text.splitlines()) if line.startswith("  ROOT"))
    assert "rng-bit-generator" not in text and "u32[]" not in root + text.splitlines()[0]


def test_the_body_of_a_kernel_is_parsed() -> None:
    text = b"module { %0 = builtin.unrealized_conversion_cast to vector<8x128xf32> }"
    module = mosaic.parse(text)
    (operation,) = module.body.operations
    assert list(ir.VectorType(operation.results[0].type).shape) == [8, 128]
    with pytest.raises(ir.MLIRError):
        mosaic.parse(b"module {")


@pytest.mark.parametrize("sizes", [(1, 1), (2, 2)])
@pytest.mark.parametrize("mapped", [0, 1])
def test_a_constraint_inside_of_vmap_has_the_mapped_dimension_too(
    sizes: tuple[int, int], mapped: int
) -> None:
    mesh = AbstractMesh(sizes, ("rows", "columns"), axis_types=(AxisType.Auto,) * 2)

    def constrained(x: jax.Array) -> jax.Array:
        sharding = NamedSharding(mesh, PartitionSpec("rows", "columns"))
        return jax.lax.with_sharding_constraint(x, sharding)

    with moved_lowering.with_whole_specs():
        traced = jax.jit(jax.vmap(constrained, mapped, mapped)).trace(
            jax.ShapeDtypeStruct((4, 4, 4), "float32")
        )
    text = traced.lower(lowering_platforms=("cpu",)).as_text()
    (written,) = re.findall(r"sharding_constraint \S+ <@\w+, (\[.*?\])>", text)
    expected = ['{"rows"}', '{"columns"}']
    expected.insert(mapped, "{?}")
    assert written == f"[{', '.join(expected)}]"


def test_the_names_of_activations_and_their_policies_are_read_from_a_trace() -> None:
    def block(x: jax.Array) -> jax.Array:
        kept = checkpoint_name(jnp.sin(x), "kept")
        return jnp.sin(checkpoint_name(jnp.cos(kept), "again")) * kept

    policy = jax.checkpoint_policies.save_only_these_names("kept")
    traced = jax.jit(jax.grad(lambda x: jax.checkpoint(block, policy=policy)(x).sum())).trace(
        jnp.ones((4, 2))
    )
    names = checkpoint_names.checkpoint_names(traced.jaxpr)
    assert {(name.name, name.policy, name.primitive, name.elements) for name in names} == {
        ("kept", "saved", "sin", 8),
        ("again", "recomputed", "cos", 8),
    }
    first = block.__code__.co_firstlineno
    assert {name.source for name in names} == {f"test_names.py:{line}" for line in (first + 1, first + 2)}
