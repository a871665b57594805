"""What workers add to a recorded program: causes of its collectives, and a compile for a target."""

import base64
import time
from dataclasses import replace
from typing import Any

from inspector.compiled import program_text
from inspector.jobs.engine import Environment, Pool
from inspector.layout.plan import CAUSES_UNKNOWN, with_partitioned
from inspector.machines import targets
from inspector.machines.targets import KINDS, Target
from inspector.records import snapshot, typed_json
from inspector.records.snapshot import Finding, Program, Snapshot
from inspector.sharding.abstract import PartitionedPrograms
from inspector.text.errors import InvalidInput
from inspector.text.formatting import seconds_text
from inspector.text.program_names import subject

_TIMEOUT = 3600.0  # seconds; an 8B model for 64 TPUs takes about half a minute


class TargetCompiler:
    """Compiles one program after the other. The worker starts with the first one.

    pool: has the worker; by default a new one.
    """

    def __init__(self, target: Target, pool: Pool | None = None) -> None:
        self._target = target
        self._pool = pool or Pool(workers=1)

    def __call__(self, found: Snapshot, module: bytes, settings: dict[str, Any]) -> Snapshot:
        """Return the Snapshot of a program for the target.

        Raises:
          InvalidInput: the compiler fails.
        """
        payload = {
            "target": self._target.text,
            "module": base64.b64encode(module).decode(),
            "snapshot": found.to_json(),
            "settings": settings,
        }
        environment = Environment(devices=1, variables=targets.environment(self._target))
        job = self._pool.submit("compile_lowered", payload, environment, _TIMEOUT)
        return snapshot.from_json(job.wait().answer(), "the program for the target")

    def close(self) -> None:
        """End the worker."""
        self._pool.close()


_MOST_SECONDS = 30.0  # for one program
_MOST_SECONDS_OF_RUN = 60.0  # for all programs of a run


class CauseFinder:
    """Partitions one program after the other. The worker starts with the first one.

    pool: has the worker; by default a new one.
    """

    def __init__(self, pool: Pool | None = None) -> None:
        self._pool = pool or Pool(workers=1)
        self._left = _MOST_SECONDS_OF_RUN

    def __call__(self, snapshot: Snapshot, module: bytes) -> Snapshot:
        """Return the Snapshot of one compiled program with the causes of its collectives.

        It also has the collectives of the partitioned program, and the work of all devices. If the causes are
        unknown, a note says why.

        Args:
          module: the program as JAX lowered it, as MLIR bytecode.
        """
        try:
            partitioned = self._partitioned(snapshot, module)
        except InvalidInput as error:
            return _with_note(snapshot, str(error))
        known = with_partitioned(snapshot, partitioned)
        (compiled,) = known.programs
        return _with_work(known, compiled, partitioned.programs[0])

    def _partitioned(self, snapshot: Snapshot, module: bytes) -> PartitionedPrograms:
        (program,) = snapshot.programs
        mesh = snapshot.mesh_of(program)
        if mesh is None:
            raise InvalidInput("its mesh is unknown")
        if self._left <= 0:
            raise InvalidInput(
                "the programs of a run are partitioned for at most "
                f"{seconds_text(_MOST_SECONDS_OF_RUN)} in all"
            )
        inputs, outputs = program_text.flat_paths(program.shardings)
        payload = {
            "module": base64.b64encode(module).decode(),
            "name": program.name,
            "mesh": typed_json.encode(mesh),
            "inputs": inputs,
            "outputs": outputs,
            "platforms": KINDS,
        }
        started = time.monotonic()
        job = self._pool.submit("partition_lowered", payload, Environment(devices=1), _MOST_SECONDS)
        try:
            answer = job.wait().answer()
            return typed_json.decode(PartitionedPrograms, answer, "the partitioned program")
        except InvalidInput:
            if time.monotonic() - started < _MOST_SECONDS:
                raise
            limit = seconds_text(_MOST_SECONDS)
            raise InvalidInput(f"it was not partitioned within {limit}") from None
        finally:
            self._left -= time.monotonic() - started

    def close(self) -> None:
        """End the worker."""
        self._pool.close()


def _with_note(snapshot: Snapshot, reason: str) -> Snapshot:
    (program,) = snapshot.programs
    note = Finding(
        "note",
        CAUSES_UNKNOWN,
        f"The sources of the shardings of {subject(program.name)} are unknown: {reason.rstrip('.')}.",
        program=program.name,
    )
    return replace(snapshot, findings=(*snapshot.findings, note))


def _with_work(snapshot: Snapshot, compiled: Program, partitioned: Program) -> Snapshot:
    ideal = partitioned.ideal or compiled.ideal
    return replace(
        snapshot,
        programs=(replace(compiled, ideal=ideal, rematerializations=partitioned.rematerializations),),
    )
