"""The Snapshot: a frozen record of a mesh, the arrays on it, and its programs.

A Snapshot is plain data without JAX objects. Producers make it, and everything that is shown is a pure
function of one or more Snapshots. Bytes are integers, times are seconds, and None means unknown.
`inspector/core/snapshot.schema.json` describes the file format.
"""

from inspector.core.snapshot.arrays import (
    Array,
    ArrayFacts,
    Box,
    Direction,
    Group,
    Mesh,
    MeshAxis,
    Origin,
    PropagationStep,
    Shard,
    ShardMap,
    Spec,
)
from inspector.core.snapshot.contents import (
    FORMAT,
    VERSION,
    Finding,
    Kind,
    Level,
    LiveBytes,
    Reshard,
    ReshardedArrays,
    Snapshot,
    Source,
)
from inspector.core.snapshot.effects import Change, ChangeKind, Effects, LayoutCost
from inspector.core.snapshot.file import SCHEMA_PATH, dumps, from_json, read, write
from inspector.core.snapshot.memory_use import (
    CARRY,
    CheckpointName,
    CheckpointPolicy,
    GroupUse,
    KeptActivation,
    LiveValue,
    MemoryUse,
    Phase,
    RecomputedOperation,
    Residuals,
    UseGroup,
)
from inspector.core.snapshot.programs import (
    ArgumentUse,
    Collective,
    CollectivePart,
    CollectiveUse,
    Conflict,
    ConflictSide,
    Donation,
    ExpertLoad,
    InstructionTime,
    KeptGather,
    KernelCalls,
    KernelWork,
    LargeConstant,
    LateCause,
    LateDevice,
    MatmulFlops,
    Memory,
    OpenChoice,
    OperandType,
    OperationTime,
    Pipeline,
    Platform,
    Prediction,
    Program,
    ProgramArray,
    Rematerialization,
    RepeatedWork,
    Requester,
    Seconds,
    ShardingChoice,
    ShardingError,
    Timeit,
    Trace,
    UnevenGather,
    UnusedDonation,
    Work,
    WorkPart,
)
from inspector.core.snapshot.schedule import Schedule, ScheduledComputation, ScheduledOperation
