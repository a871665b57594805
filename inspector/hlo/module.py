"""HLO modules, computations, instructions and operands.

Fields are parsed on access, because most are never used.
"""

import functools
import re
from collections import defaultdict, deque
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple, TypeVar

from inspector.files.source_files import is_library
from inspector.hlo import opcodes, shapes, text
from inspector.hlo.opcodes import Does
from inspector.hlo.shapes import Shape
from inspector.records.snapshot import Platform
from inspector.records.statistics import sum_known

# Indices into nested tuples, outermost first.
Path = tuple[int, ...]

# Attribute → role of the computations in it, and the number of the first.
_CALLED = {
    "calls": ("call", 0),
    "to_apply": ("call", 0),
    "called_computations": ("call", 0),
    "async_computation": ("call", 0),
    "body": ("body", 0),
    "condition": ("condition", 0),
    "branch_computations": ("branch", 0),
    "true_computation": ("branch", 0),
    "false_computation": ("branch", 1),
}
_TARGET = re.compile(r',\s*+custom_call_target\s*+=\s*+"([^"\\]*+)"')
_NOT_PLAIN = re.compile(r'[\[({"/]')
_PLAIN_NAME = re.compile(r"[^\s,%][^\s,]*+")
_TYPED_OPERAND = re.compile(rf"({text.SHAPE})\s++%?+([^\s]++)\Z", re.S)


class Operand(NamedTuple):
    """An operand in the text: its name, its shape, or both."""

    name: str | None
    shape: Shape | None


class Called(NamedTuple):
    """A computation that an instruction calls. `role` is call, body, condition or branch."""

    role: str
    computation: str
    number: int  # of the branch


class Instruction(NamedTuple):
    """One instruction, with its unparsed text."""

    name: str
    opcode: str
    shape_text: str | None
    operands_text: str
    attributes_text: str
    root: bool

    @property
    def does(self) -> Does:
        """The effect of the operation on its operands."""
        return opcodes.TABLE[self.opcode].does

    @property
    def shape(self) -> Shape | None:
        """The shape of the result; None if the text omits it."""
        return shapes.parse(self.shape_text) if self.shape_text else None

    @property
    def attributes(self) -> Mapping[str, str]:
        """Attribute names and unparsed values."""
        return text.attributes(self.attributes_text)

    @property
    def operands(self) -> tuple[Operand, ...]:
        return tuple(_operand(item) for item in text.items(self.operands_text))

    @property
    def target(self) -> str:
        """The target of a custom call; "" for other instructions."""
        match = _TARGET.search(self.attributes_text)
        return match[1] if match else ""

    @property
    def tuple_index(self) -> int | None:
        """The index of a get-tuple-element; None if invalid."""
        return _short(self.attributes.get("index", ""))

    @property
    def number(self) -> int | None:
        """The number of a parameter; None if invalid."""
        return _short(self.operands_text[1:-1].strip())

    @property
    def metadata(self) -> Mapping[str, str]:
        """Fields of the metadata, such as op_name, source_file, source_line and stack_frame_id."""
        return text.fields(self.attributes.get("metadata", ""))

    @property
    def called(self) -> tuple[Called, ...]:
        """The computations that the instruction calls."""
        return tuple(
            Called(role, name.removeprefix("%"), number)
            for key, value in self.attributes.items()
            if key in _CALLED
            for role, first in (_CALLED[key],)
            for number, name in enumerate(text.items(value) if value.startswith("{") else [value], first)
        )


@dataclass(frozen=True)
class Computation:
    """Instructions in the order of the text. `complete` is false if the text ends inside it."""

    name: str
    entry: bool
    instructions: tuple[Instruction, ...]
    complete: bool = True

    @functools.cached_property
    def by_name(self) -> Mapping[str, Instruction]:
        return {instruction.name: instruction for instruction in self.instructions}

    @functools.cached_property
    def root(self) -> Instruction | None:
        """The instruction marked ROOT, or else the last one; None if the text can lack it."""
        if not self.complete or not self.instructions:
            return None
        marked = (instruction for instruction in self.instructions if instruction.root)
        return next(marked, self.instructions[-1])

    @functools.cached_property
    def parameters(self) -> Mapping[int | None, Instruction]:
        """The parameters by their number."""
        return {
            instruction.number: instruction
            for instruction in self.instructions
            if instruction.does == "parameter"
        }

    def shape_of(self, operand: Operand) -> Shape | None:
        """Return the shape in the operand's text, or that of the instruction that it names."""
        if operand.shape is not None or operand.name is None:
            return operand.shape
        source = self.by_name.get(operand.name)
        return source.shape if source is not None else None

    def operand(self, instruction: Instruction, number: int = 0) -> Instruction | None:
        """Return the instruction that computes an operand; None if the text lacks it."""
        names = operand_names(instruction)
        return self.by_name.get(names[number] or "") if number < len(names) else None

    @property
    def outputs(self) -> list[Instruction | None]:
        """The root, or the elements of the tuple that it is; None for one that the text lacks."""
        root = self.root
        if root is None or root.does != "tuple":
            return [root]
        return [self.by_name.get(name or "") for name in operand_names(root)]

    @functools.cached_property
    def unchanged(self) -> Mapping[int, Instruction]:
        """The elements of its state that the body of a loop returns as they are, by their number."""
        unchanged: dict[int, Instruction] = {}
        for number, part in enumerate(self.outputs):
            if part is not None and part.does == "element" and part.tuple_index == number:
                state = self.operand(part)
                if state is not None and state.does == "parameter":
                    unchanged[number] = part
        return unchanged


class SourceFrame(NamedTuple):
    """A line that runs an operation, or that calls the function with this line.

    column: of the expression, from 0. None if unknown.
    """

    file: str
    line: int | None
    column: int | None

    @property
    def place(self) -> str:
        """The line without its folder: `file.py:31`."""
        # The program may have been compiled on another operating system.
        path = PureWindowsPath(self.file) if "\\" in self.file else PurePosixPath(self.file)
        return f"{path.name}:{self.line}" if self.line is not None else path.name


@dataclass(frozen=True)
class Module:
    """One program.

    entry: name of the entry computation; None if the text ends before it.
    truncated: a sentence on the place at which the text ends too early; None if it is complete.
    tables: FileNames, FunctionNames, FileLocations and StackFrames, each as number → unparsed row.
    local: whether the source files that the text names are files of this machine.
    """

    name: str
    attributes_text: str
    computations: tuple[Computation, ...]
    entry: str | None
    truncated: str | None = None
    tables: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    local: bool = False

    @functools.cached_property
    def by_name(self) -> Mapping[str, Computation]:
        return {computation.name: computation for computation in self.computations}

    def callees(self, instruction: Instruction, role: str | None = None) -> list[Computation]:
        """Return the computations that an instruction calls, in one role or in any, and that the text has."""
        called = (other.computation for other in instruction.called if role in (None, other.role))
        return [self.by_name[name] for name in called if name in self.by_name]

    def callee(self, instruction: Instruction, role: str | None = None) -> Computation | None:
        """Return the first of these computations; None if there is none."""
        return next(iter(self.callees(instruction, role)), None)

    def executed(self, start: Computation, kinds: Container[Does]) -> Iterator[Computation]:
        """Yield a computation and those that operations of these kinds run in it, but no condition."""

        def run(computation: Computation) -> Iterator[Computation]:
            for instruction in computation.instructions:
                for called in instruction.called if instruction.does in kinds else ():
                    if called.role != "condition" and called.computation in self.by_name:
                        yield self.by_name[called.computation]

        return reach([start], run, lambda computation: computation.name)

    @property
    def instructions(self) -> Iterator[tuple[Computation, Instruction]]:
        """Each instruction with its computation, in the order of the text."""
        for computation in self.computations:
            for instruction in computation.instructions:
                yield computation, instruction

    def complete_entry(self, scheduled: bool = False, largest: int | None = None) -> Computation | None:
        """Return the entry; None if the text is truncated.

        Args:
          scheduled: also return None if the program has no schedule.
          largest: also return None if the program has more instructions than this.
        """
        entry = self.by_name.get(self.entry or "")
        if self.truncated or (scheduled and self.attributes.get("is_scheduled") != "true"):
            return None
        if largest is not None and sum(len(c.instructions) for c in self.computations) > largest:
            return None
        return entry

    @functools.cached_property
    def attributes(self) -> Mapping[str, str]:
        return text.attributes(self.attributes_text)

    @property
    def partitions(self) -> int | None:
        """`num_partitions` in the header; None if absent."""
        return _count(self.attributes.get("num_partitions"))

    @property
    def replicas(self) -> int | None:
        """`replica_count` in the header; None if absent."""
        return _count(self.attributes.get("replica_count"))

    def source(self, metadata: Mapping[str, str]) -> str | None:
        """Return `file.py:31` for an instruction's metadata, using stack frames if necessary.

        Choose the innermost frame of the program, or else the innermost one of a library.
        """
        frame, _ = self.frames(metadata)
        return None if frame is None else frame.place

    def frames(self, metadata: Mapping[str, str]) -> tuple[SourceFrame | None, SourceFrame | None]:
        """Return the line of the program that runs an instruction, and the line of a library inside of it.

        If the text has no line of the program, the first one is of a library. None if unknown, or if the
        program calls JAX itself.
        """
        if file := metadata.get("source_file"):
            # XLA writes lines from 1, and none as 0.
            library = metadata.get("library_file")
            return (
                _of_fields(file, metadata, "source"),
                _of_fields(library, metadata, "library") if library else None,
            )
        number, innermost = _count(metadata.get("stack_frame_id")), None
        while number and (held := self._frame(number)) is not None:
            frame, number = held
            if not is_library(frame.file):
                return frame, innermost
            innermost = innermost or frame
        return innermost, None

    @functools.cached_property
    def names_of_stacks(self) -> Mapping[str, Set[str]]:
        """The names of the operations with each `stack_frame_id`, which is one stack of calls."""
        names: dict[str, set[str]] = defaultdict(set)
        for _, instruction in self.instructions:
            if stack := instruction.metadata.get("stack_frame_id"):
                names[stack].add(instruction.metadata.get("op_name", ""))
        return names

    def _frame(self, number: int) -> tuple[SourceFrame, int | None] | None:
        """Return a stack frame, which many instructions share, and its caller; None if it has no file."""
        if number not in self._frames:
            row = self._row("StackFrames", number)
            location = self._row("FileLocations", _count(row.get("file_location_id")))
            names = self.tables.get("FileNames", {})
            held = None
            if file := text.unquoted(names.get(_count(location.get("file_name_id")) or 0, "")):
                # Parent ids are printed plus 1; 0 means none.
                outer = (_count(row.get("parent_frame_id")) or 0) - 1
                frame = SourceFrame(
                    file, _count(location.get("line")) or None, _count(location.get("column"))
                )
                held = frame, outer if 0 < outer < number else None
            self._frames[number] = held
        return self._frames[number]

    @functools.cached_property
    def _frames(self) -> dict[int, tuple[SourceFrame, int | None] | None]:
        return {}

    def _row(self, table: str, number: int | None) -> Mapping[str, str]:
        row = self.tables.get(table, {}).get(number, "") if number is not None else ""
        return text.fields(row)


def _of_fields(file: str, fields: Mapping[str, str], of: str) -> SourceFrame:
    """Return the frame in the fields `source_line`, `source_column` and so on of a metadata."""
    line = _count(fields.get(f"{of}_line")) or None
    return SourceFrame(file, line, _count(fields.get(f"{of}_column")))


def _count(digits: str | None) -> int | None:
    if digits is None or not (digits.isascii() and digits.isdecimal()) or len(digits) > 18:
        return None
    return int(digits)


def _short(digits: str) -> int | None:
    return _count(digits) if len(digits) < 10 else None


@functools.lru_cache(maxsize=4096)
def _operand(item: str) -> Operand:
    """Parse `%a` or `f32[8]{0} %a`."""
    typed = _TYPED_OPERAND.match(item)
    if typed:
        return Operand(typed[2], shapes.parse(typed[1]))
    return Operand(item.removeprefix("%"), None)


def operand_names(instruction: Instruction) -> Sequence[str | None]:
    """Return the operands' names in order; None for an operand without a name."""
    names = _plain_names(instruction.operands_text)
    return [operand.name for operand in instruction.operands] if names is None else names


def users_of(instructions: Iterable[Instruction]) -> dict[str, list[Instruction]]:
    """Return the instructions of a computation that use each result, by its name."""
    users: dict[str, list[Instruction]] = {}
    for instruction in instructions:
        if instruction.does not in ("parameter", "constant"):
            for name in set(operand_names(instruction)):
                users.setdefault(name or "", []).append(instruction)
    return users


def operand_shapes(computation: Computation, instruction: Instruction) -> list[Shape | None]:
    """Return the operands' shapes in order; None for an unknown one."""
    names = _plain_names(instruction.operands_text)
    if names is None:
        return [computation.shape_of(operand) for operand in instruction.operands]
    sources = map(computation.by_name.get, names)
    return [source.shape if source is not None else None for source in sources]


def result_sizes(computation: Computation) -> dict[str, int | None]:
    """Return the bytes of each instruction's result by its name."""
    return {
        instruction.name: shapes.bytes_of(instruction.shape_text) for instruction in computation.instructions
    }


def operands_size(results: Mapping[str, int | None], instruction: Instruction) -> int | None:
    """Return the bytes of all operands; None if one is unknown.

    results: the bytes of each result of the computation by name, from `result_sizes`.
    """
    # Fast path for operands as compilers write them, names separated by commas.
    names = instruction.operands_text[1:-1].replace("%", "").split(", ")
    sizes = [results.get(name) for name in names]
    if None in sizes:
        sizes = [
            operand.shape.bytes if operand.shape is not None else results.get(operand.name or "")
            for operand in instruction.operands
        ]
    return sum_known(sizes)


@text.kept
def _plain_names(written: str) -> Sequence[str] | None:
    """Return the names of operands written as names alone, as compilers do; None for other operands."""
    written = text.without_positions(written)
    if _NOT_PLAIN.search(written, 1):
        return None
    return tuple(_PLAIN_NAME.findall(written, 1, len(written) - 1))


_CHARACTERS_PER_STEP = 64


class TooLong(Exception):
    """The search exceeds its limit."""


class StepLimit:
    """Counts the steps of a search. A program allows more of them the more instructions it has."""

    def __init__(self, module: Module, least: int, per_instruction: int) -> None:
        instructions = sum(len(computation.instructions) for computation in module.computations)
        self._left = least + per_instruction * instructions

    def count(self, steps: int = 0, characters: int = 0) -> None:
        """Count steps, and the text that they read.

        Raises:
          TooLong: they are more than the limit.
        """
        self._left -= steps + characters // _CHARACTERS_PER_STEP
        if self._left < 0:
            raise TooLong


T = TypeVar("T")


def reach(
    starts: Iterable[T],
    step: Callable[[T], Iterable[T]],
    key: Callable[[T], Hashable] = lambda value: value,
    seen: set[Any] | None = None,
) -> Iterator[T]:
    """Yield values and those that a step leads to, each once, the nearest first.

    Args:
      key: what only equal values share.
      seen: the keys of values that are left out, and then also of those that were yielded.

    >>> list(reach([1], lambda number: [2 * number, 3 * number] if number < 6 else []))
    [1, 2, 3, 4, 6, 9, 8, 12]
    """
    waiting, seen = deque(starts), set() if seen is None else seen
    while waiting:
        value = waiting.popleft()
        if key(value) not in seen:
            seen.add(key(value))
            yield value
            waiting.extend(step(value))


# Tiles in the layout of an array, such as {1,0:T(8,128)}. The text of CPUs has transposed groups, T(1,0).
_TPU = re.compile(r":T\(\d")
_GPU = re.compile(r'"(?:operation_queue_id|fusion_backend_config|gemm_backend_config)"')
# Targets of calls of libraries and kernels of GPUs.
_GPU_CALLS = re.compile(
    r"__cu\w*\$|__gpu\$|(?:cusolver|hipsolver|cublas|hipblas|cusparse)_|mosaic_gpu|triton_kernel_call"
)
_CPU = re.compile(r'"outer_dimension_partitions"')


def platform_of(module: Module) -> Platform | None:
    """Return the kind of machine of a compiled text; None if it does not say."""
    for _, instruction in module.instructions:
        if instruction.shape_text and _TPU.search(instruction.shape_text):
            return "tpu"
        if _GPU.search(instruction.attributes_text):
            return "gpu"
        if _CPU.search(instruction.attributes_text):
            return "cpu"
        if instruction.opcode == "custom-call" and _GPU_CALLS.match(instruction.target):
            return "gpu"
    return None
