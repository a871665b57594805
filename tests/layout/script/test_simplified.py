"""Source without what was decided against does the same as the whole source."""

from __future__ import annotations

import itertools
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.layout.script import simplified
from inspector.layout.script.spacing import spaced

SOURCE = textwrap.dedent(
    '''
    def f(self, c, x):
        """What it does: é, · and π count as one column each."""
        found = []
        # In front of a branch.
        if self.a:
            # Inside the branch.
            found.append("a")
            if c.b:
                found.append("ab")
            else:
                # In the other one.
                found.append("a-")
        else:
            found.append("-")
        if not c.b:
            found.append("without b")
        names = "π"; found.append(names)
        kept = "one" if c.b else "other" if self.a else "neither"
        found.append(("é", kept, not self.a, x))
        value = None
        value = 1 if not self.a else 2
        return found + [value]
    '''
).strip()


class Options:
    def __init__(self, **values: bool) -> None:
        self.__dict__.update(values)


def outcome(text: str, a: bool, b: bool) -> list:
    names: dict = {}
    exec(text, names)  # our own source
    return names["f"](Options(a=a), Options(b=b), 7)


@pytest.mark.parametrize(("a", "b"), list(itertools.product([True, False], repeat=2)))
def test_a_decided_condition_is_gone_and_the_outcome_stays(a: bool, b: bool) -> None:
    for known in ({"self.a": a}, {"c.b": b}, {"self.a": a, "c.b": b}):
        shorter = simplified.without_branches(SOURCE, known)
        assert outcome(shorter, a, b) == outcome(SOURCE, a, b)
        assert not any(condition in shorter for condition in known)
    assert "# In front of a branch." in shorter
    assert ("# Inside the branch." in shorter) is a
    assert ("value = None" in shorter) is False


def test_nothing_is_touched_that_is_not_known() -> None:
    untouched = SOURCE.replace("    value = None\n", "")
    assert simplified.without_branches(SOURCE, {}) == untouched


def test_hooks_go_with_what_is_said_of_them() -> None:
    text = textwrap.dedent(
        """
        def f(x):
            watch(
                "x", x
            )
            y = scan(
                x,
                # Because of `watch`.
                check_constancy_invariants=False,
                length=2,
            )
            return y
        """
    )
    assert simplified.without_branches(text, {}) == textwrap.dedent(
        """
        def f(x):
            y = scan(
                x,
                check_constancy_invariants=False,
                length=2,
            )
            return y
        """
    )


def test_fields_that_nobody_reads_are_not_handed_on() -> None:
    text = textwrap.dedent(
        '''
        class Inner:
            """What it is.

            unread: nobody needs it.
            """

            size: int
            unread: str
            kept: int = 3

            def f(self):
                return self.size


        class Outer:
            size: int
            unread: str

            def f(self):
                block = (self.size, self.unread)
                return Inner(*block)
        '''
    )
    shorter = simplified.without_unread_fields(text)
    assert "unread" not in shorter
    assert "block = (self.size,)" in shorter and '"""What it is."""' in shorter
    assert simplified.fields_of(shorter, "Inner") == ("size", "kept")
    assert simplified.fields_of(shorter, "Outer") == ("size",)
    with pytest.raises(ValueError, match="no class"):
        simplified.fields_of(shorter, "Other")


PARTS = st.sampled_from(
    ["x = 1", "# a comment\ny = 2", "def f():\n    return 1", "class A:\n    b = 1"]
)


@given(st.lists(st.tuples(PARTS, st.integers(1, 5)), min_size=1, max_size=8))
def test_blank_lines_are_two_around_definitions(parts: list[tuple[str, int]]) -> None:
    text = "".join(part + "\n" * lines for part, lines in parts)
    written = spaced(text)
    assert [line for line in written.split("\n") if line] == [
        line for line in text.split("\n") if line
    ]
    assert spaced(written) == written and "\n\n\n\n" not in written
    chunks = [part for part, _ in parts]
    for before, after in itertools.pairwise(chunks):
        if before.startswith(("def", "class")) or after.startswith(("def", "class")):
            assert f"{before}\n\n\n{after}" in written
