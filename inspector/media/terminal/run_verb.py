"""`run` records a user's unmodified program; `same` compares its results with those on one device."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from inspector.answers import same_results
from inspector.files import output
from inspector.files.temporary_folder import TemporaryFolder
from inspector.jobs import start
from inspector.jobs.program_run import same as comparison
from inspector.jobs.program_run.launch import LaunchedProgram
from inspector.jobs.program_run.records import RunFolder
from inspector.layout.emulation import why_not_emulated
from inspector.layout.script import script
from inspector.machines import targets
from inspector.media.terminal import options as shared
from inspector.media.terminal import render
from inspector.media.terminal.options import JSON, argument, one_of, verb
from inspector.records import program_run, typed_json
from inspector.records.program_run import ProgramRun
from inspector.records.snapshot import Program, Snapshot
from inspector.records.statistics import statistics
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import counted, seconds_text
from inspector.text.printable import one_line

if TYPE_CHECKING:
    from inspector.jobs.program_run.causes import CauseFinder, TargetCompiler

_UPDATE_SECONDS = 1.0
_PATIENCE_SECONDS = 5.0  # for the dashboard to end
_SILENT_SECONDS = 3.0  # of the analysis after the program
_MOST_DEVICES = 4096
STEPS = 3  # that are profiled, without a number
_VALUES = frozenset({"-o", "--output", "--devices", "--target"})  # options with a value
_OPTION = "--profile"


def _options(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "%(prog)s [--devices N | --target T] [--profile [STEPS]] [-o FOLDER] [--open] "
        "(SCRIPT.py | -m MODULE) [ARGS...]"
    )
    # The option must not take the script for its number.
    known = parser.parse_known_args
    parser.parse_known_args = lambda args, namespace: known(  # type: ignore[method-assign, assignment]
        with_number(args), namespace
    )
    shared.add_program(parser, "a script")


@verb(
    "run",
    "run a program as it is, and record every program that it compiles and its live arrays",
    one_of(
        argument("--devices", metavar="N", help="run on this many emulated devices"),
        argument(
            "--target",
            metavar="T",
            help="run on as many emulated devices as this machine has, and also compile every jitted "
            "function for it, such as tpu:v5e:4x4",
        ),
    ),
    argument(
        "--profile",
        metavar="STEPS",
        help=f"also profile about this many steps ({STEPS}), and no others",
    ),
    argument("-o", "--output", metavar="FOLDER", help="default: the name of the program and -run"),
    argument("--open", action="store_true", help="show the run in a dashboard until the program ends"),
    _options,
)
def run(options: argparse.Namespace) -> int:
    """Run the program and return its exit status."""

    command = command_of(options)
    variables, target = _environment(options)
    steps = parse(options.profile)
    name = command[1] if options.module is not None else Path(command[0]).stem
    compiler = None if target is None else _compiler(target)
    folder = RunFolder(
        Path(options.output or f"{name}-run"),
        ProgramRun(
            tuple(command),
            datetime.now(UTC).replace(microsecond=0).isoformat(),
            target=None if target is None else target.text,
        ),
        compiler,
    )
    folder.create()
    with _dashboard(folder.path, options.open):
        platform = None if target is None else targets.PLATFORMS[target.kind]
        profiles = None if steps is None else ProfiledSteps(folder.path, steps)
        settings = {"profile": profiles is not None}
        program = LaunchedProgram(command, folder.path, variables, platform, settings)
        with _updates(folder, profiles):
            status = program.wait()
    ended = f"exit {status}" if status >= 0 else f"signal {signal.Signals(-status).name}"
    seconds = time.time() - program.started
    causes = _cause_finder()  # imported when the program has ended
    # Without a word, a long analysis looks like a program that does not end.
    said = threading.Timer(_SILENT_SECONDS, _say_at_terminal)
    said.daemon = True
    said.start()
    try:
        message = _profile_ended(folder, profiles, ended, seconds, causes)
        message = _summary(folder.run, folder.path, variables, message)
    except KeyboardInterrupt:
        message = "interrupted; the record is not complete"
    except Exception as error:  # the exit status is that of the program, whatever happens here
        message = f"the record is not complete: {one_line(str(error) or type(error).__name__)}"
    finally:
        said.cancel()
        causes.close()
        if compiler is not None:
            compiler.close()
    _say(message)
    return program.end_alike()


def _profile_ended(
    folder: RunFolder, profiles: ProfiledSteps | None, ended: str, seconds: float, causes: CauseFinder
) -> str:
    """Complete the record, with the times of a profile if there is one. Return the profiled steps."""
    if profiles is None:
        folder.end(ended, seconds, causes)
        return ""
    kept = profiles.keep()
    folder.end(ended, seconds, causes, None if kept is None else lambda: measured(kept))
    said = profiles.why_none() if kept is None else summary(folder.programs)
    profiles.forget_signs()
    return f"; {said}"


def _say_at_terminal() -> None:
    """Say what takes time. A file or another program gets the output of the program and one line."""
    with contextlib.suppress(AttributeError, ValueError):  # no standard error, or a closed one
        if sys.stderr.isatty():
            _say("finding the causes of collectives; Ctrl-C skips the rest")


def _say(message: str) -> None:
    if sys.stderr is not None:
        # The program can have closed the other end.
        with contextlib.suppress(OSError, ValueError):
            print(f"sharding-inspector: {message}", file=sys.stderr, flush=True)


def command_of(options: argparse.Namespace) -> list[str]:
    """Return the script or `-m MODULE`, and the arguments of the program.

    Raises:
      InvalidInput: there is no program, or the script is not a file.
    """
    command = ["-m", *options.module] if options.module is not None else options.program
    if len(command) < (2 if options.module is not None else 1):
        raise InvalidInput("no program is given: give a script, or -m and a module")
    if options.module is None and not Path(command[0]).is_file():
        raise InvalidInput(
            f"the script is {shown(command[0])}, but must be an existing Python file, or -m and a module"
        )
    return list(command)


@contextlib.contextmanager
def _updates(folder: RunFolder, profiles: ProfiledSteps | None) -> Iterator[None]:
    """Turn raw records into Snapshots while the program runs."""
    done = threading.Event()

    def update() -> None:
        while not done.wait(_UPDATE_SECONDS):
            with contextlib.suppress(InvalidInput, OSError):  # the end tries again and reports it
                folder.update()
                if profiles is not None:
                    profiles.check()

    thread = threading.Thread(target=update, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextlib.contextmanager
def _dashboard(folder: Path, opens: bool) -> Iterator[None]:
    """Show the run in a dashboard until the program ends."""
    if not opens:
        yield
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = ["--run", str(folder), "--server.port", str(port)]
    server = subprocess.Popen(
        start.command("inspector.__main__", "dashboard", *arguments),
        env=start.variables(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the program
    )
    print(f"sharding-inspector: the run is shown at http://127.0.0.1:{port}/run", file=sys.stderr)
    try:
        yield
    finally:
        server.terminate()
        try:
            server.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()


def _environment(options: argparse.Namespace) -> tuple[dict[str, str], targets.Target | None]:
    if options.target is not None:
        target = targets.parse(options.target)
        if lacking := targets.missing_compiler(target):
            raise InvalidInput(lacking)
        return emulated(target.devices), target
    return emulated_devices(options.devices), None


def emulated_devices(devices: str | None) -> dict[str, str]:
    """Return the environment variables for the option --devices, none without it."""
    if devices is None:
        return {}
    allowed = f"a number from 1 to {_MOST_DEVICES}"
    return emulated(shared.number(devices, "--devices", allowed, 1, _MOST_DEVICES))


def _compiler(target: targets.Target) -> TargetCompiler:
    from inspector.jobs.program_run.causes import TargetCompiler

    return TargetCompiler(target)


def _cause_finder() -> CauseFinder:
    from inspector.jobs.program_run.causes import CauseFinder

    return CauseFinder()


def emulated(devices: int) -> dict[str, str]:
    """Return the environment variables for this many emulated devices."""
    return {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(devices)}


def _summary(run: ProgramRun, folder: Path, variables: Mapping[str, str], profiled: str) -> str:
    """Return one line about the record.

    Args:
      variables: the environment that the options gave the program.
      profiled: the profiled steps, as a clause; "" without --profile.
    """
    if not run.programs and run.live is None:
        result = "nothing was compiled and no array was found"
        if run.ended != "exit 0" and not variables:
            result += " (a program for several devices needs --devices N here)"
        if run.operations:
            result = f"only {counted(run.operations, 'operation')} of JAX ran, outside of any jit"
    else:
        arrays = sum(run.live.names.values()) if run.live is not None else 0
        result = f"recorded {counted(len(run.programs), 'program')} and {counted(arrays, 'live array')}"
        result = "; ".join([result, *run.not_recorded])
    ended = "" if run.ended == "exit 0" else f"; the program ended with {run.ended}"
    problems = "; parts could not be recorded, see problems.txt" if run.problems else ""
    if run.questions:
        place = run.questions[0].rpartition("/")[2]
        problems += (
            f"; the program asked for its platform ({place}) and got cpu, so on {run.target} it can compile "
            "other programs"
        )
    return f"{result}{profiled}{ended}{problems}; see `sharding-inspector show {shlex.quote(str(folder))}`"


DIFFERENT, UNCHECKED = 1, 2


def _same_options(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "%(prog)s [--devices N] [--model NAME] [--json] [-o FILE] "
        "(SCRIPT.py [ARGS...] | -m MODULE [ARGS...] | LAYOUT.json)"
    )
    shared.add_program(parser, "a script, a layout, or a Snapshot with a layout")


@verb(
    "same",
    "run a program sharded and on one device, compare the results of all its programs, and name the first "
    "operation that differs; exit status 1 if a result differs, 2 if one cannot be checked",
    argument("--devices", metavar="N", help="run a script on this many emulated devices"),
    shared.own_model("if the layout is of one"),
    JSON,
    shared.output_to("FILE"),
    _same_options,
)
def same(options: argparse.Namespace) -> int:
    """Compare the results, print them, and return the exit status."""
    if options.output is not None:
        output.refuse_unwritable(options.output)
    with _program(options) as program:
        results = comparison.compare(
            program.subject,
            program.command,
            program.variables,
            lambda phase: print(phase, file=sys.stderr, flush=True),
            # The script of a layout prints shardings; other output would be mixed with the JSON.
            discards_output=program.is_layout or (options.json and options.output is None),
        )
    if options.json:
        text = typed_json.dumps(typed_json.encode(results))
        shared.write_text(text if text.endswith("\n") else f"{text}\n", options.output)
    elif options.output is not None:
        output.write_text(render.text(same_results.section(results).blocks), options.output)
    else:
        render.show(same_results.section(results).blocks)
    return {True: 0, False: DIFFERENT, None: UNCHECKED}[results.same]


@dataclass(frozen=True)
class _Program:
    """The program, the command of Python, and its environment variables."""

    subject: str
    command: list[str]
    variables: dict[str, str]
    is_layout: bool = False


@contextmanager
def _program(options: argparse.Namespace) -> Iterator[_Program]:
    """Give the program of the command line. The script of a layout is removed afterwards."""
    if options.module is None and options.program and options.program[0].endswith(".json"):
        folder = TemporaryFolder()
        try:
            yield _program_of_layout(options, folder.path / "layout_script.py")
        finally:
            folder.remove()
        return
    if options.model is not None:
        raise InvalidInput(f"--model is {shown(options.model)}, but is only for a layout")
    command = command_of(options)
    variables = emulated_devices(options.devices)
    yield _Program(
        command[1] if options.module is not None else command[0],
        command,
        {"JAX_PLATFORMS": "cpu", **variables},
    )


def _program_of_layout(options: argparse.Namespace, path: Path) -> _Program:
    """Write the script of a layout, for emulated devices and one step, and return the program."""
    subject, *rest = options.program
    if rest:
        raise InvalidInput(f"{shown(rest[0])} follows the layout {subject}, which has no arguments")
    if options.devices is not None:
        raise InvalidInput(
            f"--devices is {shown(options.devices)}, but the mesh of the layout has its devices"
        )
    shared.register_own_model(options.model)
    layout = shared.read_layout(subject)
    if options.model not in (None, layout.model):
        raise InvalidInput(f"--model is {shown(options.model)}, but the model of {subject} is {layout.model}")
    if layout.devices == 1:
        raise InvalidInput(f"the mesh of {subject} has one device")
    reason = why_not_emulated(layout.devices)
    if reason is not None:
        raise InvalidInput(f"{subject} cannot be checked: {reason}")
    # The options of a target's compiler, its order of devices and processes change no result.
    layout = replace(
        layout,
        target="cpu",
        steps=1,
        processes=1,
        compiler_options=(),
        device_order="row-major",
    )
    path.write_text(script(layout), encoding="utf-8")
    _, *command = start.command(str(path))
    path_variable = {"PYTHONPATH": start.variables().get("PYTHONPATH", "")}
    variables = {**path_variable, **emulated(layout.devices)}
    return _Program(subject, command, variables, is_layout=True)


def with_number(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of `run`, in which `--profile` and its number are one.

    >>> with_number(["--profile", "train.py", "--profile", "7"])
    ['--profile=3', 'train.py', '--profile', '7']
    >>> with_number(["--devices", "8", "--profile", "5", "train.py"])
    ['--devices', '8', '--profile=5', 'train.py']
    """
    place = 0
    written = list(arguments)
    while place < len(written) and written[place].startswith("-") and written[place] not in ("-m", "--"):
        if written[place] == _OPTION:
            number = written[place + 1 : place + 2]
            own = bool(number) and number[0].lstrip("+-").replace(".", "").isdigit()
            written[place : place + 1 + own] = [f"{_OPTION}={number[0] if own else STEPS}"]
        place += 2 if written[place] in _VALUES else 1
    return written


def parse(text: str | None) -> int | None:
    """Return the number of steps to profile, None without the option.

    Raises:
      InvalidInput: it is not a number from 1 up.
    """
    return None if text is None else shared.number(text, _OPTION, "a number of steps from 1 to 1000", 1, 1000)


class ProfiledSteps:
    """The profiles that a running program writes.

    Args:
      folder: that of the run.
      steps: the least number of complete runs of a program in a profile.
    """

    def __init__(self, folder: Path, steps: int) -> None:
        self._folder = folder
        self._steps = steps
        self._read = 0
        self._runs: dict[Path, int] = {}

    def check(self) -> None:
        """Read the profiles that are new, and ask for no further one if the last has enough runs."""
        from inspector.readers import profile

        while (path := self._folder / "raw" / program_run.PROFILE.format(self._read + 1)).exists():
            self._read += 1
            with contextlib.suppress(InvalidInput):
                self._runs[path] = profile.complete_runs(path)
                if self._runs[path] >= self._steps:
                    (self._folder / program_run.ENOUGH).touch()

    def keep(self) -> Path | None:
        """Move the last profile with enough runs, or else that with the most, to its folder; None without."""
        self.check()
        ran = [path for path, runs in self._runs.items() if runs]
        if not ran:
            return None
        chosen = max(ran, key=lambda path: (min(self._runs[path], self._steps), path.name))
        folder = self._folder / program_run.PROFILE_FOLDER
        folder.mkdir(exist_ok=True)
        return chosen.replace(folder / program_run.PROFILE_FILE)

    def why_none(self) -> str:
        """Return why nothing was profiled, and what to do."""
        if (self._folder / program_run.PROFILE_TAKEN).exists():
            return (
                "no steps were profiled, because the program profiles itself: "
                "`sharding-inspector import profile FOLDER` reads its profile"
            )
        return "no steps were profiled, because no compiled program ran long enough: run more steps"

    def forget_signs(self) -> None:
        """Delete the files with which this process and the program agree."""
        for name in (program_run.ENOUGH, program_run.PROFILE_TAKEN):
            (self._folder / name).unlink(missing_ok=True)


def measured(path: Path) -> Snapshot:
    """Return the Snapshot of a profile, read by a worker process."""
    with shared.workers() as service:
        return service.file(path, path.name, "profile").start().wait().answer()


def summary(programs: Sequence[Program]) -> str:
    """Return the steps that were profiled, of the program that took the most time."""
    profiled = [program for program in programs if program.trace is not None]
    if not profiled:
        return "the profile has none of the recorded programs"
    longest = max(profiled, key=lambda program: program.trace.seconds if program.trace else 0.0)
    assert longest.trace is not None and longest.seconds is not None
    steps = statistics(longest.seconds.steps)
    median = "median " if steps and steps.count > 1 else ""
    took = f", {median}{seconds_text(steps.median)}" if steps else ""
    return f"profiled {counted(longest.trace.steps, 'run')} of {shown(longest.name, 60)}{took}"
