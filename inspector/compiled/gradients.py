"""Which results of a program are gradients: the backward pass computes them last."""

from collections.abc import Sequence

from inspector.hlo.analysis import Analysis
from inspector.hlo.dataflow import Value
from inspector.hlo.op_name import parse_op_name
from inspector.hlo.opcodes import SAME_DATA

# They hold the data of an operand, another shard of it, or the sum of all shards.
_SAME_VALUE = SAME_DATA | {"collective", "slice", "fusion"}
_MOST_STEPS = 32


def gradient_results(analysis: Analysis, results: Sequence[str]) -> frozenset[str]:
    """Return the paths of the results that an operation of the backward pass computes.

    An optimizer computes its results from gradients outside of the backward pass, so they are not gradients.

    Args:
      results: paths of the flattened results of the program, in order.
    """
    values = analysis.backward.results(len(results)) or ()
    return frozenset(
        path for path, value in zip(results, values, strict=False) if _of_backward(analysis, value)
    )


def _of_backward(analysis: Analysis, value: Value) -> bool:
    """Return whether the operation that computes a value is one of the backward pass."""
    *_, computed = analysis.backward.chain(value, _SAME_VALUE, _MOST_STEPS)
    names = parse_op_name(computed.instruction.metadata.get("op_name"))
    return all(name.phase == "backward" for name in names)
