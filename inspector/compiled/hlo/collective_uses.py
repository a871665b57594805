"""What a program needs the result of a collective for, where that decides how often it must run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from inspector.compiled.hlo.analysis import Analysis
from inspector.compiled.hlo.dataflow import Frame, Value
from inspector.compiled.hlo.module import Computation, Instruction, Module, operand_names
from inspector.compiled.hlo.opcodes import RUNS, SAME_DATA
from inspector.core.snapshot import CollectiveUse

Key = tuple[str, str]  # the computation and the name of a collective

# Operations that commute with a sum over devices, if their other operands are the same in every iteration.
_LINEAR = frozenset({"negate", "multiply", "divide", "slice", "all-reduce-done"})
_COPIES = frozenset({"bitcast", "copy"})
_OF_CONSTANTS = SAME_DATA | {"broadcast"}
_MOST_STEPS = 200


def uses(analysis: Analysis) -> dict[Key, CollectiveUse]:
    """Return the uses of the collectives of which one is known.

    condition: the collective runs in the condition of a loop. loop-end: the body of the loop has none.
    callback: its result is an argument of a function on the host.
    accumulation: each iteration of a loop adds its result to a sum, and reads the sum for nothing else.
    """
    found: dict[Key, CollectiveUse] = {}
    module = analysis.module
    for computation, instruction in module.instructions:
        if instruction.opcode == "while":
            body, condition = (module.callee(instruction, role) for role in ("body", "condition"))
            # In a loop whose body communicates, devices wait for each other in any case.
            alone = next(_inside(module, body, set()), None) is None
            for key in _inside(module, condition, set()):
                found[key] = "loop-end" if alone else "condition"
            if body is not None:
                for key in _accumulated(analysis, body):
                    found.setdefault(key, "accumulation")
        elif is_callback(instruction):
            for source in analysis.backward.operands(Value(Frame(computation), instruction)):
                gathered = _gathered(analysis, source)
                if gathered is not None:
                    found.setdefault(gathered, "callback")
    return found


def is_callback(instruction: Instruction) -> bool:
    """Return whether an instruction calls a Python function on the host, or sends to one."""
    if instruction.opcode == "send":
        return instruction.attributes.get("is_host_transfer") == "true"
    if instruction.opcode != "custom-call":
        return False
    target = instruction.target
    return "callback" in target and target.startswith(("xla_python", "xla_ffi_python"))


def _inside(module: Module, computation: Computation | None, seen: set[str]) -> Iterator[Key]:
    if computation is None or computation.name in seen:
        return
    seen.add(computation.name)
    for instruction in computation.instructions:
        if instruction.does == "collective":
            yield computation.name, instruction.name
        elif instruction.does in RUNS and instruction.does != "while":
            for called in module.callees(instruction):
                yield from _inside(module, called, seen)


def _gathered(analysis: Analysis, source: Value) -> Key | None:
    """Return the all-gather that makes a value, through calls, tuples, branches and copies."""
    for frame, instruction, _ in analysis.backward.chain(source, SAME_DATA, _MOST_STEPS):
        if instruction.opcode in ("all-gather", "all-gather-start"):
            return frame.computation.name, instruction.name
    return None


def _accumulated(analysis: Analysis, body: Computation) -> Iterator[Key]:
    """Yield the all-reduces of a loop body whose result is only added to an element of the loop's state."""
    users = analysis.users(body)
    for instruction in body.instructions:
        if instruction.opcode not in ("all-reduce", "all-reduce-start"):
            continue
        if len(operand_names(instruction)) == 1 and _only_added(analysis, body, instruction, users):
            yield body.name, instruction.name


def _only_added(
    analysis: Analysis,
    body: Computation,
    value: Instruction,
    users: Mapping[str, Sequence[Instruction]],
) -> bool:
    for _ in range(_MOST_STEPS):
        following = users.get(value.name, ())
        if len(following) != 1:
            return False
        (user,) = following
        if user.opcode == "tuple":
            return False  # it replaces the state
        others = [name for name in operand_names(user) if name != value.name]
        state = {name: _state_of(analysis, body, name) for name in others}
        if user.opcode == "fusion":
            kind = _fused(analysis, user, value)
        elif user.opcode == "add":
            kind = "added"
        else:
            kind = "linear" if _is_linear(analysis, body, user, others) else None
        if kind == "linear":
            value = user
            continue
        if kind != "added":
            return False
        elements = {element for element in state.values() if element is not None}
        # Only this sum reads the element, and the loop keeps the sum in its place.
        return any(
            _kept_as(body, users, user, element) and _read_by(body, users, element) == {user.name}
            for element in elements
        )
    return False


def _is_linear(
    analysis: Analysis, computation: Computation, user: Instruction, others: list[str | None]
) -> bool:
    is_linear = user.opcode in _LINEAR or user.does in SAME_DATA or user.does == "element"
    return is_linear and _constant(analysis, computation, others)


def _state_of(analysis: Analysis, body: Computation, name: str | None) -> int | None:
    """Return the element of the loop's state that a value is, None for another value."""
    value = body.by_name.get(name or "")
    if value is None:
        return None
    *_, last = analysis.backward.chain(Value(Frame(body, open=False), value), _COPIES, _MOST_STEPS)
    is_element = last.instruction.does == "parameter" and len(last.path) == 1
    return last.path[0] if is_element else None


def _constant(analysis: Analysis, computation: Computation, names: list[str | None]) -> bool:
    """Return whether values are constants, or parts of them."""
    for name in names:
        value = computation.by_name.get(name or "")
        if value is None:
            return False
        *_, last = analysis.backward.chain(Value(Frame(computation, open=False), value), _OF_CONSTANTS)
        if last.instruction.does != "constant":
            return False
    return True


def _fused(analysis: Analysis, fusion: Instruction, value: Instruction) -> str | None:
    """Return whether a fusion adds a value to its other operands, or is linear in it; None for neither."""
    inner = analysis.module.callee(fusion, "call")
    names = operand_names(fusion)
    if inner is None or inner.root is None or names.count(value.name) != 1:
        return None
    at = inner.parameters.get(names.index(value.name))
    users = analysis.users(inner)
    added = False
    for _ in range(_MOST_STEPS):
        if at is None:
            return None
        if at is inner.root:
            return "added" if added else "linear"
        following = users.get(at.name, ())
        if len(following) != 1:
            return None
        (user,) = following
        others = [name for name in operand_names(user) if name != at.name]
        if user.opcode == "add" and not added:
            other = inner.by_name.get((others or [None])[0] or "")
            while other is not None and other.does in _COPIES:
                other = inner.operand(other)
            if other is None or other.does != "parameter":
                return None
            added = True
        elif not (user.does in _COPIES if added else _is_linear(analysis, inner, user, others)):
            return None
        at = user
    return None


def _kept_as(
    body: Computation,
    users: Mapping[str, Sequence[Instruction]],
    value: Instruction,
    element: int,
) -> bool:
    root = body.root
    for _ in range(_MOST_STEPS):
        following = users.get(value.name, ())
        if len(following) != 1:
            return False
        (user,) = following
        if user is root and user.opcode == "tuple":
            return list(operand_names(user)).index(value.name) == element
        if user.does not in _COPIES:
            return False
        value = user
    return False


def _read_by(
    body: Computation,
    users: Mapping[str, Sequence[Instruction]],
    element: int,
) -> set[str]:
    """Return the instructions that read an element of the loop's state, copies aside."""
    state = body.parameters.get(0)
    waiting = [
        user
        for user in users.get(state.name if state else "", ())
        if user.opcode == "get-tuple-element" and user.tuple_index == element
    ]
    read: set[str] = set()
    for _ in range(_MOST_STEPS):
        if not waiting:
            return read
        for user in users.get(waiting.pop().name, ()):
            if user.does in _COPIES:
                waiting.append(user)
            else:
                read.add(user.name)
    return {""}
