"""Where in a model an operation of a compiled program stands: which phase of a step, and which module.

JAX gives an operation the stack of names that it was traced under, such as
`jit(step)/transpose(jvp(MLP))/while/body/closed_call/Block_0/Dense_0/dot_general`. A compiler that joins
operations joins their names: `jit(step)/(jvp(MLP)/Block_0/dot_general:jvp()/reduce_sum)`.

What follows from names alone has limits. What was differentiated is known by `jvp` and `transpose`. All
else goes by the name of the jitted function: in a train step it is the optimizer, unless it stands in a
module, and then a forward pass that nothing was differentiated through. So what a loss computes without a
parameter and outside of every module, such as the angles of rotary embeddings, is taken for the optimizer.
A function of any other name, and without a module, is of an unknown phase; so is a name that the compiler
made up or cut.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Phase = Literal["forward", "backward", "rematerialised", "optimizer", "init", "several", "unknown"]
PHASES: tuple[Phase, ...] = (
    "init", "forward", "rematerialised", "backward", "optimizer", "several", "unknown",
)  # fmt: skip

# What JAX itself puts on the stack, for control flow and for functions with rules of their own.
_NO_MODULES = frozenset({
    "while", "body", "cond", "scan", "closed_call", "core_call", "eval_jaxpr", "checkpoint",
    "rematted_computation", "remat", "remat2", "shard_map", "pjit", "named_call", "xla_call",
    "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_lin", "pallas_call",
})  # fmt: skip
_BRANCH = re.compile(r"branch_\d+_fun\Z")
# The class of an outermost module has no number, as those inside of it have that were not named.
_ROOT_MODULE = re.compile(r"[A-Z][A-Za-z0-9]*\Z")
_CALL = re.compile(r"([A-Za-z_][\w.]*)\((.*)\)\Z", re.S)

_INIT = re.compile(r"init", re.I)
_TRAIN = re.compile(r"step|train|update", re.I)
_INFERENCE = re.compile(r"apply|forward|infer|predict|eval|generate|prefill|decode", re.I)

# No name that JAX writes comes near these; a name from a file may be anything.
_DEEPEST = 20
_MOST_PARTS = 200
_MOST_PLACES = 10_000


@dataclass(frozen=True)
class Place:
    """The phase of a step, the module as the path of its parameters has it, and the operation.

    `path` is "" outside of every module, `operation` is "" where none is named. Of joined operations the
    phase is `several` where they differ, `path` what all begin with, `operation` "" where they differ.
    """

    phase: Phase
    path: str
    operation: str


UNKNOWN = Place("unknown", "", "")


def place_of(op_name: str | None) -> Place:
    """The one place of an operation, of joined ones what their places have in common."""
    places = places_of(op_name)
    phases = {place.phase for place in places}
    operations = {place.operation for place in places}
    return Place(
        phases.pop() if len(phases) == 1 else "several",
        "/".join(_shared([place.path.split("/") for place in places])),
        operations.pop() if len(operations) == 1 else "",
    )


def _shared(paths: list[list[str]]) -> list[str]:
    """What all of the paths begin with."""
    length = 0
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        length += 1
    return paths[0][:length]


@functools.lru_cache(maxsize=4096)
def places_of(op_name: str | None) -> tuple[Place, ...]:
    """The places of all operations that were joined under this name, each once; at least one."""
    if not op_name:
        return (UNKNOWN,)
    found: dict[Place, None] = {}
    for number, parts in enumerate(_alternatives(op_name, 0)):
        if number == _MOST_PLACES or len(parts) > _MOST_PARTS:
            return (UNKNOWN,)  # a part of the places would be taken for all of them
        found.setdefault(_place(parts))
    return tuple(found)


def _place(parts: tuple[str, ...]) -> Place:
    """One place from the parts of a name that stand between its slashes."""
    function = _CALL.match(parts[0])
    if function is None or function[1] not in ("jit", "pjit", "pmap") or len(parts) < 2:
        # An argument, a name of the compiler's own, or one that has lost its beginning.
        phase = "rematerialised" if "rematted_computation" in parts else "unknown"
        return Place(phase, "", parts[-1] if len(parts) > 1 else "")
    transforms: set[str] = set()
    scopes: list[str] = []
    for part in parts[1:-1]:
        if part.startswith("jit("):
            scopes = _said_once(scopes)
        scopes += _scopes(part, transforms)
    # The operation itself is under a transformation only where it is a call.
    operation = (_scopes(parts[-1], set(), called=True) or [parts[-1]])[-1]
    in_module = bool(scopes) and _ROOT_MODULE.match(scopes[0]) is not None
    if in_module:
        root = scopes[0]
        while scopes and scopes[0] == root:  # named again where it is computed again
            scopes = scopes[1:]
    if "rematted_computation" in parts:
        phase: Phase = "rematerialised"
    elif "transpose" in transforms:
        phase = "backward"
    elif "jvp" in transforms:
        phase = "forward"
    else:
        phase = _phase_of_function(function[2], in_module)
    return Place(phase, "/".join(scopes), operation)


def _said_once(scopes: list[str]) -> list[str]:
    """The modules without a repetition at the end: so JAX 0.12 names a function that a loop calls."""
    for length in range(len(scopes) // 2, 0, -1):
        if scopes[-length:] == scopes[-2 * length : -length]:
            return scopes[:-length]
    return scopes


def _phase_of_function(name: str, in_module: bool) -> Phase:
    if _INIT.search(name):
        return "init"
    if _TRAIN.search(name):
        return "forward" if in_module else "optimizer"
    return "forward" if in_module or _INFERENCE.search(name) else "unknown"


def _scopes(part: str, transforms: set[str], called: bool = False) -> list[str]:
    """The names that a part gives, with the transformations around them taken off into `transforms`."""
    for _ in range(_DEEPEST):
        call = _CALL.match(part)
        if call is None:
            break
        if call[1] in ("jit", "pjit") and not called:
            return []  # a function's name is no module's
        transforms.add(call[1])
        part = call[2]
    # Einsum's equation stands there as a name; an empty one is a transformation outside of all modules.
    if not part or "->" in part or part in _NO_MODULES or _BRANCH.match(part):
        return []
    scope, _, method = part.partition(".")  # a module's method, where it is not the usual one
    return [] if method == "__call__" else [scope]


def _alternatives(name: str, depth: int) -> Iterator[tuple[str, ...]]:
    """The parts between slashes of every operation that is joined in a name."""
    parts = _split(name, "/")
    for number, part in enumerate(parts):
        if depth < _DEEPEST and part[:1] == "(" and part[-1:] == ")":
            before, after = tuple(parts[:number]), tuple(parts[number + 1 :])
            for joined in _split(part[1:-1], ":"):
                for between in _alternatives(joined, depth + 1):
                    yield (*before, *between, *after)
            return
    yield tuple(parts)


def _split(text: str, separator: str) -> list[str]:
    """The text between the separators that stand in no brackets; brackets that do not pair are text."""
    parts, depth, start = [], 0, 0
    for at, character in enumerate(text):
        if character == "(":
            depth += 1
        elif character == ")":
            depth = max(depth - 1, 0)
        elif character == separator and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    return parts
