"""Make a Snapshot of a StableHLO module that a user's JAX lowered: `jax.jit(f).lower(…).as_text()`.

Its arguments and results have Shardy's shardings. Propagation gives the others and their origins, XLA's
partitioner the collectives. Nothing is compiled.

Modules of JAX before Shardy and of other front ends have `mhlo.sharding` at arguments, results and custom
calls, or Shardy's shardings as text in `mhlo.frontend_attributes`. Both become `sdy.sharding` on one mesh.
"""

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy, stablehlo
from jax.interpreters import mlir as jax_mlir

from inspector.compiled import program_text
from inspector.files import input_file
from inspector.hlo import shapes, shardings
from inspector.hlo.entry import EntryValue
from inspector.hlo.shardings import HloSharding, NamedMesh
from inspector.layout.plan import NOT_PARTITIONED, now
from inspector.partition.one_mesh import OTHER_MESHES, axes_of_parts, meshes_of, on_first_mesh
from inspector.partition.shardings import SHARDING, axes_of_dimensions, rank_of
from inspector.partition.shardy import reason, refusals
from inspector.partition.xla_form import parsed_attribute, restore_shardings
from inspector.readers import content, hlo_mesh, limits
from inspector.readers.content import MLIR_BYTECODE
from inspector.readers.hlo_mesh import HloArrays
from inspector.recording.lowered_module import PartitionedModule, hlo_text, partitioned_module
from inspector.records.snapshot import Finding, Mesh, Program, Snapshot, Source
from inspector.sharding.sharding_text import mesh_text
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import and_text, counted
from inspector.tracing.mlir.walk import (
    function_type,
    named_attributes,
    operations,
    set_signature_attributes,
    signature_attributes,
    symbols,
    text_of,
)

_FRONTEND, _MESHES = "mhlo.frontend_attributes", "xla.sdy.meshes"
_OLD = "mhlo.sharding"
_CONSTRAINT = "Sharding"
_KEYS = ("arg_attrs", "res_attrs")
_MESH = "mesh"


def with_sdy(module: ir.Module, given: NamedMesh | None = None) -> ir.Module | None:
    """Return a copy with `sdy` shardings; None if the module has none of another form.

    Args:
      given: the mesh that the user names, for shardings without names of axes.

    Raises:
      InvalidInput: the given mesh has another number of devices, no mesh expresses the shardings, or one of
        them is not valid.
    """
    try:
        return _with_sdy(module, given)
    except InvalidInput:
        raise
    # Attributes of other kinds, text that MLIR cannot parse, and shardings of more dimensions than the value.
    except (ir.MLIRError, ValueError, TypeError, IndexError, RuntimeError) as error:
        raise InvalidInput(f"the shardings of the program cannot be read: {reason(str(error))}") from None


def _with_sdy(module: ir.Module, given: NamedMesh | None) -> ir.Module | None:
    copy = ir.Module.parse(text_of(module))
    meshes = _meshes_in_text(copy)
    if meshes:
        with copy.context, ir.Location.unknown():
            restore_shardings(copy, meshes)
        return copy
    written = dict.fromkeys(_old_shardings(copy))
    devices = _devices(copy)
    if not written or devices < 2:
        return None
    parsed = {text: shardings.parse(text) for text in written}
    for sharding in parsed.values():
        if sharding.devices not in (None, devices):
            raise InvalidInput(
                f"a sharding of the program is on {counted(sharding.devices or 0, 'device')}, but the "
                f"program runs on {devices:,}"
            )
    mesh = given or shardings.derived_mesh([*parsed.values()], devices)
    if mesh is None:
        raise InvalidInput("no mesh expresses the shardings of the program; give it with --mesh")
    if mesh.size != devices:
        raise InvalidInput(f"--mesh has {counted(mesh.size, 'device')}, but the program runs on {devices:,}")
    known = {text: _attribute(sharding, mesh) for text, sharding in parsed.items()}
    with copy.context, ir.Location.unknown():
        with ir.InsertionPoint.at_block_begin(copy.body):
            axes = [sdy.MeshAxisAttr.get(name, size) for name, size in mesh.axes]
            sdy.MeshOp(_MESH, sdy.MeshAttr.get(axes))
        _rewrite(copy, known)
    return copy


def _meshes_in_text(module: ir.Module) -> dict[str, str]:
    """Return the text of each mesh in the attributes of a module, by its name."""
    attributes = module.operation.attributes
    if _FRONTEND not in attributes:
        return {}
    named = ir.DictAttr(attributes[_FRONTEND])
    if _MESHES not in named:
        return {}
    with module.context:
        meshes = named_attributes(parsed_attribute(named[_MESHES]))
        return {name: str(mesh) for name, mesh in meshes.items()}


def _devices(module: ir.Module) -> int:
    attributes = module.operation.attributes
    counts = [
        ir.IntegerAttr(attributes[key]).value
        for key in ("mhlo.num_partitions", "mhlo.num_replicas")
        if key in attributes
    ]
    return counts[0] if counts else 1


def _old_shardings(module: ir.Module) -> Iterator[str]:
    for operation in operations(module.operation):
        if operation.name == "func.func":
            for key in _KEYS:
                for named in signature_attributes(operation, key):
                    if _OLD in named:
                        yield ir.StringAttr(named[_OLD]).value
        elif _OLD in operation.attributes:
            yield ir.StringAttr(operation.attributes[_OLD]).value


def _attribute(sharding: HloSharding, mesh: NamedMesh) -> str | None:
    """Return a sharding as Shardy writes it; None if it says nothing about tiles."""
    if sharding.device is not None or sharding.problem is not None or sharding.manual:
        return None
    dimensions = [f"{{{', '.join(axes_of_parts(parts, mesh))}}}" for parts in sharding.dimensions]
    return f"#sdy.sharding<@{_MESH}, [{', '.join(dimensions)}]>"


def _rewrite(module: ir.Module, known: dict[str, str | None]) -> None:
    def of(written: ir.Attribute | None, rank: int) -> sdy.TensorShardingAttr | None:
        text = None if written is None else known[ir.StringAttr(written).value]
        if text is None:
            return None
        attribute = sdy.TensorShardingAttr(ir.Attribute.parse(text))
        missing = rank - len(attribute.dimension_shardings)
        if missing <= 0:
            return attribute
        more = [sdy.DimensionShardingAttr.get([], is_closed=True)] * missing
        return sdy.TensorShardingAttr.get(_MESH, [*attribute.dimension_shardings, *more])

    for operation in operations(module.operation):
        if operation.name == "func.func":
            kind = function_type(operation)
            for key, types in zip(_KEYS, (kind.inputs, kind.results), strict=True):
                if key in operation.attributes:
                    listed = signature_attributes(operation, key)
                    for named, tensor in zip(listed, types, strict=True):
                        sharding = of(named.pop(_OLD, None), rank_of(tensor) or 0)
                        if sharding is not None:
                            named[SHARDING] = sharding
                    set_signature_attributes(operation, key, listed)
        elif _OLD in operation.attributes:
            written = operation.attributes[_OLD]
            del operation.attributes[_OLD]
            if operation.name != "stablehlo.custom_call" or len(operation.results) != 1:
                continue
            sharding = of(written, rank_of(operation.results[0].type) or 0)
            target = ir.StringAttr(operation.attributes["call_target_name"]).value
            if sharding is not None and target == _CONSTRAINT:
                with ir.InsertionPoint(operation), operation.location:
                    value = sdy.ShardingConstraintOp(operation.operands[0], sharding).result
                operation.results[0].replace_all_uses_with(value)
                operation.erase()


MESH_UNKNOWN = "mesh-unknown"
NOT_GIVEN = "sharding-not-given"
ONE_DEVICE = "program-of-one-device"
_OF_ONE_DEVICE = (
    "The program is that of one device: its arrays have the shapes of one device, and the code asks for its "
    "collectives."
)
ABSTRACT_MESH = "abstract-mesh"
_MEMORY_SPACES = {kind: space for space, kind in hlo_mesh.MEMORY_KINDS.items()}


@dataclass(frozen=True)
class _Named:
    """The attributes of one argument or result of the main function."""

    kind: ir.Type
    attributes: dict[str, Any]
    location: ir.Location | None = None


def read(path: Path, what: str, given: NamedMesh | None = None) -> Snapshot:
    """Return the Snapshot of a module.

    given: its mesh, if its shardings name none.

    Raises:
      InvalidInput: the file is not a StableHLO module with a main function.
    """
    text = _content(path, what)
    with (
        refusals(f"{what} cannot be read by MLIR"),
        jax_mlir.make_ir_context() as context,
        ir.Location.unknown(),
    ):
        context.allow_unregistered_dialects = True
        module = _parsed(text, what, context)
        attributes = module.operation.attributes
        name = ir.StringAttr(attributes["sym_name"]).value if "sym_name" in attributes else "module"
        findings: list[Finding] = []
        module = _with_given_mesh(module, name, what, given, findings)
        meshes = meshes_of(_operation(module))
        main = _main(module, what)
        main_mesh = _mesh(meshes)
        partitioned = PartitionedModule(module, Program(name, stage="partitioned"), ())
        if main_mesh is None and not findings:
            program = _on_one_device(module, name, what, given, findings)
            partitioned = replace(partitioned, program=program)
        elif main_mesh is not None:
            try:
                single = on_first_mesh(module, meshes)
                partitioned = _partitioned(single, name, main_mesh.record, main)
            except InvalidInput as error:
                findings.append(Finding("note", NOT_PARTITIONED, f"{name}: {error}"))
            findings += _about_meshes(meshes, main_mesh.record)
        arrays = HloArrays(main_mesh)
        after = _main(partitioned.module, what)
        findings += _dropped(main, after, name)
        inputs, outputs = (_values(main, after, meshes, key) for key in ("arg_attrs", "res_attrs"))
        devices = 1 if main_mesh is None else main_mesh.mesh.size
        shardings = arrays.add_values(name, inputs, outputs, devices, _donated(main))
    record = None if main_mesh is None else main_mesh.record
    if main_mesh is None and given is not None and partitioned.program.collectives:
        record = _record_of(given)
    return Snapshot(
        source=Source("stablehlo", None, now(), file=what),
        layout=None,
        mesh=record,
        arrays=(*arrays.arrays, *partitioned.arrays),
        programs=(replace(partitioned.program, shardings=shardings),),
        findings=(*findings, *arrays.findings()),
    )


def _with_given_mesh(
    module: ir.Module, name: str, what: str, given: NamedMesh | None, findings: list[Finding]
) -> ir.Module:
    """Return a module whose shardings name a mesh: the given one, if they name none.

    Raises:
      InvalidInput: they name another mesh, or do not fit the given one.
    """
    named = next((mesh for mesh in meshes_of(_operation(module)).values() if mesh.axes), None)
    if named is not None:
        if given is not None and named.axes != given.axes:
            one, other = (mesh_text(_record_of(mesh)) for mesh in (given, named))
            raise InvalidInput(f"--mesh is {one}, but {what} names the mesh {other}")
        return module
    try:
        return with_sdy(module, given) or module
    except InvalidInput as error:
        if given is not None:
            raise
        findings.append(Finding("note", NOT_PARTITIONED, f"{name}: {error}"))
        return module


def _on_one_device(
    module: ir.Module, name: str, what: str, given: NamedMesh | None, findings: list[Finding]
) -> Program:
    """Return a program without a mesh, with its collectives if it is that of each device.

    Raises:
      InvalidInput: a mesh is given, and the program has no collectives or other groups.
    """
    program = _of_one_device(module, name, given)
    if program is not None:
        findings.append(Finding("note", ONE_DEVICE, _OF_ONE_DEVICE))
        return program
    if given is not None:
        raise InvalidInput(
            f"--mesh is {mesh_text(_record_of(given))}, but {what} has no "
            "shardings and no collectives, so it runs on one device"
        )
    note = "The program names no mesh, so nothing in it is sharded."
    findings.append(Finding("note", MESH_UNKNOWN, note))
    return Program(name, stage="partitioned")


def _record_of(mesh: NamedMesh) -> Mesh:
    """Return a mesh of the user as a record.

    Raises:
      InvalidInput: it has too many devices.
    """
    found_mesh = hlo_mesh.found_mesh(mesh, "given")
    if found_mesh is None:
        raise InvalidInput("--mesh has more devices than can be listed")
    return found_mesh.record


def _of_one_device(module: ir.Module, name: str, given: NamedMesh | None) -> Program | None:
    """Return the program of each device if it has collectives, as PyTorch/XLA lowers it; None otherwise.

    Args:
      given: the mesh of its groups; without it, they have no mesh axes.

    Raises:
      InvalidInput: the groups are not those of the given mesh.
    """
    text = hlo_text(module)
    if text is None:
        return None
    mesh = None if given is None else _record_of(given)
    facts = program_text.read(text, None)
    if not facts.collectives:
        return None
    members = [
        collective.groups * collective.group_size
        for collective in facts.collectives
        if collective.groups is not None and collective.group_size is not None
    ]
    if mesh is not None:
        other = next((count for count in members if count != mesh.size), None)
        if other is not None:
            raise InvalidInput(
                f"--mesh is {mesh_text(mesh)}, but the groups of a collective have {counted(other, 'device')}"
            )
        facts = program_text.read(text, mesh)
    devices = members[0] if len(set(members)) == 1 else None
    return facts.added_to(Program(name, stage="partitioned", devices=devices))


def _content(path: Path, what: str) -> str | bytes:
    if input_file.head(path, len(MLIR_BYTECODE), what) == MLIR_BYTECODE:
        return content.read_bytes(path, limits.MOST_TEXT_BYTES, what)
    return content.read_text(path, what).text


def _parsed(text: str | bytes, what: str, context: ir.Context) -> ir.Module:
    """Return the module in text, in bytecode, or in the portable bytecode of `jax.export`."""
    try:
        if isinstance(text, bytes):
            with contextlib.suppress(ir.MLIRError, ValueError, RuntimeError):
                return stablehlo.deserialize_portable_artifact(context, text)
        return ir.Module.parse(text)
    except (ir.MLIRError, ValueError, RuntimeError) as error:
        raise InvalidInput(
            f"{what} is not a StableHLO module that JAX can read: {reason(str(error))}"
        ) from None


def _main(module: ir.Module | ir.Operation, what: str) -> ir.Operation:
    """Return the function that the program runs."""
    main = symbols(_operation(module), "func.func").get("main")
    if main is None:
        raise InvalidInput(f"{what} has no function main, but must be a module that JAX lowered")
    return main


def _operation(module: ir.Module | ir.Operation) -> ir.Operation:
    """Return the operation of a module, which passes return instead of the module."""
    return module.operation if isinstance(module, ir.Module) else module


def _mesh(meshes: dict[str, NamedMesh]) -> hlo_mesh.FoundMesh | None:
    """Return the mesh that arguments and results are on, the first one of JAX."""
    first = next((mesh for mesh in meshes.values() if mesh.axes), None)
    return None if first is None else hlo_mesh.found_mesh(first, "named")


def _about_meshes(meshes: dict[str, NamedMesh], main: Mesh) -> Iterator[Finding]:
    named = [name for name, mesh in meshes.items() if mesh.axes]
    if len(named) > 1:
        others = ", ".join(shown(name, 40) for name in named[1:4])
        note = (
            f"The program has {len(named)} meshes. Mesh axes are those of {mesh_text(main)}, also of "
            f"values on {others}."
        )
        yield Finding("note", OTHER_MESHES, note)
    note = "The text has no device ids, so devices are numbered in the order of the program."
    yield Finding("note", ABSTRACT_MESH, note)


def _partitioned(module: ir.Module, name: str, mesh: Mesh, main: ir.Operation) -> PartitionedModule:
    """Return the partitioned program with the paths of its arguments and results.

    Raises:
      InvalidInput: Shardy or XLA refuses the program.
    """
    inputs, outputs = (
        [
            f"{name}/{hlo_mesh.path_of_value(role, number, value)}"
            for number, value in enumerate(_values(main, main, {}, key))
        ]
        for role, key in (("input", "arg_attrs"), ("output", "res_attrs"))
    )
    with refusals("the program cannot be partitioned"):
        partitioned = partitioned_module(module, name, mesh, inputs, outputs)
    listed = tuple(replace(array, path=f"{name}/{array.path}") for array in partitioned.arrays)
    return replace(partitioned, arrays=listed)


def _values(
    main: ir.Operation, propagated: ir.Operation, meshes: dict[str, NamedMesh], key: str
) -> list[EntryValue]:
    """Return the arguments (`arg_attrs`) or results of `main`, with the shardings after propagation."""
    signature, values = _signature(main, key), []
    after = [*signature_attributes(propagated, key), *[{}] * len(signature)]
    for value, attributes in zip(signature, after, strict=False):
        sharding = problem = None
        written = attributes.get(SHARDING, value.attributes.get(SHARDING))
        try:
            if written is not None and meshes:
                sharding = shardings.parse_sdy(str(written), meshes)
            elif "mhlo.sharding" in value.attributes:
                sharding = shardings.parse(ir.StringAttr(value.attributes["mhlo.sharding"]).value)
            if sharding is not None and len(sharding.dimensions) > (rank_of(value.kind) or 0):
                sharding, problem = None, "a sharding with more dimensions than the array"
        except (InvalidInput, ValueError) as refused:  # ValueError: an attribute that is no text
            problem = str(refused)
        if sharding is None and problem is None and meshes:
            # After propagation, a value without one is replicated.
            sharding = shardings.HloSharding()
        space = _MEMORY_SPACES.get(_text(value.attributes.get("mhlo.memory_kind")) or "", 0)
        values.append(EntryValue(_shape(value.kind), _name(value), space, sharding, problem))
    return values


def _dropped(main: ir.Operation, propagated: ir.Operation, name: str) -> Iterator[Finding]:
    """Yield a note for each argument that XLA does not shard over all mesh axes that the program asks for.

    XLA gives an argument only shards of equal size.
    """
    both = (signature_attributes(function, "arg_attrs") for function in (main, propagated))
    for number, (asked, got) in enumerate(zip(*both, strict=False)):
        if SHARDING not in asked or SHARDING not in got:
            continue
        before, after = (
            axes_of_dimensions(sdy.TensorShardingAttr(named[SHARDING])) for named in (asked, got)
        )
        for dimension, (wanted, given) in enumerate(zip(before, after, strict=True)):
            lost = [axis for axis, _ in wanted if axis not in {other for other, _ in given}]
            if lost:
                yield Finding(
                    "note",
                    NOT_GIVEN,
                    f"{name}/input/{number} asks for {and_text(lost)} on dimension {dimension}, and XLA does "
                    "not shard it so: all shards of an argument must have one size.",
                )


def _signature(main: ir.Operation, key: str) -> list[_Named]:
    kind, arguments = function_type(main), main.regions[0].blocks[0].arguments
    types = kind.inputs if key == "arg_attrs" else kind.results
    attributes = signature_attributes(main, key, len(types))
    locations = [argument.location for argument in arguments] if key == "arg_attrs" else ()
    return [_Named(*value) for value in itertools.zip_longest(types, attributes, locations)]


def _shape(kind: ir.Type) -> shapes.Shape | None:
    """Return an MLIR tensor type as a shape of HLO."""
    try:
        tensor = ir.RankedTensorType(kind)
    except ValueError:  # such as a token
        return None
    dimensions = tuple(
        None if tensor.is_dynamic_dim(number) else tensor.get_dim_size(number)
        for number in range(tensor.rank)
    )
    dtype = shapes.of_mlir(str(tensor.element_type))
    return shapes.Shape(dtype, dimensions, shapes.element_bits(dtype))


def _name(value: _Named) -> str:
    """Return JAX's name of an argument or a result; "" if the text has none."""
    info = _text(value.attributes.get("jax.result_info"))
    if info is not None:
        return info
    location = value.location
    return location.name_str if isinstance(location, ir.NameLoc) else ""


def _text(attribute: ir.Attribute | None) -> str | None:
    """Return the text of an attribute. Return None if it is missing, or no text."""
    try:
        return None if attribute is None else str(ir.StringAttr(attribute).value)
    except (ValueError, RuntimeError):  # an attribute of another kind, or bytes that are not UTF-8
        return None


def _donated(main: ir.Operation) -> frozenset[int]:
    keys = ("tf.aliasing_output", "jax.buffer_donor")
    return frozenset(
        number
        for number, named in enumerate(signature_attributes(main, "arg_attrs"))
        if any(key in named for key in keys)
    )
