"""Mesh axes and devices that do nothing: they shard nothing, hold nothing, or wait for a pipeline."""

from collections.abc import Iterator, Sequence, Set

from inspector.audit.context import AuditContext, FindingFields, finding, finest_split
from inspector.audit.lost_gradients import gradients_among_arrays
from inspector.prediction import pipelines
from inspector.records.snapshot import Array, Finding, MeshAxis, Pipeline, Snapshot
from inspector.sharding.array_groups import ARRAY_GROUPS
from inspector.sharding.folding import fold
from inspector.sharding.totals import STATE_GROUPS, state_title
from inspector.text.formatting import and_text, counted, devices_text, share_text
from inspector.text.program_names import subject

BUBBLE = "pipeline-bubble"
# A tenth of all iterations: 9 microbatches for each stage but one.
_LEAST_SHARE = 0.1


def bubble_findings(context: AuditContext) -> Iterator[Finding]:
    """Yield a note per program with a pipeline whose bubble is a tenth of its work or more."""
    for program in context.programs:
        largest = max(program.pipelines or (), key=lambda pipeline: pipeline.bubble or 0.0, default=None)
        if largest is None or (largest.bubble or 0.0) < _LEAST_SHARE or largest.iterations is None:
            continue
        useful = max(largest.iterations - largest.idle, 1)
        message = f"{subject(program.name)} runs {pipelines.what(largest)}. {pipelines.bubble(largest)}"
        yield finding(
            "note", BUBBLE, message, remedy=_remedy(largest), ratio=largest.iterations / useful,
            collective=largest.collective, source=largest.source, axes=largest.axes or (),
        )  # fmt: skip


def _remedy(pipeline: Pipeline) -> str:
    more, useful = "Use more microbatches", 4 * (pipeline.microbatches or 0) * pipeline.repeats
    if useful:
        share = share_text(pipeline.idle / (useful + pipeline.idle), 0)
        more += f": with {4 * (pipeline.microbatches or 0)} of them, it is {share}"
    return f"{more}." + (" Or give each device several stages in turn." if pipeline.repeats == 1 else "")


IDLE_DEVICES = "idle-devices"


def idle_findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding if arrays and programs leave devices out: a warning if they use only one."""
    used = _used_devices(snapshot)
    devices = snapshot.source.devices
    if used is None or devices is None or len(used) >= devices:
        return
    idle = devices - len(used)
    one = len(used) == 1
    message = (
        f"{idle} of the {devices} devices {'holds' if idle == 1 else 'hold'} and "
        f"{'computes' if idle == 1 else 'compute'} nothing: all recorded arrays and programs are on "
        f"device{'' if one else 's'} {devices_text(sorted(used))}."
    )
    remedy = (
        f"Place the arrays on a mesh of all {devices} devices with `NamedSharding`; jitted functions then "
        "run on all of them."
    )
    yield finding(
        "warning" if one else "note", IDLE_DEVICES, message, remedy=remedy, ratio=devices / len(used)
    )


def knows_devices(snapshot: Snapshot) -> bool:
    """Return whether the devices of the process, of its arrays and of its programs are known."""
    return (snapshot.source.devices or 0) > 1 and _used_devices(snapshot) is not None


def _used_devices(snapshot: Snapshot) -> set[int] | None:
    """Return the ids of the devices in use; None if a program or an array runs or is on unknown ones."""
    used = {device for mesh in snapshot.meshes for device in mesh.devices}
    for array in snapshot.arrays:
        if array.shards is None and array.spec is None:
            return None
        used |= {shard.device for shard in array.shards or ()}
    # A program on one device is on that of its arguments.
    most = max((program.devices or 0 for program in snapshot.programs), default=0)
    known = all(program.devices for program in snapshot.programs)
    return used if used and known and most <= len(used) else None


UNUSED = "unused-mesh-axis"
REPEATED = "state-repeated-over-axis"
BATCH = "batch-not-sharded"

# Data parallelism is a choice, so a note about it needs this share of the train state.
_LEAST_REPEATED_SHARE = 0.10
_PLACED = (*STATE_GROUPS, "batch", "output", "activation")


def findings(context: AuditContext) -> Iterator[Finding]:
    """Yield one finding per mesh axis that repeats the train state."""
    gradients = {array.path for array in gradients_among_arrays(context)}
    for axis in context.mesh.axes:
        if axis.size > 1 and (fault := _of_axis(context, axis, gradients)) is not None:
            yield fault


def batch_findings(context: AuditContext) -> Iterator[Finding]:
    """Yield one finding for all arrays of the batch that every device holds whole.

    It is a note if every mesh axis shards an array of the train state.
    """
    whole = [a for a in context.of_group("batch") if a.shape and context.is_replicated(a)]
    if not whole:
        return
    used = {axis for array in context.state for axis in _used(array)}
    idle = [axis.name for axis in context.mesh.axes if axis.size > 1 and axis.name not in used]
    saved, folds = sum(map(context.saved, whole)), fold(whole)
    if context.snapshot.layout is None and saved < context.least:
        return  # a small input of a user's program, such as a mask
    message = (
        f"Each of the {context.mesh.size} devices holds the whole batch ({context.held_text(whole)}) and "
        "computes all rows."
    )
    if context.snapshot.layout is None:
        # Whether their first dimension is that of examples is unknown.
        message = (
            f"Each of the {context.mesh.size} devices holds the whole of {counted(len(whole), 'input')} "
            f"({context.held_text(whole)})."
        )
    programs = context.snapshot.programs
    if not idle and programs and all(program.collectives == () for program in programs):
        return  # each device has its own parameters, as members of an ensemble, for the same inputs
    if not idle:
        yield finding("note", BATCH, message, folds=folds, saved=saved)
        return
    axes = and_text(idle, "or")
    message += (
        f" Mesh axis {axes} is free: sharding the batch over it would save {context.amount(saved)} of input "
        "per device, and the same share of activations and work."
        if context.snapshot.layout is not None
        else f" Mesh axis {axes} is free: sharding them over it saves {context.amount(saved)} per device."
    )
    # The first dimensions are the rows.
    rows = (array.logical_axes[0] for array in whole if array.logical_axes)
    names = list(dict.fromkeys(name for name in rows if name))
    remedy = f"Add the rule `{names[0]} → {idle[0]}`." if names else None
    facts: FindingFields = {"axes": tuple(idle), "logical_axes": tuple(names)}
    yield finding("warning", BATCH, message, folds=folds, saved=saved, remedy=remedy, **facts)


def _of_axis(context: AuditContext, axis: MeshAxis, gradients: Set[str]) -> Finding | None:
    placed = [array for array in context.snapshot.arrays if array.group in _PLACED]
    if not placed or (context.state and all(array.spec is None for array in context.state)):
        return None
    # An array without a PartitionSpec on several devices may use the axis.
    unclear = [array for array in placed if array.group in STATE_GROUPS and _may_use_axes(array)]
    using = any(axis.name in _used(array) for array in placed) or _in_programs(context, axis.name)
    known = using or _knows_batch(context)
    repeated = [  # gradients have separate findings
        array
        for array in context.state
        if array.spec is not None and axis.name not in _used(array) and array.path not in gradients
    ]
    # Data is no train state: FSDP shards the parameters and their optimizer state.
    repeated = [array for array in repeated if array.path in context.state_paths] or repeated
    if using and all(map(context.is_replicated, repeated)):
        return None  # arrays that are replicated on all devices have separate findings
    savings = {array.path: _saved(context, array, axis.name) for array in repeated}
    saved = sum(savings.values())
    if not using and known and not unclear:
        return _unused(context, axis, saved, len(repeated))
    if saved < max(context.least, _LEAST_REPEATED_SHARE * context.state_bytes):
        return None
    unknown = (
        ""
        if known
        else (
            f" Whether {axis.name} shards the batch is unknown: the Snapshot has no batch and no inputs of "
            "programs."
        )
    )
    if unclear:
        unknown += (
            f" {counted(len(unclear), 'array')} without a PartitionSpec on this mesh could not be checked."
        )
    divisible = [array for array in repeated if savings[array.path]]  # the others, such as scalars, stay
    return _repeated(context, axis, saved, divisible, unknown)


def _unused(context: AuditContext, axis: MeshAxis, saved: int, count: int) -> Finding:
    """Return the finding about an axis that shards nothing. Sharding `count` arrays over it saves bytes."""
    message = f"Mesh axis {axis.name} shards nothing, so {axis.size} devices hold and compute the same."
    if saved:
        message += f" Sharding the arrays over it saves up to {context.amount(saved)} per device."
    return finding(
        "warning",
        UNUSED,
        message,
        saved=saved or None,
        remedy=f"Use {axis.name} in a {context.decided_by}, or remove it from the mesh.",
        axes=(axis.name,),
        count=count,
    )


def _repeated(
    context: AuditContext, axis: MeshAxis, saved: int, arrays: Sequence[Array], unknown: str
) -> Finding:
    """Return the finding about arrays that the devices of an axis repeat. `unknown` ends its message."""
    groups, name = {array.group for array in arrays}, axis.name
    count = counted(len(arrays), "array")
    message = f"Mesh axis {name}: {axis.size} devices hold the same {context.held_text(arrays)} of "
    if groups <= {"params", "opt_state"} or state_title(context.snapshot) == "Train state":
        gathered = ", but parameters must then be gathered" if "params" in groups else ""
        held = and_text([name for group, name in ARRAY_GROUPS.items() if group in groups])
        held = held if context.snapshot.layout is None else "train state"
        as_well = "as well, as FSDP does," if context.trains else "as well"
        message += (
            f"{held} in {count}. Sharding over {name} {as_well} saves up to "
            f"{context.amount(saved)} per device{gathered}."
        )
    else:
        message += (
            f"{count}. Sharding {'it' if len(arrays) == 1 else 'them'} over {name} as well saves up to "
            f"{context.amount(saved)} per device."
        )
    what = "the parameters" if "params" in groups else "these arrays"
    remedy = f"Shard a large dimension of {what} over {name} with a {context.decided_by}"
    if moments := sum(_saved(context, array, name) for array in arrays if array.group == "opt_state"):
        message += (
            f" Sharding only the optimizer state over it, as ZeRO-1 does, saves {context.amount(moments)}."
        )
        if context.snapshot.layout is not None:
            remedy += f", or only the optimizer state with optimizer_axes {name}"
    return finding(
        "note", REPEATED, message + unknown, saved=saved, remedy=f"{remedy}.", axes=(name,), count=len(arrays)
    )


def _in_programs(context: AuditContext, axis: str) -> bool:
    """Return whether a program shards an input or output over the axis, or communicates over it."""
    for program in context.programs:
        specs = [sharding.compiled or sharding.requested for sharding in program.shardings if sharding.used]
        if any(axis in (axes or ()) for spec in specs for axes in spec or ()):
            return True
        if any(axis in (collective.mesh_axes or ()) for collective in program.collectives or ()):
            return True
    return False


def _knows_batch(context: AuditContext) -> bool:
    """Return whether the Snapshot has a batch, or the shardings of the inputs of programs."""
    inputs = [
        sharding
        for program in context.snapshot.programs
        for sharding in program.shardings
        if sharding.role == "input" and sharding.used
    ]
    if any(array.group == "batch" for array in context.snapshot.arrays):
        return True
    return bool(inputs) and all(
        (sharding.compiled, sharding.requested) != (None, None) for sharding in inputs
    )


def _may_use_axes(array: Array) -> bool:
    """Return whether an array without a PartitionSpec can be sharded over an axis of the mesh."""
    if array.spec is not None or not array.shape:
        return False
    # A random key, for example, is on one device; whole shards are copies.
    whole = tuple((0, size) for size in array.shape)
    return array.shards is None or any(shard.index != whole for shard in array.shards)


def _used(array: Array) -> set[str]:
    return {axis for axes in array.spec or () for axis in axes or ()}


def _saved(context: AuditContext, array: Array, axis: str) -> int:
    if array.spec is None or array.shape is None or array.bytes_per_device is None:
        return 0
    ways, _ = finest_split(array.shape, array.spec, context.mesh, (axis,))
    return array.bytes_per_device - array.bytes_per_device // ways
