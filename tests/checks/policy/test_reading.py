"""Policy files: what they may say, and the sentence for what they may not."""

from __future__ import annotations

import datetime
import tomllib
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inspector.checks import policy
from inspector.checks.policy import reading
from inspector.checks.policy.fields import UNITS, Fields
from inspector.core.errors import InvalidInput
from tests.figures import samples

EVERY_RULE = """
[[replicated]]
over = "1 MiB"
along = ["data"]
groups = ["params", "opt_state"]
arrays = "params/*"
except = ["*/scale"]
[duplicated]
most_percent = 12.5
[not_fully_sharded]
most_percent = 2
axes = ["data"]
[bytes_per_device]
most = 17179869184
[memory]
most = "80 GB"
program = "train_step"
figure = "total"
[[collectives]]
op = "all-gather"
axis = "data"
program = "train_step"
[[collectives]]
most_wire_bytes = "64 MiB"
most_payload_bytes = 0
[findings]
none_from = "warning"
except = ["replicated-parameter"]
"""


def refusal(text: str) -> str:
    with pytest.raises(InvalidInput) as refused:
        policy.parse(text, "p.toml")
    sentence = str(refused.value)
    assert sentence.startswith("p.toml") and "\n" not in sentence
    return sentence


def test_every_rule_is_read_and_every_kind_is_known() -> None:
    rules = policy.parse(EVERY_RULE).rules
    assert {rule.title for rule in rules} | {"specs"} == set(reading.KINDS)
    assert [rule.title for rule in rules][:3] == ["replicated", "duplicated", "not_fully_sharded"]


def test_the_packages_own_example_is_a_policy(tmp_path: Path) -> None:
    lines = (policy.__doc__ or "").splitlines()
    example = "\n".join(line for line in lines if line.startswith("    "))
    assert set(tomllib.loads(example)) == set(reading.KINDS)
    (tmp_path / "p.toml").write_text(example)
    # All but the file that it is to be compared with is there.
    with pytest.raises(InvalidInput, match=r"specs same_as: .*golden.sharding.json cannot be read"):
        policy.read(tmp_path / "p.toml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no rule; the rules are replicated, "),
        ("[replicate]\nover = 1", "the nearest is 'replicated'"),
        ("[replicated]\novr = 1", "lacks over"),
        ("[replicated]\nover = 1\nalnog = 'data'", "the nearest is 'along'"),
        ("[replicated]\nover = '1 MiBs'", 'a size such as "16 GiB"'),
        ("[replicated]\nover = -1", "over is -1, but must be an integer of bytes"),
        ("[replicated]\nover = true", "over is true, but must be"),
        ("[replicated]\nover = 1.5", "over is '1.5', but must be"),
        ("[replicated]\nover = 2024-01-01", f"over is '{datetime.date(2024, 1, 1)}', but must"),
        ("[replicated]\nover = '99999999 TiB'", "but must be an integer of bytes"),
        ("[replicated]\nover = 1\ngroups = ['param']", "the nearest is 'params'"),
        ("[replicated]\nover = 1\ngroups = []", "a list of texts, one at least"),
        ("[replicated]\nover = 1\narrays = [1]", "a list of texts"),
        ("[[replicated]]\nover = 1\n[[replicated]]\n", "replicated[1] lacks over"),
        ("replicated = 3", "must be a table, as in [replicated]"),
        ("[duplicated]\nmost_percent = 101", "a number from 0 to 100"),
        ("[duplicated]\nmost_percent = nan", "a number from 0 to 100"),
        ("[duplicated]\nmost_percent = -inf", "a number from 0 to 100"),
        ("[duplicated]\nmost_percent = '2%'", "a number from 0 to 100"),
        ("[memory]\nmost = 1\nfigure = 'peek'", "the nearest is 'peak'"),
        ("[collectives]\nop = 'allgather'", "the nearest is 'all-gather'"),
        ("[collectives]\nop = ''", "op is '', but must be text"),
        ("[findings]\nnone_from = 'warn'", "the nearest is 'warning'"),
        ("[specs]\nsame_as = 'none.json'", "specs same_as: none.json cannot be read"),
        ("[specs]\nsame_as = 3", "same_as is 3, but must be text"),
        ("[replicated\n", "is not TOML: "),
        ("[duplicated]\nmost_percent = 1\n[duplicated]\n", "is not TOML: "),
        ("a = " + "[" * 5000, "nested too deeply"),
    ],
)
def test_what_cannot_be_used_is_refused_with_what_may_be(text: str, words: str) -> None:
    assert words in refusal(text)


def test_a_file_that_is_absent_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        policy.read(tmp_path / "absent.toml")
    (tmp_path / "p.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="is not UTF-8 text"):
        policy.read(tmp_path / "p.toml")


@given(st.integers(0, 4000), st.sampled_from(sorted(UNITS)), st.sampled_from(["", " "]))
@example(16, "gib", " ")
def test_sizes_are_what_their_units_say(count: int, unit: str, blank: str) -> None:
    letters = {"k": 1, "m": 2, "g": 3, "t": 4}
    power = letters.get(unit[0], 0)
    expected = count * (1024 if "i" in unit else 1000) ** power
    fields = Fields({"a": f"{count}{blank}{unit.upper()}", "b": expected}, "here")
    assert fields.size("a") == fields.size("b") == expected


def test_parts_of_a_unit_are_exact() -> None:
    assert Fields({"a": "0.1 GiB"}, "here").size("a") == 2**30 // 10
    assert Fields({"a": "1.5 KiB"}, "here").size("a") == 1536


def test_what_a_rule_names_and_a_snapshot_lacks_cannot_be_checked() -> None:
    found = samples.snapshot()
    for text, words in (
        ("[replicated]\nover = 1\nalong = 'dta'", "the nearest is 'data'"),
        ("[not_fully_sharded]\nmost_percent = 1\naxes = ['modle']", "the nearest is 'model'"),
        ("[replicated]\nover = 1\ngroups = ['gradient']", "no array of the group gradient"),
        ("[replicated]\nover = 1\narrays = 'prams/*'", "has a path like 'prams/*'"),
        ("[memory]\nmost = 1\nprogram = 'train_stp'", "the nearest is 'train_step'"),
        ("[collectives]\nprogram = 'aply'", "the nearest is 'apply'"),
    ):
        (outcome,) = policy.parse(text).check(found)
        assert not outcome.holds and not outcome.violations
        assert words in (outcome.unknown or "")
