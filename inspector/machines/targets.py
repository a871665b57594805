"""Compile targets: `tpu:v5p:4x4x4`, `tpu:v5e:16x16*2`, `gpu:h100:8`. The machine need not be present."""

import importlib.metadata
import importlib.util
import math
import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from inspector.machines import slices
from inspector.machines.compiler_options import NO_CUDA_FOLDER
from inspector.machines.hardware import CHIPS, Chip, Kind, chip_of_device
from inspector.machines.slices import Slice
from inspector.records.snapshot import Snapshot
from inspector.sharding.once import once_per_snapshot
from inspector.text.errors import InvalidInput, require_one_of, shown
from inspector.text.formatting import counted

# The kinds of targets, which are also kinds of a Snapshot's source.
KINDS: tuple[Kind, ...] = ("tpu", "gpu")
# A Snapshot can be opened on another machine than the one that measured, so none is called this machine.
EMULATED = "on emulated devices"
LOCAL = "on local devices"
COMPILED = "nothing was run"
PROFILED = "in a profile"
# The names of their platforms in JAX.
PLATFORMS = {"tpu": "tpu", "gpu": "cuda"}
# The compiler needs a description of each GPU, which is in this folder.
GPU_DESCRIPTIONS = Path(__file__).parent / "gpu_targets"
GPU_CHIPS = tuple(name for name in CHIPS if (GPU_DESCRIPTIONS / f"{name}.textproto").is_file())
GPUS_PER_NODE = 8  # HGX and DGX boards (NVIDIA)
MOST_GPUS = 16_384  # the largest run of Llama 3 (arXiv:2407.21783)

MOST_SLICES = 512  # a limit of this program
MOST_DEVICES = 131_072  # of all slices, a limit of this program

FORMS = (
    "tpu:<generation>:<topology> such as tpu:v5p:4x4x4, tpu:<generation>:<topology>*<slices> such as "
    "tpu:v5e:16x16*2, or gpu:<chip>:<count> such as gpu:h100:8"
)

_COUNT = re.compile(r"[0-9]{1,9}")

# The package of the compiler for each kind. The extra of this project that installs it has the kind's name.
# By kind: the package of the compiler, and the extra of JAX that installs it.
_COMPILERS = {"tpu": ("libtpu", "tpu"), "gpu": ("jax_cuda13_plugin", "cuda13-local")}

_TPU_VARIABLES = (
    # The lock protects a TPU. Compiling uses none, so several processes may compile at once.
    ("ALLOW_MULTIPLE_LIBTPU_LOAD", "1"),
    # Do not ask Google's metadata server for the TPU. The topology decides, not this accelerator type.
    ("TPU_SKIP_MDS_QUERY", "1"),
    ("TPU_ACCELERATOR_TYPE", "v5p-8"),
    ("TPU_WORKER_HOSTNAMES", "localhost"),
    ("TPU_WORKER_ID", "0"),
    # By default each process writes a log to /tmp/tpu_logs.
    ("TPU_LOG_DIR", "disabled"),
    ("TPU_STDERR_LOG_LEVEL", "3"),
    ("TPU_MIN_LOG_LEVEL", "3"),
)


@dataclass(frozen=True)
class Target:
    """A machine to compile for.

    devices: JAX devices of the whole machine.
    slice: one of its TPU slices, which are equal; None for GPUs.
    slices: the TPU slices, joined by the data center network.
    """

    kind: Kind
    chip_name: str
    devices: int
    slice: Slice | None = None
    slices: int = 1

    @property
    def chip(self) -> Chip:
        return CHIPS[self.chip_name]

    @property
    def text(self) -> str:
        """The target as text, `tpu:v5p:4x4x4` or `tpu:v5e:16x16*2`."""
        part = self.devices if self.slice is None else self.slice.topology
        several = f"*{self.slices}" if self.slices > 1 else ""
        return f"{self.kind}:{self.chip_name}:{part}{several}"

    @property
    def chips(self) -> int:
        return self.devices if self.slice is None else self.slice.chips * self.slices

    @property
    def hosts(self) -> int:
        """Hosts, each of which runs one JAX process."""
        if self.slice is not None:
            return self.slice.hosts * self.slices
        return math.ceil(self.devices / GPUS_PER_NODE)

    @property
    def title(self) -> str:
        """The machine in short: `v5e 4×4`, `2 slices of v5e 4×4`, `8 H100`."""
        if self.slice is None:
            return f"{self.devices:,} {self.chip.title}"
        shape = f"{self.chip_name} {self.slice.topology.replace('x', '×')}"
        return f"{self.slices} slices of {shape}" if self.slices > 1 else shape

    @property
    def sentence(self) -> str:
        """The parts of the machine in words, without a final period."""
        if self.slice is not None and self.slices > 1:
            return (
                f"{self.slices} slices joined by the data center network (DCN), together "
                f"{counted(self.devices, 'JAX device')}; each slice is {self.slice.sentence}"
            )
        if self.slice is not None:
            return self.slice.sentence
        nodes = counted(self.hosts, "node")
        per_node = min(self.devices, GPUS_PER_NODE)
        return f"{counted(self.devices, 'GPU')} ({self.chip.title}), {nodes} of {per_node}"


def is_target(text: str) -> bool:
    """Return whether the text starts like a target; the rest may still be invalid."""
    return text.strip().lower().startswith(("tpu:", "gpu:"))


def parse(text: str) -> Target:
    """Parse a target. The name of a TPU slice is also allowed: `tpu:v5p-128` is `tpu:v5p:4x4x4`.

    Raises:
      InvalidInput: there is no such slice or GPU, or the number of slices or GPUs is not allowed.
    """
    kind, _, rest = text.strip().lower().partition(":")
    shape, several, count = rest.partition("*")
    first, separator, second = (shape if kind == "tpu" else rest).partition(":")
    try:
        if kind == "tpu" and first and (separator or "-" in first):
            own = slices.slice_of(first, second) if separator else slices.slice_named(first)
            number = _slice_count(count, own) if several else 1
            return Target("tpu", own.generation, own.devices * number, own, number)
        if kind == "gpu" and separator:
            return _of_gpus(first, second)
    except InvalidInput as error:
        raise InvalidInput(f"target {shown(text)}: {error}") from None
    raise InvalidInput(f"target is {shown(text)}, but must be {FORMS}")


def compiled_for(snapshot: Snapshot) -> Target | None:
    """Return the target for which the programs were compiled; None if there was none."""
    if snapshot.source.kind not in KINDS or snapshot.source.target is None:
        return None
    try:
        return parse(snapshot.source.target)
    except InvalidInput:  # the file may come from anywhere
        return None


@once_per_snapshot
def chip_of(snapshot: Snapshot) -> Chip | None:
    """Return the chip that the Snapshot is planned or compiled for or ran on; None if that is unknown."""
    target = compiled_for(snapshot) or _planned_for(snapshot)
    if target is not None:
        return target.chip
    mesh = snapshot.mesh
    return chip_of_device(snapshot.source.device_kind if mesh is None else mesh.device_kind)


def chip_for(snapshot: Snapshot, chosen: Chip | None) -> Chip | None:
    """Return the chip on which a Snapshot is modelled: its own one, or else the chosen one.

    A choice exists only for a Snapshot without a chip, such as a plan, a run on emulated devices or a
    capture. Figures of a layout that was compiled for one chip say nothing about another one.
    """
    return chip_of(snapshot) or chosen


def _planned_for(snapshot: Snapshot) -> Target | None:
    target = (snapshot.layout or {}).get("target")
    if snapshot.source.kind != "plan" or not isinstance(target, str) or not is_target(target):
        return None
    try:
        return parse(target)
    except InvalidInput:
        return None


def require_size(target: Target, mesh_shape: Sequence[int]) -> None:
    """Raise InvalidInput unless the mesh has as many devices as the target."""
    size = math.prod(mesh_shape)
    if size == target.devices:
        return
    per_slice = target.chip.devices
    how = f" ({counted(target.chips, 'chip')} with {per_slice} devices each)" if per_slice > 1 else ""
    raise InvalidInput(
        f"mesh {slices.shape_text(tuple(mesh_shape))} has {counted(size, 'device')}, "
        f"but {target.text} has {target.devices:,}{how}"
    )


def missing_compiler(target: Target) -> str | None:
    """Return how to install the compiler for this target, in a sentence; None if it is installed.

    The command is for the Python that runs this, and leaves its JAX as it is.
    """
    package, extra = _COMPILERS[target.kind]
    if importlib.util.find_spec(package) is not None:
        return None
    jax = f"'jax[{extra}]=={importlib.metadata.version('jax')}'"
    return (
        f"{target.text} needs the compiler for {target.kind.upper()}s, which is not installed: "
        f"{shlex.quote(sys.executable)} -m pip install {jax}"
    )


def environment(target: Target) -> tuple[tuple[str, str], ...]:
    """Return the environment variables that a worker needs before JAX starts, as (name, value).

    They are equal for all targets of a kind, so that these share a worker. Emulated runs need a worker
    without them.
    """
    if target.kind == "tpu":
        return _TPU_VARIABLES
    # XLA compiles without a GPU. Both features time kernels on a GPU.
    flags = "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"
    # The last flag of a name counts, so the user can name another folder of CUDA.
    return (("XLA_FLAGS", f"{NO_CUDA_FOLDER} {os.environ.get('XLA_FLAGS', '')} {flags}"),)


def gpu_description(chip_name: str) -> str:
    """Return the description of a GPU that XLA compiles for, a `GpuTargetConfigProto` as text."""
    return (GPU_DESCRIPTIONS / f"{chip_name}.textproto").read_text(encoding="utf-8")


def gpu_with(major: int, minor: int, cores: int, memory_bytes: int, bandwidth: int) -> Chip | None:
    """Return the only GPU of the table that has these figures, as a driver reports them; None without one.

    Drivers report a memory of up to a tenth more or less than data sheets, and a bandwidth from the clock.

    Args:
      major, minor: the compute capability, such as 9 and 0.
      cores: the number of multiprocessors.
      bandwidth: bytes per second of its memory.
    """
    alike = [
        chip.name
        for chip in CHIPS.values()
        if chip.kind == "gpu"
        and math.isclose(memory_bytes, chip.hbm_bytes, rel_tol=0.1)
        and math.isclose(bandwidth, chip.hbm_bytes_per_second, rel_tol=0.1)
    ]
    if len(alike) != 1 or alike[0] not in GPU_CHIPS:
        return None
    text = gpu_description(alike[0])
    names = ("major", "minor", "core_count", "memory_bandwidth")
    *own, usual = (int(match[1]) for name in names if (match := re.search(rf"^ *{name}: (\d+)", text, re.M)))
    is_it = own == [major, minor, cores] and math.isclose(bandwidth, usual, rel_tol=0.04)
    return CHIPS[alike[0]] if is_it else None


def most_slices(own: Slice) -> int:
    """Return the largest number of slices of this kind in a target, at least 1."""
    return max(min(MOST_SLICES, MOST_DEVICES // own.devices), 1)


def _slice_count(count: str, own: Slice) -> int:
    number = int(count) if _COUNT.fullmatch(count) else 0
    most = most_slices(own)
    if not 2 <= number <= most:
        allowed = f"2 to {most}, or absent for one slice" if most > 1 else "absent: it has one slice"
        raise InvalidInput(f"number of slices is {shown(count)}, but for {own.topology} it must be {allowed}")
    return number


def _of_gpus(chip_name: str, count: str) -> Target:
    require_one_of("GPU", chip_name, GPU_CHIPS)
    number = int(count) if _COUNT.fullmatch(count) else 0
    in_one_node = 1 <= number <= GPUS_PER_NODE
    if not in_one_node and (number % GPUS_PER_NODE or not 1 <= number <= MOST_GPUS):
        raise InvalidInput(
            f"number of GPUs is {shown(count)}, but must be 1 to {GPUS_PER_NODE}, or a multiple of "
            f"{GPUS_PER_NODE} up to {MOST_GPUS:,}"
        )
    return Target("gpu", chip_name, number)


def measured_where(snapshot: Snapshot) -> str:
    """Return the part of a title that names the machine that measured the times of a Snapshot."""
    if snapshot.source.kind == "local":
        return LOCAL
    if snapshot.source.kind == "profile":
        return PROFILED
    return COMPILED if snapshot.source.kind in KINDS else EMULATED
