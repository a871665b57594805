"""Run a program with its mesh and on one device, and compare the results of its programs.

The program runs twice, each time in a new process: as it is, and with every mesh replaced by one of
the same axes on one device. Worker processes then run the lowered modules with the same arguments.
"""

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from inspector.files import strict_json
from inspector.files.temporary_folder import TemporaryFolder
from inspector.jobs.engine import Environment, Pool
from inspector.jobs.program_run.launch import LaunchedProgram
from inspector.records import typed_json
from inspector.records.program_run import place_of, unique_names
from inspector.records.same_results import ComparedProgram, SameResults
from inspector.text.errors import InvalidInput
from inspector.text.printable import one_line

_TIMEOUT = 3600.0  # seconds for one program
_MOST_ERROR = 400  # characters
_RECORDER = "lowered_programs"  # the module of the recorder, next to that of `run`

# The name of an exception, and its message.
_ERROR = re.compile(r"[A-Za-z_][\w.]*(: .*)?$")


def compare(
    subject: str,
    command: Sequence[str],
    variables: Mapping[str, str],
    report: Callable[[str], None] = lambda _: None,
    discards_output: bool = False,
) -> SameResults:
    """Run a script twice, and return the comparison of its programs.

    Args:
      subject: the script or layout, for messages.
      command: the script or `-m MODULE`, and the arguments of the program.
      variables: environment variables on top of those of this process.
      report: called with each phase, for progress.
      discards_output: whether to discard the standard output of the program.

    Raises:
      InvalidInput: the script fails, or none of its programs runs on several devices.
    """
    folder = TemporaryFolder()
    try:
        sharded, single = folder.path / "sharded", folder.path / "single"
        for run_folder in (sharded, single):
            (run_folder / "raw").mkdir(parents=True)
        report("run the program")
        output: dict[str, Any] = {"stdout": subprocess.DEVNULL} if discards_output else {}
        ended = _run(command, sharded, variables, {"values": True}, output)
        if ended:
            raise InvalidInput(f"{subject} ends with {ended}, so it cannot be checked")
        records = _records(sharded)
        _refuse_unusable(subject, records, sharded)
        report("run the program on one device")
        errors = folder.path / "errors.txt"
        with errors.open("wb") as file:
            output = {"stdout": subprocess.DEVNULL, "stderr": file}
            failure = _run(command, single, variables, {"one_device": True}, output)
        if failure:
            failure = f"the program ends with {failure} on a mesh of one device{_last(errors)}"
        programs = tuple(_compared(records, _records(single), failure, report))
    finally:
        folder.remove()
    return SameResults(subject, programs, sum(record["devices"] <= 1 for _, record in records))


def _run(
    command: Sequence[str],
    folder: Path,
    variables: Mapping[str, str],
    settings: Mapping[str, Any],
    streams: Mapping[str, Any],
) -> str | None:
    """Run the program, and return how it ended, None if it succeeded."""
    program = LaunchedProgram(
        command, folder, variables, settings={"recorder": _RECORDER, **settings}, streams=streams
    )
    status = program.wait()
    if status == 0:
        return None
    return f"exit status {status}" if status > 0 else f"signal {-status}"


def _records(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return the stem of the files of each program, and its record."""
    paths = sorted((folder / "raw").glob("[0-9]*.json"))
    return [(str(path.with_suffix("")), strict_json.read(path)) for path in paths]


def _refuse_unusable(subject: str, records: Sequence[tuple[str, dict[str, Any]]], folder: Path) -> None:
    """Raise InvalidInput if a program is not recorded, or if none runs on several devices."""
    problems = folder / "problems.txt"
    if problems.exists():  # a program that is not recorded would be missing in the comparison
        (first, *_) = problems.read_text(errors="replace").splitlines() or [""]
        raise InvalidInput(f"the programs of {subject} cannot be recorded: {one_line(first)}")
    if any(record["devices"] > 1 for _, record in records):
        return
    if records:
        raise InvalidInput(
            f"all programs of {subject} run on one device; give it more with --devices, or shard its arrays"
        )
    if (folder / "raw" / "operations.txt").exists():
        raise InvalidInput(f"{subject} runs operations of JAX outside of jax.jit only")
    raise InvalidInput(f"{subject} compiles no program")


def _compared(
    records: Sequence[tuple[str, dict[str, Any]]],
    singles: Sequence[tuple[str, dict[str, Any]]],
    failure: str | None,
    report: Callable[[str], None],
) -> Iterator[ComparedProgram]:
    """Yield the comparison of each program that runs on several devices."""
    names = unique_names([(record["name"], place_of(record["source"])) for _, record in records])
    checked = {_kind(record) for _, record in records if record["reason"] is None}
    with closing(Pool(workers=1)) as pool:
        for name, (stem, record) in zip(names, records, strict=True):
            if record["devices"] <= 1:
                continue
            reason = record["reason"]
            if reason is not None and _kind(record) in checked:
                continue  # compiled ahead of time, and again by a call
            partner = _partner(record, records, singles)
            if reason is None and partner is None:
                reason = _short(failure or "on one device, no program has the same name and argument types")
            if record["reason"] is None:
                report(f"compare {name}")
                devices = max(record["settings"]["devices"]) + 1
                payload = {"name": name, "sharded": stem, "single": partner, "reason": reason}
                job = pool.submit("compare_results", payload, Environment(devices), _TIMEOUT)
                try:
                    yield typed_json.decode(ComparedProgram, job.wait().answer())
                    continue
                except InvalidInput as error:
                    reason = reason or str(error)
            assert reason is not None
            yield ComparedProgram(name, record["source"], record["devices"], reason=_short(reason))


def _short(reason: str) -> str:
    return one_line(reason).strip()[:_MOST_ERROR].rstrip(".")


def _partner(
    record: dict[str, Any],
    records: Sequence[tuple[str, dict[str, Any]]],
    singles: Sequence[tuple[str, dict[str, Any]]],
) -> str | None:
    """Return the stem of the same program on one device, None if there is none.

    Two programs are the same if they have the same name, source and argument types. Of several, the one
    with the same number counts: with other shardings, JAX compiles a function more or less often.
    """
    before = [other for _, other in records if _kind(other) == _kind(record)]
    stems = [stem for stem, other in singles if _kind(other) == _kind(record)]
    if not stems:
        return None
    number = next(place for place, other in enumerate(before) if other is record)
    return stems[min(number, len(stems) - 1)]


def _kind(record: dict[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    return record["name"], record["source"], tuple(record["types"])


def _last(errors: Path) -> str:
    """Return the error that Python printed last as a part of a sentence."""
    lines = errors.read_text(errors="replace").splitlines() if errors.exists() else []
    printed = [line for line in lines if _ERROR.match(line)]
    return f": {one_line(printed[-1]).strip()}" if printed else ""
