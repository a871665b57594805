"""Accelerator chips: what one holds, computes and moves, with the unit and the source of every figure.

Figures are per chip and decimal (1 TB/s is 1e12 B/s); what one JAX device has of them follows from
`Chip.devices`. Sources, named at each chip:

* book: "How to Scale Your Model", https://jax-ml.github.io/scaling-book, the tables of its chapters
  on TPUs and GPUs, rounded as they stand there so that its published answers come out.
* Google: https://cloud.google.com/tpu/docs/v3 (v4, v5e, v5p, v6e, tpu7x).
* NVIDIA: the data sheets of A100, H100, H200 and HGX B200; rates without sparsity.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from inspector.core.errors import InvalidInput, shown

GIB = 2**30

# Chips of a cube of 4×4×4. TPU v4, v5p and 7x wrap around through optical switches between cubes, so
# that a smaller slice is a mesh without wrap-around links (book, "TPU networking").
_CUBE_CHIPS = 64
_CUBE_EDGE = 4


@dataclass(frozen=True)
class Torus:
    """How TPUs are linked: each to its neighbours along `axes` axes of a grid of chips.

    `bytes_per_second` is what one link carries one way; a chip has two links an axis. `wraps` says when
    the ends of an axis are linked: `pod edge`, where it is as long as the pod's axis; `cube`, where the
    slice is made of whole cubes of 4×4×4 chips. `hop_seconds` is the least time from chip to chip.
    """

    axes: int
    bytes_per_second: float
    pod: tuple[int, ...]
    host: tuple[int, ...]
    wraps: Literal["pod edge", "cube"]
    hop_seconds: float = 1e-6  # s; book, "about 1 µs" a hop

    def wraps_around(self, length: int, chips: int) -> bool:
        """Whether an axis of `length` chips in a slice of `chips` has a link from its end to its start."""
        if self.wraps == "pod edge":
            return length in self.pod
        return length % _CUBE_EDGE == 0 and chips >= _CUBE_CHIPS

    @property
    def wrap_rule(self) -> str:
        if self.wraps == "pod edge":
            edges = " or ".join(map(str, sorted(set(self.pod))))
            return f"wraps around only where it is {edges} chips long"
        return (
            f"wraps around where it is a multiple of {_CUBE_EDGE} chips long, in slices of at least "
            f"{_CUBE_CHIPS} chips"
        )


@dataclass(frozen=True)
class Nodes:
    """How GPUs are linked: all to all inside a node of `gpus`, and node to node over a network.

    `bytes_per_second` is what one GPU sends to its node (NVLink, one way), `node_bytes_per_second`
    what all of a node's GPUs together send to other nodes.
    """

    gpus: int
    bytes_per_second: float
    node_bytes_per_second: float


@dataclass(frozen=True)
class Peak:
    """FLOP/s of one JAX device for matrix products; `assumption` where operands are run as another type."""

    flops_per_second: float
    runs_as: str
    assumption: str | None = None


@dataclass(frozen=True)
class Chip:
    """One kind of accelerator chip.

    hbm_bytes: capacity as it is sold. hbm_bytes_per_second: between HBM and the chip.
    flops_per_second: peak of matrix products by operand type: bf16 (float16 too), int8, fp8, fp4, tf32.
    float32_as: the operand type as which XLA multiplies float32 by default.
    cores: TensorCores (TPU) or 1. devices: what JAX shows of it; each has an equal part of the chip.
    allocatable_bytes: what XLA lets programs use of one device's HBM; None where no source was found.
    dcn_bytes_per_second, pcie_bytes_per_second: per chip, to the data centre and to its host; None
    where unknown.
    """

    name: str
    title: str
    kind: Literal["tpu", "gpu"]
    hbm_bytes: int
    hbm_bytes_per_second: float
    flops_per_second: Mapping[str, float]
    float32_as: str
    network: Torus | Nodes
    source: str
    cores: int = 1
    devices: int = 1
    allocatable_bytes: int | None = None
    dcn_bytes_per_second: float | None = None
    pcie_bytes_per_second: float | None = None

    @property
    def pod_chips(self) -> int | None:
        """Chips of the largest pod; None for GPUs, which have no such limit."""
        return math.prod(self.network.pod) if isinstance(self.network, Torus) else None

    @property
    def hbm_bytes_per_device(self) -> int:
        return self.hbm_bytes // self.devices

    @property
    def hbm_bytes_per_second_per_device(self) -> float:
        return self.hbm_bytes_per_second / self.devices

    def peak(self, dtype: str) -> Peak | None:
        """What one device reaches with operands of this type, by JAX's or XLA's name of it.

        None where no figure is known, such as float64.
        """
        runs_as, assumption = self._operand(dtype)
        rate = self.flops_per_second.get(runs_as) if runs_as else None
        return None if rate is None else Peak(rate / self.devices, runs_as, assumption)

    def _operand(self, dtype: str) -> tuple[str, str | None]:
        if dtype in ("bfloat16", "bf16"):
            return "bf16", None
        if dtype in ("float16", "f16"):
            note = "float16 is taken to run as fast as bfloat16"
            return "bf16", note if self.kind == "tpu" else None
        if dtype in ("float32", "f32"):
            passes = {"bf16": "in one bfloat16 pass", "tf32": "as TF32"}[self.float32_as]
            return self.float32_as, f"float32 is multiplied {passes}, XLA's default on this chip"
        if dtype in ("int8", "uint8", "s8", "u8"):
            return "int8", None
        if dtype.startswith(("float8", "f8")):
            return "fp8", None
        if dtype.startswith(("float4", "f4")):
            return "fp4", None
        return "", None


def chip(name: str) -> Chip:
    """The chip of this name, in any case.

    Raises:
      InvalidInput: there is none; the sentence lists the choices.
    """
    found = CHIPS.get(name.lower()) if isinstance(name, str) else None
    if found is None:
        near = difflib.get_close_matches(str(name).lower(), CHIPS, n=1)
        hint = f" (nearest: {near[0]})" if near else ""
        raise InvalidInput(f"chip is {shown(name)}, but must be one of {', '.join(CHIPS)}{hint}")
    return found


# One NVLink domain of 72 GPUs with 18 × 4 ports of 400 Gbit/s to the outside (book, GPUs).
_NVL72 = Nodes(gpus=72, bytes_per_second=900e9, node_bytes_per_second=3600e9)

_V3 = Chip(
    name="v3",
    title="TPU v3",
    kind="tpu",
    hbm_bytes=32_000_000_000,  # B; book (Google: 32 GiB)
    hbm_bytes_per_second=9.0e11,  # B/s; book, Google
    # FLOP/s; book. Google has 1.23e14 for bf16.
    flops_per_second=MappingProxyType({"bf16": 1.4e14, "int8": 1.4e14}),
    float32_as="bf16",
    # B/s one way a link; book. No source for where slices smaller than the pod wrap around: taken as v5e.
    network=Torus(2, 1e11, pod=(32, 32), host=(4, 2), wraps="pod edge"),
    cores=2,
    devices=2,  # JAX shows both cores of a v3 chip
    allocatable_bytes=int(15.48 * GIB),  # B a device; XLA's message "Used … of 15.48G hbm"
    dcn_bytes_per_second=6.25e9,  # B/s a chip; book
    pcie_bytes_per_second=1.6e10,  # B/s a chip; book
    source="scaling book, TPUs; Google, TPU v3",
)

_V4 = Chip(
    name="v4",
    title="TPU v4",
    kind="tpu",
    hbm_bytes=32_000_000_000,  # B; book (Google: 32 GiB)
    hbm_bytes_per_second=1.2e12,  # B/s; book, Google
    flops_per_second=MappingProxyType({"bf16": 2.75e14, "int8": 2.75e14}),  # FLOP/s; book, Google
    float32_as="bf16",
    network=Torus(3, 4.5e10, pod=(16, 16, 16), host=(2, 2, 1), wraps="cube"),  # B/s; book
    # Its two cores run as one ("megacore") on Cloud TPU, and JAX shows one device; a topology that is
    # described to the compiler without hardware may show two.
    cores=2,
    devices=1,
    allocatable_bytes=int(30.75 * GIB),  # B a device; XLA's message "Used … of 30.75G hbm"
    dcn_bytes_per_second=6.25e9,  # B/s a chip; book
    pcie_bytes_per_second=1.6e10,  # B/s a chip; book
    source="scaling book, TPUs; Google, TPU v4",
)

_V5E = Chip(
    name="v5e",
    title="TPU v5e",
    kind="tpu",
    hbm_bytes=16_000_000_000,  # B; book, Google
    hbm_bytes_per_second=8.1e11,  # B/s; book. Google has 8.19e11, a later edition of the book 8.2e11.
    flops_per_second=MappingProxyType({"bf16": 1.97e14, "int8": 3.94e14}),  # FLOP/s; book, Google
    float32_as="bf16",
    network=Torus(2, 4.5e10, pod=(16, 16), host=(4, 2), wraps="pod edge"),  # B/s; book
    allocatable_bytes=int(15.75 * GIB),  # B; XLA's message "exceeds available 15.75G"
    dcn_bytes_per_second=3.125e9,  # B/s a chip; book; Google: 2 × 100 Gbit/s a host of 8
    pcie_bytes_per_second=1.6e10,  # B/s a chip; book
    source="scaling book, TPUs; Google, TPU v5e",
)

_V5P = Chip(
    name="v5p",
    title="TPU v5p",
    kind="tpu",
    hbm_bytes=96_000_000_000,  # B; book (Google: 96 GiB, of which 95 can be used)
    hbm_bytes_per_second=2.8e12,  # B/s; book (Google: 2.765e12)
    # FLOP/s; book. fp8: Google, as fast as bf16.
    flops_per_second=MappingProxyType({"bf16": 4.59e14, "int8": 9.18e14, "fp8": 4.59e14}),
    float32_as="bf16",
    # B/s one way a link; book. Google has 1,200 GB/s for six links both ways: 1e11.
    network=Torus(3, 9e10, pod=(16, 20, 28), host=(2, 2, 1), wraps="cube"),
    cores=2,
    devices=1,  # megacore: JAX shows one device
    allocatable_bytes=int(95.73 * GIB),  # B; XLA's message "exceeds available HBM (95.73G)"
    dcn_bytes_per_second=6.25e9,  # B/s a chip; book; Google: 50 Gbit/s
    pcie_bytes_per_second=1.6e10,  # B/s a chip; book
    source="scaling book, TPUs; Google, TPU v5p",
)

_V6E = Chip(
    name="v6e",
    title="TPU v6e (Trillium)",
    kind="tpu",
    hbm_bytes=32_000_000_000,  # B; book, Google
    hbm_bytes_per_second=1.6e12,  # B/s; book (Google: 1.638e12)
    # FLOP/s; book (Google: 9.18e14, 1.836e15). fp8: Google, as fast as bf16.
    flops_per_second=MappingProxyType({"bf16": 9.20e14, "int8": 1.84e15, "fp8": 9.20e14}),
    float32_as="bf16",
    network=Torus(2, 9e10, pod=(16, 16), host=(4, 2), wraps="pod edge"),  # B/s; book
    dcn_bytes_per_second=1.25e10,  # B/s a chip; book; Google: 4 × 200 Gbit/s a host of 8
    pcie_bytes_per_second=3.2e10,  # B/s a chip; book
    source="scaling book, TPUs; Google, TPU v6e",
)

_TPU7X = Chip(
    name="tpu7x",
    title="TPU7x (Ironwood)",
    kind="tpu",
    hbm_bytes=192_000_000_000,  # B; book (Google: 192 GiB)
    hbm_bytes_per_second=7.4e12,  # B/s; book (Google: 7.38e12)
    # FLOP/s; book (Google: 2.307e15, 4.614e15). Google gives the second figure for fp8 and none for int8.
    flops_per_second=MappingProxyType({"bf16": 2.3e15, "fp8": 4.61e15}),
    float32_as="bf16",
    # B/s one way a link; book. The pod is as the book writes it: 9,216 chips (Google).
    network=Torus(3, 9e10, pod=(4, 4, 576), host=(2, 2, 1), wraps="cube"),
    cores=2,
    devices=2,  # Google, "dual-chiplet architecture": two devices with 96 GiB each
    dcn_bytes_per_second=1.25e10,  # B/s a chip; book; Google: 100 Gbit/s
    source="scaling book, TPUs; Google, TPU7x",
)

_A100 = Chip(
    name="a100",
    title="NVIDIA A100 SXM 80 GB",
    kind="gpu",
    hbm_bytes=80_000_000_000,  # B; NVIDIA
    hbm_bytes_per_second=2.0e12,  # B/s; book (NVIDIA: 2.039e12)
    # FLOP/s; book (NVIDIA: 3.12e14, 6.24e14). It has no fp8: the book's figure is that of int8.
    # tf32: NVIDIA.
    flops_per_second=MappingProxyType({"bf16": 3.1e14, "int8": 6.2e14, "tf32": 1.56e14}),
    float32_as="tf32",
    # 12 NVLinks of 25 GB/s (book); eight network cards of 200 Gbit/s a node (NVIDIA DGX A100).
    network=Nodes(gpus=8, bytes_per_second=300e9, node_bytes_per_second=200e9),
    pcie_bytes_per_second=3.2e10,  # B/s one way; PCIe 4.0 × 16
    source="scaling book, GPUs; NVIDIA A100 data sheet",
)

_H100 = Chip(
    name="h100",
    title="NVIDIA H100 SXM",
    kind="gpu",
    hbm_bytes=80_000_000_000,  # B; book, NVIDIA
    hbm_bytes_per_second=3.4e12,  # B/s; book (NVIDIA: 3.35e12)
    # FLOP/s; book (NVIDIA: 9.89e14, 1.979e15). int8, tf32: NVIDIA.
    flops_per_second=MappingProxyType(
        {"bf16": 9.9e14, "fp8": 2.0e15, "int8": 1.979e15, "tf32": 4.945e14}
    ),
    float32_as="tf32",
    # 18 NVLinks of 25 GB/s; eight network cards of 400 Gbit/s a node (book).
    network=Nodes(gpus=8, bytes_per_second=450e9, node_bytes_per_second=400e9),
    pcie_bytes_per_second=6.4e10,  # B/s one way; PCIe 5.0 × 16
    source="scaling book, GPUs; NVIDIA H100 data sheet",
)

_H200 = replace(
    _H100,
    name="h200",
    title="NVIDIA H200 SXM",
    hbm_bytes=141_000_000_000,  # B; book, NVIDIA
    hbm_bytes_per_second=4.8e12,  # B/s; book, NVIDIA
    source="scaling book, GPUs; NVIDIA H200 data sheet",
)

_B200 = Chip(
    name="b200",
    title="NVIDIA B200",
    kind="gpu",
    hbm_bytes=192_000_000_000,  # B; book
    hbm_bytes_per_second=8.0e12,  # B/s; book, NVIDIA
    # FLOP/s; book. int8 as fp8, tf32 the half of bf16: NVIDIA HGX B200 (72, 72, 36 and 18 PFLOP/s with
    # sparsity for eight).
    flops_per_second=MappingProxyType(
        {"bf16": 2.3e15, "fp8": 4.5e15, "fp4": 9.0e15, "int8": 4.5e15, "tf32": 1.125e15}
    ),
    float32_as="tf32",
    # 18 NVLinks of 50 GB/s; eight network cards of 400 Gbit/s a node (book).
    network=Nodes(gpus=8, bytes_per_second=900e9, node_bytes_per_second=400e9),
    pcie_bytes_per_second=6.4e10,  # B/s one way; PCIe 5.0 × 16
    source="scaling book, GPUs; NVIDIA HGX B200 data sheet",
)

_GB200 = replace(
    _B200,
    name="gb200",
    title="NVIDIA GB200 NVL72",
    hbm_bytes=186_000_000_000,  # B; NVIDIA
    # FLOP/s; NVIDIA GB200 NVL72 (fp4 20, fp8 and int8 10, bf16 5, tf32 2.5 PFLOP/s a GPU with sparsity):
    # the same silicon as B200's, which is given less power.
    flops_per_second=MappingProxyType(
        {"bf16": 2.5e15, "fp8": 5.0e15, "fp4": 1.0e16, "int8": 5.0e15, "tf32": 1.25e15}
    ),
    network=_NVL72,
    source="scaling book, GPUs; NVIDIA GB200 NVL72 data sheet",
)

CHIPS: Mapping[str, Chip] = MappingProxyType(
    {
        one.name: one
        for one in (_V3, _V4, _V5E, _V5P, _V6E, _TPU7X, _A100, _H100, _H200, _B200, _GB200)
    }
)
