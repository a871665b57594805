"""The verb `check`: exit status 0 if all holds, 1 with a line per violation, 2 if it cannot be checked."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from inspector import layout as layouts
from inspector.audit import lock_file
from inspector.jobs.inspection import Inspection
from inspector.media.terminal import main
from inspector.records import snapshot
from inspector.records.snapshot import Program
from tests.audit.policy.one_rule import collective
from tests.figures import samples
from tests.paths import ROOT

HOLDS = "[bytes_per_device]\nmost = '1 GiB'\n[replicated]\nover = '1 MiB'\n"
VIOLATED = "[replicated]\nover = '1 MiB'\nalong = 'data'\n[bytes_per_device]\nmost = 1\n"
STEP = "[collectives]\nop = 'all-gather'\naxis = 'data'\n"


class Checked:
    """A folder with a Snapshot, and `check` on it in this process."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        self.found = samples.snapshot()
        snapshot.write(self.found, folder / "run.json")

    def write(self, text: str) -> str:
        (self.folder / "p.toml").write_text(text)
        return str(self.folder / "p.toml")

    def check(self, *options: str, found: str = "run.json") -> tuple[int, list[str], list[str]]:
        """Exit status, lines on standard output, lines on standard error."""
        try:
            status = main(["check", str(self.folder / found), *options])
        except SystemExit as end:
            status = end.code
        said = self._capsys.readouterr()
        return status, said.out.splitlines(), said.err.splitlines()


@pytest.fixture
def checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Checked:
    return Checked(tmp_path, capsys)


def test_a_policy_that_holds(checked: Checked) -> None:
    status, out, err = checked.check("--policy", checked.write(HOLDS))
    assert (status, out, err) == (0, [], ["rules that hold: 2 of 2"])


def test_every_violation_is_one_line(checked: Checked) -> None:
    status, out, err = checked.check("--policy", checked.write(VIOLATED))
    assert status == 1 and len(out) == 9 and err == ["rules that hold: 0 of 2"]
    assert out[0] == (
        "replicated: params/DotReluDot_0/Dense_0/kernel: 4.0 MiB (4,194,304 bytes) not sharded over data "
        "(limit 1.0 MiB (1,048,576 bytes))"
    )
    assert out[-1].startswith("bytes_per_device: 24.0 MiB (25,165,832 bytes) of params, opt_state")


def test_a_rule_that_cannot_be_checked_is_an_error(checked: Checked) -> None:
    status, out, err = checked.check("--policy", checked.write(VIOLATED + STEP))
    assert status == 2 and len(out) == 9  # what is known to be violated is said all the same
    assert err == ["sharding-inspector: cannot be checked: collectives: unknown collectives of train_step"]


def test_names_are_printed_on_one_line(checked: Checked) -> None:
    path = "params/<img src=x onerror=alert(1)>\n\x1b[2J"
    array = samples.array(path, (1024, 1024), (None, None), samples.DEFAULT_MESH)
    snapshot.write(samples.snapshot(arrays=(array,)), checked.folder / "hostile.json")
    policy = checked.write("[replicated]\nover = 1")
    status, out, _ = checked.check("--policy", policy, found="hostile.json")
    assert status == 1 and len(out) == 1 and out[0].isprintable()


def test_changes_since_a_lock_file(checked: Checked) -> None:
    lock = str(checked.folder / "mlp.sharding.json")
    assert checked.check("--write-lock", lock) == (0, [], [f"wrote {lock}"])
    assert lock_file.read(lock) == lock_file.locked(checked.found)
    assert checked.check("--lock", lock) == (0, [], [f"0 changes from {lock}"])
    # A Snapshot serves as well.
    assert checked.check("--lock", str(checked.folder / "run.json"))[0] == 0
    kernel = dataclasses.replace(checked.found.arrays[1], spec=(None, None))
    changed = dataclasses.replace(checked.found, arrays=(kernel, *checked.found.arrays[2:]))
    snapshot.write(changed, checked.folder / "changed.json")
    status, out, err = checked.check("--lock", lock, found="changed.json")
    assert status == 1 and err == [
        f"2 changes from {lock}: params/DotReluDot_0/Dense_0/kernel is P(None, None) instead of "
        "P(None, 'model'), step is gone"
    ]
    assert out == [
        "changed array params/DotReluDot_0/Dense_0/kernel: spec P(None, 'model') → P(None, None)",
        "removed array step: scalar int32 P()",
    ]


def test_versions_are_noted_and_missing_collectives_are_an_error(checked: Checked) -> None:
    step = (Program("train_step", collectives=(collective(),)),)
    source = dataclasses.replace(checked.found.source, versions={"jax": "0.1"})
    other = dataclasses.replace(checked.found, programs=step, source=source)
    snapshot.write(other, checked.folder / "other.json")
    lock = str(checked.folder / "a.sharding.json")
    checked.check("--write-lock", lock, found="other.json")
    newer = dataclasses.replace(other, source=dataclasses.replace(source, versions={"jax": "0.2"}))
    snapshot.write(newer, checked.folder / "newer.json")
    status, out, err = checked.check("--lock", lock, found="newer.json")
    assert (status, out, err[0]) == (0, [], "version of jax: 0.1 → 0.2")
    status, _, err = checked.check("--lock", lock)
    assert status == 2 and len(err) == 1 and "collectives cannot be compared" in err[0]


def test_policy_and_lock_file_are_checked_together(checked: Checked) -> None:
    lock = str(checked.folder / "a.sharding.json")
    both = ("--policy", checked.write(VIOLATED), "--write-lock", lock)
    assert checked.check(*both)[0] == 1 and Path(lock).exists()
    status, out, err = checked.check("--policy", checked.write(HOLDS), "--lock", lock)
    assert (status, out) == (0, []) and err == ["rules that hold: 2 of 2", f"0 changes from {lock}"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "give --policy, --lock or --write-lock"),
        (("--policy", "absent.toml"), "absent.toml cannot be read"),
        (("--lock", "absent.sharding.json"), "absent.sharding.json cannot be read"),
        (("--lock", "a", "--write-lock", "b"), "not allowed with"),
        (("--write-lock", "/dev/null/a.sharding.json"), "/dev/null is not a folder"),
        (("--polic", "a", "--policies", "b"), "unrecognized arguments"),
    ],
)
def test_unusable_input_is_one_line(checked: Checked, options: tuple[str, ...], words: str) -> None:
    status, out, err = checked.check(*options)
    assert (status, out, len(err)) == (2, [], 1) and words in err[0]


@pytest.mark.nightly
def test_the_exit_status_of_a_process_with_a_closed_pipe(checked: Checked) -> None:
    policy = checked.write(VIOLATED)
    command = [sys.executable, "-m", "inspector", "check", str(checked.folder / "run.json")]
    done = subprocess.run([*command, "--policy", policy], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and len(done.stdout.splitlines()) == 9
    closed = subprocess.Popen(
        [*command, "--policy", policy], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    closed.stdout.close()
    assert closed.wait(60) == 1 and b"Traceback" not in closed.stderr.read()
    closed.stderr.close()


def test_a_plan_can_be_checked_and_locked(checked: Checked, tmp_path: Path, service: Inspection) -> None:
    """The example of the README, on a layout as `inspect --target plan` writes it."""
    layout = layouts.parse({"layers": "2", "depth": "64", "target": "plan"}).unwrap()
    planned = service.plan(layout)
    snapshot.write(planned, tmp_path / "plan.json")
    lock = str(tmp_path / "mlp.sharding.json")
    assert checked.check("--write-lock", lock, found="plan.json")[0] == 0
    policy = checked.write("[specs]\nsame_as = 'mlp.sharding.json'\n[duplicated]\nmost_percent = 50")
    status, out, _ = checked.check("--policy", policy, "--lock", lock, found="plan.json")
    # Two scalars are on each of eight devices; all else is there twice.
    assert status == 1 and [line.split(":")[0] for line in out] == ["duplicated"]
    assert json.loads(Path(lock).read_text())["programs"] == []
