"""Accelerator chips: memory, peak FLOP/s and links of each, with sources, and their roofline.

To add a chip, add an entry to `_TABLE`. For a GPU to be a compile target, add its description to
`gpu_targets/` as well. All figures are per chip and decimal (1 TB/s is 1e12 B/s).

Sources of the figures. Comments name them; a figure without a comment is from the book.

* book: "How to Scale Your Model", https://jax-ml.github.io/scaling-book, tables of the chapters on TPUs and
  GPUs, rounded as there.
* Google: https://cloud.google.com/tpu/docs/v3 (v4, v5e, v5p, v6e, tpu7x), and .../tpu/docs/types-topologies
  for the shapes of slices.
* NVIDIA: data sheets of A100, H100, H200, HGX B200 and GB200 NVL72, rates without sparsity.
* XLA: the memory in its out-of-memory messages.
* Clocks of TPUs: Google's peak is matrix units × width² × 2 FLOP × clock, with the units and widths in
  Google's tables of each generation.
"""

import difflib
import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from inspector.records.snapshot import Reshard
from inspector.text.errors import InvalidInput, shown

GIB = 2**30
CUBE_EDGE = 4  # chips

Shape = tuple[int, ...]
Kind = Literal["tpu", "gpu"]


@dataclass(frozen=True)
class Torus:
    """Links of a TPU chip: two per axis, to its neighbors in a grid of chips.

    axes: dimensions of the grid.
    bytes_per_second: of one link in one direction.
    pod: chips along each axis of the largest slice. host: chips of one host.
    wraps: which axes of a slice have linked ends. "pod edge": those as long as an axis of the pod. "cube":
      all of a slice made of 4×4×4 cubes, which optical switches connect (book, "TPU networking").
    slices: the shapes in which slices exist. With "cube", all boxes of cubes exist as well.
    hop_seconds: least time from chip to chip.
    """

    axes: int
    bytes_per_second: float
    pod: Shape
    host: Shape
    wraps: Literal["pod edge", "cube"]
    slices: tuple[Shape, ...]
    hop_seconds: float = 1e-6  # s; book, "about 1 µs"

    def wraps_around(self, length: int, chips: int) -> bool:
        """Return whether the ends of an axis of `length` chips are linked in a slice of `chips`."""
        if self.wraps == "pod edge":
            return length in self.pod
        return length % CUBE_EDGE == 0 and chips >= CUBE_EDGE**3

    @property
    def wrap_rule(self) -> str:
        if self.wraps == "pod edge":
            edges = " or ".join(map(str, sorted(set(self.pod))))
            return f"wraps around only where it is {edges} chips long"
        return (
            f"wraps around where it is a multiple of {CUBE_EDGE} chips long, in slices of at least "
            f"{CUBE_EDGE**3} chips"
        )


@dataclass(frozen=True)
class Nccl:
    """What NCCL reaches in a node of one generation of GPUs; see `prediction.collective_cost`.

    base: seconds of an empty collective of LL before its steps. hop: seconds of each step.
    ring: bytes per second of a large ring. ll: the same with the protocol LL, at most.
    nvls: bytes per second of a sum in the switches of the node, over the array; None if they cannot add.
    """

    base: float
    hop: float
    ring: float
    ll: float
    nvls: float | None = None


@dataclass(frozen=True)
class Nodes:
    """Links of a GPU: all to all inside a node of `gpus`, and a network between nodes.

    bytes_per_second: from one GPU into its node, in one direction.
    node_bytes_per_second: from all GPUs of a node to other nodes, in one direction.
    """

    gpus: int
    bytes_per_second: float
    node_bytes_per_second: float
    nccl: Nccl


@dataclass(frozen=True)
class Peak:
    """FLOP/s of one JAX device for matrix products.

    runs_as: the operand type that the hardware multiplies.
    assumption: a sentence if that is not the type of the operands.
    """

    flops_per_second: float
    runs_as: str
    assumption: str | None = None


@dataclass(frozen=True)
class Chip:
    """One kind of accelerator chip.

    hbm_bytes: capacity as sold. hbm_bytes_per_second: between HBM and the chip.
    flops_per_second: peak of matrix products by operand type (bf16, int8, int4, fp8, fp4, tf32). float16 is
      bf16.
    float32_as: the operand type with which XLA multiplies float32 by default.
    cores: TensorCores of a TPU, 1 for a GPU.
    devices: JAX devices of a chip, which share it equally.
    allocatable_bytes: HBM of one device that XLA gives to programs; None if unknown.
    dcn_bytes_per_second, pcie_bytes_per_second: to the data center network and to the host; None if unknown.
    slice_prefix: the name of a slice before its number of TensorCores, if not the name of the chip.
    device_kind: `jax.Device.device_kind` of its devices.
    clock_hertz: cycles per second of a TPU's cores, which turns the compiler's cycles into seconds; None if
      unknown.
    matrix_width: rows and columns of a matrix unit of a TPU; 1 for a GPU, whose units are small.
    best_product: share of the bfloat16 peak that the best of many products reaches, which power limits; None
      if nobody has published it.
    """

    name: str
    title: str
    hbm_bytes: int
    hbm_bytes_per_second: float
    flops_per_second: Mapping[str, float] = field(hash=False)
    network: Torus | Nodes
    kind: Kind
    float32_as: Literal["bf16", "tf32"]
    cores: int = 1
    devices: int = 1
    allocatable_bytes: int | None = None
    dcn_bytes_per_second: float | None = None
    pcie_bytes_per_second: float | None = None
    slice_prefix: str = ""
    device_kind: str = ""
    clock_hertz: float | None = None
    matrix_width: int = 1
    best_product: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "flops_per_second", MappingProxyType({**self.flops_per_second}))
        object.__setattr__(self, "slice_prefix", self.slice_prefix or self.name)
        object.__setattr__(self, "device_kind", self.device_kind or self.title)

    @property
    def pod_chips(self) -> int | None:
        """Chips of the largest pod; None for GPUs."""
        return math.prod(self.network.pod) if isinstance(self.network, Torus) else None

    @property
    def hbm_bytes_per_device(self) -> int:
        return self.hbm_bytes // self.devices

    @property
    def hbm_bytes_per_second_per_device(self) -> float:
        return self.hbm_bytes_per_second / self.devices

    def peak(self, dtype: str) -> Peak | None:
        """Return the peak of one device for operands of a JAX or XLA type; None if unknown.

        A type that the chip does not multiply is converted to a wider one that it does.
        """
        runs_as, assumption = self._operand(dtype)
        while runs_as not in self.flops_per_second and runs_as in _WIDER:
            runs_as = _WIDER[runs_as]
            kind = "GPU" if self.kind == "gpu" else "TPU"
            assumption = (
                f"{dtype} is assumed to be multiplied as {runs_as}, because no faster peak of this {kind} is "
                "published"
            )
        rate = self.flops_per_second.get(runs_as)
        return None if rate is None else Peak(rate / self.devices, runs_as, assumption)

    def _operand(self, dtype: str) -> tuple[str, str | None]:
        if dtype in ("bfloat16", "bf16"):
            return "bf16", None
        if dtype in ("float16", "f16"):
            note = "float16 is assumed to run as fast as bfloat16"
            return "bf16", note if self.kind == "tpu" else None
        if dtype in ("float32", "f32"):
            passes = {"bf16": "in one bfloat16 pass", "tf32": "as TF32"}[self.float32_as]
            return self.float32_as, f"float32 is multiplied {passes}, XLA's default on this chip"
        if dtype in ("int8", "uint8", "s8", "u8"):
            return "int8", None
        if dtype in ("int4", "uint4", "s4", "u4", "int2", "uint2", "s2", "u2"):
            return "int4", None
        if dtype.startswith(("float8", "f8")):
            return "fp8", None
        if dtype.startswith(("float4", "f4")):
            return "fp4", None
        return "", None


# Types in which XLA multiplies operands of a type that a chip has no unit for.
_WIDER = {"int4": "int8", "int8": "bf16", "fp4": "fp8", "fp8": "bf16"}


def chip(name: str) -> Chip:
    """Return the chip of this name, in any case; raise InvalidInput if there is none."""
    chip = CHIPS.get(name.lower()) if isinstance(name, str) else None
    if chip is None:
        near = difflib.get_close_matches(str(name).lower(), CHIPS, n=1)
        hint = f" (nearest: {near[0]})" if near else ""
        raise InvalidInput(f"chip is {shown(name)}, but must be one of {', '.join(CHIPS)}{hint}")
    return chip


def chip_of_device(kind: str | None) -> Chip | None:
    """Return the chip of a `jax.Device.device_kind`, such as `NVIDIA H100 80GB HBM3`; None if unknown."""
    return next((chip for chip in CHIPS.values() if chip.device_kind == kind), None)


# XLA multiplies float32 in one bfloat16 pass on TPUs, and as TF32 on GPUs.
_tpu = functools.partial(Chip, kind="tpu", float32_as="bf16", matrix_width=128)
_gpu = functools.partial(Chip, kind="gpu", float32_as="tf32")

_UP_TO_256 = ((1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16))
_BELOW_A_CUBE = ((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4))

# NVIDIA: bf16 9.89e14, fp8 1.979e15. int8, tf32: NVIDIA.
_HOPPER = {"bf16": 9.9e14, "fp8": 2.0e15, "int8": 1.979e15, "tf32": 4.945e14}  # FLOP/s

# Rates: measured with nccl-tests (source in `nccl`). ll: llMaxBws of NCCL's tuning.cc.
_AMPERE_NCCL = Nccl(8.4e-6, 0.96e-6, 220e9, 87.7e9)
_HOPPER_NCCL = Nccl(4.4e-6, 0.8e-6, 360e9, 141e9, nvls=257e9)
_BLACKWELL_NCCL = Nccl(7.5e-6, 1.25e-6, 662e9, 282e9, nvls=410e9)

# best_product: measured on A100, H100 and B200 (stas00/ml-engineering, compute/accelerator). H200 and GB200
# have the same processors.
_BEST_ON_HOPPER, _BEST_ON_BLACKWELL = 0.803, 0.776

# Columns: name, title, HBM in B, HBM in B/s, peaks in FLOP/s, network in B/s. Below: DCN and PCIe in B/s.
_TABLE = (
    _tpu(
        "v3", "TPU v3",
        32_000_000_000,  # Google: 32 GiB
        9.0e11, {"bf16": 1.4e14, "int8": 1.4e14},  # Google: bf16 1.23e14
        # No source for the wrap-around of slices smaller than the pod: assumed to be that of v5e.
        Torus(
            2, 1e11, pod=(32, 32), host=(4, 2), wraps="pod edge",
            slices=((2, 2), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16), (16, 32), (32, 32)),
        ),
        cores=2, devices=2,
        allocatable_bytes=int(15.48 * GIB),  # XLA: "Used … of 15.48G hbm"
        clock_hertz=9.4e8,  # 1.23e14 FLOP/s ÷ (4 units × 128² × 2)
        dcn_bytes_per_second=6.25e9, pcie_bytes_per_second=1.6e10,
    ),
    _tpu(
        "v4", "TPU v4",
        32_000_000_000,  # Google: 32 GiB
        1.2e12, {"bf16": 2.75e14, "int8": 2.75e14},
        Torus(3, 4.5e10, pod=(16, 16, 16), host=(2, 2, 1), wraps="cube", slices=_BELOW_A_CUBE),
        # Cloud TPU fuses both cores into one device ("megacore").
        cores=2,
        allocatable_bytes=int(30.75 * GIB),  # XLA: "Used … of 30.75G hbm"
        clock_hertz=1.05e9,  # 2.75e14 FLOP/s ÷ (8 units × 128² × 2)
        dcn_bytes_per_second=6.25e9, pcie_bytes_per_second=1.6e10,
    ),
    _tpu(
        "v5e", "TPU v5e",
        16_000_000_000,
        8.1e11,  # Google: 8.19e11
        {"bf16": 1.97e14, "int8": 3.94e14},
        Torus(2, 4.5e10, pod=(16, 16), host=(4, 2), wraps="pod edge", slices=_UP_TO_256),
        allocatable_bytes=int(15.75 * GIB),  # XLA: "exceeds available 15.75G"
        clock_hertz=1.5e9,  # 1.97e14 FLOP/s ÷ (4 units × 128² × 2)
        dcn_bytes_per_second=3.125e9,  # Google: 2 × 100 Gbit/s for a host of 8
        pcie_bytes_per_second=1.6e10,
        slice_prefix="v5litepod",  # Google
        device_kind="TPU v5 lite",
    ),
    _tpu(
        "v5p", "TPU v5p",
        96_000_000_000,  # Google: 96 GiB, of which 95 are usable
        2.8e12,  # Google: 2.765e12
        {"bf16": 4.59e14, "int8": 9.18e14, "fp8": 4.59e14},  # fp8: Google
        # Google: 1,200 GB/s over six links in both directions, which is 1e11 per link.
        Torus(
            3, 9e10, pod=(16, 20, 28), host=(2, 2, 1), wraps="cube", slices=_BELOW_A_CUBE
        ),
        cores=2,  # megacore, as v4
        allocatable_bytes=int(95.73 * GIB),  # XLA: "exceeds available HBM (95.73G)"
        clock_hertz=1.75e9,  # 4.59e14 FLOP/s ÷ (8 units × 128² × 2)
        dcn_bytes_per_second=6.25e9,  # Google: 50 Gbit/s
        pcie_bytes_per_second=1.6e10,
        device_kind="TPU v5",
    ),
    _tpu(
        "v6e", "TPU v6e (Trillium)",
        32_000_000_000,
        1.6e12,  # Google: 1.638e12
        # Google: 9.18e14 and 1.836e15. fp8: Google.
        {"bf16": 9.20e14, "int8": 1.84e15, "fp8": 9.20e14},
        Torus(2, 9e10, pod=(16, 16), host=(4, 2), wraps="pod edge", slices=_UP_TO_256),
        dcn_bytes_per_second=1.25e10,  # Google: 4 × 200 Gbit/s for a host of 8
        pcie_bytes_per_second=3.2e10,
        device_kind="TPU v6 lite",
        # 9.18e14 FLOP/s ÷ (4 units × 256² × 2). Google says 2 units, but the compiler's estimates need 4.
        clock_hertz=1.75e9,
        matrix_width=256,
    ),
    _tpu(
        "tpu7x", "TPU7x (Ironwood)",
        192_000_000_000,  # Google: 192 GiB
        7.4e12,  # Google: 7.38e12
        # Google: 2.307e15 and 4.614e15, the second for fp8; none for int8.
        {"bf16": 2.3e15, "fp8": 4.61e15},
        Torus(
            3, 9e10, pod=(4, 4, 576), host=(2, 2, 1), wraps="cube", slices=((1, 1, 1), *_BELOW_A_CUBE)
        ),
        cores=2, devices=2,  # Google, "dual-chiplet architecture"
        dcn_bytes_per_second=1.25e10,  # Google: 100 Gbit/s
        clock_hertz=2.2e9,  # 1.154e15 FLOP/s of a core ÷ (4 units × 256² × 2)
        matrix_width=256,
        device_kind="TPU7x",
    ),
    _gpu(
        "a100", "NVIDIA A100 SXM 80 GB",
        80_000_000_000,
        2.0e12,  # NVIDIA: 2.039e12
        # NVIDIA: 3.12e14 and 6.24e14. int8: fp8 in the book, which an A100 lacks. tf32, int4: NVIDIA.
        {"bf16": 3.1e14, "int8": 6.2e14, "int4": 1.248e15, "tf32": 1.56e14},
        # 12 NVLinks of 25 GB/s. Node: 8 cards of 200 Gbit/s (NVIDIA DGX A100).
        Nodes(8, 300e9, 200e9, _AMPERE_NCCL),
        best_product=0.869,
        pcie_bytes_per_second=3.2e10,  # one direction; PCIe 4.0 × 16
        device_kind="NVIDIA A100-SXM4-80GB",
    ),
    _gpu(
        "h100", "NVIDIA H100 SXM",
        80_000_000_000,
        3.4e12,  # NVIDIA: 3.35e12
        _HOPPER,
        Nodes(8, 450e9, 400e9, _HOPPER_NCCL),  # 18 NVLinks of 25 GB/s. Node: 8 cards of 400 Gbit/s.
        best_product=_BEST_ON_HOPPER,
        pcie_bytes_per_second=6.4e10,  # one direction; PCIe 5.0 × 16
        device_kind="NVIDIA H100 80GB HBM3",
    ),
    _gpu(
        "h200", "NVIDIA H200 SXM",
        141_000_000_000, 4.8e12, _HOPPER, Nodes(8, 450e9, 400e9, _HOPPER_NCCL),
        best_product=_BEST_ON_HOPPER,
        pcie_bytes_per_second=6.4e10,
        device_kind="NVIDIA H200",
    ),
    _gpu(
        "b200", "NVIDIA B200",
        192_000_000_000, 8.0e12,
        # int8, tf32: NVIDIA HGX B200, 72 and 18 PFLOP/s with sparsity for eight.
        {"bf16": 2.3e15, "fp8": 4.5e15, "fp4": 9.0e15, "int8": 4.5e15, "tf32": 1.125e15},
        Nodes(8, 900e9, 400e9, _BLACKWELL_NCCL),  # 18 NVLinks of 50 GB/s. Node: 8 cards of 400 Gbit/s.
        best_product=_BEST_ON_BLACKWELL,
        pcie_bytes_per_second=6.4e10,  # one direction; PCIe 5.0 × 16
    ),
    _gpu(
        "gb200", "NVIDIA GB200 NVL72",
        186_000_000_000,  # NVIDIA
        8.0e12,
        # NVIDIA: fp4 20, fp8 and int8 10, bf16 5, tf32 2.5 PFLOP/s with sparsity. More power than a B200.
        {"bf16": 2.5e15, "fp8": 5.0e15, "fp4": 1.0e16, "int8": 5.0e15, "tf32": 1.25e15},
        Nodes(72, 900e9, 3600e9, _BLACKWELL_NCCL),  # one NVLink domain; 18 × 4 ports of 400 Gbit/s
        best_product=_BEST_ON_BLACKWELL,
        pcie_bytes_per_second=6.4e10,
        device_kind="NVIDIA GB200",
    ),
)  # fmt: skip
CHIPS: Mapping[str, Chip] = MappingProxyType({chip.name: chip for chip in _TABLE})


# Time of one chip by a roofline: FLOPs over its peak, or bytes over its HBM bandwidth.
#
# Each time is a lower bound, as in "How to Scale Your Model", chapter 1 (rooflines), and comes with its
# formula, numbers filled in.


def least_seconds(reshard: Reshard, chip: Chip) -> float | None:
    """Return the least seconds of one execution; None if the bytes between devices are unknown.

    It is the time in which a device can receive its bytes over all of its links at once, or all sources can
    send theirs, with equal shares. The places of the devices are not known for several meshes, so
    hops and shared links are not counted, and neither is the data center network.
    """
    if reshard.routes is None:
        return None
    received: Counter[int] = Counter()
    for _, target, size in reshard.routes:
        received[target] += size
    # Any replica can send: which one does is not known.
    share = received.total() / max(len(reshard.source_devices), 1)
    return max(*received.values(), share, 0) / link_bytes_per_second(chip)


def link_bytes_per_second(chip: Chip) -> float:
    """Return the bytes that one device can send per second over all of its links in one direction each.

    A TPU chip has two links on each axis of the torus. Its devices share them, but one alone can use all.
    """
    network = chip.network
    if isinstance(network, Torus):
        return 2 * network.axes * network.bytes_per_second
    return network.bytes_per_second


_DECIMAL_UNITS = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")


@dataclass(frozen=True)
class ModelledSeconds:
    """Modelled seconds, and a function that writes their formula. A search reads few of its formulas."""

    seconds: float
    written: Callable[[], str]

    @property
    def formula(self) -> str:
        """The formula with numbers filled in."""
        return self.written()


def compute_time(flops: float, chip: Chip, dtype: str) -> ModelledSeconds:
    """Return the seconds of one device for matrix products of this type.

    Raise InvalidInput if it has no peak.
    """
    require_amount("FLOPs", flops)
    peak = chip.peak(dtype)
    if peak is None:
        known = ", ".join(chip.flops_per_second)
        raise InvalidInput(f"dtype is {shown(dtype)}, but the peak of {chip.title} is known for {known}")
    return ModelledSeconds(
        flops / peak.flops_per_second,
        lambda: (
            f"{si_text(flops, 'FLOP')} of {dtype} ÷ {si_text(peak.flops_per_second, 'FLOP/s')}"
            f" ({peak.runs_as} peak)"
        ),
    )


def hbm_time(count: float, chip: Chip) -> ModelledSeconds:
    """Return the seconds of one device to read or write `count` bytes of its HBM."""
    require_amount("bytes", count)
    rate = chip.hbm_bytes_per_second_per_device
    return ModelledSeconds(count / rate, lambda: f"{si_text(count, 'B')} ÷ {si_text(rate, 'B/s')} of HBM")


def critical_intensity(flops_per_second: float, bytes_per_second: float) -> float:
    """Return the FLOPs per byte above which compute is the bottleneck, and below it the bytes."""
    require_amount("FLOP/s", flops_per_second)
    require_amount("bytes per second", bytes_per_second, above_0=True)
    return flops_per_second / bytes_per_second


def si_text(value: float, unit: str) -> str:
    """Format a quantity with a decimal prefix and three digits: `33.6 GFLOP`, `90.0 GB/s`."""
    power = 0
    while abs(value) >= 999.5 and power < len(_DECIMAL_UNITS) - 1:
        value, power = value / 1000, power + 1
    size = abs(value)
    whole = not power and value == int(value)
    decimals = 0 if whole or size >= 99.95 else 1 if size >= 9.995 else 2
    return f"{value:.{decimals}f} {_DECIMAL_UNITS[power]}{unit}"


def require_amount(what: str, value: float, above_0: bool = False) -> None:
    """Raise InvalidInput unless the value is a finite number from 0, or above 0."""
    number = not isinstance(value, bool) and isinstance(value, (int, float))
    if not number or not 0 <= value < math.inf or (above_0 and value == 0):
        least = "above" if above_0 else "from"
        raise InvalidInput(f"{what} is {value!r}, but must be a finite number {least} 0")
