"""The verdict figures of a layout or program on a chip, and of two of them compared.

An `Assessment` answers: does it fit, how long does a step take, and what does it send? It is computed in
`inspector.assessment`, and every page, report and verb that shows one of these figures reads it from here.
It takes about 400 bytes as JSON, so links and results of searches contain it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from inspector.records.snapshot import Platform
from inspector.records.snapshot.effects import Answer
from inspector.records.statistics import LEAST_FOR_SHARE
from inspector.records.typed_json import OMIT_DEFAULT, OMIT_NONE, Amount, NonNegativeInt, PositiveInt, Record
from inspector.text.formatting import bytes_text, seconds_text

# From the weakest evidence to the strongest.
Stage = Literal["planned", "partitioned", "compiled", "measured"]
_WORDS: dict[Platform, str] = {"cpu": "CPUs", "gpu": "GPUs", "tpu": "TPUs"}
BEFORE_COMPILE = "before a compile"


@dataclass(frozen=True)
class Evidence(Record):
    """The evidence of the figures of a program. Only `inspector.prediction.evidence` decides it.

    Attributes:
      stage: How far the program got: planned (arrays alone), partitioned (by XLA's partitioner), compiled, or
        measured.
      platform: The kind of machine for which this was done. Emulated devices are CPUs.
      chip: Name of the chip that the figures are for. None for devices of this machine, and if the program
        was partitioned or compiled for another kind of machine than the chosen chip.
      assumptions: One clause for each assumption: a trip count, a branch, the cost of a kernel.
    """

    stage: Stage
    platform: Platform
    chip: str | None
    assumptions: tuple[str, ...] = ()

    @property
    def before_compile(self) -> bool:
        """Whether no compiler has changed the program yet."""
        return self.stage in ("planned", "partitioned")

    @property
    def machine(self) -> str:
        """The kind of machine in words: `CPUs`."""
        return _WORDS[self.platform]

    @property
    def made_text(self) -> str:
        """How the program was made, in words, also if its steps were measured: `compiled for CPUs`."""
        if self.stage == "planned":
            return "planned"
        if self.stage == "partitioned":
            return f"partitioned {BEFORE_COMPILE}"
        return "compiled" if self.chip is not None else f"compiled for {self.machine}"

    @property
    def text(self) -> str:
        """The evidence in words: `compiled for CPUs`, `measured on emulated devices`."""
        if self.stage == "measured":
            return "measured on emulated devices" if self.platform == "cpu" else "measured"
        if self.stage == "planned":
            return "planned: nothing was partitioned or compiled"
        if self.stage == "compiled":
            return f"compiled for {self.machine}"
        passes = "" if self.platform == "cpu" else f", with the passes for {self.machine}"
        return f"partitioned {BEFORE_COMPILE}{passes}"


FigureAnswer = Literal["better", "worse", "equal", "not comparable", "unknown"]

# What the ends of an interval are.
INTERVAL, BOUNDS, RANGE = "80% interval", "bounds", "minimum and maximum"

# A difference below this share is not a difference, and has no mark.
LEAST_CHANGE = 0.01
# The names of the figures, on every page, in every report and verb.
MEMORY, STEP, TRAFFIC, FINDINGS = "Memory per device", "Step", "Traffic", "Findings"
FLOPS = "FLOPs per device"
REJECTED = "JAX rejects this layout"
# The key of traffic whose mesh axes are unknown, in `Traffic.by_axes`.
UNKNOWN_AXES = "unknown"


MemoryKind = Literal["state", "activations", "constants", "temporaries", "unknown"]
PartKind = Literal["compute", "memory", "copies", "inside", "between", "rest"]


@dataclass(frozen=True)
class StepPart(Record):
    """A part of the time of a step. All parts of a step add up to its seconds exactly.

    Attributes:
      kind: What the device does: matrix products, other work (which HBM limits), waiting for copies, waiting
        for communication inside a slice or between slices, or the rest: starting operations.
      seconds: Seconds of the step.
      axes: Mesh axes of communication, joined by `+`. None if they are unknown, and for other parts.
      hidden: Seconds of communication during which the device works. They are no part of the step.
      bytes: Bytes that one device sends. None if unknown, and for other parts.
      messages: Number of collectives in one step, as a compiler combines them. 0 for other parts.
      latency: Seconds that these take even with no bytes, hidden or not. Of memory, those in which kernels
        start.
    """

    kind: PartKind
    seconds: Amount
    axes: str | None = field(default=None, metadata=OMIT_NONE)
    hidden: Amount = field(default=0.0, metadata=OMIT_DEFAULT)
    bytes: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)
    messages: NonNegativeInt = field(default=0, metadata=OMIT_DEFAULT)
    latency: Amount = field(default=0.0, metadata=OMIT_DEFAULT)

    @property
    def is_communication(self) -> bool:
        """Whether the device waits for other devices."""
        return self.kind in ("inside", "between")

    @property
    def is_latency(self) -> bool:
        """Whether its collectives take most of their time without regard to their bytes."""
        return self.messages > 1 and self.latency > (self.seconds + self.hidden) / 2


@dataclass(frozen=True)
class Step(Record):
    """The time of one step.

    Attributes:
      seconds: Seconds of one step: the prediction, or the median of the measured steps.
      low: Lower end of the interval, in seconds: of 80% of the measured steps, or of all if they are fewer
        than ten. If `outside`, a lower bound. None if unknown.
      high: Upper end of the interval, in seconds. None if unknown.
      kind: Whether the step was measured, is predicted, or is a lower bound.
      at_least: Why only a lower bound is known: what it does not count. None if it counts everything.
      outside: Why published runs say nothing about a prediction, whose interval is between two bounds then.
        None if they do.
      parts: What the step, or the lower bound, consists of. Empty for measured steps without a profile.
      steps: Number of measured steps. None for others.
    """

    seconds: Amount
    low: Amount | None
    high: Amount | None
    kind: Literal["measured", "predicted", "at least"]
    at_least: str | None = field(default=None, metadata=OMIT_NONE)
    outside: str | None = field(default=None, metadata=OMIT_NONE)
    parts: tuple[StepPart, ...] = field(default=(), metadata=OMIT_DEFAULT)
    steps: PositiveInt | None = field(default=None, metadata=OMIT_NONE)

    @property
    def value_text(self) -> str:
        """The seconds: `145 ms`, or `at least 145 ms`."""
        about = "at least " if self.kind == "at least" else "about " if self.outside else ""
        return f"{about}{seconds_text(self.seconds)}"

    @property
    def text(self) -> str:
        """The seconds and the interval: `145 ms (122–169 ms)`; without the interval if it is unknown."""
        seconds, interval = self.value_text, self.interval
        return f"{seconds} ({interval})" if interval else seconds

    @property
    def ends(self) -> str:
        """What `low` and `high` are: an interval of 80%, the range of a few measured steps, or bounds."""
        if self.steps is not None and self.steps < LEAST_FOR_SHARE:
            return RANGE
        return INTERVAL if self.outside is None else BOUNDS

    @property
    def interval(self) -> str:
        """The interval in words: `122–169 ms`; "" if it is unknown."""
        if self.low is None or self.high is None:
            return ""
        return _range_text(seconds_text(self.low), seconds_text(self.high))


def _range_text(low: str, high: str) -> str:
    """Return `122–169 ms`, with one unit if both have the same."""
    number, _, unit = low.rpartition(" ")
    return f"{number if high.endswith(f' {unit}') else low}–{high}"


@dataclass(frozen=True)
class MemoryNeed(Record):
    """The memory of one device that the programs need.

    Attributes:
      peak_bytes: Most bytes in use at one time, with the code on TPUs and GPUs. A lower bound if only the
        train state and the batch are known.
      low: Lower end of the 80% interval of an estimate, in bytes. Equal to the peak if it is compiled.
      high: Upper end of this interval, in bytes. None for a lower bound.
      capacity_bytes: Bytes of the device that programs may use. None without a chip.
      fits: Whether it fits. None if unknown.
      program: Name of the program that needs the most. None if only the state is known.
      parts: Bytes by what they are for, which add up to `peak_bytes`. Of `unknown` ones that is not known.
    """

    peak_bytes: NonNegativeInt
    low: NonNegativeInt
    high: NonNegativeInt | None
    capacity_bytes: NonNegativeInt | None
    fits: bool | None
    program: str | None = field(default=None, metadata=OMIT_NONE)
    parts: dict[MemoryKind, NonNegativeInt] = field(default_factory=dict, metadata=OMIT_DEFAULT)

    @property
    def is_estimated(self) -> bool:
        """Whether the peak was estimated before a compile, so that `fits` says what is probable."""
        return self.high is not None and self.low < self.high

    @property
    def at_least(self) -> bool:
        """Whether more than `peak_bytes` may be needed, because only the train state is known."""
        return self.high is None

    @property
    def text(self) -> str:
        """The peak and the capacity: `9.5 of 15.8 GiB`, with one unit if both have the same."""
        least = "at least " if self.at_least else ""
        about = "about " if self.is_estimated else ""
        peak = bytes_text(self.peak_bytes)
        if self.capacity_bytes is None:
            return f"{least}{about}{peak}"
        capacity = bytes_text(self.capacity_bytes)
        number, _, unit = peak.partition(" ")
        return f"{least}{about}{number if capacity.endswith(f' {unit}') else peak} of {capacity}"

    @property
    def interval(self) -> str:
        """The interval of an estimate in words: `8.1–11.9 GiB`; "" if there is none."""
        if self.high is None or not self.is_estimated:
            return ""
        return _range_text(bytes_text(self.low), bytes_text(self.high))

    @property
    def fits_text(self) -> str:
        """Whether it fits: `fits`, `does not fit`, `probably fits`, or "" if that is unknown."""
        if self.fits is None:
            return ""
        return f"{'probably ' if self.is_estimated else ''}{'fits' if self.fits else 'does not fit'}"


@dataclass(frozen=True)
class StepTraffic(Record):
    """The bytes that the device that sends most sends in one step.

    Attributes:
      bytes: Bytes over all mesh axes.
      by_axes: Bytes of this device by mesh axes, joined by `+`. Axes that form no groups of whole mesh axes
        are `unknown`.
      at_most: Why it can be less: branches that count as taken, or devices that send less. None if it
        cannot.
      between_slices: The part of `by_axes` that crosses the network between TPU slices.
    """

    bytes: NonNegativeInt
    by_axes: dict[str, NonNegativeInt]
    at_most: str | None = field(default=None, metadata=OMIT_NONE)
    between_slices: dict[str, NonNegativeInt] = field(default_factory=dict, metadata=OMIT_DEFAULT)

    @property
    def text(self) -> str:
        """The bytes, `up to 52.5 MiB` if it can be less, or `none`."""
        if not self.bytes:
            return "none"
        return f"{'' if self.at_most is None else 'up to '}{bytes_text(self.bytes)}"

    def by_network(self, axes: str) -> tuple[tuple[StepPart, int], ...]:
        """Return the part over these mesh axes inside slices and that between them, with their bytes."""
        between, known = self.between_slices.get(axes, 0), None if axes == UNKNOWN_AXES else axes
        inside = self.by_axes[axes] - between
        return (StepPart("inside", 0.0, known), inside), (StepPart("between", 0.0, known), between)

    @property
    def largest(self) -> str | None:
        """The mesh axes with the most bytes; None if nothing is sent."""
        return max(self.by_axes, key=lambda axes: self.by_axes[axes], default=None)


@dataclass(frozen=True)
class FindingCounts(Record):
    """The number of findings of each level.

    Attributes:
      error: Number of errors.
      warning: Number of warnings.
      note: Number of notes.
    """

    error: NonNegativeInt = 0
    warning: NonNegativeInt = 0
    note: NonNegativeInt = 0


@dataclass(frozen=True)
class Assessment(Record):
    """What a layout needs, how long it takes and what it sends. None means unknown.

    Attributes:
      chip: Name of the chip, such as v5e. None for devices of this machine or an unknown chip.
      devices: Number of devices of the mesh.
      basis: The stage of the evidence.
      program: Name of the program of a step. None if there is no program.
      step: Time of one run of this program.
      memory: Memory of one device.
      traffic: Bytes that one device sends in one run of this program.
      state_bytes_per_device: Bytes of parameters, optimizer state and step on the device with the most.
      findings: Number of findings by level. None if the layout was not audited, as most of a search are.
      rejected: Why JAX rejects the layout. None if it does not, or if that is unknown.
      unknown_step: Why the step is unknown. None if it is known.
      unknown_traffic: Why the traffic is unknown. None if it is known.
      known_traffic: The known part of an unknown traffic. None if the traffic is known, or if nothing is.
      evidence: What the figures rest on. None if a link or an old file does not say.
    """

    chip: str | None
    devices: PositiveInt | None
    basis: Stage
    program: str | None
    step: Step | None
    memory: MemoryNeed | None
    traffic: StepTraffic | None
    state_bytes_per_device: NonNegativeInt | None
    findings: FindingCounts | None
    rejected: str | None = field(default=None, metadata=OMIT_NONE)
    unknown_step: str | None = field(default=None, metadata=OMIT_NONE)
    unknown_traffic: str | None = field(default=None, metadata=OMIT_NONE)
    known_traffic: StepTraffic | None = field(default=None, metadata=OMIT_NONE)
    evidence: Evidence | None = field(default=None, metadata=OMIT_NONE)

    @property
    def traffic_made(self) -> str:
        """How the program was made if the chip's compiler can change its traffic, otherwise ""."""
        known = self.evidence
        if known is None or self.chip is None or (known.chip is not None and not known.before_compile):
            return ""
        return BEFORE_COMPILE if known.before_compile else known.made_text

    @property
    def stage(self) -> str:
        """The stage of the evidence and the machine that it is for, in words."""
        return self.basis if self.evidence is None else self.evidence.text


@dataclass(frozen=True)
class FigureVerdict(Record):
    """How a figure of a layout compares with that of a baseline; less is better.

    Attributes:
      figure: What is compared: memory of a device, traffic or FLOPs of a step.
      answer: Whether the figure is less.
      ratio: The candidate's figure over that of the baseline. None if it is unknown.
    """

    figure: Literal["memory", "time", "traffic", "flops"]
    answer: FigureAnswer
    ratio: Amount | None = None


@dataclass(frozen=True)
class Verdict(Record):
    """Whether a layout is better than a baseline.

    Attributes:
      baseline: Name of the layout that the other one is compared with.
      candidate: Name of the other layout.
      answer: Whether a step of the candidate is shorter.
      ratio: The candidate's step over that of the baseline. None if one is unknown, or if not comparable.
      low: Lower end of the interval of the ratio.
      high: Upper end of this interval.
      pairs: Number of published pairs behind the interval; 0 for measured steps.
      reason: Why the two are not comparable, or what qualifies the answer. None if there is nothing to add.
      sentence: The verdict in words.
      per_token: Whether the ratio is of the time of one token or example, because the batches differ.
      figures: How memory, traffic and FLOPs compare, which need no chip.
      assumption: Which efficiencies behind the interval were not measured on this chip. None if all were.
    """

    baseline: str
    candidate: str
    answer: Answer
    ratio: Amount | None
    low: Amount | None
    high: Amount | None
    pairs: NonNegativeInt
    reason: str | None
    sentence: str
    per_token: bool = False
    figures: tuple[FigureVerdict, ...] = ()
    assumption: str | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class LayoutFigures:
    """The figures of one layout. None means unknown.

    Attributes:
      name: "" for the only layout.
      traffic: None to draw no traffic.
      marks: How a figure compares with that of a baseline, by the name of the figure: `✓ −25% better` and
        `✓ −25%`.
      unknown: Why a figure is unknown, by the name of the figure.
      traffic_made: How the program was made that sends this, if the chip's compiler can change it.
    """

    name: str = ""
    step: Step | None = None
    memory: MemoryNeed | None = None
    traffic: StepTraffic | None = None
    marks: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    traffic_made: str = ""
