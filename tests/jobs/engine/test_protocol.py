"""Messages survive the line they are put on, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.jobs.engine import Environment
from inspector.jobs.engine.process import canonical, decode, encode

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["\n", "\r\n", "\u2028", "\x85", "\ud800", '"', "\0"])
)
TREES = st.recursive(
    SCALARS,
    lambda tree: st.lists(tree, max_size=3) | st.dictionaries(st.text(max_size=4), tree, max_size=3),
    max_leaves=8,
)
PAYLOADS = st.dictionaries(st.text(max_size=4), TREES, max_size=4)


@given(payload=PAYLOADS)
def test_a_message_is_one_line_and_comes_back(payload):
    line = encode("run", run=1, payload=payload)
    assert line.splitlines(keepends=True) == [line]
    assert decode(line) == {"kind": "run", "run": 1, "payload": payload}


@given(payload=PAYLOADS)
def test_the_order_of_keys_does_not_matter(payload):
    assert canonical(payload) == canonical(dict(reversed(payload.items())))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), {1}, b"", object()])
def test_what_json_cannot_hold_is_not_sent(value):
    with pytest.raises((ValueError, TypeError)):
        encode("done", result={"deep": [value]})


@pytest.mark.parametrize("line", [b"", b"\n", b"[]\n", b"{}\n", b'{"kind": 1}\n', b"print\n", b"\xff"])
def test_other_lines_are_not_messages(line):
    with pytest.raises(ValueError):
        decode(line)


def test_equal_environments_find_the_same_worker():
    environment = Environment(2, (("A", "1"), ("B", "2")))
    assert {environment: "worker"}[Environment(2, (("B", "2"), ("A", "1")))] == "worker"
    assert environment != Environment(2)
    assert (str(Environment(1)), str(environment)) == ("1 device", "2 devices")
