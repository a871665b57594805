"""A Snapshot with its name and its assessment, and how two of them differ in their computation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from inspector.assessment import assess
from inspector.compare import origin
from inspector.compare.question import SAME_WORK, WorkScale
from inspector.machines import hardware
from inspector.machines.hardware import Chip
from inspector.prediction.evidence import for_chip
from inspector.prediction.step_program import step_program
from inspector.records.assessment import Assessment, Evidence
from inspector.records.snapshot import Snapshot
from inspector.sharding.totals import STATE_GROUPS, states_text
from inspector.text.formatting import and_text

# Sizes that change the amount of work of a step, but not the model, and their plurals.
_WORK_SIZES = {"batch": "batches", "seq": "sequence lengths"}


@dataclass(frozen=True)
class Compared:
    """A Snapshot with its name and its assessment.

    Attributes:
      snapshot: with the programs that count on the chip.
      recorded: with those that were recorded, which are the ones that ran.
    """

    name: str
    snapshot: Snapshot
    assessment: Assessment
    recorded: Snapshot

    @property
    def evidence(self) -> Evidence:
        """What its figures rest on."""
        assert self.assessment.evidence is not None  # only links and old files have none
        return self.assessment.evidence

    @property
    def tokens(self) -> float | None:
        """Tokens of one step, or examples of a model without sequences; None if unknown."""
        sizes = origin.sizes(self.snapshot) or {}
        numbers = [_number(sizes[name]) for name in _WORK_SIZES if name in sizes]
        return None if not numbers or None in numbers else math.prod(n or 0 for n in numbers)


def compared(named: Sequence[tuple[str, Snapshot]], chip: Chip | None = None) -> list[Compared]:
    """Return the Snapshots with their assessments, each on its own chip or else on the chosen one."""
    return [
        Compared(name, for_chip(snapshot, chip), assess(snapshot, chip), snapshot) for name, snapshot in named
    ]


def unusable(compared: Compared) -> str | None:
    """Return why a layout cannot run, as a clause with its name; None if it can, or if that is unknown."""
    if compared.assessment.rejected is not None:
        return f"JAX rejects {compared.name}: {compared.assessment.rejected}"
    need = compared.assessment.memory
    if need is not None and need.fits is False:
        chip = hardware.CHIPS.get(compared.assessment.chip or "")
        where = "the device" if chip is None else chip.title
        return f"{compared.name} does not fit into {where} ({need.text})"
    return None


def same_instructions(baseline: Compared, candidate: Compared) -> bool:
    """Return whether one compiler made the same program of both, so that they are equal on any chip."""
    programs = [step_program(side.snapshot) for side in (baseline, candidate)]
    was, now = (None if program is None else program.fingerprint for program in programs)
    meshes = [side.snapshot.mesh for side in (baseline, candidate)]
    devices = [None if mesh is None else mesh.devices for mesh in meshes]
    return was is not None and was == now and devices[0] == devices[1]


def other_model(baseline: Compared, candidate: Compared) -> str | None:
    """Return how the models of two layouts differ; None if they do not."""
    both = baseline.snapshot, candidate.snapshot
    models = [origin.model(side) for side in both]
    if None not in models:
        if models[0] != models[1]:
            return f"the models differ: {models[0]} and {models[1]}"
        other = other_sizes(baseline, candidate)
        # Layers that are scanned or computed in another type are the same model.
        weights = [origin.parameters(side) for side in both]
        if other and (None in weights or weights[0] != weights[1]):
            return f"the sizes of the model differ: {and_text(other)}"
        return None
    states = [{(one.path, one.shape) for one in side.arrays if one.group in STATE_GROUPS} for side in both]
    return None if states[0] == states[1] else f"their {states_text(*both)} differ"


def other_sizes(baseline: Compared, candidate: Compared) -> list[str]:
    """Return the names of the sizes that differ, without those that only change the work of a step."""
    was, now = (origin.sizes(side.snapshot) or {} for side in (baseline, candidate))
    return [name for name in {**was, **now} if was.get(name) != now.get(name) and name not in _WORK_SIZES]


def other_work(baseline: Compared, candidate: Compared) -> bool:
    """Return whether only the batch or the sequence length of one model differs."""
    tokens = baseline.tokens, candidate.tokens
    same = origin.model(baseline.snapshot) == origin.model(candidate.snapshot) is not None
    return same and None not in tokens and tokens[0] != tokens[1]


def other_work_sizes(baseline: Compared, candidate: Compared) -> str:
    """Return the differences in the work of a step: `batches and sequence lengths`."""
    was, now = (origin.sizes(side.snapshot) or {} for side in (baseline, candidate))
    return and_text([words for name, words in _WORK_SIZES.items() if was.get(name) != now.get(name)])


def work_of(baseline: Compared, candidate: Compared) -> WorkScale:
    """Return how figures of the work of a step are compared."""
    if not other_work(baseline, candidate):
        return SAME_WORK
    why = f"{other_work_sizes(baseline, candidate)} differ"
    return WorkScale(work_scale(baseline, candidate), f"per {work_unit(baseline)}", why)


def work_scale(baseline: Compared, candidate: Compared) -> float:
    """Return the factor that makes a figure of the candidate one of the work of the baseline.

    It is 1 unless only the batch or the sequence length of one model differs.
    """
    return (baseline.tokens or 1.0) / (candidate.tokens or 1.0) if other_work(baseline, candidate) else 1.0


def work_unit(baseline: Compared) -> str:
    """Return the unit of the work of a step: `token`, or `example` of a model without sequences."""
    return "token" if "seq" in (origin.sizes(baseline.snapshot) or {}) else "example"


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < math.inf else None
