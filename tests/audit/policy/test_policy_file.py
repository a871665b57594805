"""Policy files: valid rules, and the error for each invalid one."""

from __future__ import annotations

import datetime
import tomllib
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inspector.audit import policy
from inspector.audit.policy.fields import PolicyTable
from inspector.audit.policy.policy_file import RULES
from inspector.text.errors import InvalidInput
from inspector.text.formatting import UNITS
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


def test_every_rule_is_read() -> None:
    rules = policy.parse(EVERY_RULE).rules
    assert {rule.title for rule in rules} | {"specs"} == set(RULES)
    assert [rule.title for rule in rules][:3] == ["replicated", "duplicated", "not_fully_sharded"]


def test_the_example_in_the_docstring_is_a_policy(tmp_path: Path) -> None:
    lines = (policy.__doc__ or "").splitlines()
    example = "\n".join(line for line in lines if line.startswith("    "))
    assert set(tomllib.loads(example)) == set(RULES)
    (tmp_path / "p.toml").write_text(example)
    # Only the file that it names does not exist.
    with pytest.raises(InvalidInput, match=r"specs same_as: .*golden.sharding.json cannot be read"):
        policy.read(tmp_path / "p.toml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no rule; the rules are replicated, "),
        ("[replicate]\nover = 1", "the nearest is 'replicated'"),
        ("[replicated]\novr = 1", "has no field over"),
        ("[replicated]\nover = 1\nalnog = 'data'", "the nearest is 'along'"),
        ("[replicated]\nover = '1 MiBs'", 'a size such as "16 GiB"'),
        ("[replicated]\nover = -1", "over is -1, but must be an integer of bytes"),
        ("[replicated]\nover = true", "over is true, but must be"),
        ("[replicated]\nover = 1.5", "over is '1.5', but must be"),
        ("[replicated]\nover = 2024-01-01", f"over is '{datetime.date(2024, 1, 1)}', but must"),
        ("[replicated]\nover = '99999999 TiB'", "but must be an integer of bytes"),
        ("[replicated]\nover = 1\ngroups = ['param']", "the nearest is 'params'"),
        ("[replicated]\nover = 1\ngroups = []", "a list of one or more texts"),
        ("[replicated]\nover = 1\narrays = [1]", "a list of one or more texts"),
        ("[[replicated]]\nover = 1\n[[replicated]]\n", "replicated[1] has no field over"),
        ("replicated = 3", "must be a table, as in [replicated]"),
        ("[duplicated]\nmost_percent = 101", "a number from 0 to 100"),
        ("[duplicated]\nmost_percent = nan", "a number from 0 to 100"),
        ("[duplicated]\nmost_percent = -inf", "a number from 0 to 100"),
        ("[duplicated]\nmost_percent = '2%'", "a number from 0 to 100"),
        ("[duplicated]\nmost_percent = 1e-999999999", "at most 50 digits"),
        ("[duplicated]\nmost_percent = 1e999999999", "a number from 0 to 100"),
        ("[duplicated]\nmost_percent = 0e999999999", "a number from 0 to 100"),
        ("[duplicated]\nmost_percent = 0." + "1" * 10**6, "at most 50 digits"),
        ("[duplicated]\nmost_percent = 0x" + "f" * 10**5, "is an integer of 400,000 bits"),
        ("[bytes_per_device]\nmost = 0x" + "f" * 10**5, "is an integer of 400,000 bits"),
        ("[bytes_per_device]\nmost = " + "9" * 5000, "a number with too many digits"),
        ("[bytes_per_device]\nmost = [0x" + "f" * 10**5 + "]", "is an integer of 400,000 bits"),
        ("[bytes_per_device]\nmost = '1e999999999 GiB'", "an integer of bytes"),
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
def test_an_invalid_policy_gives_one_clear_error(text: str, words: str) -> None:
    assert words in refusal(text)


def test_an_unreadable_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        policy.read(tmp_path / "absent.toml")
    (tmp_path / "p.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="is not UTF-8 text"):
        policy.read(tmp_path / "p.toml")


@given(st.integers(0, 4000), st.sampled_from(sorted(UNITS)), st.sampled_from(["", " "]))
@example(16, "gib", " ")
def test_sizes_have_units(count: int, unit: str, blank: str) -> None:
    letters = {"k": 1, "m": 2, "g": 3, "t": 4}
    power = letters.get(unit[0], 0)
    expected = count * (1024 if "i" in unit else 1000) ** power
    fields = PolicyTable({"a": f"{count}{blank}{unit.upper()}", "b": expected}, "here")
    assert fields.size("a") == fields.size("b") == expected


def test_fractions_of_a_unit_are_exact() -> None:
    assert PolicyTable({"a": "0.1 GiB"}, "here").size("a") == 2**30 // 10
    assert PolicyTable({"a": "1.5 KiB"}, "here").size("a") == 1536


def test_a_rule_about_something_missing_is_unknown() -> None:
    snapshot = samples.snapshot()
    for text, words in (
        ("[replicated]\nover = 1\nalong = 'dta'", "the nearest is 'data'"),
        ("[not_fully_sharded]\nmost_percent = 1\naxes = ['modle']", "the nearest is 'model'"),
        ("[replicated]\nover = 1\ngroups = ['gradient']", "no array of the group gradient"),
        ("[replicated]\nover = 1\narrays = 'prams/*'", "matches 'prams/*'"),
        ("[memory]\nmost = 1\nprogram = 'train_stp'", "the nearest is 'train_step'"),
        ("[collectives]\nprogram = 'aply'", "the nearest is 'apply'"),
    ):
        (outcome,) = policy.parse(text).check(snapshot)
        assert not outcome.holds and not outcome.violations
        assert words in (outcome.unknown or "")
