"""Constants of the step prediction: efficiencies of a chip that no data sheet states.

Each has a physical meaning. Two per generation are fitted to published runs (see `accuracy`):
`compute_factor` and the efficiency before a compile. One is fitted for all chips: the share of communication
that is exposed before a compile. The others come from microbenchmarks.
"""

import dataclasses
import functools
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from inspector.files import strict_json
from inspector.files.private_database import user_folder
from inspector.hlo.shapes import element_bits
from inspector.machines import hardware
from inspector.machines.hardware import Chip
from inspector.records import typed_json
from inspector.records.snapshot import Mesh, Program
from inspector.records.typed_json import FiniteFloat, PositiveInt, Record
from inspector.text.errors import InvalidInput

# All emulated devices share the cores of the machine, so their work adds up. Source: the step times of the
# default MLP, transformer and mixture of experts on 8 emulated devices of a machine with 2 cores; they are
# within a factor of two. Only the ratios between layouts matter.
FLOPS_PER_SECOND = 5e10  # of matrix products in float32, all cores together
BYTES_PER_SECOND = 3e9  # of collectives, which copy memory
COLLECTIVE_SECONDS = 1e-4  # for the devices to meet in one collective


def emulated_seconds(program: Program, mesh: Mesh) -> float | None:
    """Return the estimated seconds of one run on emulated devices; None if the program is unknown."""
    products = program.work.matmul if program.work else None
    if products is None or program.collectives is None:
        return None
    seconds = mesh.size * sum(product.flops for product in products) / FLOPS_PER_SECOND
    for collective in program.collectives:
        if collective.executions == 0:
            continue
        if collective.executions is None or collective.wire_bytes_per_device is None:
            return None
        sent = mesh.size * collective.wire_bytes_per_device / BYTES_PER_SECOND
        seconds += collective.executions * (sent + COLLECTIVE_SECONDS)
    return seconds


# The table of published runs with their predictions, and the constants that were fitted to them.
ACCURACY = Path(__file__).with_name("accuracy.json")


@dataclass(frozen=True)
class ChipConstants:
    """Constants of one chip generation.

    Attributes:
      compute_factor: Measured time of a matrix product over the time that the compiler estimates.
      link_efficiency: Achieved share of the nominal bandwidth of a link.
      dcn_efficiency: The same for the network between slices.
      overhead_seconds: Seconds that each step takes beyond its program: launch, input, metrics.
      hbm_efficiency: Achieved share of the nominal HBM bandwidth.
      matrix_efficiency: Achieved share of the peak FLOP/s, for matrix products without an estimate.
      kernel_efficiency: The same for custom kernels, such as attention on TPUs.
      head_width: Elements that a head has at least for a kernel of attention. Shorter ones take as long.
      masked: Time of a masked tile of a product of experts over that of another one.
      kernel_seconds: Least seconds of an operation without an estimate.
    """

    compute_factor: float = 1.0
    link_efficiency: float = 0.99
    dcn_efficiency: float = 0.33
    overhead_seconds: float = 0.0
    hbm_efficiency: float = 0.85
    matrix_efficiency: float = 0.8
    kernel_efficiency: float = 0.5
    head_width: int = 1
    masked: float = 1.0
    kernel_seconds: float = 0.0

    def padding(self, widths: Sequence[int]) -> float:
        """Return the elements that heads of these widths take in matrix units over those that they have."""
        if not widths:
            return 1.0
        taken = sum(-(-width // self.head_width) * self.head_width for width in widths)
        return taken / sum(widths)


def name_of_grouped(chip: Chip, dtype: str) -> str:
    """Return the name of an efficiency of kernels for experts.

    >>> name_of_grouped(hardware.CHIPS["tpu7x"], "f8e4m3fn")
    'tpu7x 8 bits'
    """
    bits = element_bits(dtype)
    return f"{chip.name} {bits} bits" if bits is not None and bits <= 8 else chip.name


@dataclass(frozen=True)
class BeforeCompile:
    """Constants of a prediction without a compile.

    Attributes:
      efficiency: Achieved share of the peak FLOP/s of matrix products, by chip; "" for other TPUs. "gpu" is
        that of the best products, for other GPUs.
      grouped: The same for kernels that multiply the tokens of each expert with its matrix, in whole tiles,
        on chips with runs of several mixtures of experts. Those of operands of 8 bits are `tpu7x 8 bits`:
        a higher peak, at which loading and masking tiles takes no less time.
      exposed_share: Share of the communication that does not overlap with compute, on all chips.
    """

    efficiency: Mapping[str, float] = field(default_factory=lambda: {"": 0.6})
    exposed_share: float = 0.5
    grouped: Mapping[str, float] = field(default_factory=dict)

    def of_grouped(self, chip: Chip, dtype: str) -> float:
        """Return the efficiency of kernels for experts: at most that of other products."""
        every = self.grouped.get(chip.name, 1.0)
        return min(self.of(chip), self.grouped.get(name_of_grouped(chip, dtype), every))

    def grouped_seconds(self, at_peak: Mapping[str, float], chip: Chip) -> float:
        """Return the seconds of kernels for experts from those at the peak by operand type."""
        return sum(seconds / self.of_grouped(chip, dtype) for dtype, seconds in at_peak.items())

    def of(self, chip: Chip) -> float:
        """Return the efficiency of a chip: fitted to its runs, or else to those of all TPUs or GPUs."""
        if chip.name in self.efficiency or chip.kind == "tpu":
            return self.efficiency.get(chip.name, self.efficiency[""])
        share = self.efficiency.get("gpu")
        best = chip.best_product
        return share * best if share and best else default_constants(chip).matrix_efficiency


# link_efficiency: an all-gather over four tpu7x chips reaches 178.8 of 180 GB/s. dcn_efficiency: a sum over
# two slices of v6e reaches 4.11 GB/s for each chip, whose share of its host's network is 12.5 GB/s.
# hbm_efficiency: copies reach 6,398 of 7,380 GB/s on tpu7x and 1,360 of 1,640 GB/s on v6e. matrix_efficiency:
# products of 8,192 and more reach 83% of the peak on tpu7x (AI-Hypercomputer/tpu-recipes, microbenchmarks).
# kernel_efficiency: of 0.3 to 0.8, it fits the published runs of v5e and v5p best. It is not fitted again
# without the runs of each model. For head_width and masked see `default_constants`.
_TPU = ChipConstants()
# Tuned kernels on v6e behave as on tpu7x, but its published runs have a third of the error at this width.
_HEAD_WIDTHS = {"v6e": 128}
# Without a mask, tuned kernels on tpu7x reach 61% to 69% forward, and 72% to 79% in the gradients,
# which have most of the products (see `default_constants`).
_KERNEL_EFFICIENCIES = {"tpu7x": 0.75}
# Vector units make the masks. Their speed differs little, so that wide matrix units wait longer for them.
_MASKED = 0.8  # more time, for units of 256 × 256
# TPUs whose compiler makes an all-reduce and a reduce-scatter asynchronous without any option: tried with
# libtpu 0.0.42, with one of them beside independent products. On v4, v5e, v5p and v6e they are synchronous.
ASYNCHRONOUS_SUMS = frozenset({"tpu7x"})
# Kernels of CUDA start about 2 µs after each other; cuBLAS reaches about 70% of the peak of an H100.
_GPU = ChipConstants(matrix_efficiency=0.7, kernel_seconds=2e-6)


@functools.cache
def default_constants(chip: Chip) -> ChipConstants:
    """Return the constants of a chip before any fit.

    A head of 64 or 128 elements uses a part of a matrix unit of 256 × 256. For each score of 8,192 tokens,
    tuned splash attention takes 1.34, 1.37 and 1.58 ps with heads of 64, 128 and 256 elements on tpu7x, and
    1.26, 1.33 and 2.66 ps on v5p. Tuned products of groups with matrices of 2,880 × 2,880 reach 30% of the
    peak on tpu7x and 35% on v5p, others with as many rows 52 to 70% and 41 to 46%: openxla/tokamax,
    data/autotuning, `pallas_mosaic_tpu_flash_attention` and `pallas_mosaic_tpu_ragged_dot`.
    """
    if chip.kind == "gpu":
        return _GPU
    width = chip.matrix_width
    return replace(
        _TPU,
        kernel_efficiency=_KERNEL_EFFICIENCIES.get(chip.name, _TPU.kernel_efficiency),
        head_width=_HEAD_WIDTHS.get(chip.name, width),
        masked=1 + _MASKED * (width / 256) ** 2,
    )


def constants_of(chip: Chip) -> ChipConstants:
    """Return the constants of a chip, fitted to published runs if there are enough."""
    fitted = accuracy_table()["constants"].get(chip.name, {})
    return replace(default_constants(chip), **fitted)


def before_compile_constants() -> BeforeCompile:
    """Return the constants of a prediction without a compile."""
    return replace(BeforeCompile(), **accuracy_table().get("before_compile", {}))


@functools.cache
def accuracy_table() -> dict[str, Any]:
    """Return the accuracy table: `constants` by chip, `rows` of published runs, and `versions`."""
    table: dict[str, Any] = json.loads(ACCURACY.read_text(encoding="utf-8"))
    return table


# Measured steps of the user's own machines, on which intervals of predictions rest.
#
# They are in one JSON file next to the library. Each run keeps the prediction that was made for it and a
# digest of the constants of that prediction. With other constants, such as those of a newer version, it does
# not count.


FORMAT = "sharding-inspector-runs"
VERSION = 1
_MOST_BYTES = 4 * 2**20

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OwnRun(Record):
    """One program of one run.

    Attributes:
      chip: Name of the chip.
      devices: Number of devices of its mesh.
      model: Name of the model; None if unknown.
      measured: Median of the measured steps in seconds.
      predicted: Predicted seconds of a step.
      constants: Digest of the constants of the prediction.
      created: When the run was made, in ISO 8601.
    """

    chip: str
    devices: PositiveInt
    program: str
    measured: FiniteFloat
    predicted: FiniteFloat
    constants: str
    created: str
    model: str | None = None

    @property
    def ratio(self) -> float:
        """Measured over predicted seconds."""
        return self.measured / self.predicted


@dataclass(frozen=True)
class OwnRuns(Record):
    """The runs of the file, the oldest first."""

    runs: tuple[OwnRun, ...] = ()


def path() -> Path:
    """Return the file of the own runs. It need not exist."""
    return user_folder() / "runs.json"


def read() -> tuple[OwnRun, ...]:
    """Return the runs of the file, the oldest first; none if there is no file.

    Raises:
      InvalidInput: the file is damaged or too large.
    """
    file = path()
    try:
        state = file.stat()
    except OSError:
        return ()
    return _read(file, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=4)
def _read(file: Path, changed: int, size: int) -> tuple[OwnRun, ...]:
    plain = strict_json.read(file, _MOST_BYTES)
    record = typed_json.decode_file(OwnRuns, plain, str(file), FORMAT, VERSION)
    if any(min(run.measured, run.predicted) <= 0 for run in record.runs):
        raise InvalidInput(f"{file}: measured and predicted must be above 0 seconds")
    return record.runs


def ratios(chip: str) -> tuple[float, ...]:
    """Return measured over predicted seconds of the own runs on a chip that count.

    A damaged file counts as empty, with a warning in the log: a page must not end because of it.
    """
    try:
        runs = read()
    except InvalidInput as error:
        _log.warning("Own runs are not used: %s", error)
        return ()
    return tuple(run.ratio for run in runs if run.chip == chip and counts(run))


@functools.lru_cache(maxsize=64)
def digest_of(chip: str) -> str:
    """Return a digest of the constants with which steps on a chip of this name are predicted."""
    plain: dict[str, Any] = dataclasses.asdict(constants_of(hardware.CHIPS[chip]))
    plain |= {"before": dataclasses.asdict(before_compile_constants())}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


def counts(run: OwnRun) -> bool:
    """Return whether the prediction of a run was made with the constants of this version."""
    return run.chip in hardware.CHIPS and run.constants == digest_of(run.chip)
