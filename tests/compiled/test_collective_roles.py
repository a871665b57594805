"""The role of each part of a collective."""

from __future__ import annotations

import pytest

from inspector.compiled import collective_roles as roles
from inspector.records.snapshot import Array, Collective, CollectivePart, Program, Snapshot, Source

FORWARD = "jit(train_step)/jvp(Model)/block/dot_general"
BACKWARD = "jit(train_step)/transpose(jvp(Model))/block/dot_general"
OPTIMIZER = "jit(train_step)/dot_general"


def role_of(op: str, *parts: CollectivePart, other: str = BACKWARD) -> dict[str | None, int]:
    """Return the bytes by role of a collective in a program with a parameter `params/w`.

    other: the name of another collective of the program, which sends nothing.
    """
    payload = sum(part.payload_bytes or 0 for part in parts)
    arrays = {path for part in parts for path in (*part.inputs, *part.outputs)}
    collective = Collective(
        op, False, "c", "main", 1, False, ("x",), 2, 1, payload, payload,
        op_name=parts[0].op_name, arrays=tuple(sorted(arrays)), parts=parts,
    )  # fmt: skip
    snapshot = Snapshot(
        Source("hlo", None, "2026-01-01T00:00:00+00:00", {}),
        None,
        None,
        (Array("params/w", "params", (8,), "float32"),),
    )
    idle = Collective("all-reduce", False, "d", "main", 1, False, ("x",), 1, 2, 0, 0, op_name=other)
    by_role = roles.by_role(Program("train_step", collectives=(collective, idle)), snapshot)
    return {
        role: sum(part.wire_bytes_per_device or 0 for part in collectives)
        for role, collectives in by_role.items()
    }


def test_a_combined_sum_is_one_of_gradients_only_for_their_part() -> None:
    parts = CollectivePart(12, (), ("params/w",), FORWARD), CollectivePart(88, op_name=FORWARD)
    assert role_of("all-reduce", *parts) == {roles.GRADIENTS: 12, roles.ACTIVATIONS: 88}


@pytest.mark.parametrize(
    ("op", "part", "role"),
    [
        ("all-gather", CollectivePart(8, ("params/w",), (), FORWARD), roles.PARAMETERS),
        # A gather as a sum of shards and zeros.
        ("all-reduce", CollectivePart(8, ("params/w",), (), FORWARD), roles.PARAMETERS),
        ("all-gather", CollectivePart(8, op_name=FORWARD), roles.ACTIVATIONS),
        # The end of an all-reduce in phases, between TPU slices and inside of them.
        ("all-gather", CollectivePart(8, (), ("params/w",), BACKWARD), roles.GRADIENTS),
        ("all-gather", CollectivePart(8, ("params/w",), ("params/w",), BACKWARD), roles.PARAMETERS),
        # Parameters that are updated in shards.
        ("all-gather", CollectivePart(8, (), ("params/w",), None), roles.PARAMETERS),
        # Such as the matrices that Muon makes orthogonal.
        ("all-gather", CollectivePart(8, op_name=OPTIMIZER), roles.OPTIMIZER),
        # Such as the norm of all gradients.
        ("all-reduce", CollectivePart(8, op_name=OPTIMIZER), roles.OTHER_ARRAYS),
        # A file can have an operation of a later XLA.
        ("collective-of-later", CollectivePart(8, ("params/w",), (), FORWARD), roles.PARAMETERS),
        ("collective-of-later", CollectivePart(8, op_name=OPTIMIZER), roles.OPTIMIZER),
    ],
)
def test_role(op: str, part: CollectivePart, role: str) -> None:
    assert role_of(op, part) == {role: 8}


@pytest.mark.parametrize("op", ["all-gather", "all-reduce"])
@pytest.mark.parametrize("other", [FORWARD, OPTIMIZER, "jit(train_step)/transpose()/dot_general"])
def test_no_optimizer_without_a_backward_pass(op: str, other: str) -> None:
    """Such as in a simulation whose function is named `train_step`."""
    assert role_of(op, CollectivePart(8, op_name=OPTIMIZER), other=other) == {roles.ACTIVATIONS: 8}
