"""Parse HLO text into modules, with one regular expression per instruction."""

import re
from typing import NoReturn

from inspector.compiled.hlo import text as lexical
from inspector.compiled.hlo.fused_collectives import with_reduce_scatters
from inspector.compiled.hlo.module import Computation, Instruction, Module
from inspector.compiled.hlo.text import ATTRIBUTES, DEEPEST, GROUP, NAME, SHAPE, STRING
from inspector.core.errors import InvalidInput, shown

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
