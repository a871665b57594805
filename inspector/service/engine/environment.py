"""What must be fixed before JAX starts, and so decides which worker can run a job."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Environment:
    """The number of emulated devices, environment variables to set on top, and how many processes.

    `devices` are those of all `processes` together, which have equal shares of them. Raises ValueError
    if one of the two is not a positive integer, if the devices cannot be shared out, or if `variables`
    is not pairs of text.
    """

    devices: int
    variables: tuple[tuple[str, str], ...] = ()
    processes: int = 1

    def __post_init__(self) -> None:
        for name in ("devices", "processes"):
            count = getattr(self, name)
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ValueError(f"`{name}` is {count!r}; it must be a whole number from 1 up.")
        if self.devices % self.processes:
            raise ValueError(
                f"`devices` is {self.devices}; {self.processes} processes cannot share them equally."
            )
        for pair in self.variables:
            if len(pair) != 2 or not all(isinstance(text, str) for text in pair):
                raise ValueError(f"`variables` holds {pair!r}; it must hold pairs of texts.")
            if not pair[0] or "=" in pair[0] or "\0" in pair[0] + pair[1]:
                raise ValueError(
                    f"`variables` holds {pair!r}; a name must not be empty or hold `=`,"
                    " and neither may hold a null character."
                )
        # Order means nothing in an environment, so equal sets must find the same warm worker.
        object.__setattr__(self, "variables", tuple(sorted(map(tuple, self.variables))))

    def __str__(self) -> str:
        devices = f"{self.devices} device" + ("s" if self.devices != 1 else "")
        return devices if self.processes == 1 else f"{devices} in {self.processes} processes"

    def for_child(self) -> dict[str, str]:
        """The whole environment of a worker: the server's own, with this on top."""
        child = dict(os.environ)
        child["JAX_PLATFORMS"] = "cpu"
        # Wins over --xla_force_host_platform_device_count on every JAX this project supports, so
        # the user's own XLA_FLAGS can stay as they are.
        child["JAX_NUM_CPU_DEVICES"] = str(self.devices // self.processes)
        child["PYTHONPATH"] = os.pathsep.join(_import_path())
        if self.processes > 1:
            child["JAX_CPU_COLLECTIVES_IMPLEMENTATION"] = "gloo"
            for name in os.environ:
                # gRPC would ask the proxy for the other processes, which are on this machine.
                if name.lower().endswith("_proxy"):
                    del child[name]
        child.update(self.variables)
        return child


def _import_path() -> list[str]:
    """Where a worker finds this project and whatever else the server can import.

    The interpreter's own folders are left out: a worker runs the same interpreter and has them,
    and in front they would change the order in which it searches.
    """
    own = [*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()]
    own.append(os.path.join(sysconfig.get_path("platstdlib"), "lib-dynload"))
    skipped = {os.path.realpath(folder) for folder in own}
    paths: list[str] = []
    for entry in (str(PROJECT), *sys.path):
        folder = os.path.abspath(entry or os.curdir)
        usable = os.path.exists(folder) and os.pathsep not in folder
        if usable and os.path.realpath(folder) not in skipped and folder not in paths:
            paths.append(folder)
    return paths
