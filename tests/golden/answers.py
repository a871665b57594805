"""What each verb answers about some inputs, as files: `python -m tests.golden.answers` writes them again.

A change that is meant to keep the answers, such as a merge of modules, leaves all files as they are. A change
that is meant to alter an answer commits the files that it altered, so that a reader sees how.
"""

import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.media.terminal.command import inspector
from tests.paths import ROOT

HERE = Path(__file__).parent / "answers"
CASES = ROOT / "tests/cases"

PLANS: dict[str, tuple[str, ...]] = {
    "mlp": ("--model", "mlp"),
    "logical_mlp": ("--model", "logical_mlp"),
    "transformer": ("--model", "transformer", "--set", "layers=2"),
    "moe": ("--model", "moe", "--set", "layers=2"),
}
# Programs that others compiled; text of XLA for a GPU, a TPU and a CPU.
PROGRAMS = {
    "loops": CASES / "hlo/loops.hlo",
    "asynchronous": CASES / "hlo/asynchronous.hlo",
    "tpu_kernel": CASES / "kernels/tpu_flash.hlo",
}
# The first input, whose answers every change checks. The others are nightly.
FIRST = "logical_mlp"
INPUTS = (*PLANS, *PROGRAMS)
CHIPS = ("v5e", "h100")

# What differs between two runs of one command.
_VOLATILE = (
    (re.compile(r"(/[\w.+-]+)+/(?=\w+\.json)"), ""),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?([+-]\d\d:\d\d|Z| UTC)?"), "TIME"),
    (re.compile(r'("(?:jax|jaxlib|flax|optax)": )"[^"]*"'), r'\1"VERSION"'),
    (re.compile(r"\b(jax|jaxlib|flax|optax|JAX|Flax|Optax) \d+(\.\d+)+"), r"\1 VERSION"),
)


def make(name: str, folder: Path) -> Path:
    """Return the Snapshot of an input, written to a folder."""
    path = folder / f"{name}.json"
    if name in PLANS:
        command: tuple[str, ...] = ("inspect", *PLANS[name], "--target", "plan")
    else:
        command = ("import", "hlo", str(PROGRAMS[name]))
    done = inspector(*command, "-o", str(path))
    assert done.returncode == 0, done.stderr
    return path


def answers(name: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the file name and the text of each answer about an input."""
    path = str(make(name, folder))
    for chip in (None, *CHIPS):
        with_chip = () if chip is None else ("--chip", chip)
        suffix = "" if chip is None else f".{chip}"
        for verb in ("show", "predict", "explain"):
            yield f"{verb}{suffix}.txt", printed(verb, path, *with_chip, "--all")
        yield f"screen{suffix}.txt", printed("show", path, *with_chip)
        for verb in ("show", "predict"):
            yield f"{verb}{suffix}.json", as_lines(printed(verb, path, *with_chip, "--json"))
    if name != FIRST:  # the fixes take long
        yield "audit.json", as_lines(printed("audit", path, "--json"))
    yield "report.md", report(path, folder)


def printed(*command: str) -> str:
    """Return what a verb prints, without what differs between two runs."""
    done = inspector(*command)
    return stable(done.stdout if done.returncode == 0 else f"exit {done.returncode}\n{done.stderr}")


def report(path: str, folder: Path) -> str:
    """Return the report for a pull request about a Snapshot."""
    to = folder / "report.md"
    done = inspector("report", path, "-o", str(to))
    return stable(to.read_text() if done.returncode == 0 else done.stderr)


def stable(text: str) -> str:
    """Return a text without dates, versions and folders."""
    for pattern, word in _VOLATILE:
        text = pattern.sub(word, text.replace(f"{ROOT}/", ""))
    return text


def as_lines(text: str) -> str:
    """Return a JSON text with one value per line, so that a difference of two files shows the value."""
    if text.startswith("exit"):
        return text
    plain: Any = json.loads(text)
    return json.dumps(plain, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def write(name: str) -> None:
    """Write the files of an input."""
    folder = HERE / name
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    with tempfile.TemporaryDirectory() as made:
        for file, text in answers(name, Path(made)):
            (folder / file).write_text(text)


if __name__ == "__main__":
    for chosen in sys.argv[1:] or INPUTS:
        write(chosen)
