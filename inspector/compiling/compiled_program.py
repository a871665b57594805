"""Lower, compile, run and time one program, and make its Program record."""

import itertools
import math
import statistics
import tempfile
import time
import timeit
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import jax

from inspector import hlo
from inspector.compiled import program_text
from inspector.compiled.assumed import with_costs_of_model
from inspector.files.sources import PROFILE_ENDING
from inspector.hlo.analysis import Analysis
from inspector.hlo.module import Module
from inspector.machines import compiler_options
from inspector.model import PyTree
from inspector.model.built_in.watching import Watched, listening
from inspector.readers.profiles import kinds
from inspector.readers.profiles.events import Collector
from inspector.readers.profiles.planes import File
from inspector.readers.profiles.times import Times
from inspector.records import typed_json
from inspector.records.job_report import JobReport
from inspector.records.snapshot import (
    Collective,
    Finding,
    Mesh,
    OperationTime,
    Program,
    ProgramArray,
    Seconds,
    Timeit,
    Trace,
    Work,
)
from inspector.sharding.memory_kinds import BITS
from inspector.text.errors import InvalidInput, shown
from inspector.tracing.leaves import bytes_per_device, leaves_of, memory_of, named_spec, structure_of
from inspector.tracing.live_arrays import agreed, gathered
from inspector.tracing.mlir.kernel_bodies import with_costs
from inspector.tracing.model.build import Signature, argument_paths, first_used

# Events of one trace of a process, over all steps and devices.
MOST_EVENTS = 500_000


def traced(
    run: Callable[[], object], steps: int, hlo_text: str, collectives: tuple[Collective, ...] = ()
) -> Trace | None:
    """Call `run` `steps` times under the profiler, and return the time of each instruction.

    All processes of the mesh must call this function; each gets the times of all processes. Return None if
    there is no trace or it would be too large. It never raises, so that a problem of the profiler does not
    spoil a run.

    Args:
      run: runs the program once and returns its result.
      hlo_text: the optimized HLO text of the program.
      collectives: those of the text, to which the times of instructions refer.
    """
    try:
        (module,) = hlo.parser.parse(hlo_text)
        if events_per_run(module) * jax.local_device_count() * steps > MOST_EVENTS:
            return None
    except Exception:  # fails alike in all processes, before any of them waits for another
        return None
    with tempfile.TemporaryDirectory(prefix="profile-", ignore_cleanup_errors=True) as folder:
        seconds = None
        # The profiler is not stable.
        with suppress(Exception):
            seconds = _profiled(run, steps, folder)
        processes = gathered({"folder": folder, "seconds": seconds})
        times: dict[str, Any] | None = None
        with suppress(Exception):
            if jax.process_index() == 0:
                times = typed_json.encode(_read(processes, steps, module, collectives))
        # The folders are kept until the first process has read them.
        times = gathered(times)[0]
    return None if times is None else typed_json.decode(Trace, times, "the trace")


def options() -> jax.profiler.ProfileOptions:
    """Return the options of a profile that has the operations, and no Python calls, most of the events."""
    chosen = jax.profiler.ProfileOptions()
    chosen.host_tracer_level = 1
    chosen.python_tracer_level = 0
    return chosen


def events_per_run(module: Module) -> int:
    """Return about how many instructions one device runs per step. A loop of unknown length counts once."""
    fused = {
        called.computation
        for computation in module.computations
        for instruction in computation.instructions
        if instruction.opcode == "fusion"
        for called in instruction.called
    }
    runs = Analysis(module).runs
    return sum(
        sum(not kinds.is_free(instruction) for instruction in computation.instructions)
        * (1 if (count := runs[computation.name].count) is None else count)
        for computation in module.computations
        if computation.name not in fused
    )


def _profiled(run: Callable[[], object], steps: int, folder: str) -> float | None:
    """Return the wall-clock seconds of all steps, None without a profile."""
    chosen = options()
    chosen.enable_hlo_proto = False  # the text is known
    watching = False
    with suppress(Exception):
        jax.profiler.start_trace(folder, profiler_options=chosen)
        watching = True
    try:
        # Runs even without a trace, because other processes wait for it in collectives.
        started = time.perf_counter()
        for _ in range(steps):
            jax.block_until_ready(run())
        seconds = time.perf_counter() - started
    finally:
        if watching:
            jax.profiler.stop_trace()
    return seconds if watching else None


def _read(
    processes: list[dict[str, Any]], steps: int, module: Module, collectives: tuple[Collective, ...]
) -> Trace | None:
    """Return the times in the files of all processes; None if one lacks them.

    The wall-clock time is the longest of all processes. The time of other programs has a separate kind.
    """
    collector = Collector()
    for number, process in enumerate(processes):
        files = list(Path(process["folder"]).rglob(f"*{PROFILE_ENDING}"))
        if process["seconds"] is None or not files:
            return None
        collector.add(File(files[0], str(number)))
    recorded = collector.finish()
    if recorded.events is None:
        return None
    own = kinds.of_program(module, collectives)
    is_own = [key.name == module.name for key, _ in recorded.instructions]
    times = Times(recorded, [own if same else None for same in is_own])
    operations: list[OperationTime] = []
    trace = Trace(steps, 0.0, ())
    for same in set(is_own):
        measured = times.of([number for number, is_same in enumerate(is_own) if is_same == same]).trace
        operations += measured.operations
        if same:
            trace = measured
    operations.sort(key=lambda operation: (-operation.seconds, operation.kind))
    seconds = max(process["seconds"] for process in processes)
    return replace(trace, steps=steps, seconds=seconds, operations=tuple(operations))


# Returns the arguments of the next call, given those of the last call and its result.
NextArguments = Callable[[tuple[Any, ...], Any], tuple[Any, ...]]

_Program = TypeVar("_Program", bound="CompiledProgram")

TIMEIT_RUNS = 7  # the default of IPython's `%%timeit`
TIMEIT_LEAST = 0.2  # seconds of one loop, as in `timeit.autorange`
TRACED_STEPS = 3  # reading a trace takes longer than running the step


@dataclass
class _Calls:
    """Repeated calls of one executable."""

    executable: jax.stages.Compiled
    arguments: tuple[Any, ...]
    next_arguments: NextArguments | None

    def next(self) -> PyTree:
        """Make the next call and return its result, which may not be ready yet."""
        result = self.executable(*self.arguments)
        if self.next_arguments is not None:
            self.arguments = self.next_arguments(self.arguments, result)
        return result


class CompiledProgram:
    """A jitted function that is lowered and compiled once. Records the seconds of each stage."""

    def __init__(self, name: str, report: JobReport) -> None:
        self.name = name
        self._report = report
        self._seconds = Seconds()
        self._measured: list[float] = []
        self._losses: list[float | None] = []
        self._timeit: Timeit | None = None
        self._trace: Trace | None = None
        self._signature: Signature
        # None until they are made; a program that does not fit into memory has no executable.
        self._lowered = cast(jax.stages.Lowered, None)
        self._executable = cast(jax.stages.Compiled, None)
        self._shardings: tuple[ProgramArray, ...] = ()
        self._ideal: Work | None = None
        self._first_used: tuple[str, ...] = ()  # from its trace
        self._facts = program_text.ProgramFacts()

    @property
    def changes_state(self) -> bool:
        """Whether the program returns the new state first."""
        return self._signature.changes_state

    @property
    def donates_state(self) -> bool:
        """Whether the program deletes the state that it takes."""
        return self.changes_state and "state" in self._signature.donated

    def lower(self, signature: Signature) -> None:
        """Lower the function of a signature."""
        self._signature = signature
        jitted = signature.jitted()
        self._report("lower", program=self.name)
        started = time.perf_counter()
        trace = jitted.trace(*signature.arguments)
        self._lowered = trace.lower()
        self._seconds = replace(self._seconds, lower=time.perf_counter() - started)
        inputs = zip(signature.inputs, signature.arguments, strict=True)
        self._first_used = first_used(trace.jaxpr, tuple(argument_paths(inputs)))

    def compile(self) -> None:
        """Compile the lowered program, and compare requested and compiled shardings."""
        inputs, outputs = self._signature.inputs, self._signature.outputs
        self._report("compile", program=self.name)
        started = time.perf_counter()
        self._executable = self._compiled()
        self._seconds = replace(self._seconds, compile=time.perf_counter() - started)
        compiled_inputs, _ = self._executable.input_shardings
        compiled_outputs, results = self._executable.output_shardings, self._lowered.out_info
        if len(outputs) == 1:
            compiled_outputs, results = (compiled_outputs,), (results,)
        requested_inputs = (self._on_devices(requested) for _, requested in inputs.values())
        requested_outputs = map(self._on_devices, outputs.values())
        arguments = self._signature.arguments
        self._shardings = (
            *_compare("input", inputs, arguments, requested_inputs, compiled_inputs),
            *_compare("output", outputs, results, requested_outputs, compiled_outputs),
        )

    def _on_devices(self, requested: PyTree) -> PyTree:
        """Return the requested shardings of one argument or result, which have devices here."""
        return requested

    def _compiled(self) -> jax.stages.Compiled:
        """Return the executable.

        The options are checked when a layout is parsed. They are checked again here, because an unknown
        option can start programs and write files.

        Raises:
          InvalidInput: an option is not in the table of safe ones, or the compiler refuses it.
        """
        compiler_options.check(self._signature.compiler_options)
        options = (*self._signature.compiler_options, *compiler_options.unsafe_options())
        if not options:
            return self._lowered.compile()
        try:
            return self._lowered.compile(compiler_options=compiler_options.arguments(options))
        except jax.errors.JaxRuntimeError as error:
            # `INVALID_ARGUMENT: No such compile option: 'xla_a'`, or that a value is wrong.
            message = str(error).strip().splitlines()[0]
            if not message.startswith("INVALID_ARGUMENT"):
                raise
            given = compiler_options.text(options)
            raise InvalidInput(
                f"compiler_options is {shown(given)}, but must have options that the compiler knows: "
                f"{message}"
            ) from None

    def read_lowered(self) -> None:
        """Read the work of the lowered program, before partitioning and optimization."""
        self._ideal = program_text.ideal_work(with_costs(self._lowered.as_text(dialect="hlo")))

    def read_compiled(self, mesh: Mesh) -> None:
        """Read work and collectives from the text of the compiled program. `mesh` gives the mesh axes."""
        memory = memory_of(self._executable)
        text = with_costs(self._executable.as_text())
        self._facts = program_text.read(text, mesh, self._shardings, memory, local=True)

    def first(self, *arguments: PyTree) -> PyTree:
        """Run the program for the first time, wait for its result, and return it.

        Raises:
          InvalidInput: it has arrays of int4 or smaller, which compiled programs of JAX 0.10 refuse on CPUs.
        """
        self._report("first run", program=self.name)
        started = time.perf_counter()
        try:
            result = jax.block_until_ready(self._executable(*arguments))
        except ValueError:
            leaves = jax.tree.leaves(arguments)
            packed = BITS.keys() & {str(getattr(leaf, "dtype", None)) for leaf in leaves}
            if not packed:
                raise
            raise InvalidInput(
                f"JAX {jax.__version__} cannot run {self.name} with arrays of {', '.join(sorted(packed))} "
                "here: plan the layout, or compile it for a machine"
            ) from None
        self._seconds = replace(self._seconds, first=time.perf_counter() - started)
        return result

    def steps(self, count: int) -> Iterator[int]:
        """Yield the number of each measured run, and report progress."""
        for step in range(count):
            # The page estimates the remaining time from the last step.
            last = self.last_seconds
            self._report("steps", program=self.name, done=step, of=count, last=last)
            yield step

    @property
    def last_seconds(self) -> float | None:
        """Seconds of the last measured run, None before the first one."""
        return self._measured[-1] if self._measured else None

    def run(self, *arguments: PyTree) -> PyTree:
        """Run the program once and return its result. The time until the result is ready is recorded."""
        started = time.perf_counter()
        result = jax.block_until_ready(self._executable(*arguments))
        self._measured.append(time.perf_counter() - started)
        return result

    def keep_losses(self, losses: list[jax.Array]) -> None:
        """Keep the losses of all steps. Called after the last step, so that no step waits for its loss.

        An infinite loss or NaN becomes None, because JSON cannot express it.
        """
        values = [float(loss) for loss in losses]
        self._losses = [value if math.isfinite(value) else None for value in values]

    def time_it(self, *arguments: PyTree, next_arguments: NextArguments | None = None) -> tuple[Any, ...]:
        """Time repeated calls as `%%timeit` does: mean and deviation over seven loops.

        Return the arguments for another call. All calls have the same arguments if `next_arguments` is None.
        """
        self._report("timeit", program=self.name)
        calls = _Calls(self._executable, arguments, next_arguments)
        timer = timeit.Timer(lambda: jax.block_until_ready(calls.next()))
        # All processes must make the same number of calls, because collectives wait for each other.
        loops = next(n for n in _loops() if agreed(timer.timeit(n)) >= TIMEIT_LEAST)
        means = []
        for run in range(TIMEIT_RUNS):
            self._report("timeit", program=self.name, done=run, of=TIMEIT_RUNS)
            means.append(timer.timeit(loops) / loops)
        # IPython prints the population deviation.
        self._timeit = Timeit(statistics.fmean(means), statistics.pstdev(means), TIMEIT_RUNS, loops)
        return calls.arguments

    def trace(self, *arguments: PyTree, next_arguments: NextArguments | None = None) -> tuple[Any, ...]:
        """Trace some calls with JAX's profiler. Arguments and result are those of `time_it`."""
        self._report("trace", program=self.name)
        calls = _Calls(self._executable, arguments, next_arguments)
        collectives = self._facts.collectives or ()
        self._trace = traced(calls.next, TRACED_STEPS, self._executable.as_text() or "", collectives)
        return calls.arguments

    def record(self) -> Program:
        """Return the record of the program."""
        program = Program(
            self.name,
            memory=memory_of(self._executable),
            seconds=replace(self._seconds, steps=tuple(self._measured), timeit=self._timeit),
            losses=tuple(self._losses),
            shardings=self._shardings,
            ideal=self._ideal,
            trace=self._trace,
            stage="compiled" if self._seconds.first is None else "run",
        )
        program = self._facts.added_to(program)
        program = replace(program, first_used=self._first_used or program.first_used)
        return with_costs_of_model(program, self._signature.kernel_costs)

    def bytes_per_device(self) -> int:
        """Return the bytes that one run needs on one device, 0 if unknown."""
        return bytes_per_device(self._executable)


def _compare(
    role: Literal["input", "output"],
    names: Iterable[str],
    values: Iterable[Any],
    requested: Iterable[Any],
    compiled: Iterable[Any],
) -> Iterator[ProgramArray]:
    """Yield the requested and the compiled sharding of each leaf. The name `state` is not part of paths."""
    for name, value, wanted, given in zip(names, values, requested, compiled, strict=True):
        # A requested sharding can be a prefix of the tree. None lets the compiler choose. The compiled
        # sharding of an unused input is None, which must not be taken for a None in the tree itself.
        structure = structure_of(value)
        all_wanted = [None] * structure.num_leaves
        if wanted is not None:
            all_wanted = jax.tree.leaves(jax.tree_util.tree_broadcast(wanted, value))
        paths = argument_paths([(name, value)])
        for path, leaf, want, have in zip(
            paths, leaves_of(value), all_wanted, structure.flatten_up_to(given), strict=True
        ):
            rank = len(leaf.value.shape)
            comparable = want is not None and have is not None
            yield ProgramArray(
                role=role,
                path=path,
                requested=named_spec(want, rank),
                compiled=named_spec(have, rank),
                same=have.is_equivalent_to(want, rank) if comparable else None,
                used=have is not None,
            )


def _loops() -> Iterator[int]:
    """Yield 1, 2, 5, 10, 20, 50 …, the loop counts of `timeit.autorange`."""
    for power in itertools.count():
        for digit in (1, 2, 5):
            yield digit * 10**power


def compile_all(
    signatures: Iterable[Signature],
    make_program: Callable[[str], _Program],
    mesh: Mesh,
    watched: list[Watched],
) -> tuple[_Program, ...]:
    """Lower and compile all programs, inside of `tracing`. Add the train step's watched values to `watched`.

    XLA releases the GIL, so another thread reads the text of one program while the next one compiles.
    """
    programs = []
    with ThreadPoolExecutor(max_workers=1) as reader:
        for signature in signatures:
            program = make_program(signature.name)
            with listening(watched.append) if signature.name == "train_step" else nullcontext():
                program.lower(signature)
            programs.append(program)
        # A module must not be read while it compiles. The first one compiles at once, so it is read later.
        lowered = [reader.submit(program.read_lowered) for program in programs[1:]]
        reads = []
        for number, program in enumerate(programs):
            if number:
                lowered[number - 1].result()
            program.compile()
            if not number:
                reads.append(reader.submit(program.read_lowered))
            reads.append(reader.submit(program.read_compiled, mesh))
        for read in reads:
            read.result()
    return tuple(programs)


def unsafe_text() -> str | None:
    """Return the unsafe options with which this process compiles, for `Source`; None without any."""
    return compiler_options.text(compiler_options.unsafe_options()) or None


def unsafe_findings() -> tuple[Finding, ...]:
    """Return a note if this process compiles with unsafe options."""
    options = unsafe_text()
    if options is None:
        return ()
    return (
        Finding(
            "note",
            compiler_options.UNSAFE,
            f"The programs were compiled with {options}, given by {compiler_options.UNSAFE_FLAG}. "
            "The layout does not contain these options: it runs without them wherever it is opened.",
        ),
    )
