"""Parse HLO text into modules, one regular expression per instruction, and read fused reduce-scatters."""

import re
from dataclasses import replace
from typing import NoReturn

from inspector.hlo import text as lexical
from inspector.hlo.module import Computation, Instruction, Module, operand_names, users_of
from inspector.hlo.text import ATTRIBUTES, DEEPEST, GROUP, NAME, SHAPE, STRING
from inspector.text.errors import InvalidInput, shown

# Reduce-scatters that the compiler for TPUs writes as fusions.
#
# The text has no instruction for them. A fusion `kind=kCustom` calls a computation `all-reduce-scatter`: an
# all-reduce, perhaps of a padded operand, of which each device keeps the slice of its partition id. Several
# that were combined are an all-reduce of several arrays, and a tuple of slices. Only the fusion has the name
# and the source line of the operation. The devices send the bytes of a reduce-scatter, half of those of an
# all-reduce.
#
# Source: texts that libtpu 0.0.42 wrote, with the emitters AllReduceScatterFusion and
# SingleInputAllReduceScatterFusion.


_REDUCED = "all-reduce"


def with_reduce_scatters(module: Module) -> Module:
    """Return a module in which fused reduce-scatters are instructions, with the metadata of their fusion.

    Each keeps the name that its all-reduce has in the text.
    """
    reducing = {
        computation.name
        for computation in module.computations
        if computation.complete
        and {_REDUCED, "partition-id"} <= {instruction.opcode for instruction in computation.instructions}
    }
    fusions = {
        called.computation: instruction
        for _, instruction in module.instructions
        if reducing and instruction.opcode == "fusion"
        for called in instruction.called
        if called.computation in reducing
    }
    if not fusions:
        return module
    return replace(
        module,
        computations=tuple(
            _with_reduce_scatter(computation, fusions[computation.name])
            if computation.name in fusions
            else computation
            for computation in module.computations
        ),
    )


def _with_reduce_scatter(computation: Computation, fusion: Instruction) -> Computation:
    """Return the computation of a fusion with a reduce-scatter, or the same one without any."""
    users = users_of(computation.instructions)
    changed: dict[str, Instruction] = {}
    for collective in computation.instructions:
        if collective.opcode != _REDUCED or collective.root:
            continue
        shape = collective.shape
        several = shape is not None and shape.parts is not None
        parts = users.get(collective.name, []) if several else [collective]
        parts = sorted(parts, key=lambda part: part.tuple_index or 0)
        slices = [user for part in parts for user in users.get(part.name, [])]
        count = len(shape.parts or ()) if shape is not None and several else 1
        if not len(parts) == len(slices) == count or not all(map(_is_cut, parts, slices)):
            continue
        texts = [own.shape_text or "" for own in slices]
        for part, own in zip(parts, slices, strict=True):
            changed[part.name] = part._replace(shape_text=own.shape_text)
            changed[own.name] = own._replace(
                opcode="bitcast", operands_text=f"(%{part.name})", attributes_text=""
            )
        metadata = fusion.attributes.get("metadata")
        own_metadata = f", metadata={metadata}" if metadata and not collective.metadata else ""
        changed[collective.name] = collective._replace(
            opcode="reduce-scatter",
            shape_text=f"({', '.join(texts)})" if several else texts[0],
            attributes_text=collective.attributes_text + own_metadata,
        )
    if not changed:
        return computation
    return replace(
        computation,
        instructions=tuple(
            changed.get(instruction.name, instruction) for instruction in computation.instructions
        ),
    )


def _is_cut(whole: Instruction, own: Instruction) -> bool:
    """Return whether an instruction slices the result of another one into equal parts of one dimension."""
    if own.opcode != "dynamic-slice" or next(iter(operand_names(own)), None) != whole.name:
        return False
    before, after = whole.shape, own.shape
    if before is None or after is None or len(before.dimensions) != len(after.dimensions):
        return False
    sizes = zip(before.dimensions, after.dimensions, strict=True)
    cut = [(size or 0, part or 0) for size, part in sizes if size != part]
    return len(cut) == 1 and cut[0][1] > 0 and cut[0][0] % cut[0][1] == 0


_SPACE = re.compile(r"\s*+")
_HEADER = re.compile(rf"\s*+HloModule[ \t]++({NAME})({ATTRIBUTES})", re.S)
_COMPUTATION = re.compile(
    rf"\s*+(ENTRY\s++)?+%?+({NAME})\s*+(?:(?=\(){GROUP}\s*+->\s*+{SHAPE}\s*+)?+\{{", re.S
)
_INSTRUCTION = re.compile(
    rf"\s*+(ROOT\s++)?+%?+({NAME})\s*+=\s*+({SHAPE})?+\s*+([a-z][\w\-]*+)\s*+((?=\(){GROUP})"
    rf"({ATTRIBUTES})(?=\s|\}}|\Z)(?!\s*+,)",
    re.S,
)
# `f32[] parameter(0)` as an operand, which people write and compilers do not.
_INLINE = re.compile(r"[\])}]\s++[a-z][\w\-]*+\(")
# An element of a tuple as dumps of XLA for JAX 0.12 write it: `%state#1` is element 1 of `%state`.
_ELEMENT = re.compile(r"%?([^\s,()#]++)#(\d{1,9})\b")
_INLINE_OPERAND = re.compile(rf"({SHAPE})\s++([a-z][\w\-]*+)((?=\(){GROUP})\Z", re.S)
_END = re.compile(rf"\s*+\}}{ATTRIBUTES}", re.S)
_TABLE = re.compile(r"\s*+(FileNames|FunctionNames|FileLocations|StackFrames)[ \t]*+(?:\n|\Z)")
_ROW = re.compile(rf"[ \t]*+(\d{{1,18}})[ \t]++({STRING}|\{{[^{{}}\n]*+\}})[ \t]*+(?:\n|\Z)")
_BLANK = re.compile(r"[ \t]*+(?:\n|\Z)")
_WORD = re.compile(r"\s*+([^\n]*+)")
# Part of each header that a compiler prints, which handwritten tests lack.
_PRINTED = "entry_computation_layout"


def parse(text: str) -> tuple[Module, ...]:
    """Return the modules of an HLO text in linear time.

    A truncated text is parsed up to its end, and `Module.truncated` is set. Reduce-scatters that a text for
    TPUs has as fusions are instructions.

    Raises:
      InvalidInput: the text is not HLO; the message contains the line.
    """
    modules = tuple(
        with_reduce_scatters(_Reader(piece, line).module()) for line, piece in lexical.pieces(text)
    )
    if not modules:
        raise InvalidInput("the text is not HLO: it has neither an HloModule line nor a computation")
    return modules


class _Reader:
    """One pass over the text of one module."""

    def __init__(self, text: str, first_line: int) -> None:
        self._text = text
        self._first_line = first_line
        self._at = 0
        self._cut: str | None = None

    def module(self) -> Module:
        header = self._take(_HEADER)
        computations: list[Computation] = []
        tables: dict[str, dict[int, str]] = {}
        while not self._at_end():
            if heading := self._take(_COMPUTATION):
                computations.append(self._computation(heading))
            elif heading := self._take(_TABLE):
                tables.setdefault(heading[1], {}).update(self._rows())
            elif self._ends_early():
                self._cut = "the text ends between two computations"
            else:
                self._refuse("a computation of HLO, or an HloModule line")
        if header is None and not any(c.instructions for c in computations):
            self._at = 0
            self._refuse("HLO, with an HloModule line or a computation")
        named, written = (header[1], header[2]) if header else ("", "")
        entry = next((c.name for c in computations if c.entry), None)
        last = computations[-1] if computations else None
        if entry is None and self._cut is None:
            if last is None:
                self._cut = "the text ends before the first computation"
            elif _PRINTED in written:
                self._cut = f"the text ends after {shown(last.name)}, before the ENTRY computation"
            else:
                entry = last.name  # as XLA does for a text without ENTRY
        return Module(named, written, tuple(computations), entry, self._cut, tables)

    def _computation(self, heading: re.Match[str]) -> Computation:
        text, match = self._text, _INSTRUCTION.match
        instructions, at = [], self._at
        while statement := match(text, at):
            root, name, shape, opcode, operands, attributes = statement.groups()
            instruction = Instruction(name, opcode, shape, operands, attributes, root is not None)
            if _INLINE.search(operands) and opcode != "constant":
                instructions += _apart(instruction)
            else:
                instructions.append(instruction)
            at = statement.end()
        self._at = at
        if any("#" in instruction.operands_text for instruction in instructions):
            instructions = _with_elements(instructions)
        complete = self._take(_END) is not None
        if not complete:
            if not self._ends_early():
                self._refuse(f"an instruction of HLO, with brackets at most {DEEPEST} deep")
            self._cut = f"the text ends inside the computation {shown(heading[2])}"
        return Computation(heading[2], heading[1] is not None, tuple(instructions), complete)

    def _rows(self) -> dict[int, str]:
        rows: dict[int, str] = {}
        while self._at < len(self._text):
            if row := self._take(_ROW):
                rows[int(row[1])] = row[2]
            elif not self._take(_BLANK):
                break
        return rows

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self._text, self._at)
        if match:
            self._at = match.end()
        return match

    def _at_end(self) -> bool:
        self._take(_SPACE)
        return self._at == len(self._text)

    def _ends_early(self) -> bool:
        """Return whether the rest is one truncated statement; if so, skip it."""
        rest = self._text[self._at :].strip()
        if not _is_one_statement(rest):
            return False
        self._at = len(self._text)
        return True

    def _refuse(self, wanted: str) -> NoReturn:
        self._take(_SPACE)
        line = self._first_line + self._text.count("\n", 0, self._at)
        match = _WORD.match(self._text, self._at)
        raise InvalidInput(
            f"line {line} of the text is {shown(match[1] if match else '')}, but must be {wanted}"
        )


def _apart(instruction: Instruction) -> list[Instruction]:
    """Return the instructions written as operands, with generated names, and then the instruction."""
    before: list[Instruction] = []
    operands = []
    for number, item in enumerate(lexical.items(instruction.operands_text)):
        inline = _INLINE_OPERAND.match(item)
        if inline:
            # Names in a text have no square brackets.
            name = f"{instruction.name}[{number}]"
            before += _apart(Instruction(name, inline[2], inline[1], inline[3], "", False))
            item = name
        operands.append(item)
    if not before:
        return [instruction]
    return [*before, instruction._replace(operands_text=f"({', '.join(operands)})")]


def _with_elements(instructions: list[Instruction]) -> list[Instruction]:
    """Return the instructions, with one for each element of a tuple that an operand names, `state#1`."""
    shapes = {instruction.name: instruction.shape_text for instruction in instructions}
    known: set[str] = set()
    complete: list[Instruction] = []
    for instruction in instructions:
        if instruction.opcode != "constant":
            for name, index in _ELEMENT.findall(instruction.operands_text):
                element, whole = f"{name}#{index}", shapes.get(name)
                if element in known or whole is None or not whole.startswith("("):
                    continue
                parts = lexical.items(whole)
                shape = parts[int(index)] if int(index) < len(parts) else None
                known.add(element)
                complete.append(
                    Instruction(element, "get-tuple-element", shape, f"(%{name})", f", index={index}", False)
                )
        complete.append(instruction)
    return complete


# An unterminated string extends to the end of the text, which keeps matching linear.
_MARK = re.compile(r'\\.|"(?:[^"\\]++|\\.)*+(?:"|\Z)|([({])|([)}])|\n', re.S)


def _is_one_statement(text: str) -> bool:
    """Return whether all lines of a text are joined by open brackets or commas."""
    depth = 0
    for mark in _MARK.finditer(text):
        opens, closes = mark.groups()
        depth += (opens is not None) - (closes is not None)
        goes_on = depth > 0 or text[mark.start() - 1] in ",="
        if mark[0] == "\n" and not goes_on:
            return False
    return True
