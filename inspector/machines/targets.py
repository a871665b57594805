"""The machine that a layout is compiled for, which need not be there: `tpu:v5p:4x4x4`, `gpu:h100:8`."""

from __future__ import annotations

import importlib.util
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import counted
from inspector.core.snapshot import Snapshot
from inspector.machines import slices
from inspector.machines.hardware import CHIPS, Chip
from inspector.machines.slices import Slice

# Kinds of machines, as a Snapshot's source names them.
KINDS = ("tpu", "gpu")
# A GPU is described to the compiler by a file in inspector/machines/gpu_targets/, written for these.
GPU_CHIPS = ("a100", "h100", "h200", "b200")
GPUS_PER_NODE = 8  # HGX and DGX boards of all four (NVIDIA)
MOST_GPUS = 16_384  # as many as H100s trained Llama 3 (arXiv:2407.21783)

FORMS = (
    "tpu:<generation>:<topology> such as tpu:v5p:4x4x4, or gpu:<chip>:<count> such as gpu:h100:8"
)

_COUNT = re.compile(r"[0-9]{1,9}")

# What each kind needs: a package that is there if and only if its compiler is installed.
_NEEDED = {
    "tpu": ("libtpu", "requirements-tpu.txt"),
    "gpu": ("jax_cuda13_plugin", "requirements-gpu.txt"),
}

_TPU_VARIABLES = (
    # Two processes may compile at once: none of them touches a TPU, which the lock is for.
    ("ALLOW_MULTIPLE_LIBTPU_LOAD", "1"),
    # Nobody on this machine is asked which TPU it has: neither Google's metadata server nor the network.
    # The type is that of no particular target; the topology that is asked for decides.
    ("TPU_SKIP_MDS_QUERY", "1"),
    ("TPU_ACCELERATOR_TYPE", "v5p-8"),
    ("TPU_WORKER_HOSTNAMES", "localhost"),
    ("TPU_WORKER_ID", "0"),
    # Otherwise every process leaves a log in /tmp/tpu_logs.
    ("TPU_LOG_DIR", "disabled"),
    ("TPU_STDERR_LOG_LEVEL", "3"),
    ("TPU_MIN_LOG_LEVEL", "3"),
)


@dataclass(frozen=True)
class Target:
    """A machine. `slice` is that of TPUs and None for GPUs; `devices` are those that JAX shows of it."""

    kind: Literal["tpu", "gpu"]
    chip_name: str
    devices: int
    slice: Slice | None = None

    @property
    def chip(self) -> Chip:
        return CHIPS[self.chip_name]

    @property
    def text(self) -> str:
        """The target as it is written."""
        part = str(self.devices) if self.slice is None else self.slice.topology
        return f"{self.kind}:{self.chip_name}:{part}"

    @property
    def chips(self) -> int:
        return self.devices if self.slice is None else self.slice.chips

    @property
    def hosts(self) -> int:
        """Machines, each of which runs one process of JAX."""
        if self.slice is not None:
            return self.slice.hosts
        return math.ceil(self.devices / GPUS_PER_NODE)

    @property
    def sentence(self) -> str:
        """What it consists of."""
        if self.slice is not None:
            return self.slice.sentence
        nodes = counted(self.hosts, "node")
        each = min(self.devices, GPUS_PER_NODE)
        return f"{counted(self.devices, 'GPU')} ({self.chip.title}), {nodes} of {each}"


def is_target(text: str) -> bool:
    """Whether the text begins like one of a machine; what follows may still be wrong."""
    return text.strip().lower().startswith(("tpu:", "gpu:"))


def parse(text: str) -> Target:
    """Read a target. Of TPUs, the name of a slice does as well: `tpu:v5p-128` is `tpu:v5p:4x4x4`.

    Raises:
      InvalidInput: it is not one; the sentence says what is allowed.
    """
    kind, _, rest = text.strip().lower().partition(":")
    first, separator, second = rest.partition(":")
    try:
        if kind == "tpu" and first:
            if separator:
                return _of_slice(slices.slice_of(first, second))
            if "-" in first:
                return _of_slice(slices.slice_named(first))
        if kind == "gpu" and separator:
            return _of_gpus(first, second)
    except InvalidInput as refused:
        raise InvalidInput(f"target {shown(text)}: {refused}") from None
    raise InvalidInput(f"target is {shown(text)}, but must be {FORMS}")


def compiled_for(found: Snapshot) -> Target | None:
    """The machine that a Snapshot's programs were compiled for; None where they were for none."""
    if found.source.kind not in KINDS or found.source.target is None:
        return None
    try:
        return parse(found.source.target)
    except InvalidInput:  # a file may say anything
        return None


def refuse_other_size(target: Target, mesh_shape: Sequence[int]) -> None:
    """Refuse a mesh that has more or fewer devices than the target.

    Raises:
      InvalidInput: the sentence names both, and how the devices of the target come about.
    """
    size = math.prod(mesh_shape)
    if size == target.devices:
        return
    each = target.chip.devices
    how = f" ({counted(target.chips, 'chip')} with {each} devices each)" if each > 1 else ""
    raise InvalidInput(
        f"mesh {slices.shape_text(tuple(mesh_shape))} has {counted(size, 'device')}, "
        f"but {target.text} has {target.devices:,}{how}"
    )


def missing(target: Target) -> str | None:
    """What to install before anything can be compiled for this target, in a sentence; None if nothing."""
    package, requirements = _NEEDED[target.kind]
    if importlib.util.find_spec(package) is not None:
        return None
    return (
        f"{target.text} needs the compiler for {target.kind.upper()}s, which is not installed: "
        f"pip install -r {requirements}"
    )


def environment(target: Target) -> tuple[tuple[str, str], ...]:
    """What must be in the environment of a worker, as (name, value), before JAX starts in it.

    The same for all targets of a kind, so that one worker compiles for all of them. Emulated runs need
    workers without it.
    """
    return _TPU_VARIABLES if target.kind == "tpu" else (("XLA_FLAGS", _gpu_flags()),)


def _gpu_flags() -> str:
    """The flags of the environment, and after them those without which a GPU would have to be there."""
    # Both try kernels out on the GPU to find the fastest, and there is none.
    without_trials = "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"
    return f"{os.environ.get('XLA_FLAGS', '')} {without_trials}".strip()


def _of_slice(one: Slice) -> Target:
    return Target("tpu", one.generation, one.devices, one)


def _of_gpus(chip_name: str, count: str) -> Target:
    if chip_name not in GPU_CHIPS:
        raise InvalidInput(f"GPU is {shown(chip_name)}, but must be one of {', '.join(GPU_CHIPS)}")
    number = int(count) if _COUNT.fullmatch(count) else 0
    in_one_node = 1 <= number <= GPUS_PER_NODE
    if not in_one_node and (number % GPUS_PER_NODE or not 1 <= number <= MOST_GPUS):
        raise InvalidInput(
            f"number of GPUs is {shown(count)}, but must be 1 to {GPUS_PER_NODE}, or a multiple of "
            f"{GPUS_PER_NODE} up to {MOST_GPUS:,}"
        )
    return Target("gpu", chip_name, number)
