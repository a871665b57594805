"""The evidence of a figure: how far its program got, for which machine, and its assumptions."""

from dataclasses import dataclass
from typing import Literal

from inspector.core.snapshot import Platform
from inspector.core.typed_json import Record

# From the weakest evidence to the strongest.
Stage = Literal["planned", "partitioned", "compiled", "measured"]
_WORDS: dict[Platform, str] = {"cpu": "CPUs", "gpu": "GPUs", "tpu": "TPUs"}


@dataclass(frozen=True)
class Evidence(Record):
    """The evidence of the figures of a program. Only `inspector.machines.evidence` decides it.

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
            return "partitioned before a compile"
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
        return f"partitioned before a compile{passes}"
