"""What JAX and XLA wrote about a program, read without the project's parsers.

XLA dumps each module after its passes, JAX the StableHLO that it lowers. The readers here take only what the
checks of the sentences need: collectives, loops, meshes and operations.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path

import numpy as np

COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "ragged-all-to-all",
    "collective-broadcast",
)
_BITS = {"pred": 8, "bf16": 16, "token": 0, "c64": 64, "c128": 128}


def bytes_of(shapes: str) -> int:
    """Return the bytes of all shapes in a piece of HLO text."""
    total = 0
    for kind, dimensions in re.findall(r"\b([a-z]+[0-9a-z]*)\[([\d,]*)\]", shapes):
        bits = _BITS.get(kind) or int(re.sub(r"\D.*", "", kind.lstrip("abcdefghijklmnopqrstuvwxyz")) or 0)
        total += math.prod(int(size) for size in dimensions.split(",") if size) * bits // 8
    return total


@dataclass(frozen=True)
class Collective:
    """A collective of a compiled module, with `executions` None in a loop without a known count.

    made: the opcodes from which its operands are made, behind copies, masks and sums. read: the opcodes and
      names of what reads its result, with copies on the way.
    """

    module: str
    name: str
    op: str
    result: int
    groups: frozenset[frozenset[int]]
    pairs: tuple[tuple[int, int], ...]
    op_name: str
    lines: frozenset[str]
    executions: int | None
    branch: bool
    made: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()
    computation: str = ""

    @property
    def size(self) -> int:
        return max((len(group) for group in self.groups), default=1)

    @property
    def payload(self) -> int:
        return self.result * self.size if self.op == "reduce-scatter" else self.result

    @property
    def sent(self) -> int:
        """Bytes that leave each device in one execution, by a ring."""
        if self.op == "collective-permute":
            return self.payload
        share = 2 if self.op == "all-reduce" else 1
        return share * self.payload * (self.size - 1) // max(self.size, 1)

    @property
    def primitives(self) -> frozenset[str]:
        """Names of the operations in its metadata, such as dot_general."""
        return frozenset(re.findall(r"[a-z_]\w*(?:-\w+)*", self.op_name))


@dataclass(frozen=True)
class Module:
    """A compiled module of one device."""

    name: str
    text: str

    @cached_property
    def _files(self) -> dict[str, str]:
        return self._table("FileNames", r'^(\d+) "([^"]*)"')

    def _table(self, heading: str, row: str) -> dict[str, str]:
        found = re.search(rf"^{heading}\n((?:.+\n)*)", self.text, re.M)
        return dict(re.findall(row, found[1], re.M)) if found else {}

    @cached_property
    def frames(self) -> dict[str, frozenset[str]]:
        """The lines of each frame and its callers."""
        places = {}
        located = self._table("FileLocations", r"^(\d+) \{(.*)\}")
        for number, fields in located.items():
            file = re.search(r"file_name_id=(\d+)", fields)
            line = re.search(r"\bline=(\d+)", fields)
            if file and line:
                places[number] = f"{Path(self._files.get(file[1], '?')).name}:{line[1]}"
        frames: dict[str, frozenset[str]] = {}
        for number, fields in self._table("StackFrames", r"^(\d+) \{(.*)\}").items():
            place = re.search(r"file_location_id=(\d+)", fields)
            parent = re.search(r"parent_frame_id=(\d+)", fields)
            own = {places[place[1]]} if place and place[1] in places else set()
            frames[number] = frozenset(own) | frames.get(parent[1] if parent else "", frozenset())
        return frames

    @cached_property
    def computations(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        name = ""
        for line in self.text.splitlines():
            if head := re.match(r"(?:ENTRY )?%?([\w.<>-]+) .*\{$", line):
                name = head[1]
                found[name] = []
                if line.startswith("ENTRY"):
                    found["ENTRY"] = found[name]
            elif line.startswith("  ") and name:
                found[name].append(line)
        return found

    @cached_property
    def runs(self) -> dict[str, tuple[int | None, bool]]:
        """How often each computation runs, and whether a branch decides it."""
        found: dict[str, tuple[int | None, bool]] = {}

        def visit(name: str, times: int | None, branch: bool) -> None:
            known = found.get(name, (0, False))
            total = None if times is None or known[0] is None else known[0] + times
            found[name] = total, branch or known[1]
            for line in self.computations.get(name, ()):
                count = re.search(r'known_trip_count"?:\{"?n"?:"?(\d+)', line)
                inner = times
                if " while(" in line:
                    inner = None if times is None or not count else times * int(count[1])
                taken = branch or " conditional(" in line
                for called in re.findall(
                    r"(?:body|calls|to_apply|true_computation|false_computation)=%?([\w.<>-]+)", line
                ):
                    visit(called, inner, taken)
                for several in re.findall(r"branch_computations=\{([^}]*)\}", line):
                    for called in several.replace("%", "").split(","):
                        visit(called.strip(), inner, taken)

        visit("ENTRY", 1, False)
        return found

    @cached_property
    def collectives(self) -> tuple[Collective, ...]:
        found = []
        for name, (times, branch) in self.runs.items():
            for line in self.computations.get(name, ()):
                pattern = rf"  (?:ROOT )?%?([\w.-]+) = (.*?) ({'|'.join(COLLECTIVES)})(?:-start)?\("
                if (head := re.match(pattern, line)) is None:
                    continue
                named = re.search(r'op_name="([^"]*)"', line)
                frame = re.search(r"stack_frame_id=(\d+)", line)
                pairs = re.search(r"source_target_pairs=\{([^=]*)\}", line)
                found.append(
                    Collective(
                        self.name,
                        head[1],
                        head[3],
                        bytes_of(head[2]),
                        _groups(line),
                        tuple(
                            (int(a), int(b))
                            for a, b in re.findall(r"\{(\d+),(\d+)\}", pairs[1] if pairs else "")
                        ),
                        named[1] if named else "",
                        self.frames.get(frame[1], frozenset()) if frame else frozenset(),
                        times,
                        branch,
                        frozenset(self._made(name, line, {})),
                        frozenset(self._read(name, head[1], set())),
                        name,
                    )
                )
        return tuple(found)

    def around(self, collective: Collective) -> list[str]:
        """Return the lines that make the operands of a collective or read its result, fused ones too."""
        lines = self.computations[collective.computation]
        own = _operands(self._line(collective.computation, collective.name))
        near = [self._line(collective.computation, name) for name in own]
        near += [line for line in lines if collective.name in _operands(line)]
        called = (name for line in near for name in re.findall(r"calls=%?([\w.<>-]+)", line))
        return [*near, *(line for name in called for line in self.computations.get(name, ()))]

    def _line(self, computation: str, name: str) -> str:
        begin = re.compile(rf"  (?:ROOT )?%?{re.escape(name)} = ")
        return next((line for line in self.computations.get(computation, ()) if begin.match(line)), "")

    def _made(
        self, computation: str, line: str, given: dict[int, tuple[str, str]], steps: int = 9
    ) -> set[str]:
        """Return the opcodes behind the operands of an instruction; `given` has those of its caller."""
        found: set[str] = set()
        for operand in _operands(line):
            inner = self._line(computation, operand)
            number = re.search(r" parameter\((\d+)\)", inner)
            called = re.search(r"(?:calls|to_apply)=%?([\w.<>-]+)", inner)
            opcode = _opcode(inner)
            if number and int(number[1]) in given and steps:
                outer, name = given[int(number[1])]
                found |= self._made(outer, f"x = f32[] x({name})", {}, steps - 1)
            elif opcode in ("fusion", "call") and called and steps:
                callers = {n: (computation, name) for n, name in enumerate(_operands(inner))}
                root = [text for text in self.computations.get(called[1], ()) if "ROOT" in text]
                name = re.findall(r"ROOT %?([\w.-]+) =", root[0])[0] if root else ""
                found |= self._made(called[1], f"x = f32[] x({name})", callers, steps - 1)
            elif opcode in _PASSED and steps:
                found |= self._made(computation, inner, given, steps - 1)
            else:
                found.add(opcode)
        return found

    def _read(self, computation: str, name: str, seen: set[tuple[str, str]]) -> set[str]:
        """Return the opcodes and the words in the names of all that reads a value, behind copies of it."""
        found: set[str] = set()
        if len(seen) > 60 or (computation, name) in seen:
            return found
        seen.add((computation, name))
        for line in self.computations.get(computation, ()):
            if name not in _operands(line):
                continue
            own = re.match(r"  (?:ROOT )?%?([\w.-]+) = ", line)
            named = re.search(r'op_name="([^"]*)"', line)
            opcode = _opcode(line)
            found |= {opcode, *re.findall(r"[a-z_]\w*(?:-\w+)*", named[1] if named else "")}
            called = re.search(r"(?:calls|to_apply|body)=%?([\w.<>-]+)", line)
            if opcode in ("fusion", "call", "while") and called:
                place = 0 if opcode == "while" else _operands(line).index(name)
                for text in self.computations.get(called[1], ()):
                    if f" parameter({place})" in text and (
                        inner := re.match(r"  (?:ROOT )?%?([\w.-]+) =", text)
                    ):
                        found |= self._read(called[1], inner[1], seen)
            if own and opcode in {*_PASSED, *COLLECTIVES, "fusion", "tuple", "concatenate", "slice", "pad"}:
                found |= self._read(computation, own[1], seen)
        return found

    @cached_property
    def donated(self) -> bool:
        return "input_output_alias={ {" in self.text.split("\n", 1)[0]


_PASSED = (
    "copy", "bitcast", "transpose", "reshape", "convert", "get-tuple-element", "negate", "add", "subtract",
    "multiply", "divide", "select", "broadcast", "dynamic-slice", "x",
)  # fmt: skip


def _opcode(line: str) -> str:
    """Return the opcode of an instruction, whose result can be a tuple."""
    found = re.search(r" = (?:\(.*?\)|\S+) ([\w-]+)\(", line)
    return found[1] if found else ""


def _operands(line: str) -> list[str]:
    found = re.search(r" = (?:\(.*?\)|\S+) [\w-]+\(([^)]*)\)", line)
    return re.findall(r"%?([\w.-]+)(?:,|$)", found[1]) if found else []


def _groups(line: str) -> frozenset[frozenset[int]]:
    """Return the groups of positions of a collective, in the three ways in which HLO writes them."""
    if listed := re.search(r"replica_groups=\{(\{[\d,{} ]*\})\}", line):
        return frozenset(
            frozenset(map(int, group.split(","))) for group in re.findall(r"\{([\d,]+)\}", listed[1])
        )
    if iota := re.search(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", line):
        ids = _ids(iota[2], iota[3]).reshape([int(size) for size in iota[1].split(",")])
        return frozenset(frozenset(map(int, group)) for group in ids)
    if mesh := re.search(
        r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?\))? \{([^}]*)\}",
        line,
    ):
        names, sizes = zip(*re.findall(r"'([^']+)'=(\d+)", mesh[1]), strict=True)
        shape = [int(size) for size in sizes]
        ids = (_ids(mesh[2], mesh[3]) if mesh[2] else np.arange(math.prod(shape))).reshape(shape)
        over = [names.index(name) for name in re.findall(r"'([^']+)'", mesh[4])]
        rest = [axis for axis in range(len(shape)) if axis not in over]
        ids = ids.transpose(rest + over).reshape(-1, math.prod(shape[axis] for axis in over))
        return frozenset(frozenset(map(int, group)) for group in ids)
    return frozenset()


def _ids(shape: str, order: str | None) -> np.ndarray:
    sizes = [int(size) for size in shape.split(",")]
    ids = np.arange(math.prod(sizes)).reshape(sizes)
    return (ids.transpose([int(axis) for axis in order.split(",")]) if order else ids).reshape(-1)


_COUNTS_ALIVE = """
import atexit, collections, gc, sys, jax
most = [0]
def look(frame, event, argument):
    if frame.f_code.co_filename.endswith(("pjit.py", "dispatch.py", "api.py")):
        buffers = {}
        for array in jax.live_arrays():
            for data in [] if array.is_deleted() else array._arrays:
                buffers[data.device, data.unsafe_buffer_pointer()] = data.nbytes
        sizes = collections.Counter()
        for (device, _), size in buffers.items():
            sizes[device] += size
        most[0] = max(most[0], *sizes.values(), 0)
atexit.register(lambda: print("alive:", most[0]))
sys.setprofile(look)
"""


@dataclass(frozen=True)
class Evidence:
    """The dumps of one program of the corpus."""

    name: str
    folder: Path
    source: str
    exit: int = 0

    @cached_property
    def allocations(self) -> dict[str, list[int]]:
        """The bytes that XLA allocates for each module."""
        found: dict[str, list[int]] = {}
        for path in (self.folder / "dump").glob("*memory-usage-report.txt"):
            named = re.match(r"module_\d+\.(.*?)\.cpu_after", path.name)
            total = re.search(r"^Total bytes: (\d+)", path.read_text(), re.M)
            if named and total:
                found.setdefault(named[1], []).append(int(total[1]))
        return found

    @cached_property
    def most_alive(self) -> int:
        """The most bytes of JAX's live arrays on one device, in a run that looks at each call of JAX."""
        command = (sys.executable, "-c", _COUNTS_ALIVE + self.source)
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8"}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return int(ended.stdout.rpartition("alive: ")[2])

    @cached_property
    def modules(self) -> tuple[Module, ...]:
        """The compiled modules, those of operations outside of jit too."""
        found = []
        for path in sorted((self.folder / "dump").glob("*_after_optimizations.txt")):
            named = re.match(r"module_\d+\.(.*?)\.(?:sm_\w+_|cpu_)?(?:gpu_)?after", path.name)
            found.append(Module(named[1] if named else path.name, path.read_text()))
        return tuple(found)

    @cached_property
    def lowered(self) -> str:
        """All StableHLO that JAX lowered, with the names of operations in its locations."""
        return "\n".join(path.read_text() for path in sorted((self.folder / "ir").glob("*.mlir")))

    @cached_property
    def meshes(self) -> tuple[dict[str, int], ...]:
        found = []
        for text in re.findall(r"sdy\.mesh @\w+ = <\[([^\]]*)\]", self.lowered):
            sizes = {name: int(size) for name, size in re.findall(r'"([^"]+)"=(\d+)', text)}
            if sizes and sizes not in found:
                found.append(sizes)
        if not found and (built := re.search(r"reshape\(([\d, ]+)\), \(([^)]*)\)\)", self.source)):
            names = re.findall(r'"(\w+)"', built[2])
            found.append(dict(zip(names, map(int, built[1].split(", ")), strict=True)))
        return tuple(found)

    @cached_property
    def axes(self) -> frozenset[str]:
        return frozenset(name for mesh in self.meshes for name in mesh)

    @cached_property
    def collectives(self) -> tuple[Collective, ...]:
        return tuple(found for module in self.modules for found in module.collectives)

    @cached_property
    def has_gradient(self) -> bool:
        """Whether reverse mode ran: JAX names what it transposes `transpose(jvp(…))`."""
        return "transpose(jvp(" in self.lowered

    @cached_property
    def has_checkpoint(self) -> bool:
        return "checkpoint" in self.lowered or "rematted_computation" in self.lowered

    @cached_property
    def primitives(self) -> frozenset[str]:
        """Every word in the locations of what JAX lowered."""
        words: set[str] = set()
        for place in re.findall(r'loc\("([^"]*)"', self.lowered):
            words.update(re.findall(r"[A-Za-z_]\w*(?:-\w+)*", place))
        return frozenset(words)

    def over(self, axes: tuple[str, ...]) -> Iterator[Collective]:
        """Yield the collectives whose groups are along exactly these mesh axes."""
        for collective in self.collectives:
            if any(matches(collective, mesh, axes) for mesh in self.meshes or ({},)):
                yield collective

    def axes_of(self, collective: Collective) -> list[tuple[str, ...]]:
        """Return the sets of mesh axes along which a collective can be, of each mesh."""
        return [
            axes
            for mesh in self.meshes
            for count in range(1, len(mesh) + 1)
            for axes in combinations(mesh, count)
            if matches(collective, mesh, axes)
        ]


def matches(collective: Collective, mesh: dict[str, int], axes: tuple[str, ...]) -> bool:
    """Return whether the groups, or the pairs, of a collective are along these axes of a mesh."""
    if any(axis not in mesh for axis in axes):
        return False
    names = list(mesh)
    ids = np.arange(math.prod(mesh.values())).reshape(list(mesh.values()))
    over = [names.index(axis) for axis in axes]
    rest = [axis for axis in range(len(names)) if axis not in over]
    groups = ids.transpose(rest + over).reshape(-1, math.prod(mesh[axis] for axis in axes))
    if collective.op == "collective-permute":
        # Each pair stays in a group, and some pair moves along each axis.
        place = {int(one): index for index, one in np.ndenumerate(ids)}
        if not collective.pairs or max(max(pair) for pair in collective.pairs) >= ids.size:
            return False
        moved = {
            names[axis]
            for a, b in collective.pairs
            for axis in range(len(names))
            if place[a][axis] != place[b][axis]
        }
        return moved == {axis for axis in axes if mesh[axis] > 1}
    return collective.groups == frozenset(frozenset(map(int, group)) for group in groups)
