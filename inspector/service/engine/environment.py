"""Settings that are fixed when JAX starts, so that they decide which worker can run a job."""

import os
import site
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from inspector.core import start
from inspector.machines.compiler_options import NO_CUDA_FOLDER, UNSAFE_VARIABLE


@dataclass(frozen=True)
class Environment:
    """The number of emulated devices, environment variables, and the number of processes.

    `devices` counts those of all `processes` together, which have equal shares. With `local`, JAX finds the
    devices of this machine as in any other program, and `devices` is their number. Raises ValueError
    if one of the two counts is not a positive integer, if the shares are not whole, or if `variables` is
    not pairs of text.
    """

    devices: int
    variables: tuple[tuple[str, str], ...] = ()
    processes: int = 1
    local: bool = False

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
        # Sorted, so that equal sets of variables find the same warm worker.
        object.__setattr__(self, "variables", tuple(sorted(map(tuple, self.variables))))

    def __str__(self) -> str:
        devices = f"{self.devices} device" + ("s" if self.devices != 1 else "")
        return devices if self.processes == 1 else f"{devices} in {self.processes} processes"

    def for_child(self) -> dict[str, str]:
        """Return all environment variables of a worker: those of the server, with these on top."""
        child = dict(os.environ)
        # Only a worker that was started for unsafe options compiles with them.
        child.pop(UNSAFE_VARIABLE, None)
        if self.local:
            # An idle worker then leaves the memory of a GPU to other programs.
            child.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
            child["XLA_FLAGS"] = f"{NO_CUDA_FOLDER} {child.get('XLA_FLAGS', '')}".strip()
        else:
            child["JAX_PLATFORMS"] = "cpu"
            # Overrides --xla_force_host_platform_device_count in the user's XLA_FLAGS.
            child["JAX_NUM_CPU_DEVICES"] = str(self.devices // self.processes)
        child = start.with_path(child, _import_path())
        if self.processes > 1:
            child["JAX_CPU_COLLECTIVES_IMPLEMENTATION"] = "gloo"
            for name in os.environ:
                # gRPC would look for the other processes of this machine through a proxy.
                if name.lower().endswith("_proxy"):
                    del child[name]
        child.update(self.variables)
        return child


def _import_path() -> list[str]:
    """Return the folders from which a worker imports, as does the server.

    The folders of the interpreter are left out: a worker runs the same interpreter, and in front they
    would change the search order. So are the folders of `.pth` files, which the interpreter adds again, and
    the current folder of a notebook or of `python -c`.
    """
    own = [*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()]
    own.append(os.path.join(sysconfig.get_path("platstdlib"), "lib-dynload"))
    skipped = {os.path.realpath(folder) for folder in (*own, *_of_pth_files())}
    paths = []
    for folder in filter(os.path.isabs, sys.path):
        usable = os.path.exists(folder) and os.pathsep not in folder
        if usable and os.path.realpath(folder) not in skipped and folder not in paths:
            paths.append(folder)
    return paths


def _of_pth_files() -> Iterator[str]:
    """Return the folders that `.pth` files of the interpreter name, such as editable installs."""
    for packages in (*site.getsitepackages(), site.getusersitepackages()):
        for file in Path(packages).glob("*.pth"):
            for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                if line.strip() and not line.startswith(("#", "import ", "import\t")):
                    yield os.path.join(packages, line.strip())
