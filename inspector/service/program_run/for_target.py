"""Compile the lowered functions of a recorded program for a target, in a worker process."""

import base64
from typing import Any

from inspector.core import snapshot
from inspector.core.snapshot import Snapshot
from inspector.machines import targets
from inspector.machines.targets import Target
from inspector.service.engine import Environment, Pool

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
