"""The Snapshot: a frozen record of a mesh, the arrays on it, and its programs.

A Snapshot is plain data without JAX objects. Producers make it, and everything that is shown is a pure
function of one or more Snapshots. Bytes are integers, times are seconds, and None means unknown.
`inspector/records/snapshot.schema.json` describes the file format.
"""

from inspector.records.snapshot.arrays import (
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
from inspector.records.snapshot.contents import (
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
from inspector.records.snapshot.effects import Change, ChangeKind, Effects, LayoutCost
from inspector.records.snapshot.file import SCHEMA_PATH, dumps, from_json, read, write
from inspector.records.snapshot.memory_use import (
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
from inspector.records.snapshot.programs import (
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
from inspector.records.snapshot.schedule import Schedule, ScheduledComputation, ScheduledOperation
