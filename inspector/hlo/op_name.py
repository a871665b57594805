"""Parse the `op_name` metadata of an HLO instruction: the phase of a step, the module and the primitive.

JAX names each operation by the stack of names under which it was traced, such as
`jit(step)/transpose(jvp(MLP))/while/body/closed_call/Block_0/Dense_0/dot_general`. If XLA merges
operations, it joins their names: `jit(step)/(jvp(MLP)/Block_0/dot_general:jvp()/reduce_sum)`.

The phase is proved by the marks of JAX's autodiff alone: `jvp(…)` in a forward pass, `transpose(jvp(…))` in a
backward pass. All other operations are `unknown`, such as those of an optimizer, of a metric, or of a program
without a gradient. Names that a user chose, of functions and modules, say nothing about the phase.
"""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from inspector.hlo.source_calls import PRIMITIVES
from inspector.records.snapshot import Phase

FUNCTIONS = ("jit(", "pjit(", "pmap(")  # how JAX begins the name of an operation of a program
PHASES: tuple[Phase, ...] = get_args(Phase)
# The backward pass, with the repeated computations.
BACKWARD: frozenset[Phase] = frozenset({"backward", "rematerialised"})
# The names in JAX and in HLO of what multiplies and sums, reads or adds by index, and reduces by an opcode.
PRODUCTS = frozenset({"dot_general", "conv_general_dilated", "ragged_dot", "einsum", "dot", "convolution"})
READS = frozenset({"gather", "take", "_take", "dynamic_slice", "dynamic-slice"})
UPDATES = frozenset({"scatter-add", "scatter_add", "scatter"})
RETURN = "return"  # the name in StableHLO of what only the results of the program need


def phase_text(phase: Phase) -> str:
    """Return a phase in words: what JAX calls `rematted_computation` is computed again."""
    return "computed again" if phase == "rematerialised" else phase


# Names that JAX itself adds to the stack, for control flow and custom derivatives.
_JAX_NAMES = frozenset({
    "while", "body", "cond", "scan", "closed_call", "core_call", "eval_jaxpr", "checkpoint",
    "rematted_computation", "remat", "remat2", "shard_map", "pjit", "named_call", "xla_call",
    "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_lin", "pallas_call",
})  # fmt: skip
_JOINED = re.compile(r";(?=(?:p?jit|pmap)\()")  # XLA joins the whole names of operations that it replaces
_BRANCH = re.compile(r"branch_\d+_fun\Z")
# The class name of the outermost module. Unlike a submodule's name it has no number.
_ROOT_MODULE = re.compile(r"[A-Z][A-Za-z0-9]*\Z")
_LAYER_NUMBER = re.compile(r"(?<=[_/])\d+(?=/|$)")
_CALL = re.compile(r"([A-Za-z_][\w.]*)\((.*)\)\Z", re.S)
# How JAX names what differentiates a function, which may have been transformed before.
TRANSPOSED = re.compile(r"\btranspose\((?:\w+\()*jvp\(")

# Limits for names from untrusted files; names from JAX are far smaller.
_MAX_DEPTH = 20
_MAX_PARTS = 200
_MAX_MERGED = 10_000


@dataclass(frozen=True)
class OpName:
    """Parsed name of one operation.

    module: path of the Flax module, as in the paths of its parameters; "" outside of all modules.
    primitive: name of the JAX primitive; "" if it is not in the name.
    """

    phase: Phase
    module: str
    primitive: str


_UNKNOWN = OpName("unknown", "", "")


@functools.lru_cache(maxsize=2**14)  # a page reads the names of a program several times
def parse_op_name(op_name: str | None) -> tuple[OpName, ...]:
    """Return the distinct operations that XLA merged under this name; at least one."""
    if not op_name:
        return (_UNKNOWN,)
    parsed: dict[OpName, None] = {}
    for number, parts in enumerate(_merged(op_name, 0)):
        if number == _MAX_MERGED or len(parts) > _MAX_PARTS:
            return (_UNKNOWN,)  # a partial list would look complete
        for name in _JOINED.split("/".join(parts)):
            parsed.setdefault(_operation(tuple(_split(name, "/"))))
    return tuple(parsed)


def phases_of(op_name: str | None) -> set[Phase]:
    """Return the phases of the operations that XLA merged under this name."""
    return {operation.phase for operation in parse_op_name(op_name)}


def without_layer_numbers(module: str) -> str:
    """Return the path of a module with * for the numbers of layers: `block_*/attention`."""
    return _LAYER_NUMBER.sub("*", module)


def _operation(parts: tuple[str, ...]) -> OpName:
    function = _CALL.match(parts[0])
    phase: Phase = "rematerialised" if "rematted_computation" in parts else "unknown"
    if function is None or function[1] not in ("jit", "pjit", "pmap") or len(parts) < 2:
        # An argument, a name made by the compiler, or a name without its beginning.
        # In a shard_map that XLA has inlined, a collective has the name of its primitive alone.
        named = len(parts) > 1 or parts[0] in PRIMITIVES
        return OpName(phase, "", parts[-1] if named else "")
    scopes: list[str] = []
    for part in parts[1:-1]:
        if part.startswith("jit("):
            scopes = _without_repetition(scopes)
        own = _scopes(part)
        if "." in part and own == scopes[-1:]:
            continue  # `attention/attention.product`: a module calls its own method
        scopes += own
    primitive = (_scopes(parts[-1], called=True) or [parts[-1]])[-1]
    if scopes and _ROOT_MODULE.match(scopes[0]):
        root = scopes[0]
        while scopes and scopes[0] == root:  # rematerialisation repeats the root
            scopes = scopes[1:]
    if phase == "unknown" and any(map(TRANSPOSED.search, parts[1:-1])):
        phase = "backward"
    elif phase == "unknown" and any("jvp(" in part for part in parts[1:-1]):
        phase = "forward"
    return OpName(phase, "/".join(scopes), primitive)


def _without_repetition(scopes: list[str]) -> list[str]:
    """Remove a repeated tail, which JAX 0.12 writes for a function called inside a loop."""
    for length in range(len(scopes) // 2, 0, -1):
        if scopes[-length:] == scopes[-2 * length : -length]:
            return scopes[:-length]
    return scopes


def _scopes(part: str, called: bool = False) -> list[str]:
    """Return the module names in one part, without the transformations around them."""
    for _ in range(_MAX_DEPTH):
        call = _CALL.match(part)
        if call is None:
            break
        if call[1] in ("jit", "pjit") and not called:
            return []  # the name of a function, not of a module
        part = call[2]
    # An einsum equation is a name, too. An empty part is a transformation outside of all modules.
    if not part or "->" in part or part in _JAX_NAMES or _BRANCH.match(part):
        return []
    scope, _, method = part.partition(".")  # `Dense.__call__`
    return [] if method == "__call__" else [scope]


def _merged(name: str, depth: int) -> Iterator[tuple[str, ...]]:
    """Yield the parts between slashes of each merged operation."""
    parts = _split(name, "/")
    for number, part in enumerate(parts):
        if depth < _MAX_DEPTH and part[:1] == "(" and part[-1:] == ")":
            before, after = tuple(parts[:number]), tuple(parts[number + 1 :])
            for joined in _split(part[1:-1], ":"):
                for between in _merged(joined, depth + 1):
                    yield (*before, *between, *after)
            return
    yield tuple(parts)


def with_first(name: str, first: str) -> str | None:
    """Return the name of merged operations with one of them in front; None if it is none of them.

    >>> with_first("jit(step)/(a/add:b/mul)", "jit(step)/b/mul")
    'jit(step)/(b/mul:a/add)'
    """
    if name == first:
        return name
    parts = _split(name, "/")
    for number, part in enumerate(parts):
        if part[:1] == "(" and part[-1:] == ")":
            before, after = parts[:number], parts[number + 1 :]
            joined = _split(part[1:-1], ":")
            if len(joined) > _MAX_MERGED:
                return None
            whole = ["/".join((*before, inner, *after)) for inner in joined]
            if first not in whole:
                return None
            joined.insert(0, joined.pop(whole.index(first)))
            return "/".join((*before, f"({':'.join(joined)})", *after))
    return None


def _split(text: str, separator: str) -> list[str]:
    """Split at separators outside of parentheses."""
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
