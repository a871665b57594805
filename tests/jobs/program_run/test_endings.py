"""`run`: output and exit status are those of the program alone, in whatever way it ends.

CI tries each ending once. `ENDING_ROUNDS=10` tries each ten times: some faults need several runs to show.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from inspector.records import program_run
from tests.jobs.program_run.endings import ENDINGS, START
from tests.jobs.program_run.test_program_run import RUN, call

ROUNDS = int(os.environ.get("ENDING_ROUNDS", "1"))


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("name", [name for name in ENDINGS for _ in range(ROUNDS)])
def test_output_and_exit_status_are_those_of_the_program_alone(tmp_path: Path, name: str) -> None:
    script = tmp_path / f"{name}.py"
    script.write_text(f"{START}\n{ENDINGS[name]}\n")
    with ThreadPoolExecutor() as both:
        direct, recorded = both.map(lambda before: call(tmp_path, *before, script.name), ((), RUN))
    *own, summary = recorded.stderr.splitlines(keepends=True)
    assert summary.startswith("sharding-inspector: ")
    assert _ending("".join(own), recorded) == _ending(direct.stderr, direct)
    run = program_run.read(tmp_path / "recorded")
    assert run.problems == ()
    assert run.ended.startswith("signal " if direct.returncode < 0 else f"exit {direct.returncode}")


def _ending(stderr: str, ended: subprocess.CompletedProcess[str]) -> tuple[int, str, str]:
    # A message about an exit function has the address of the function, one about a fork the process.
    return ended.returncode, ended.stdout, re.sub("(0x|pid=)[0-9a-f]+", r"\1", stderr)


def test_what_a_signal_handler_raises_reaches_the_program(tmp_path: Path) -> None:
    from inspector.jax_private.compile_hook import Hook, _Problems

    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGUSR1, late)
    try:
        hook = Hook({"folder": str(tmp_path)})
        with _Problems(hook, "an error of the recorder"):
            raise TimeoutError
        assert "an error of the recorder" in (tmp_path / "problems.txt").read_text()
        with pytest.raises(TimeoutError), _Problems(hook, "an error of the program"):
            signal.raise_signal(signal.SIGUSR1)
        assert hook.problems == 1
    finally:
        signal.signal(signal.SIGUSR1, before)
