"""Records of `run.json`: the programs that were compiled, their times, and the end of the run."""

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Literal

from inspector.files import output, strict_json
from inspector.files.source_files import is_library
from inspector.records import typed_json
from inspector.records.snapshot import Reshard, Spec
from inspector.records.typed_json import (
    OMIT_DEFAULT,
    OMIT_NONE,
    FiniteFloat,
    NonNegativeInt,
    PositiveInt,
    Record,
)
from inspector.text.errors import InvalidInput, file_name, shown
from inspector.text.formatting import and_text, counted, numbered

FORMAT = "sharding-run"
VERSION = 1
FILE = "run.json"
SNAPSHOT = "snapshot.json"
LOWERED = ".lowered.mlirbc"  # the end of a raw file with the module of a program on several devices
REQUEST = "capture"  # a file of this name asks a running program for its live arrays
# The folder of the run that the dashboard shows. Only the command line sets it.
FOLDER_VARIABLE = "SHARDING_INSPECTOR_SHOWN_RUN"

ReasonKind = Literal[
    "argument", "shape", "dtype", "weak type", "sharding", "devices", "structure", "static", "function",
    "unknown",
]  # fmt: skip

# Files of a run whose steps are profiled: the profiles, the sign that there are enough, and that the program
# profiles itself.
PROFILE, ENOUGH, PROFILE_TAKEN = "profile-{:03d}.xplane.pb", "profile-is-enough", "profile-is-taken"
# The folder of the profile that was read, and the name of its file.
PROFILE_FOLDER, PROFILE_FILE = "profile", "steps.xplane.pb"


def when_compiled(function: str) -> str:
    """Return the `when` of a LiveRecord that was captured at a compile, before the program ran.

    >>> when_compiled("train_step")
    'when train_step was compiled'
    """
    return f"when {function} was compiled"


@dataclass(frozen=True)
class CompileReason(Record):
    """One difference between two compiles of a function.

    Attributes:
      kind: What differs. structure: the static part of a pytree. function: the same source as another Python
        object. unknown: no difference is recorded.
      argument: Name of the argument. None if the difference is not one of an argument.
      before: The value in the earlier compile. None if there was none.
      after: The value in this compile. None if there is none.
    """

    kind: ReasonKind
    argument: str | None = None
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True)
class CompiledRecord(Record):
    """One compiled program.

    Attributes:
      name: Unique name. Of different functions with one name, it has the line: `<lambda> at train.py:31`. A
        second compile of `step` is `step (2)`.
      function: Name of the function.
      source: File and line of the function.
      file: The Snapshot, relative to the folder.
      at: Seconds from the start of the run.
      trace: Seconds to trace. None if unknown.
      lower: Seconds to lower. None if unknown.
      compile: Seconds to compile.
      inputs: Number of input arrays.
      devices: Number of devices.
      ahead_of_time: Whether the program called `lower` and `compile` itself.
      reasons: Why the function was compiled again. Empty for the first compile.
      called: Line of the program that calls it, such as train.py:80. None if unknown.
      target_file: The Snapshot for the target, relative to the folder. None if there is none.
      target_error: Why the program cannot be compiled for the target. None if it can.
    """

    name: str
    function: str
    source: str
    file: str
    at: FiniteFloat
    trace: FiniteFloat | None
    lower: FiniteFloat | None
    compile: FiniteFloat
    inputs: NonNegativeInt
    devices: NonNegativeInt
    ahead_of_time: bool = False
    reasons: tuple[CompileReason, ...] = ()
    target_file: str | None = None
    target_error: str | None = None
    called: str | None = field(default=None, metadata=OMIT_NONE)

    @property
    def place(self) -> str:
        """The line of the function, or of its call if the function is one of a library: `train.py:12`."""
        return place_of(self.source, self.called)


def place_of(source: str, called: str | None = None) -> str:
    """Return the line of a function, or of its call if the function is one of a library.

    >>> place_of("step at /me/train.py:12"), place_of("f at /lib/python3.11/functools.py:9", "train.py:30")
    ('train.py:12', 'train.py:30')
    """
    function, _, place = source.rpartition(" at ")
    if called is not None and is_library(place):
        return called
    return (place if function else source).rpartition("/")[2]


def unique_names(functions: Sequence[tuple[str, str]]) -> list[str]:
    """Return a name for each program of a run, given the name and the line of its function.

    >>> unique_names([("f", "a.py:1"), ("g", "a.py:2"), ("f", "a.py:9"), ("g", "a.py:2")])
    ['f at a.py:1', 'g', 'f at a.py:9', 'g (2)']
    """
    places: dict[str, set[str]] = defaultdict(set)
    for name, place in functions:
        places[name].add(place)
    return list(
        numbered(name if len(places[name]) == 1 else f"{name} at {place}" for name, place in functions)
    )


@dataclass(frozen=True)
class LiveRecord(Record):
    """The last capture of live arrays.

    Attributes:
      when: When it was captured, in words.
      at: Seconds from the start of the run.
      bytes: Bytes of all arrays, each counted once.
      names: Number of arrays named by an argument, a variable, an output, or by order of creation.
    """

    when: str
    at: FiniteFloat
    bytes: NonNegativeInt
    names: dict[str, NonNegativeInt] = field(default_factory=dict)


@dataclass(frozen=True)
class LostSharding(Record):
    """An operation outside of any jit whose result is replicated, although it reads a sharded array.

    Attributes:
      operation: Name of the operation, or of the function of JAX.
      line: File and line of the program, such as train.py:31. None if unknown.
      shape: Shape of the largest replicated result.
      dtype: Its element type as JAX names it.
      bytes: Its bytes, which every device holds.
      operand_shape: Global shape of the largest sharded operand.
      operand_spec: The PartitionSpec of this operand.
      operand_bytes: Bytes of this operand on one device.
      parts: Number of parts into which this operand is sharded.
    """

    operation: str
    line: str | None
    shape: tuple[NonNegativeInt, ...]
    dtype: str
    bytes: NonNegativeInt
    operand_shape: tuple[NonNegativeInt, ...]
    operand_spec: Spec
    operand_bytes: NonNegativeInt
    parts: PositiveInt


@dataclass(frozen=True)
class UnevenSize(Record):
    """A dimension that a sharding does not divide, as JAX's error says.

    Attributes:
      array: Name of the array, or of the variable that was to be it. None if unknown.
      dimension: Position of the dimension, from 0.
      size: Number of elements along it.
      parts: Number of parts.
      axes: Mesh axes of this dimension. Empty if unknown.
    """

    array: str | None
    dimension: NonNegativeInt
    size: NonNegativeInt
    parts: PositiveInt
    axes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunError(Record):
    """The Python error that ended a program.

    Attributes:
      kind: Class of the error, such as ShardingTypeError.
      message: Its message on one line, cut off if it is long.
      line: Innermost file and line of the program, such as train.py:31. None if unknown.
      arrays: Types of the arrays in this line by their names, such as float32[8@data,16].
      uneven: The dimension that a sharding does not divide. None if the error is another one.
    """

    kind: str
    message: str
    line: str | None = None
    arrays: dict[str, str] = field(default_factory=dict)
    uneven: UnevenSize | None = None

    @property
    def sentence(self) -> str:
        """The error as a sentence that ends with the message of Python."""
        at = "" if self.line is None else f" at {self.line}"
        parts = []
        if self.uneven is not None:
            uneven, axes = self.uneven, and_text([*self.uneven.axes])
            of_axes = f" of mesh {'axis' if len(self.uneven.axes) == 1 else 'axes'} {axes}" if axes else ""
            parts.append(
                f"Dimension {uneven.dimension} of {uneven.array or 'an array'} has {uneven.size:,} elements, "
                f"which cannot be divided into the {uneven.parts:,} parts{of_axes}."
            )
        elif self.arrays and self.kind == "ShardingTypeError" and "ambiguous" in self.message:
            named = and_text([f"{name} is {type_}" for name, type_ in self.arrays.items()])
            parts.append(f"On explicit mesh axes, JAX cannot tell the sharding of the result: {named}.")
        return " ".join((*parts, f"{self.kind}{at}: {self.message.rstrip('.')}."))


@dataclass(frozen=True)
class ProgramRun(Record):
    """One run of a program.

    Attributes:
      command: The program and its arguments.
      created: Time of the start in ISO 8601.
      ended: How the program ended: `exit 0` or `signal SIGKILL`. None while it runs.
      seconds: Seconds from start to end. None while it runs.
      analysis_seconds: Seconds to find causes and to compile for the target, after the end of the program.
        None while it runs.
      target: The target that programs are also compiled for.
      programs: The compiled programs, in order.
      operations: Number of operations of JAX itself that ran outside of any jit and were compiled.
      operation_seconds: Seconds to compile them.
      live: The last capture of live arrays. None if there were none.
      problems: Errors of the recorder, which did not affect the program.
      questions: Places in the program that asked for the platform or the kind of a device, such as
        `shard at train.py:6`. The answer was not that of the target. Empty without a target.
      lost_shardings: Operations outside of any jit whose results are replicated, although they read sharded
        arrays, those with the most bytes first; one for each line.
      reshards: Arrays that moved between devices outside of compiled programs, those with the most bytes
        first.
      error: The Python error that ended it. None if there was none, or if it was not seen.
    """

    command: tuple[str, ...]
    created: str
    ended: str | None = None
    seconds: FiniteFloat | None = None
    target: str | None = None
    analysis_seconds: FiniteFloat | None = field(default=None, metadata=OMIT_NONE)
    programs: tuple[CompiledRecord, ...] = ()
    operations: NonNegativeInt = 0
    operation_seconds: FiniteFloat = 0.0
    live: LiveRecord | None = None
    problems: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    lost_shardings: tuple[LostSharding, ...] = field(default=(), metadata=OMIT_DEFAULT)
    reshards: tuple[Reshard, ...] = field(default=(), metadata=OMIT_DEFAULT)
    error: RunError | None = field(default=None, metadata=OMIT_NONE)

    @property
    def program(self) -> str | None:
        """The file name of the script, or the module. None without a command."""
        if self.command[:1] == ("-m",):
            return self.command[1] if len(self.command) > 1 else None
        return Path(self.command[0]).name if self.command else None

    @property
    def not_recorded(self) -> tuple[str, ...]:
        """A clause about the operations that were compiled outside of any jit; empty without any."""
        verb = "is" if self.operations == 1 else "are"
        clause = f"{counted(self.operations, 'compiled operation')} outside of jit {verb} not recorded"
        return (clause,) if self.operations else ()


def write(run: ProgramRun, folder: str | os.PathLike[str]) -> None:
    """Write the record to its folder, whole or not at all."""
    text = typed_json.dumps(typed_json.encode_file(run, FORMAT, VERSION))
    output.write_text(text, Path(folder) / FILE)


def read(folder: str | os.PathLike[str]) -> ProgramRun:
    """Read the record of a folder.

    Raises:
      InvalidInput: the folder is not one of a recorded program, or its record is damaged.
    """
    path = Path(folder) / FILE
    if not os.fspath(folder) or not path.is_file():
        kind = "is a folder without" if os.fspath(folder) and Path(folder).is_dir() else "has no"
        raise InvalidInput(f"{file_name(folder)} {kind} {FILE}, but must be the folder of a recorded program")
    run = typed_json.decode_file(ProgramRun, strict_json.read(path), str(path), FORMAT, VERSION)
    for file in (file for program in run.programs for file in (program.file, program.target_file) if file):
        if PurePath(file).is_absolute() or ".." in PurePath(file).parts:
            raise InvalidInput(f"{path} has a program in {shown(file)}, which is not in the folder")
    return run
