"""Records of the programs of a Snapshot. None means unknown unless an attribute says otherwise."""

from dataclasses import dataclass, field
from typing import Literal

from inspector.records.snapshot.arrays import Mesh, Origin, Spec
from inspector.records.snapshot.memory_use import CheckpointName, MemoryUse, Residuals
from inspector.records.snapshot.schedule import Schedule
from inspector.records.typed_json import (
    OMIT_DEFAULT,
    OMIT_NONE,
    Amount,
    FiniteFloat,
    NonNegativeInt,
    PositiveInt,
    Record,
)
from inspector.text.formatting import axis_of

Stage = Literal["propagated", "partitioned", "compiled", "run", "measured"]
Requester = Literal["code", "autodiff", "partitioner"]
# The kind of machine for which a program was partitioned or compiled.
Platform = Literal["cpu", "gpu", "tpu"]
# weight: an operand of matrix products, or a table. moment: the new weight is computed from it elementwise.
# cache: the program writes other data into it at an index, has it in a matrix product, and no backward pass.
# data: in an argument of the function with none of these, nothing of which the program updates, while another
# argument has weights or caches. gradient: a result that the backward pass computes.
ArgumentUse = Literal["weight", "moment", "cache", "data", "gradient"]
# condition: in the condition of a loop. loop-end: the same, and the body of the loop has no collective.
# callback: the result is an argument of a function on the host. accumulation: each iteration of a loop adds
# the result to a sum, and reads the sum for nothing else.
CollectiveUse = Literal["condition", "loop-end", "callback", "accumulation", "other"]


@dataclass(frozen=True)
class Memory(Record):
    """Bytes on one device while a program runs, from the compiler's memory analysis, or from its text.

    Attributes:
      arguments: Bytes of the arguments.
      outputs: Bytes of the results.
      aliased: Bytes of results that reuse the memory of arguments.
      temporaries: Bytes of temporary buffers.
      code: Bytes of the compiled code.
      peak: Largest number of bytes in use at once.
      capacity: Bytes of memory of the device.
      host: Bytes in memory of the host: arguments, outputs and temporaries. Not in the other figures.
      compiler: The message of a compiler that refused the program for want of memory. None if it did not.
    """

    arguments: NonNegativeInt | None = None
    outputs: NonNegativeInt | None = None
    aliased: NonNegativeInt | None = None
    temporaries: NonNegativeInt | None = None
    code: NonNegativeInt | None = None
    peak: NonNegativeInt | None = None
    capacity: NonNegativeInt | None = None
    host: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)
    compiler: str | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class CollectivePart(Record):
    """One array that a collective sends. A compiler combines several collectives into one.

    Attributes:
      payload_bytes: Its bytes of one execution on one device, as `payload_bytes` of the collective.
      inputs: Paths of the program's arguments that it is, or has a slice of.
      outputs: Paths of the program's results that are made of it, such as a parameter of its gradient.
      op_name: The operation of the model that makes or uses it. None if unknown, or if the collective is not
        combined, and has it.
      source: File and line of this operation, such as file.py:31. None if unknown.
      operation: As of a collective.
      library_source: As of a collective, if the code or autodiff asks for this part.
      requested_by: The same.
      call: The same.
    """

    payload_bytes: NonNegativeInt | None
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    op_name: str | None = field(default=None, metadata=OMIT_NONE)
    source: str | None = field(default=None, metadata=OMIT_NONE)
    operation: str | None = field(default=None, metadata=OMIT_NONE)
    library_source: str | None = field(default=None, metadata=OMIT_NONE)
    requested_by: Requester | None = field(default=None, metadata=OMIT_NONE)
    call: str | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class Collective(Record):
    """One collective instruction of a program.

    Attributes:
      op: The operation as HLO names it, such as all-reduce or collective-permute.
      asynchronous: Whether it is a pair of instructions, start and done, between which others can run. A pair
        counts once.
      name: Name of the instruction in the compiled text.
      computation: Name of the computation that contains the instruction.
      executions: Number of executions in one run. Each branch of a conditional counts as taken.
        None if the trip count of an enclosing loop is unknown.
      executions_per_iteration: Number of executions in one iteration of the enclosing loops whose trip count
        is unknown. None if `executions` is known, or if this is unknown too.
      conditional: Whether the instruction is in a branch of a conditional.
      within: The loops with an unknown trip count and the branches around it (`Program.open_choices`), the
        outermost first: `while.3`, `while.3+1` for its condition, `conditional.2:1` for its second branch.
      mesh_axes: The mesh axes that form the groups, or along which a collective-permute moves data. If an
        axis crosses TPU slices, the groups can be its parts inside of each slice or between slices. None if
        unknown, or if no mesh axes form the groups.
      group_size: Number of devices in one group. None if unknown or if groups differ.
      groups: Number of groups.
      payload_bytes: Bytes of one execution on one device: of the result for an all-gather, of the operand
        for other operations.
      wire_bytes_per_device: Bytes that one device sends in one execution, with payload p and g devices in
        a group. all-reduce: 2·p·(g−1)/g. all-gather, reduce-scatter and all-to-all: p·(g−1)/g. Others: p.
      op_name: The operation of the model, from the compiler's metadata.
      source: File and line of the operation, such as file.py:31.
      spmd_generated: Whether the partitioner inserted it. None if the compiler does not say.
      source_target_pairs: Sender and receiver of each transfer of a collective-permute, as positions in
        the mesh's devices. None for other operations.
      device_groups: The groups, each device as its index in the mesh's devices. None if whole mesh axes form
        the groups, or if unknown.
      written_groups: The groups as the compiled text writes them, cut off if they are long. None if they are
        listed, or if whole mesh axes form them.
      arrays: Paths of the arrays of this Snapshot that it moves. None if this was not analyzed.
      origins: The origin of the sharding over each mesh axis.
      network: `dcn` if it sends between TPU slices, over the data center network. None for other networks.
      library_source: The innermost line of a library that `source` calls, such as numpy.py:1623. None if it
        calls JAX itself, or if unknown.
      requested_by: Who asks for it. `code`: a function such as `jax.lax.psum`. `autodiff`: a gradient, as the
        transpose of an operation. `partitioner`: an operation whose operands or result are sharded. None if
        unknown.
      call: The function of `jax.lax` in the source line, such as pmean. "" if the line has none. None if the
        source file was not read.
      axis_parts: The parts of mesh axes that form the groups, if whole axes do not: `data:(1)2` for two
        neighbors along `data`, `data:(2)4` for the four parts of each half of it. None if they do, or if no
        parts of axes form them.
      parts: The arrays that it sends, in the order of its operands. None if the text does not say which
        arrays of this Snapshot they are.
      use: Where it runs, or what its result is for: the condition of a loop, with other collectives in the
        loop or without, a callback on the host, or a sum over the iterations of a loop. None if this was not
        looked for.
      depth: Number of collectives with its operation and mesh axes that have to end before it, one by one,
        in one run of its computation. Those of one depth can be combined. None if unknown.
      operation: The operation that the flow of data proves to need it: that makes the partial results which
        it combines, or that reads what it moves; `return` if only results of the program do. None if none
        is proved, or for a collective of the code.
    """

    op: str
    asynchronous: bool
    name: str
    computation: str
    executions: NonNegativeInt | None
    conditional: bool
    mesh_axes: tuple[str, ...] | None
    group_size: PositiveInt | None
    groups: NonNegativeInt | None
    payload_bytes: NonNegativeInt | None
    wire_bytes_per_device: NonNegativeInt | None
    op_name: str | None = None
    source: str | None = None
    spmd_generated: bool | None = None
    source_target_pairs: tuple[tuple[NonNegativeInt, NonNegativeInt], ...] | None = None
    device_groups: tuple[tuple[NonNegativeInt, ...], ...] | None = None
    arrays: tuple[str, ...] | None = None
    origins: tuple[Origin, ...] | None = field(default=None, metadata=OMIT_NONE)
    network: str | None = field(default=None, metadata=OMIT_NONE)
    executions_per_iteration: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)
    written_groups: str | None = field(default=None, metadata=OMIT_NONE)
    axis_parts: tuple[str, ...] | None = field(default=None, metadata=OMIT_NONE)
    within: tuple[str, ...] = field(default=(), metadata=OMIT_DEFAULT)
    use: CollectiveUse | None = field(default=None, metadata=OMIT_NONE)
    library_source: str | None = field(default=None, metadata=OMIT_NONE)
    requested_by: Requester | None = field(default=None, metadata=OMIT_NONE)
    call: str | None = field(default=None, metadata=OMIT_NONE)
    parts: tuple[CollectivePart, ...] | None = field(default=None, metadata=OMIT_NONE)
    depth: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)
    operation: str | None = field(default=None, metadata=OMIT_NONE)

    @property
    def axis_names(self) -> tuple[str, ...]:
        """The mesh axes along which it sends, also if only parts of them form the groups; () if unknown."""
        if self.mesh_axes is not None:
            return self.mesh_axes
        return tuple(dict.fromkeys(map(axis_of, self.axis_parts or ())))


@dataclass(frozen=True)
class ConflictSide(Record):
    """An operand or a result of an operation whose shardings do not fit together.

    Attributes:
      value: Which one it is, such as `operand 0` or `result 0`.
      shape: Global shape, elements in each dimension.
      dtype: Element type as MLIR names it, such as f32.
      spec: For each dimension its mesh axes, or None: of an operand before the operation, of a result after.
      used: The mesh axes in which the operation computes, or None. It is resharded if they differ.
      origins: Where each mesh axis of `spec` comes from. None if this was not recorded.
      constraint: The constraint that alone uses this result, and asks for it whole on each device. None if
        there is none.
    """

    value: str
    shape: tuple[NonNegativeInt, ...]
    dtype: str
    spec: Spec
    used: Spec
    origins: tuple[Origin, ...] | None = field(default=None, metadata=OMIT_NONE)
    constraint: str | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class Conflict(Record):
    """An operation whose operands and results ask for different shardings, so that one is resharded.

    Attributes:
      operation: The operation as StableHLO names it, such as dot_general.
      sides: Its operands and results.
      collectives: Names of the collectives of this program that reshard them. Empty if none is known.
      parts: For each of `collectives`, the number of its part that does it, and None for one that is not
        combined. None if none of them is combined.
      op_name: The operation of the model, from JAX's name stack. None if unknown.
      source: File and line of the operation, such as file.py:31. None if unknown.
    """

    operation: str
    sides: tuple[ConflictSide, ...]
    collectives: tuple[str, ...]
    op_name: str | None = None
    source: str | None = None
    parts: tuple[NonNegativeInt | None, ...] | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class MatmulFlops(Record):
    """FLOPs of the matrix products and convolutions with one operand type.

    Attributes:
      dtype: Element type of the operands, as HLO names it.
      flops: Floating-point operations, two per multiply-add.
    """

    dtype: str
    flops: Amount


@dataclass(frozen=True)
class KernelWork(Record):
    """Attention that a kernel computes in the place of matrix products.

    Attributes:
      products: Floating-point operations of these matrix products.
      flops: Floating-point operations of the kernel.
      dtype: The operand type of the kernel. None for that of most products of the program.
      types: Floating-point operations of `products` by operand type. Empty if all have that of the kernel.
      widths: Elements of a head of queries, and of values. Empty if unknown.
    """

    products: Amount
    flops: Amount
    dtype: str | None = field(default=None, metadata=OMIT_NONE)
    types: dict[str, Amount] = field(default_factory=dict, metadata=OMIT_DEFAULT)
    widths: tuple[NonNegativeInt, ...] = field(default=(), metadata=OMIT_DEFAULT)


@dataclass(frozen=True)
class KernelCalls(Record):
    """The calls of a kernel whose time does not follow from its FLOPs: they are unknown, or it solves.

    Attributes:
      name: Name of the kernel, or else the target of its calls.
      target: Target of the calls, such as tpu_custom_call.
      source: File and line of the operation, such as file.py:31. None if unknown.
      dtype: Type of its operands, as HLO names it. None if unknown.
      within: As for a collective. Empty if the calls are in no loop of unknown trip count and no branch.
      calls: Number of executions, if what it is within runs once. None if unknown.
      bytes: Bytes of the operands and results of all of them in the device's memory. None if unknown.
      flops: Floating-point operations of all of them, such as those of a solver. None if unknown.
    """

    name: str
    target: str
    source: str | None
    dtype: str | None
    within: tuple[str, ...]
    calls: Amount | None
    bytes: Amount | None
    flops: Amount | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class RepeatedWork(Record):
    """Operations whose operands are the same on several devices, each of which computes them.

    Attributes:
      flops: Floating-point operations of one device.
      devices: Number of devices that compute the same.
      axes: The mesh axes along which they are. None if unknown.
      operation: The operation with most of these FLOPs, as HLO names it; search for a top-k or a sort, and
        several if none has over half of them.
      op_name: Its operation of the model. None if unknown.
      source: The file and line, such as file.py:31, of over half of these FLOPs. None if there is none.
    """

    flops: Amount
    devices: PositiveInt
    axes: tuple[str, ...] | None
    operation: str
    op_name: str | None = None
    source: str | None = None


@dataclass(frozen=True)
class ExpertLoad(Record):
    """The tokens that chose each expert of a mixture in a run, also those that were dropped.

    Attributes:
      layers: Number of layers with experts.
      tokens: Number of tokens that chose each expert, summed over the layers.
      devices: Number of tokens for the experts of each device, summed over the layers, in the order of the
        mesh's devices. None if unknown.
      busiest: Number of tokens of the busiest device of each layer, summed over the layers. None if unknown.
    """

    layers: PositiveInt
    tokens: tuple[NonNegativeInt, ...]
    devices: tuple[NonNegativeInt, ...] | None = None
    busiest: NonNegativeInt | None = None

    @property
    def imbalance(self) -> float | None:
        """The busiest device of a layer as a multiple of the mean device. None if unknown."""
        if self.devices is None or self.busiest is None or not sum(self.devices):
            return None
        return self.busiest * len(self.devices) / sum(self.devices)


@dataclass(frozen=True)
class OpenChoice(Record):
    """A loop whose trip count, or a conditional whose branch, depends on data, so that it is unknown.

    Attributes:
      name: Name of the instruction in the program's text, such as while.3.
      kind: Whether it is a loop or a conditional.
      branches: Number of branches of a conditional. 0 for a loop.
      stated: Number of the branch whose share a user states: that for a true predicate, or else the last one.
      op_name: The operation of the model, from the compiler's metadata.
      source: File and line of the operation, such as file.py:31.
      most: How often a loop runs at most, if its condition limits that. None if it does not.
    """

    name: str
    kind: Literal["loop", "conditional"]
    branches: NonNegativeInt = 0
    stated: NonNegativeInt = 0
    op_name: str | None = None
    source: str | None = None
    most: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)

    @property
    def label(self) -> str:
        """The line that a user knows, or else the name of the instruction."""
        return self.source or self.name


@dataclass(frozen=True)
class WorkPart(Record):
    """The work inside of the same loops with an unknown trip count and branches, if each ran once.

    Attributes:
      within: As for a collective. Empty for what is in none.
      flops: Floating-point operations, as in `Work`. None if unknown.
      matmul: Floating-point operations of matrix products, as in `Work`. None if unknown.
      bytes_accessed: Bytes read and written, as in `Work`. None if unknown.
      fused_bytes: Bytes read and written after fusion, as in `Work`. None if unknown.
      fusions: Number of fusions, as in `Work`. None if unknown.
      product_bytes: Bytes among `fused_bytes` of matrix products, as in `Work`. None if unknown.
    """

    within: tuple[str, ...]
    flops: Amount | None
    matmul: tuple[MatmulFlops, ...] | None
    bytes_accessed: Amount | None
    fused_bytes: Amount | None = field(default=None, metadata=OMIT_NONE)
    fusions: Amount | None = field(default=None, metadata=OMIT_NONE)
    product_bytes: Amount | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class Work(Record):
    """FLOPs and memory traffic of one run of a program. Each loop counts with its trip count.

    Attributes:
      flops: All floating-point operations. None if a trip count or a shape is unknown.
      matmul: Floating-point operations of matrix products and convolutions, by operand type.
      bytes_accessed: Bytes that the instructions read and write in the device's memory. A fusion counts as
        one instruction.
      instructions: Number of those instructions.
      not_counted: Names of the custom kernels whose FLOPs are not in these figures.
      boundary_bytes: Bytes of all arguments and results, each of which is read or written at least once.
      fused_bytes: Bytes that are read and written in HBM if a compiler fuses what it can, an estimate for a
        partitioned program.
      fusions: Number of matrix products and fusions that then run.
      product_bytes: Bytes among `fused_bytes` that matrix products read and write.
      attention: Matrix products that a kernel of attention will replace. None if there is none.
      grouped: Floating-point operations of the products that multiply the tokens of each expert with its
        matrix, by operand type. They are among those of `matmul`.
      grouped_tiles: Floating-point operations of a kernel for these products, which multiplies whole tiles
        and so adds rows to each group. Empty without such a kernel.
      grouped_masked: Floating-point operations among those of `grouped_tiles` whose matrices have a side that
        is not a multiple of 128, the lanes of a TPU. The kernel masks their tiles.
      cloned_flops: Floating-point operations that a compiler cloned into several fusions, without one of
        each. The program does not repeat them. 0 if unknown.
      repeated: Operations that several devices compute alike, the most FLOPs first. None if not looked for,
        or if a trip count is unknown.
      parts: The same figures by loops with an unknown trip count and branches. Empty without any.
      kernels: The calls of these kernels.
      matmul_on_tpu: Floating-point operations of matrix products if JAX lowers the program for TPUs, where
        `ragged_dot` is one operation. None if they are the same.
    """

    flops: Amount | None
    matmul: tuple[MatmulFlops, ...] | None
    bytes_accessed: Amount | None
    not_counted: tuple[str, ...] = ()
    instructions: Amount | None = None
    boundary_bytes: Amount | None = field(default=None, metadata=OMIT_NONE)
    fused_bytes: Amount | None = field(default=None, metadata=OMIT_NONE)
    fusions: Amount | None = field(default=None, metadata=OMIT_NONE)
    product_bytes: Amount | None = field(default=None, metadata=OMIT_NONE)
    attention: KernelWork | None = field(default=None, metadata=OMIT_NONE)
    grouped: dict[str, Amount] = field(default_factory=dict, metadata=OMIT_DEFAULT)
    grouped_tiles: dict[str, Amount] = field(default_factory=dict, metadata=OMIT_DEFAULT)
    grouped_masked: dict[str, Amount] = field(default_factory=dict, metadata=OMIT_DEFAULT)
    cloned_flops: Amount = field(default=0.0, metadata=OMIT_DEFAULT)
    repeated: tuple[RepeatedWork, ...] | None = field(default=None, metadata=OMIT_NONE)
    parts: tuple[WorkPart, ...] = field(default=(), metadata=OMIT_DEFAULT)
    kernels: tuple[KernelCalls, ...] = field(default=(), metadata=OMIT_DEFAULT)
    matmul_on_tpu: tuple[MatmulFlops, ...] | None = field(default=None, metadata=OMIT_NONE)

    @property
    def flops_once(self) -> float | None:
        """Floating-point operations without those that only a compiler's fusion repeats; None if unknown."""
        return None if self.flops is None else self.flops - self.cloned_flops

    @property
    def matmul_flops(self) -> float | None:
        """Floating-point operations of matrix products of all types; None if unknown."""
        return None if self.matmul is None else sum(product.flops for product in self.matmul)


@dataclass(frozen=True)
class OperationTime(Record):
    """Time of one kind of operation, summed over devices and complete runs.

    Attributes:
      kind: Kind of operation, such as dot or all-reduce.
      events: How often it ran.
      seconds: Seconds on all devices together.
    """

    kind: str
    events: NonNegativeInt
    seconds: Amount


@dataclass(frozen=True)
class InstructionTime(Record):
    """Measured time of one instruction of a program, from a profile.

    Attributes:
      name: Name of the instruction in the compiled text.
      kind: Kind of operation, such as dot or all-reduce; `other` if the text does not have it.
      events: How often the profile has it, on all devices and in all runs, also incomplete ones.
      seconds: Seconds of its events in one run on one device: the median of the runs, and the ends of the
        interval of 80% of them, or of all if they are fewer than ten. A loop contains its body.
      own: Mean seconds of one usual run on one device that belong to it alone, without an instruction inside
        of it; of a collective those in which the device computes nothing. With the idle time they add up to
        a run.
      elapsed: Of a collective, mean seconds of one usual run on one device from its start to its end, hidden
        or not. None for other instructions, and if unknown.
      collective: Position in the program's `collectives`. None if it is none of them.
      start: Mean seconds from the start of a run to its first event. None if unknown.
      executions: Number of its events in one complete run on one device: that of more than half of these
        pairs, or else the mean. None if unknown.
      by_device: Seconds of all events on each device of the trace. Empty if that would be too many numbers.
    """

    name: str
    kind: str
    events: NonNegativeInt
    seconds: tuple[Amount, Amount, Amount]
    own: Amount
    elapsed: Amount | None = field(default=None, metadata=OMIT_NONE)
    collective: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)
    start: Amount | None = field(default=None, metadata=OMIT_NONE)
    executions: Amount | None = field(default=None, metadata=OMIT_NONE)
    by_device: tuple[Amount, ...] = field(default=(), metadata=OMIT_DEFAULT)


LateCause = Literal["pause", "idle", "computation"]


@dataclass(frozen=True)
class LateDevice(Record):
    """A device or host that the others wait for in collectives, in too many runs for chance.

    Attributes:
      name: The device, as in `devices` of the trace, or the file of the host.
      kind: device, or host if all of its devices are late.
      runs: Number of complete runs in which it is late.
      of: Number of complete runs of which this is known.
      seconds: Seconds that the others wait longer than it does: the median of the runs in which it is late.
      collective: Name of the instruction in which they wait longest for it.
      cause: What takes longer than on other devices, for at least half of the delay. pause: the time before
        its run begins. idle: the time in a run without an instruction. computation: its instructions. None
        if unknown.
      operation: Name of the instruction that takes longer, for at least half of the delay. None without one.
    """

    name: str
    kind: Literal["device", "host"]
    runs: PositiveInt
    of: PositiveInt
    seconds: Amount
    collective: str
    cause: LateCause | None = field(default=None, metadata=OMIT_NONE)
    operation: str | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class Trace(Record):
    """What a profile contains of a program. Usual runs are the middle half of the runs, by their length.

    Attributes:
      steps: Number of complete runs.
      seconds: Seconds of all complete runs together.
      operations: Time by kind of operation.
      devices: Names of the devices that ran it: the number in their process, after the name of the file and a
        slash if there are several files. Empty if unknown.
      busy: Mean seconds of one usual run on one device in which an instruction runs. None if unknown.
      span: Mean seconds of one usual run on one device from its first instruction to the end of its last
        one. None if unknown.
      pause: Median seconds between two runs in which the program does not run. None if it ran once.
      instructions: Time by instruction, those with the most own time first. Empty if unknown.
      late: Devices and hosts that the others wait for, those that cost most first. Empty if there is none, or
        if the profile does not show it.
    """

    steps: NonNegativeInt
    seconds: Amount
    operations: tuple[OperationTime, ...]
    devices: tuple[str, ...] = field(default=(), metadata=OMIT_DEFAULT)
    busy: Amount | None = field(default=None, metadata=OMIT_NONE)
    span: Amount | None = field(default=None, metadata=OMIT_NONE)
    pause: Amount | None = field(default=None, metadata=OMIT_NONE)
    instructions: tuple[InstructionTime, ...] = field(default=(), metadata=OMIT_DEFAULT)
    late: tuple[LateDevice, ...] = field(default=(), metadata=OMIT_DEFAULT)

    def executions(self, time: InstructionTime) -> float:
        """Return how often one run on one device executes an instruction, about so in an older Snapshot."""
        if time.executions is not None:
            return time.executions
        return time.events / max(self.steps * len(self.devices), 1)


@dataclass(frozen=True)
class Timeit(Record):
    """Seconds of one call, measured as %%timeit does.

    Attributes:
      mean: Mean over the runs, in seconds per call.
      deviation: Standard deviation over the runs, in seconds per call.
      runs: Number of runs.
      loops: Number of calls in each run.
    """

    mean: Amount
    deviation: Amount
    runs: NonNegativeInt
    loops: NonNegativeInt


@dataclass(frozen=True)
class Seconds(Record):
    """Wall-clock seconds of one program on the machine that ran it. None means not measured.

    Attributes:
      lower: Seconds to trace and lower. None if not measured.
      compile: Seconds to compile. None if not measured.
      first: Seconds of the first run. None if not measured.
      steps: Seconds of each measured run after the first.
      timeit: Seconds of one call, measured as %%timeit does. None if not measured.
    """

    lower: Amount | None = None
    compile: Amount | None = None
    first: Amount | None = None
    steps: tuple[Amount, ...] = ()
    timeit: Timeit | None = None


@dataclass(frozen=True)
class ProgramArray(Record):
    """One input or output of a program, with its requested and its compiled sharding.

    Attributes:
      role: Whether it is an input or an output.
      path: Path in the tree of inputs or outputs, keys joined by "/".
      requested: The requested PartitionSpec. None if the compiler was free to choose, and for arguments of a
        recorded program whose jit has no `in_shardings`.
      compiled: The PartitionSpec of the compiled program.
      same: Whether both place the array the same way. None if they were not compared, or if it is not used.
      used: Whether the program uses it. false for an input that the compiler dropped.
      use: What the compiled text proves: an input is a weight, a moment of an optimizer, a cache, or data; an
        output is a gradient. None if it proves none.
      reused: Whether the program writes an output over this input. None if unknown, and for outputs.
      donated: Whether the caller donates this input.
      memory_kind: JAX's kind of the memory in which the program takes or returns it. None if unknown.
      constraint: Line of the constraint of the code that gives an output its sharding. None if unknown.
    """

    role: Literal["input", "output"]
    path: str
    requested: Spec | None
    compiled: Spec | None
    same: bool | None
    used: bool = True
    use: ArgumentUse | None = field(default=None, metadata=OMIT_NONE)
    reused: bool | None = field(default=None, metadata=OMIT_NONE)
    donated: bool = field(default=False, metadata=OMIT_DEFAULT)
    memory_kind: str | None = field(default=None, metadata=OMIT_NONE)
    constraint: str | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class Prediction(Record):
    """The predicted time of one step on a chip, with its interval.

    Attributes:
      seconds: Predicted seconds per step.
      low: Lower end of the interval, in seconds.
      high: Upper end of the interval, in seconds.
      chip: Name of the chip, such as v5e.
      compute: Seconds of computation in one step.
      exposed: Seconds of communication that does not overlap with computation, by mesh axis.
    """

    seconds: Amount
    low: Amount
    high: Amount
    chip: str
    compute: Amount | None = None
    exposed: dict[str, Amount] = field(default_factory=dict)


@dataclass(frozen=True)
class OperandType(Record):
    """The type of an operand of an operation that JAX refuses.

    Attributes:
      name: Name of the operand, such as lhs or indices.
      shape: Global shape, elements in each dimension.
      dtype: Element type as JAX names it.
      spec: The explicit mesh axes that shard each dimension, or None.
    """

    name: str
    shape: tuple[NonNegativeInt, ...]
    dtype: str
    spec: Spec


@dataclass(frozen=True)
class ShardingChoice(Record):
    """A change of the code that JAX accepts in place of a refused operation. JAX traced it.

    Attributes:
      code: The change as Python code, such as `out_sharding=P('data', None)`.
      result: The explicit mesh axes that shard each dimension of the result, or None.
      collectives: The collectives of the operation after the change, from sharding propagation. None if
        propagation failed.
    """

    code: str
    result: Spec
    collectives: tuple[Collective, ...] | None


@dataclass(frozen=True)
class ShardingError(Record):
    """The reason why JAX cannot trace a program on explicit mesh axes.

    Attributes:
      error: Class of JAX's error, such as ShardingTypeError.
      message: JAX's message on one line.
      operation: Name of the operation, such as dot_general. None if unknown.
      operands: Types of its array operands. Empty if unknown.
      source: File and line of the operation in the model, such as file.py:31. None if unknown.
      choices: Changes that resolve the error, the least traffic first. Empty if none is known.
    """

    error: str
    message: str
    operation: str | None = None
    operands: tuple[OperandType, ...] = ()
    source: str | None = None
    choices: tuple[ShardingChoice, ...] = ()


@dataclass(frozen=True)
class UnusedDonation(Record):
    """A donated input over which the program writes no output.

    Attributes:
      path: Path of the input.
      bytes: Its bytes on one device. None if unknown.
      reason: Why no output is written over it, as a clause.
    """

    path: str
    bytes: NonNegativeInt | None
    reason: str


@dataclass(frozen=True)
class Donation(Record):
    """Inputs and outputs of a program that can share memory.

    Attributes:
      donatable: Bytes of outputs on one device that have an input of the same bytes, donated or not. Inputs
        of the batch do not count.
      unused: Donated inputs whose memory no output uses.
    """

    donatable: NonNegativeInt
    unused: tuple[UnusedDonation, ...] = ()


@dataclass(frozen=True)
class LargeConstant(Record):
    """A large constant in the text of a program, which every device holds.

    Attributes:
      name: Name of the instruction in the compiled text.
      shape: Element type and shape as HLO writes them, such as bf16[8,1024].
      bytes: Its bytes on one device.
      variable: Name of the variable of the program that is the array, such as table. None if unknown.
      source: File and line of the operation, such as file.py:31. None if unknown.
    """

    name: str
    shape: str
    bytes: NonNegativeInt
    source: str | None = None
    variable: str | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class UnevenGather(Record):
    """A result that is computed in parts of different sizes, and that every device gets whole.

    Attributes:
      path: Path of the result.
      collective: Name of the all-gather.
      dimension: The dimension that is divided unevenly, by its index of 0 or more.
      size: Size of this dimension, in elements.
      parts: Number of parts that do not divide it.
      bytes: Bytes of the padded result on each device. None if unknown.
      source: File and line of the operation, such as file.py:31. None if unknown.
    """

    path: str
    collective: str
    dimension: NonNegativeInt
    size: NonNegativeInt
    parts: PositiveInt
    bytes: NonNegativeInt | None
    source: str | None = None


@dataclass(frozen=True)
class KeptGather(Record):
    """An all-gather of the forward pass whose result stays in memory until the backward pass reads it.

    Attributes:
      collective: Name of the all-gather.
      bytes: Bytes that stay on each device. In a loop, those of all iterations.
      arrays: Paths of the arrays of this Snapshot that it gathers. Empty if unknown.
      source: File and line of the operation, such as file.py:31. None if unknown.
      gathered_bytes: Bytes that one execution gathers. None if unknown.
    """

    collective: str
    bytes: NonNegativeInt
    arrays: tuple[str, ...] = ()
    source: str | None = None
    gathered_bytes: NonNegativeInt | None = None


@dataclass(frozen=True)
class Rematerialization(Record):
    """A warning of XLA's partitioner: *Involuntary full rematerialization*.

    Attributes:
      operation: The operation whose result is gathered whole, as HLO names it.
      shape: Element type and shape of the result on one device as HLO writes them, such as bf16[8,1024].
      before: Its sharding, as XLA writes it.
      after: The sharding that it gets, as XLA writes it.
      op_name: The operation of the model. None if unknown.
      source: File and line of the operation, such as file.py:31. None if unknown.
    """

    operation: str
    shape: str
    before: str
    after: str
    op_name: str | None = None
    source: str | None = None


@dataclass(frozen=True)
class Pipeline(Record):
    """A loop in which each device computes one stage, and hands its result to the next device.

    Attributes:
      stages: Number of devices in a row, each with one stage, or with several in turn (`repeats`).
      microbatches: Number of microbatches. None if unknown.
      collective: Name of the collective-permute.
      axes: The mesh axis along which it sends. None if unknown.
      source: Its file and line, such as file.py:31. None if unknown.
      repeats: Number of stages of each device. A microbatch goes around as often.
      delay: Number of iterations until a result is in the next stage, 2 if it waits for one to overlap.
      trips: Number of iterations of the loop. None if `microbatches` is known, or neither is.
      backward: Whether it is the backward pass, in which the last stage comes first.
      loop: Name of the loop. None if unknown.
      stack: Number of microbatches in an array of a loop whose trip count is unknown. None for other loops.
      flops: Floating-point operations of one device in the loop, in one run. None if unknown.
    """

    stages: PositiveInt
    microbatches: PositiveInt | None
    collective: str
    axes: tuple[str, ...] | None
    source: str | None = None
    repeats: PositiveInt = field(default=1, metadata=OMIT_DEFAULT)
    delay: PositiveInt = field(default=1, metadata=OMIT_DEFAULT)
    trips: PositiveInt | None = field(default=None, metadata=OMIT_NONE)
    backward: bool = field(default=False, metadata=OMIT_DEFAULT)
    loop: str | None = field(default=None, metadata=OMIT_NONE)
    stack: PositiveInt | None = field(default=None, metadata=OMIT_NONE)
    flops: Amount | None = field(default=None, metadata=OMIT_NONE)

    @property
    def idle(self) -> int:
        """The iterations in which a device has no microbatch; the least if it is unknown."""
        return self.delay * (self.stages - 1)

    @property
    def iterations(self) -> int | None:
        """Iterations of the loop; None if they depend on data."""
        if self.microbatches is None:
            return self.trips
        return self.microbatches * self.repeats + self.idle

    @property
    def bubble(self) -> float | None:
        """The share of its iterations in which a device is idle; None if unknown.

        A lower bound if the number of microbatches is unknown.
        """
        iterations = self.iterations
        return None if not iterations else min(self.idle / iterations, 1.0)


@dataclass(frozen=True)
class Program(Record):
    """One program.

    Attributes:
      name: Name of the function: init, train_step, apply, …
      flops_per_device: Floating-point operations of one run on one device.
      memory: Bytes on one device.
      collectives: All collective instructions. None if they were not counted.
      seconds: Measured wall-clock seconds. None if nothing was measured.
      losses: Loss of each train step, without a unit, including the first. None if infinite or NaN.
      shardings: Requested and compiled sharding of each input and output.
      work: FLOPs and memory traffic of one device. None if not counted.
      ideal: FLOPs and memory traffic of all devices before partitioning. None if not counted.
      trace: What JAX's profiler recorded. None if it did not run.
      stage: How far the program got: propagated (sharding propagation only), partitioned (after XLA's
        partitioner, before its passes for a platform), compiled, run, or measured (read from a profile).
      platform: The kind of machine for which it was compiled, or whose passes followed XLA's partitioner.
        None for the devices of its mesh, and for a partitioned program before any such pass.
      prediction: The predicted time of one step. None if there is no prediction.
      schedule: The compiler's schedule. None if the text is not scheduled, or cannot be read.
      memory_use: Bytes in memory while it runs. None if the text is not scheduled, or cannot be read.
      conflicts: Operations with conflicting shardings. None if they were not looked for.
      donation: Inputs and outputs that can share memory. None if it follows from the arrays of the Snapshot.
      large_constants: Its constants of at least 64 KiB. None if its text is unknown.
      uneven_gathers: Results that are gathered because their parts are uneven. None if its text is unknown.
      kept_gathers: All-gathers of the forward pass whose results stay in memory until the backward pass. None
        if the text is not scheduled, or cannot be read.
      rematerializations: Warnings of XLA's partitioner about values that every device gets whole. None if its
        log is unknown.
      pipelines: Loops whose structure is that of a pipeline. None if its text is unknown.
      sharding_error: The reason why JAX cannot trace the program on explicit mesh axes. None if it can.
      mesh: The mesh that its mesh axes and specs refer to, as its position in the Snapshot's `other_meshes`,
        from 0. None for the Snapshot's `mesh`.
      devices: Number of devices that it runs on, from its text. None if unknown.
      device: Id of the only device that it runs on, if it is on no mesh. None if it is on one, or if unknown.
      open_choices: Loops whose trip count, and conditionals whose branch, depends on data.
      assumptions: What was assumed of those, one clause each.
      expert_load: Tokens of each expert in a run. None if unknown.
      fingerprint: Digest of its compiled instructions without their names, equal for equal programs. None if
        its text is unknown.
      first_used: Paths of the inputs that it computes with, in the order in which it first does. None if its
        text is unknown, or cannot be read.
      residuals: What its backward pass reads from the forward pass, and computes again. None if its text is
        unknown, or cannot be read.
      checkpoint_names: The names that its code gives activations. None if its trace is unknown.
    """

    name: str
    flops_per_device: Amount | None = None
    memory: Memory | None = None
    collectives: tuple[Collective, ...] | None = None
    seconds: Seconds | None = None
    losses: tuple[FiniteFloat | None, ...] = ()
    shardings: tuple[ProgramArray, ...] = ()
    work: Work | None = None
    ideal: Work | None = None
    trace: Trace | None = None
    stage: Stage | None = field(default=None, metadata=OMIT_NONE)
    platform: Platform | None = field(default=None, metadata=OMIT_NONE)
    prediction: Prediction | None = field(default=None, metadata=OMIT_NONE)
    schedule: Schedule | None = field(default=None, metadata=OMIT_NONE)
    memory_use: MemoryUse | None = field(default=None, metadata=OMIT_NONE)
    conflicts: tuple[Conflict, ...] | None = field(default=None, metadata=OMIT_NONE)
    donation: Donation | None = field(default=None, metadata=OMIT_NONE)
    large_constants: tuple[LargeConstant, ...] | None = field(default=None, metadata=OMIT_NONE)
    uneven_gathers: tuple[UnevenGather, ...] | None = field(default=None, metadata=OMIT_NONE)
    kept_gathers: tuple[KeptGather, ...] | None = field(default=None, metadata=OMIT_NONE)
    pipelines: tuple[Pipeline, ...] | None = field(default=None, metadata=OMIT_NONE)
    rematerializations: tuple[Rematerialization, ...] | None = field(default=None, metadata=OMIT_NONE)
    sharding_error: ShardingError | None = field(default=None, metadata=OMIT_NONE)
    mesh: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)
    devices: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)
    device: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)
    fingerprint: str | None = field(default=None, metadata=OMIT_NONE)
    open_choices: tuple[OpenChoice, ...] = field(default=(), metadata=OMIT_DEFAULT)
    assumptions: tuple[str, ...] = field(default=(), metadata=OMIT_DEFAULT)
    expert_load: ExpertLoad | None = field(default=None, metadata=OMIT_NONE)
    first_used: tuple[str, ...] | None = field(default=None, metadata=OMIT_NONE)
    residuals: Residuals | None = field(default=None, metadata=OMIT_NONE)
    checkpoint_names: tuple[CheckpointName, ...] | None = field(default=None, metadata=OMIT_NONE)

    def devices_on(self, mesh: Mesh | None) -> int | None:
        """Return the number of devices that it runs on: of its text, or else of its mesh; None if unknown."""
        return self.devices or (None if mesh is None else mesh.size)

    def repeated_on(self, mesh: Mesh | None) -> float | None:
        """Return the FLOPs of matrix products of all devices over those before partitioning.

        None if unknown. It is below 1 if the compiler found a shorter way.
        """
        done, whole = (work.matmul_flops if work else None for work in (self.work, self.ideal))
        devices = self.devices_on(mesh)
        return done * devices / whole if done is not None and whole and devices else None

    @property
    def before_compile(self) -> bool:
        """Whether it was not compiled, so that its figures lack what the passes of a compiler change."""
        return self.stage in ("propagated", "partitioned")
