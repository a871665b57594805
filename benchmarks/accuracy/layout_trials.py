"""Published trials of layouts on one machine, some of which did not fit: what is predicted for them.

The file format is a JSON object with `models`, which have `layers`, `d_model`, `heads` and `d_ff`, and
`rows`: model, sequence length, number of GPUs, degrees of tensor (`tp`), pipeline (`pp`) and data (`dp`)
parallelism, `micro_batch`, checkpointing of each layer, the kernel of attention, and `step_seconds`, null for
a trial that ran out of memory, which its optional `status` then names. The trials are those of arXiv
2311.05610: a PyTorch system on A100 GPUs that shards the optimizer state over the data axis (ZeRO-1). A step
has about 4.2 million tokens.

Times are those of the partitioned program. The memory is predicted twice: as this program needs it in JAX,
and as PyTorch needs it, which keeps other values (`scaling_memory`). The second is compared with the trials.
Its one fitted constant is fitted without the trials of the same model and sequence length.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.accuracy.scaling_memory import Microbatch, fitted_fragmentation, state_bytes
from benchmarks.accuracy.scaling_memory import Needs as MemoryNeeds
from inspector import layout as layouts
from inspector.compare.measured.accuracy import DIFFERENT
from inspector.compare.ratio import of_needs
from inspector.files import strict_json
from inspector.layout import Layout
from inspector.machines import hardware
from inspector.prediction.memory import capacity_of, fit
from inspector.prediction.predicted import boundary_seconds, predicted
from inspector.prediction.ratios import Needs
from inspector.prediction.simulation import CoreSeconds
from inspector.prediction.step_parts import step_parts
from inspector.records.assessment import StepPart
from inspector.records.snapshot import Snapshot
from inspector.sharding import totals
from inspector.text.errors import InvalidInput

CHIP = "a100"
TOKENS = 2**22  # in one step of every trial, within 6% (the notes of the file)
# The published MFU counts 6 FLOPs for each weight and 12 × layers × width × tokens for attention. For 13B and
# 65B that leaves 2.000 × 128,000 rows of the embedding and the output layer.
VOCABULARY = 128_000
_RULES = "batch=data,mlp=tensor,heads=tensor,kv_heads=tensor,vocab=tensor"


@dataclass(frozen=True)
class Trial:
    """One trial.

    Attributes:
      sweep: What trials that are compared have in common: model, sequence length, GPUs and kernel.
      group: Model and sequence length, whose trials no constant for them is fitted to.
      layout: One microbatch of it; None if the models here cannot express the trial, with the `reason`.
      repeats: Microbatches in one step.
      seconds: Measured seconds of one step; None if it did not fit.
      activations: Bytes that PyTorch keeps for the backward pass.
    """

    sweep: str
    group: str
    layout: Layout | None
    reason: str
    repeats: int
    seconds: float | None
    activations: int = 0


@dataclass(frozen=True)
class Outcome:
    """What is predicted for a trial.

    Attributes:
      seconds: Of one step of the trial. None if unknown.
      fits: Whether what PyTorch needs is at most the memory of the device. None if unknown.
      fits_in_jax: The same for the estimated peak of the JAX program of this layout.
      parts: Of the step. Empty if unknown.
    """

    trial: Trial
    seconds: float | None
    fits: bool | None
    fits_in_jax: bool | None
    parts: tuple[StepPart, ...] = ()


@dataclass(frozen=True)
class TrialSweep:
    """The trials of one model and kernel, and how many predictions are right.

    Attributes:
      known, right: Trials whose fit is predicted, and those that are predicted as measured.
      right_in_jax: The same if a JAX program of this layout had run.
      fragmentation: Fitted share of the activations that PyTorch's allocator loses.
      pairs, ordered: Pairs of trials that ran and differ by more than 10%, and those in the right order.
      best: The place of the fastest trial among those that are predicted to fit, the fastest first. None if
        it is predicted not to fit, or if no trial ran.
      ran: Trials that ran.
      all_pairs, called, called_right: Pairs of trials that ran, those that a verdict calls better or worse,
        and those of them that were measured so.
    """

    name: str
    known: int
    right: int
    right_in_jax: int
    fragmentation: float
    pairs: int
    ordered: int
    best: int | None
    ran: int
    all_pairs: int = 0
    called: int = 0
    called_right: int = 0


@dataclass(frozen=True)
class Trials:
    """The sweeps of a file, and the number of trials that cannot be expressed by reason."""

    sweeps: tuple[TrialSweep, ...]
    others: dict[str, int] = field(default_factory=dict)


def read(path: str | Path) -> tuple[Trial, ...]:
    """Return the trials of a file.

    Raises:
      InvalidInput: the file cannot be read, or has another form.
    """
    plain = strict_json.read(str(path))
    models = plain.get("models") if isinstance(plain, dict) else None
    rows = plain.get("rows") if isinstance(plain, dict) else None
    if not isinstance(models, dict) or not isinstance(rows, list):
        raise InvalidInput(f"{path} must be a JSON object with an object `models` and a list `rows`")
    sizes = {_name(name): size for name, size in models.items() if isinstance(size, dict)}
    return tuple(_trial(row, sizes) for row in rows if isinstance(row, dict))


def judged(trials: tuple[Trial, ...], propagate: Callable[[Layout], Snapshot | None]) -> Trials:
    """Return how many predictions are right in each sweep with a trial that the models can express.

    Args:
      propagate: returns the plan of a layout with its partitioned programs; None if they are unknown. It is
        called once for each layout.
    """
    known: dict[str, _Propagated] = {}
    found: list[tuple[Trial, _Propagated]] = []
    others: dict[str, int] = {}
    for trial in trials:
        if trial.layout is None:
            others[trial.reason] = others.get(trial.reason, 0) + 1
            continue
        key = trial.layout.key()
        if key not in known:
            known[key] = _partitioned(propagate(trial.layout))
        found.append((trial, known[key]))
    capacity = capacity_of(hardware.chip(CHIP))
    needs = [(trial.group, _needs(trial, one)) for trial, one in found]
    fragmentation = {
        group: fitted_fragmentation((one for of, one in needs if of != group and one is not None), capacity)
        for group in dict.fromkeys(group for group, _ in needs)
    }
    sweeps: dict[str, list[Outcome]] = {}
    for (trial, one), (group, need) in zip(found, needs, strict=True):
        fits = None if need is None else need.total(fragmentation[group]) <= capacity
        whole = None if one.totals is None else step_seconds(one.totals, trial.repeats, one.boundary)
        parts = parts_of_step(one.parts, trial.repeats, one.boundary)
        sweeps.setdefault(trial.sweep, []).append(Outcome(trial, whole, fits, one.fits, parts))
    return Trials(
        tuple(
            _sweep(name, of_sweep, fragmentation[of_sweep[0].trial.group])
            for name, of_sweep in sweeps.items()
        ),
        others,
    )


@dataclass(frozen=True)
class _Propagated:
    """Seconds of the train step, whether it fits, and bytes of the weights on one device; None if unknown.

    boundary: seconds for reading the train state and writing it.
    """

    totals: CoreSeconds | None = None
    parts: tuple[StepPart, ...] = ()
    boundary: float = 0.0
    fits: bool | None = None
    weights: int | None = None


def _partitioned(found: Snapshot | None) -> _Propagated:
    program = None if found is None else found.program("train_step")
    if found is None or program is None or found.mesh is None:
        return _Propagated()
    chip = hardware.chip(CHIP)
    need = fit(found, chip).need
    prediction = predicted(program, found.mesh, chip)
    return _Propagated(
        prediction.totals,
        step_parts(prediction, None),
        boundary_seconds(program, chip),
        None if need is None else need.peak_bytes <= capacity_of(chip),
        totals.totals(found, ("params",)).per_device,
    )


def step_seconds(microbatch: CoreSeconds, repeats: int, boundary: float) -> float:
    """Return the seconds of a step from those of the program of one microbatch.

    The optimizer, and the transfers over the data axis before and after it, are once in a step.

    boundary: seconds for reading the train state and writing it.
    """
    once = min(boundary, microbatch.memory) + sum(
        seconds for axes, seconds in microbatch.exposed.items() if "data" in axes.split("+")
    )
    return repeats * (microbatch.seconds - once) + once


def parts_of_step(microbatch: Sequence[StepPart], repeats: int, boundary: float) -> tuple[StepPart, ...]:
    """Return the parts of a step from those of one microbatch, as `step_seconds` adds them."""
    parts = []
    for part in microbatch:
        times = 1 if "data" in (part.axes or "").split("+") else repeats
        once = min(boundary, part.seconds) if part.kind == "memory" else 0.0
        parts.append(
            replace(
                part,
                seconds=times * (part.seconds - once) + once,
                hidden=times * part.hidden,
                latency=times * part.latency,
                messages=times * part.messages,
            )
        )
    return tuple(parts)


def _needs(trial: Trial, found: _Propagated) -> MemoryNeeds | None:
    """Return the bytes that PyTorch needs for a trial on one GPU; None if they are unknown."""
    if found.weights is None or trial.layout is None:
        return None
    data = dict(zip(trial.layout.axis_names, trial.layout.mesh_shape, strict=True))["data"]
    return MemoryNeeds(state_bytes(found.weights, data), trial.activations, trial.seconds is not None)


def _sweep(name: str, found: list[Outcome], fragmentation: float) -> TrialSweep:
    known = [one for one in found if one.fits is not None]
    ran = [one for one in found if one.trial.seconds is not None and one.seconds is not None]
    ordered = pairs = called = called_right = 0
    for one, other in itertools.combinations(ran, 2):
        ratio = of_needs(
            (other.seconds or 0) / (one.seconds or 1), Needs.of(one.parts), Needs.of(other.parts), CHIP, None
        )
        called += ratio.answer != "not distinguishable"
        longer = (other.trial.seconds or 0) > (one.trial.seconds or 0)
        called_right += ratio.answer == ("worse" if longer else "better")
        fast, slow = sorted((one, other), key=lambda each: each.trial.seconds or 0.0)
        if (slow.trial.seconds or 0) < DIFFERENT * (fast.trial.seconds or 0):
            continue
        pairs += 1
        ordered += (fast.seconds or 0) < (slow.seconds or 0)
    fitting = sorted(
        (one for one in found if one.fits and one.seconds is not None),
        key=lambda each: each.seconds or 0.0,
    )
    best = min(ran, key=lambda each: each.trial.seconds or 0.0, default=None)
    return TrialSweep(
        name,
        len(known),
        sum(one.fits == (one.trial.seconds is not None) for one in known),
        sum(one.fits_in_jax == (one.trial.seconds is not None) for one in known),
        fragmentation,
        pairs,
        ordered,
        fitting.index(best) + 1 if best in fitting else None,
        len(ran),
        math.comb(len(ran), 2),
        called,
        called_right,
    )


def _trial(row: Mapping[str, Any], models: Mapping[str, Mapping[str, Any]]) -> Trial:
    name, kernel = _name(row.get("model")), str(row.get("kernel"))
    seq, gpus = _count(row.get("seq")), _count(row.get("gpus"))
    seconds = row.get("step_seconds")
    measured = float(seconds) if isinstance(seconds, (int, float)) and seconds > 0 else None
    sweep = f"{name}, {seq} tokens, {gpus} GPUs, {kernel}"
    group = f"{name}, {seq} tokens"
    try:
        layout, repeats = _layout(row, models.get(name, {}), seq, gpus)
    except InvalidInput as refused:
        return Trial(sweep, group, None, str(refused), 0, measured)
    return Trial(sweep, group, layout, "", repeats, measured, _activations(row, layout))


def _activations(row: Mapping[str, Any], layout: Layout) -> int:
    """Return the bytes that PyTorch keeps for the backward pass of one microbatch on one GPU."""
    names = ("layers", "embed", "heads", "mlp", "vocab", "batch", "seq")
    sizes = {name: int(layout.sizes[name]) for name in names}
    data, tensor = layout.mesh_shape
    return Microbatch(
        layers=sizes["layers"],
        d_model=sizes["embed"],
        heads=sizes["heads"],
        d_ff=sizes["mlp"],
        vocabulary=sizes["vocab"],
        sequences=sizes["batch"] // data,
        length=sizes["seq"],
        tensor=tensor,
        sequence_parallel=row.get("sequence_parallel") is True,
        checkpointed=layout.sizes["remat"] == "full",
        flash=layout.sizes["attention"] == "flash",
        fused_norm="RMS" in str(row.get("kernel")),
    ).activations


def _layout(row: Mapping[str, Any], model: Mapping[str, Any], seq: int, gpus: int) -> tuple[Layout, int]:
    """Return the layout of one microbatch, and their number in a step.

    Raises:
      InvalidInput: the trial has pipeline stages, or lacks something.
    """
    tensor, data, micro = (_count(row.get(name)) for name in ("tp", "dp", "micro_batch"))
    sizes = {name: _count(model.get(name)) for name in ("layers", "d_model", "heads", "d_ff")}
    if _count(row.get("pp")) != 1:
        raise InvalidInput("it has pipeline stages, which the models here lack")
    if row.get("step_seconds") is None and "OOM" not in str(row.get("status", "OOM")):
        raise InvalidInput("it failed for another reason than memory")
    if 0 in (tensor, data, micro, seq, *sizes.values()) or tensor * data != gpus:
        raise InvalidInput("its sizes or its layout are not published")
    if sizes["d_model"] % sizes["heads"] or TOKENS % (seq * data * micro):
        raise InvalidInput("its batch or its heads cannot be divided as it says")
    fields = {
        "model": "transformer",
        "target": f"gpu:{CHIP}:{gpus}",
        "mesh": f"{data}x{tensor}",
        "axes": "data,tensor",
        "rules": _RULES + (",seq=tensor" if row.get("sequence_parallel") is True else ""),
        "optimizer_axes": "data",
        "layers": sizes["layers"],
        "embed": sizes["d_model"],
        "heads": sizes["heads"],
        "kv_heads": sizes["heads"],
        "head_dim": sizes["d_model"] // sizes["heads"],
        "mlp": sizes["d_ff"],
        "vocab": VOCABULARY,
        "seq": seq,
        "batch": data * micro,
        "attention": "flash" if "flash" in str(row.get("kernel")) else "plain",
        "remat": "none" if row.get("act_ckpt") == "disabled" else "full",
        "dtype": "bfloat16",
        "weight_dtype": "bfloat16",
        "optimizer": "adamw",
        "optimizer_dtype": "float32",
        "scan": "true",
        "donate": "true",
    }
    layout = layouts.parse({name: str(value) for name, value in fields.items()}).unwrap()
    return layout, TOKENS // (seq * data * micro)


def _name(value: Any) -> str:
    return str(value).replace("_", "-")


def _count(value: Any) -> int:
    """Return a positive integer, or 0 for anything else."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**7
    return value if is_count else 0
