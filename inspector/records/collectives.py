"""The collective operations of XLA.

`OPERATIONS` is the only list of collective operations. The HLO parser, byte counts, link times, device
traffic, policies and figures read it. A new operation also needs a formula in the documentation, whose place
CONTRIBUTING.md names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Payload = Literal["operands", "first operand", "result"]
Route = Literal["ring", "all-to-all", "chain", "pairs"]


@dataclass(frozen=True)
class CollectiveRules:
    """The rules of one collective operation with payload p in groups of g devices.

    name: its HLO opcode, which is also the `op` of a Collective. An asynchronous one has the opcodes
      `<name>-start` and `<name>-done`.
    payload: the arrays that `payload_bytes` counts.
    route: how the payload travels, which decides the wire bytes and the time on links.
      ring: each device sends p·(g−1)/g to the next one, `rounds` times over.
      all-to-all: each device sends p/g to each other one.
      chain: each device but the last sends p to the next one, from or to a root.
      pairs: each source sends p to its target; the instruction has `source_target_pairs` and no
        `replica_groups`.
    rounds: 2 for all-reduce, which is a reduce-scatter and an all-gather.
    result_is_shard: the result is 1/g of the payload.
    result_is_equal: all devices of a group have the same result.
    reduces: applies a computation, `to_apply`.
    global_ids: has the attribute `use_global_device_ids`, false if absent.
    start_returns_operands: the shape of the start is (operands, results, contexts…), not the result alone.
    does: its effect on some values, for any purpose: a clause with a place for the values.
    """

    name: str
    payload: Payload
    route: Route
    rounds: int = 1
    result_is_shard: bool = False
    result_is_equal: bool = False
    reduces: bool = False
    global_ids: bool = False
    start_returns_operands: bool = True
    does: str = "moves {what}"

    def wire_bytes(self, payload: int | None, group_size: int | None) -> int | None:
        """Return the bytes that a device sends in one execution; None if payload or group is unknown."""
        if group_size == 1:
            return 0
        if self.route == "pairs" or payload is None:
            return payload
        if group_size is None:
            return None
        if self.route == "chain":
            return payload
        return self.rounds * payload * (group_size - 1) // group_size


# The order is that of legends. collective-reduce needs the XLA of jax 0.12 or later.
OPERATIONS: Mapping[str, CollectiveRules] = MappingProxyType({
    operation.name: operation
    for operation in (
        CollectiveRules(
            "all-reduce", "operands", "ring", rounds=2, result_is_equal=True, reduces=True, global_ids=True,
            start_returns_operands=False, does="combines {what} from the devices",
        ),
        CollectiveRules(
            "all-gather", "result", "ring", result_is_equal=True, global_ids=True,
            does="collects {what} from the devices",
        ),
        CollectiveRules(
            "reduce-scatter", "operands", "ring", result_is_shard=True, reduces=True, global_ids=True,
            does="combines {what} from the devices, and each keeps its part",
        ),
        CollectiveRules(
            "all-to-all", "operands", "all-to-all", does="exchanges {what} between the devices"
        ),
        # The part of its input that is sent is known only at run time, so all of it counts.
        CollectiveRules("ragged-all-to-all", "first operand", "all-to-all"),
        CollectiveRules(
            "collective-permute", "operands", "pairs", does="sends {what} from some devices to others"
        ),
        CollectiveRules("collective-broadcast", "operands", "chain", result_is_equal=True),
        CollectiveRules("collective-reduce", "operands", "chain", reduces=True, global_ids=True),
    )
})  # fmt: skip
OPS = tuple(OPERATIONS)
# Those that combine values. A file can name another operation, which is not known to.
REDUCTIONS = frozenset(operation.name for operation in OPERATIONS.values() if operation.reduces)
# The HLO opcodes at which a collective begins.
BY_OPCODE: Mapping[str, CollectiveRules] = MappingProxyType(
    {
        opcode: operation
        for operation in OPERATIONS.values()
        for opcode in (operation.name, f"{operation.name}-start")
    }
)
