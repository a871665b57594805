"""Messages of compilers about memory, as they were printed, and anything else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.machines.out_of_memory import MAX_MESSAGE, allocations, finding, findings, shortage
from inspector.records.snapshot import Snapshot, Source

GIB = 2**30

AT_ONCE = (
    "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO temporaries "
    "(544.00G) exceeds available HBM (15.75G)."
)
AT_ONCE_WITH_CODE = (
    "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required "
    "for HLO temporaries (416.00G) exceeds available HBM (94.74G). HLO module: jit_f.\n"
    "See https://openxla.org/xla/errors/error_1000 for more details."
)
LAID_OUT = """RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 18.35G of 15.48G hbm. Exceeded hbm capacity by 2.87G.

Total hbm usage >= 18.87G:
    reserved        530.00M
    program          18.35G
    arguments            0B

Program hbm requirement 18.35G:
    HLO temp         18.35G (99.9% utilization: Unpadded (18.30G) Padded (18.32G), 0.2% fragmentation (33.5M))

  Largest program allocations in hbm:

  1. Size: 2.25G
     Operator: op_name="jit(step)/dot_general"
"""  # noqa: E501


@pytest.mark.parametrize(
    ("message", "needed", "available"),
    [
        (AT_ONCE, 544.0, 15.75),
        (AT_ONCE_WITH_CODE, 416.0, 94.74),
        (LAID_OUT, 18.35, 15.48),
    ],
)
def test_figures_are_those_of_the_message(message: str, needed: float, available: float) -> None:
    short = shortage(message)
    assert short is not None
    assert (short.needed, short.available) == (round(needed * GIB), round(available * GIB))
    assert short.memory == "HBM"
    assert short.message == message  # with the lines that say what takes it


LISTED = """
  Largest program allocations in hbm:

  1. Size: 15.63G
     Operator: op_name="jit(step)/jvp()/log_softmax" source_file="/home/me/train.py" source_line=16
     Shape: f32[8,2048,256000]{2,1,0:T(8,128)}
     Unpadded size: 15.62G
     XLA label: fusion.7 = fusion(...)
     Allocation type: HLO temp
     ==========================

  2. Size: 15.63G
     Operator: op_name="jit(step)/jvp()/log_softmax" source_file="/home/me/train.py" source_line=16
     Shape: f32[8,2048,256000]{2,1,0:T(8,128)}
     ==========================

  3. Size: 1.5G
     XLA label: copy.1 = copy(...)
"""


def test_the_largest_buffers_are_those_that_the_message_lists() -> None:
    first, second, third = allocations(LISTED)
    assert first == second
    assert (first.size, first.shape) == ("15.63G", "f32[8,2048,256000]")
    assert (first.operation, first.source) == ("jit(step)/jvp()/log_softmax", "train.py:16")
    assert (third.size, third.shape, third.operation, third.source) == ("1.5G", None, None, None)
    short = shortage("Used 32.23G of 15.75G hbm." + LISTED)
    assert short is not None
    said = finding("step", "tpu:v5e:2x4", short).message
    assert "2 buffers of 15.63G" in said and "train.py:16" in said
    assert allocations("") == allocations(AT_ONCE) == ()


@pytest.mark.parametrize(
    "message",
    ["", "INVALID_ARGUMENT: no", "RESOURCE_EXHAUSTED: Shared memory size limit exceeded"],
)
def test_another_message_is_none(message: str) -> None:
    assert shortage(message) is None


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_text_around_it_changes_nothing(before: str, after: str) -> None:
    result = shortage(f"{before}\n{AT_ONCE}\n{after}")
    if shortage(before) is None:
        assert result is not None and result.needed == 544 * GIB
    shortage(before)  # of whatever text


def test_a_long_message_is_cut() -> None:
    short = shortage(AT_ONCE + "x" * 10**6)
    assert short is not None and len(short.message) == MAX_MESSAGE


def test_the_finding_says_what_is_short_and_by_how_much() -> None:
    short = shortage(AT_ONCE)
    assert short is not None
    result = finding("train_step", "tpu:v5e:4x4", short)
    assert (result.level, result.bytes) == ("error", short.needed - short.available)
    assert result.message == (
        "The train step does not fit: it needs 544 GiB of HBM on one device of tpu:v5e:4x4, "
        "which has 15.8 GiB"
    )
    snapshot = Snapshot(Source("tpu", "tpu:v5e:4x4", "now"), None, None, (), findings=(result,))
    assert findings(snapshot) == (result,)
