"""The operations of HLO by their effect on their operands: the only list of opcodes.

All analyses read this table, so a new operation of XLA needs one entry here. Those of collectives come from
`records.collectives`. A later part of an asynchronous operation has the entry of `-done`, and an opcode that
is not in the table is `other`, whose result can depend on its operands in any way.
"""

from typing import Literal, NamedTuple

from inspector.records.collectives import BY_OPCODE

# The effect of an operation on the operands with data.
#   parameter, constant, iota: it has no operands. device: its own number. random, generate: random numbers.
#   receive, send: data of the host or of another program. token: orders other operations.
#   tuple, element: groups values, or takes one of them. pass: returns them as they are, also tuples.
#   bitcast, copy, reorder, convert: the same elements in another shape, layout, memory or type.
#   cast: each element in another place or precision. broadcast: repeats them.
#   slice, gather: takes some. update, scatter: writes some into the first operand.
#   concatenate, pad: adds some.
#   elementwise: computes each element from one of each operand. select: chooses one. compare: gives a bool.
#   product: multiplies and sums. reduce: combines many elements into one. solve: any of its operands.
#   call, fusion, while, conditional: runs computations. start: begins to run one. done: its later parts.
#   custom: what its target says. size: of a dynamic dimension.
Does = Literal[
    "parameter", "constant", "iota", "device", "random", "generate", "receive", "send", "token", "tuple",
    "element", "pass", "bitcast", "copy", "reorder", "convert", "cast", "broadcast", "slice", "gather",
    "update", "scatter", "concatenate", "pad", "elementwise", "select", "compare", "product", "reduce",
    "solve", "collective", "call", "fusion", "while", "conditional", "start", "copy-start", "done", "custom",
    "size", "other",
]  # fmt: skip

_ALL, _FIRST = slice(None), slice(1)


class Opcode(NamedTuple):
    """The rules of one operation.

    data: the operands with data. Others are indices, sizes or predicates.
    flops: for each element of the result, as XLA counts them; 0 for a transcendental function.
    memory: its operands and its result are in memory, whatever a compiler fuses around it.
    applies: calls a computation for each element.
    effect: has an effect in addition to its result, so it runs even if nothing uses that.
    """

    does: Does
    data: slice = _ALL
    flops: int = 0
    memory: bool = False
    applies: bool = False
    effect: bool = False


class _Table(dict[str, Opcode]):
    """The entries by opcode, also of later parts of asynchronous operations and of unknown operations."""

    def __missing__(self, opcode: str) -> Opcode:
        if opcode.endswith(("-done", "-update")):
            return _DONE._replace(effect=self[opcode.rpartition("-")[0]].effect)
        return _OTHER


_OTHER, _DONE = Opcode("other", applies=True), Opcode("done")
TABLE = _Table({
    opcode: row
    for row, opcodes in (
        (Opcode("parameter", memory=True), "parameter"),
        (Opcode("constant"), "constant"),
        (Opcode("iota"), "iota"),
        (Opcode("device"), "partition-id replica-id"),
        (Opcode("random"), "rng"),
        (Opcode("random", effect=True), "rng-get-and-update-state"),
        (Opcode("generate", memory=True), "rng-bit-generator"),
        (Opcode("receive", effect=True), "infeed recv"),
        (Opcode("send", effect=True), "outfeed send"),
        (Opcode("token"), "after-all"),
        (Opcode("tuple"), "tuple"),
        (Opcode("element"), "get-tuple-element"),
        (Opcode("pass"), "add-dependency domain opt-barrier optimization-barrier"),
        (Opcode("bitcast"), "bitcast"),
        (Opcode("copy"), "copy"),
        (Opcode("reorder"), "reshape transpose"),
        (Opcode("convert", flops=1), "convert"),
        (Opcode("cast"), "reverse"),
        (Opcode("cast", flops=1), "bitcast-convert"),
        (Opcode("cast", _FIRST, flops=1), "reduce-precision stochastic-convert"),
        (Opcode("broadcast"), "broadcast"),
        (Opcode("slice"), "slice"),
        (Opcode("slice", _FIRST), "dynamic-slice"),
        (Opcode("gather", _FIRST, memory=True), "gather"),
        (Opcode("update", slice(2), memory=True), "dynamic-update-slice"),
        (Opcode("scatter", memory=True, applies=True), "scatter"),
        (Opcode("concatenate", memory=True), "concatenate"),
        (Opcode("pad", _FIRST), "pad"),
        (
            Opcode("elementwise", flops=1),
            "abs add and ceil clamp complex count-leading-zeros divide floor imag maximum minimum "
            "mulhi multiply negate not or popcnt population-count real remainder round-nearest-afz "
            "round-nearest-even shift-left shift-right-arithmetic shift-right-logical sign subtract xor",
        ),
        (
            Opcode("elementwise"),
            "acos acosh asin asinh atan2 atanh cbrt cosh cosine erf exponential exponential-minus-one log "
            "log-plus-one logistic power rsqrt sine sinh sqrt tan tanh",
        ),
        (Opcode("elementwise", applies=True), "map"),
        (Opcode("select", slice(1, 3), flops=1), "select"),
        (Opcode("compare", flops=1), "compare is-finite"),
        (Opcode("product", memory=True), "dot convolution ragged-dot scaled-dot"),
        (Opcode("reduce", applies=True), "reduce"),
        (Opcode("solve", memory=True, applies=True), "reduce-window select-and-scatter sort"),
        (Opcode("solve", applies=True), "scan topk"),
        (Opcode("solve", memory=True), "cholesky fft triangular-solve"),
        (Opcode("call"), "call"),
        (Opcode("fusion"), "fusion"),
        (Opcode("while"), "while"),
        (Opcode("conditional"), "conditional"),
        (Opcode("start"), "async-start call-start fusion-start"),
        (Opcode("copy-start"), "copy-start"),
        (Opcode("custom", memory=True, applies=True), "custom-call"),
        (Opcode("size"), "get-dimension-size set-dimension-size"),
    )
    for opcode in opcodes.split()
} | {
    opcode: Opcode("collective", memory=True, applies=operation.reduces)
    for opcode, operation in BY_OPCODE.items()
})  # fmt: skip

# The same elements in another shape, layout, memory or type.
SAME_DATA: frozenset[Does] = frozenset({"bitcast", "copy", "reorder", "convert"})
# The data of operands, or a part of it.
MOVES: frozenset[Does] = SAME_DATA | {"cast", "slice", "update", "concatenate", "pad", "copy-start"}
# They return the data of an operand, or write it into another array.
WRITES: frozenset[Does] = SAME_DATA | {"update", "fusion"}
ELEMENTWISE: frozenset[Does] = frozenset({"elementwise", "select"})
NORMALIZES = frozenset({"subtract", "negate", "sqrt", "rsqrt"})  # a mean and a variance, never a weight
# They write a part into the first operand, which can be done in place.
UPDATES: frozenset[Does] = frozenset({"update", "scatter"})
# They run one computation, once.
CALLS: frozenset[Does] = frozenset({"call", "fusion", "start"})
RUNS: frozenset[Does] = CALLS | {"while", "conditional"}
# They name, group or order values, and neither read nor write them.
MOVES_NOTHING: frozenset[Does] = frozenset({
    "parameter", "constant", "tuple", "element", "bitcast", "token", "pass", "size", "done", "call", "while",
    "conditional",
})  # fmt: skip
# Their results do not depend on an argument.
WITHOUT_DATA: frozenset[Does] = frozenset({"constant", "iota", "device", "random", "generate", "token"})

# Custom calls of JAX, the partitioner and memory planning, which move and compute nothing.
ANNOTATIONS = frozenset({
    "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "AllocateBuffer", "CreateBuffer",
    "AssumeGatherIndicesInBound", "LayoutConstraint", "xla.sdy.FuncResultSharding", "Pin", "Unpin",
    "ConcatBitcast", "InspectSharding",
})  # fmt: skip
# Custom calls of the partitioner and of host offloading, which keep the data.
KEEPS_DATA = frozenset({
    "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "MoveToHost", "MoveToDevice",
    "annotate_device_placement", "LayoutConstraint",
})  # fmt: skip


def may_call(opcode: str) -> bool:
    """Return whether the text of an operation can name computations, which later parts of calls do again."""
    row = TABLE[opcode]
    return row.applies or row.does in RUNS
