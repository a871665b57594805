"""A process that writes until it is killed. Its arguments are a kind, a folder and a seed.

It prints a line for each write that has ended. `wrong` compares these lines with what is there: only the next
write may or may not have been done.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from inspector.files import output
from inspector.jobs.compile_cache import CompileCache
from inspector.jobs.library import Library
from inspector.records.snapshot import Snapshot, Source
from inspector.text.errors import InvalidInput

_NOISE = 300_000  # hexadecimal digits; a write takes milliseconds
Step = tuple[str, str]  # what is done, and its name


def content(name: str) -> str:
    """Return the noise that is written under this name."""
    return random.Random(name).randbytes(_NOISE // 2).hex()


def found(name: str) -> Snapshot:
    """Return a Snapshot whose content depends on its name."""
    source = Source("cpu", "cpu", "2026-01-01T00:00:00+00:00")
    return Snapshot(source, None, None, (), extra={"noise": content(name)})


def steps(seed: int) -> Iterator[Step]:
    """Yield what a writer does, in order."""
    chosen = random.Random(seed)
    for number in itertools.count():
        yield "save", f"{seed}-{number}"
        if number % 3 == 2:
            yield "delete", f"{seed}-{number - chosen.randrange(2)}"
        if number % 4 == 3:
            yield "replace", f"shared-{seed}"


def library(folder: Path) -> Callable[[Step], None]:
    """Return what writes to a library."""
    kept = Library(folder / "saved.sqlite3")

    def act(step: Step) -> None:
        if step[0] == "delete":
            kept.delete(step[1])
        else:
            kept.save(step[1], "", found(step[1]), replace=step[0] == "replace")

    return act


def cache(folder: Path) -> Callable[[Step], None]:
    """Return what writes to a compile cache."""
    kept = CompileCache(folder / "compiled.sqlite3")

    def act(step: Step) -> None:
        if step[0] == "save":
            kept.put(step[1], content(step[1]))

    return act


def file(folder: Path) -> Callable[[Step], None]:
    """Return what writes one output file again and again."""
    (folder / "out").mkdir(exist_ok=True)

    def act(step: Step) -> None:
        if step[0] == "save":
            output.write_text(content(step[1]), folder / "out" / "out.json")

    return act


KINDS = {"library": library, "cache": cache, "file": file}


def wrong(kind: str, folder: Path, done: list[Step], seed: int) -> str | None:
    """Return what a killed writer has left wrong, or None.

    Args:
      done: the writes whose end it has reported. The next one may be done too.
    """
    following = next(itertools.islice(steps(seed), len(done), None))
    names = [{name for what, name in part if what != "delete"} for part in (done, [*done, following])]
    for some, part in zip(names, (done, [*done, following]), strict=True):
        some -= {name for what, name in part if what == "delete"}
    try:
        if kind == "library":
            return _wrong_library(Library(folder / "saved.sqlite3"), names)
        saved = any(what == "save" for what, _ in done)
        if kind == "cache":
            kept = CompileCache(folder / "compiled.sqlite3")
            lost = [name for what, name in done if what == "save" and kept.get(name) != content(name)]
            return f"{lost} cannot be read" if lost else None
        # The next write removes the temporary file of a write that was killed before its rename.
        files = [path for path in (folder / "out").iterdir() if path.name == "out.json"]
        if saved and not files:
            return "there is no file"
        text = (folder / "out" / "out.json").read_text() if files else None
        last = [name for what, name in [*done, following] if what == "save"][-2:]
        if text is not None and text not in map(content, last):
            return "the file is half-written"
        output.write_text("after", folder / "out" / "out.json")
        left = sorted(path.name for path in (folder / "out").iterdir())
        return None if left == ["out.json"] else f"the folder has {left}"
    except InvalidInput as error:
        return str(error)


def _wrong_library(kept: Library, names: list[set[str]]) -> str | None:
    has = {entry.name for entry in kept.entries()}
    if has not in names:
        return f"{sorted(names[0] - has)} are lost, {sorted(has - names[0])} are new"
    if any(kept.open(name) != found(name) for name in has):
        return "an entry has another content"
    kept.save("after", "", found("after"))
    return None


def main() -> None:
    """Write until the process is killed."""
    kind, folder, seed = sys.argv[1:]
    act = KINDS[kind](Path(folder))
    print("ready", flush=True)
    for step in steps(int(seed)):
        act(step)
        print(json.dumps(step), flush=True)
