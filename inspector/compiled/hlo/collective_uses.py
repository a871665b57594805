"""What a program needs the result of a collective for, where that decides how often it must run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from inspector.compiled.hlo.analysis import Analysis
from inspector.compiled.hlo.module import Computation, Instruction, operand_names
from inspector.core.collectives import BY_OPCODE
from inspector.core.snapshot import CollectiveUse

Key = tuple[str, str]  # the computation and the name of a collective

_ENTERED = frozenset({"call", "fusion"})
# Operations that commute with a sum over devices, if their other operands are the same in every iteration.
_LINEAR = frozenset({
    "bitcast", "copy", "convert", "reshape", "transpose", "negate", "multiply", "divide", "slice",
    "all-reduce-done", "get-tuple-element",
})  # fmt: skip
_COPIES = frozenset({"bitcast", "copy"})
_MOVES = frozenset({
    "bitcast", "copy", "convert", "reshape", "transpose", "all-gather-done", "copy-start", "copy-done",
})  # fmt: skip
_MOST_STEPS = 200


def uses(analysis: Analysis) -> dict[Key, CollectiveUse]:
    """Return the uses of the collectives of which one is known.

    condition: the collective runs in the condition of a loop. loop-end: the body of the loop has none.
    callback: its result is an argument of a function on the host.
    accumulation: each iteration of a loop adds its result to a sum, and reads the sum for nothing else.
    """
    found: dict[Key, CollectiveUse] = {}
    for computation, instruction in analysis.module.instructions:
        if instruction.opcode == "while":
            roles = {called.role: called.computation for called in instruction.called}
            # In a loop whose body communicates, devices wait for each other in any case.
            alone = next(_inside(analysis, roles.get("body", ""), set()), None) is None
            for key in _inside(analysis, roles.get("condition", ""), set()):
                found[key] = "loop-end" if alone else "condition"
            body = analysis.module.by_name.get(roles.get("body", ""))
            if body is not None:
                for key in _accumulated(analysis, body):
                    found.setdefault(key, "accumulation")
        elif is_callback(instruction):
            for name in operand_names(instruction):
                source = computation.by_name.get(name or "")
                gathered = None if source is None else _gathered(analysis, computation, source)
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


def _inside(analysis: Analysis, name: str, seen: set[str]) -> Iterator[Key]:
    computation = analysis.module.by_name.get(name)
    if computation is None or name in seen:
        return
    seen.add(name)
    for instruction in computation.instructions:
        if instruction.opcode in BY_OPCODE:
            yield name, instruction.name
        elif instruction.opcode in ("call", "fusion", "conditional", "async-start"):
            for called in instruction.called:
                yield from _inside(analysis, called.computation, seen)


def _gathered(analysis: Analysis, computation: Computation, source: Instruction) -> Key | None:
    """Return the all-gather that makes a value, through calls, tuples, branches and copies."""
    place: list[int] = []  # elements of tuples that are still to be taken
    for _ in range(_MOST_STEPS):
        opcode = source.opcode
        if opcode in ("all-gather", "all-gather-start"):
            return computation.name, source.name
        number = 0
        if opcode == "get-tuple-element":
            place.append(source.tuple_index or 0)
        elif opcode == "tuple":
            if not place:
                return None
            number = place.pop()
        elif opcode == "parameter":
            sites = analysis.call_sites.get(computation.name, [])
            if len(sites) != 1 or sites[0].role not in ("call", "branch"):
                return None
            (site,) = sites
            number = site.number + 1 if site.role == "branch" else source.number or 0
            computation, source = site.caller, site.instruction
        elif opcode not in _MOVES:
            return None
        before = computation.operand(source, number)
        if before is None:
            return None
        source = before
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
        state = {name: _state_of(body, name) for name in others}
        if user.opcode == "fusion":
            kind = _fused(analysis, user, value)
        elif user.opcode == "add":
            kind = "added"
        else:
            kind = "linear" if user.opcode in _LINEAR and _constant(body, others) else None
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


def _state_of(body: Computation, name: str | None) -> int | None:
    """Return the element of the loop's state that a value is, None for another value."""
    value = body.by_name.get(name or "")
    while value is not None and value.opcode in _COPIES:
        value = body.operand(value)
    if value is None or value.opcode != "get-tuple-element":
        return None
    state = body.operand(value)
    return value.tuple_index if state is not None and state.opcode == "parameter" else None


def _constant(body: Computation, names: list[str | None]) -> bool:
    """Return whether values are constants, or parts of them."""
    for name in names:
        value = body.by_name.get(name or "")
        while value is not None and value.opcode in ("broadcast", "convert", "bitcast", "reshape"):
            value = body.operand(value)
        if value is None or value.opcode != "constant":
            return False
    return True


def _fused(analysis: Analysis, fusion: Instruction, value: Instruction) -> str | None:
    """Return whether a fusion adds a value to its other operands, or is linear in it; None for neither."""
    called = [c.computation for c in fusion.called if c.role == "call"]
    inner = analysis.module.by_name.get(called[0]) if len(called) == 1 else None
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
            while other is not None and other.opcode in _COPIES:
                other = inner.operand(other)
            if other is None or other.opcode != "parameter":
                return None
            added = True
        elif not (user.opcode in (_COPIES if added else _LINEAR) and _constant(inner, others)):
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
        if user.opcode not in _COPIES:
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
            if user.opcode in _COPIES:
                waiting.append(user)
            else:
                read.add(user.name)
    return {""}
