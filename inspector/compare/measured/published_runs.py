"""Published, measured training runs: files of them, and the layout that reproduces each one.

The file format is a JSON object with `rows`. Each row has `id`, `hardware`, `model`, `layout`, `batch`,
`remat`, `dtype`, `measured` and `source`; figures are per chip.
"""

import functools
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from inspector import layout as layouts
from inspector.files import strict_json
from inspector.layout import Layout
from inspector.machines import slices, targets
from inspector.machines.compiler_options import NO_OPTIONS
from inspector.machines.hardware import CHIPS
from inspector.model.built_in import remat_names
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import and_text

# Published runs whose rows contradict the source that they name, and what this source has instead.
#
# The corrected row describes the program that ran. Its correction is shown with its prediction.


@dataclass(frozen=True)
class Correction:
    """A correction of rows.

    Attributes:
      is_wrong: whether a row has the contradiction.
      changes: returns the fields that replace those of the row.
      reason: the value in the source, and where; it follows "compiled with".
    """

    is_wrong: Callable[[Mapping[str, Any]], bool]
    changes: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    reason: str


# Seconds of a step of Fuji-7B version 1 in AXLearn's file at 4dae7198: on v4, v5e, v5p, and 256 and 512 H100.
_FIRST_FUJI = (3.03, 2.44, 2.85, 2.44, 1.54)


def _is_first_fuji(row: Mapping[str, Any]) -> bool:
    """Return whether a row is one of these times, with flash attention. Version 1 has 2,048 tokens."""
    return (
        _name(row, "source", "repo") == "apple/axlearn"
        and _name(row, "model", "name") == "fuji-7B"
        and row.get("seq") == 2048
        and _name(row, "measured", "step_seconds") in _FIRST_FUJI
        and row.get("attention") == "flash"
    )


def _as_first_measured(row: Mapping[str, Any]) -> Mapping[str, Any]:
    changes: dict[str, Any] = {"attention": "plain", "remat": {"policy": "default"}}
    if _name(row, "hardware", "chip") == "v5e":
        changes["layout"] = {**row["layout"], "axes": {"data": -1, "fsdp": 16}}
    return changes


# Classes of Pax's configs.py that set no policy, which is then SAVE_NOTHING of paxml's model_params.py. It is
# that of repeated layers; those of GPT126M are not repeated.
_PAX_POLICIES = {"gpt-175B": "save_nothing", "gpt-126M": "none"}


def _is_pax_without_policy(row: Mapping[str, Any]) -> bool:
    return (
        _name(row, "layout", "framework") == "Pax"
        and _name(row, "model", "name") in _PAX_POLICIES
        and _name(row, "remat", "policy") == "see configs.py"
    )


def _launched_with(row: Mapping[str, Any]) -> list[str]:
    """Return the options of XLA in the launch script that a row names, by group; [] if it is not known here.

    MaxText's scripts of v5e and v5p at 76bd53b, its maxtext_v5p_model_configs.py and gpt3_175b_base.sh, and
    AXLearn's launch.py at f2326c53 and compiler_options.py at 420fb662, which are of the time of the runs.
    """
    hardware, chip = _part(row, "hardware"), _name(row, "hardware", "chip")
    repository, config = _name(row, "source", "repo"), str(_name(row, "source", "config"))
    gathers, overlap = "CF_FOR_ALL_GATHER", "DATA_PARALLEL_OVERLAP"
    if repository == "apple/axlearn" and str(chip).startswith("v"):
        own = f"axlearn/{chip}" if chip in ("v4", "v6e") else "axlearn"
        several = (_count(hardware.get("slices")) or 1) > 1
        return [own, *[gathers] * (chip == "v6e"), *[overlap] * several]
    if "maxtext_v5p_model_configs.py" in config:
        return [overlap, gathers]
    if "gpt3_175b_base.sh" in config:
        return ["gpt3_175b_base.sh"]
    if str(_name(row, "source", "commit")).startswith("76bd53b"):
        return [overlap, gathers] if chip == "v5e" else [overlap, "maxtext-76bd53b/v5p"]
    return []


CORRECTIONS = (
    Correction(
        lambda row: "xla_flags" not in row and bool(_launched_with(row)),
        lambda row: {"xla_flags": _launched_with(row)},
        "the options of XLA in the launch script of the source",
    ),
    Correction(
        _is_pax_without_policy,
        lambda row: {"remat": {"policy": _PAX_POLICIES[row["model"]["name"]]}},
        "the rematerialization of the class in paxml's configs.py",
    ),
    Correction(
        _is_first_fuji,
        _as_first_measured,
        "plain attention, saved projections of the attention, and on v5e the mesh data × fsdp 16, as in "
        "AXLearn when the times were added (4dae7198), a month before flash attention (e0e93105)",
    ),
)


def corrected(row: Mapping[str, Any]) -> tuple[Mapping[str, Any], str | None]:
    """Return the row that its source supports, and its corrections; None if it needs none."""
    wrong = [correction for correction in CORRECTIONS if correction.is_wrong(row)]
    for correction in wrong:
        row = {**row, **correction.changes(row)}
    return row, and_text([correction.reason for correction in wrong]) or None


def _name(row: Mapping[str, Any], part: str, key: str) -> Any:
    value = row.get(part)
    return value.get(key) if isinstance(value, dict) else None


_T = TypeVar("_T")

_MOST_BYTES = 64 * 2**20  # of a file
# Names of chips in the files that differ from those of `hardware`.
_CHIPS = {"h100-80gb-sxm": "h100", "a100-80gb": "a100"}
# The mesh axes of MaxText, AXLearn, Levanter and Pax in the order of their meshes, and the logical axes that
# each one shards. Over `context`, attention gathers keys and values, and parameters are sharded as over fsdp.
_LOGICAL = {
    "data": ("batch",),
    "fsdp": ("batch", "embed"),
    "fsdp_transpose": ("batch", "mlp"),
    "sequence": ("seq", "embed"),
    "context": ("seq", "embed"),
    "tensor": ("heads", "kv_heads", "mlp", "vocab"),
    "model": ("heads", "kv_heads", "mlp", "vocab"),
}
# Policies of the frameworks by name, except those of `remat_names`: AXLearn's fuji.py, Levanter's and Pax's
# configurations.
_QKV = "query_proj+key_proj+value_proj"
_POLICIES = {
    "dots_saveable": "minimal",
    "offload dots to pinned_host": "minimal_offloaded",
    "offload qkv_proj and input": f"offload:decoder_layer_input+{_QKV}",
    "offload attention projections": f"offload:{_QKV}+out_proj",
    "default": f"save:{_QKV}+context+out_proj",
    "gradient_checkpointing": "full",
    "save_nothing": "full",
    "save_dot_with_no_batch_dim": "minimal",
}
# MaxText's quantizations.py and Transformer Engine. In all of them, gradients have operands of 8 bits, too.
_QUANTIZATIONS = {
    **dict.fromkeys(("fp8", "fp8_full", "fp8_gpu", "aqt_fp8_full", "fp8 probable"), "fp8"),
    "int8": "int8",
}
_NAMES = (
    *("decoder_layer_input", "query_proj", "key_proj", "value_proj", "context"),
    "out_proj",
    "mlpwi",
    "mlpwo",
)
# Models with layers of two kinds: every nth layer attends to all tokens. Gemma 2 (arXiv:2408.00118),
# Gemma 3 (arXiv:2503.19786), Gemma 4 and gpt-oss (arXiv:2508.10925). In others, all layers have the window.
_GLOBAL_EVERY = {"gemma2": 2, "gemma3": 6, "gemma4": 6, "gptoss": 2}
_ACTIVATIONS: dict[tuple[str, ...], tuple[str, str]] = {
    ("relu",): ("relu", "false"),
    ("gelu",): ("gelu", "false"),
    ("silu", "linear"): ("silu", "true"),
    ("gelu", "linear"): ("gelu", "true"),
}


@functools.cache
def _option_groups() -> dict[str, list[str]]:
    """Return groups of options of XLA by their names in MaxText (benchmarks/xla_flags_library.py).

    The last ones are those of launch scripts (`_launched_with`). Options that this compiler lacks, or that
    choose hardware, are left out.
    """
    groups: dict[str, list[str]] = json.loads(Path(__file__).with_name("option_groups.json").read_text())
    return groups


# Names in the same lists that are not options of the compiler: parts of the launch.
_NO_OPTIONS = re.compile(r"REMOVE|ADD_[A-Z]+|ENHANCED_LAUNCH_BARRIER")
_VMEM_LIMIT = re.compile(r"CUSTOM_VMEM_LIMIT_FLAG\(vmem_limit=(\d+)\)")
_OPTION = re.compile(r"-{0,2}(xla_\w+=[^\s,;~]+)")


class _NotReproducible(Exception):
    """The reason why a run cannot be reproduced, in a sentence without a final period."""


@dataclass(frozen=True)
class PublishedRun:
    """One measured run.

    Attributes:
      name: The `id` of the row.
      chip: Name of its chip in `hardware`, or as published if unknown there.
      model: Name of the published model.
      chips: Number of chips.
      seconds: Measured seconds of one step; None if not published.
      layout: The layout that reproduces it; None if there is none.
      reason: Why it cannot be reproduced, in a sentence; None if it can be.
      source: Repository and file of the publication.
      correction: How the layout differs from the row, because its source does; None if it does not.
    """

    name: str
    chip: str
    model: str
    chips: int | None
    seconds: float | None
    layout: Layout | None
    reason: str | None
    source: str
    correction: str | None = None

    @property
    def mixture(self) -> bool:
        """Whether its layout is a mixture of experts."""
        return self.layout is not None and self.layout.model == "moe"


def read(path: str | Path) -> tuple[PublishedRun, ...]:
    """Return the runs of a file.

    Raises:
      InvalidInput: the file cannot be read, or is not a JSON object with a list `rows` of objects with an
        `id`.
    """
    plain = strict_json.read(path, _MOST_BYTES)
    rows = plain.get("rows") if isinstance(plain, dict) else None
    if not isinstance(rows, list):
        raise InvalidInput(f"{path} must be a JSON object with a list `rows`")
    return tuple(_run(row, f"{path}, row {number}") for number, row in enumerate(rows))


def _run(row: Any, where: str) -> PublishedRun:
    if not isinstance(row, dict) or not isinstance(row.get("id"), str):
        raise InvalidInput(f"{where} must be an object with a text `id`")
    row, correction = corrected(row)
    hardware, model = _part(row, "hardware"), _part(row, "model")
    published = str(hardware.get("chip", "unknown")).lower()
    chip = _CHIPS.get(published, published)
    seconds = _seconds(row)
    layout, reason = None, None
    try:
        if seconds is None:
            raise _NotReproducible("its step time is not published")
        layout = _layout(row, chip)
    except _NotReproducible as why:
        reason = str(why)
    except InvalidInput as why:
        reason = str(why)
    source = _part(row, "source")
    return PublishedRun(
        name=row["id"],
        chip=chip,
        model=str(model.get("name", "unknown")),
        chips=_count(hardware.get("chips")),
        seconds=seconds,
        layout=layout,
        reason=reason,
        source=" ".join(str(source[key]) for key in ("repo", "config", "table") if key in source),
        correction=correction,
    )


def _part(row: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = row.get(key)
    return value if isinstance(value, dict) else {}


def _seconds(row: Mapping[str, Any]) -> float | None:
    """Return the measured seconds of a step, or those that follow from the published throughput."""
    measured, batch = _part(row, "measured"), _part(row, "batch")
    for key in ("step_seconds", "step_seconds_derived"):
        if (value := _positive(measured.get(key))) is not None:
            return value
    tokens, chips = _positive(batch.get("tokens")), _count(_part(row, "hardware").get("chips"))
    rate = _positive(measured.get("tokens_per_s_per_chip"))
    if tokens and rate and chips:
        return tokens / rate / chips
    sequences, rate = (
        _positive(batch.get("global_sequences")),
        _positive(measured.get("sequences_per_s")),
    )
    return sequences / rate if sequences and rate else None


def _layout(row: Mapping[str, Any], chip: str) -> Layout:
    """Return the layout of a row.

    Raises:
      _NotReproducible: the row lacks something, or has a feature that the models here lack.
      InvalidInput: the layout is not possible.
    """
    model = _part(row, "model")
    _refuse(row, model)
    attention = "plain" if row.get("attention") == "plain" else "flash"
    name = "moe" if model.get("num_experts") else "transformer"
    fields = {"model": name, "scan": "true", "attention": attention, "donate": "true"}
    fields |= {"target": _target(row, chip)}
    fields |= _mesh_and_rules(row)
    fields |= _sizes(row, model)
    if options := _compiler_options(row):
        fields["compiler_options"] = ",".join(options)
    if targets.parse(fields["target"]).kind == "tpu":
        fields["device_order"] = "torus"
    return layouts.parse(fields).unwrap()


def _refuse(row: Mapping[str, Any], model: Mapping[str, Any]) -> None:
    """Raise _NotReproducible for a run with parts that the models here lack."""
    if row.get("complete") is False:
        raise _NotReproducible("its configuration is only partly published")
    axes = _axes(row)
    strange = [name for name, size in axes.items() if size != 1 and name not in _LOGICAL]
    if strange:
        raise _NotReproducible(f"it shards over {strange[0]}, which the models here do not")


def _target(row: Mapping[str, Any], chip: str) -> str:
    hardware = _part(row, "hardware")
    if chip not in CHIPS:
        raise _NotReproducible(f"its chip {chip} is not known here")
    devices = _count(hardware.get("devices"))
    if CHIPS[chip].kind == "gpu":
        return f"gpu:{chip}:{devices}"
    number = _count(hardware.get("slices")) or 1
    chips = _count(hardware.get("chips"))
    if chips is None or chips % number:
        raise _NotReproducible("its number of chips is not published")
    text = f"tpu:{chip}:{_topology(str(hardware.get('topology', '')), chip, chips // number)}"
    return text if number == 1 else f"{text}*{number}"


def _topology(published: str, chip: str, chips: int) -> str:
    """Return the shape of a slice from `4x8x8`, or from a name such as `v5p-1024`, or from its size."""
    for word in re.findall(r"\d+(?:x\d+)+", published):
        # The sides of a slice are written in ascending order.
        found = slices.slice_of(chip, "x".join(sorted(word.split("x"), key=int)))
        if found.chips == chips:
            return found.topology
    fitting = [candidate for candidate in slices.slices(chip) if candidate.chips == chips]
    if not fitting:
        raise _NotReproducible(f"no slice of {chip} has {chips} chips")
    # The most compact one, the meaning of a name such as v5p-1024.
    return min(
        fitting,
        key=lambda candidate: (
            max(candidate.shape) - min(candidate.shape),
            candidate.shape,
        ),
    ).topology


def _axes(row: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of the mesh axes, those between slices first. −1 is the rest."""
    axes = _part(_part(row, "layout"), "axes")
    nested = [axes[key] for key in ("dcn", "ici") if isinstance(axes.get(key), dict)]
    found: dict[str, int] = {}
    for part in nested or [axes]:
        for name, size in part.items():
            if isinstance(size, bool) or not isinstance(size, int):
                raise _NotReproducible(f"the size of its mesh axis {name} is not published")
            found[name] = found.get(name, 1) * size
    if -1 in found.values():
        devices = _count(_part(row, "hardware").get("devices")) or 0
        others = 1
        for size in found.values():
            others *= max(1, size)
        found = {name: devices // others if size == -1 else size for name, size in found.items()}
    return found


def _mesh_and_rules(row: Mapping[str, Any]) -> dict[str, str]:
    axes = {name: size for name, size in _axes(row).items() if size != 1} or {"data": 1}
    order = sorted(axes, key=lambda name: list(_LOGICAL).index(name))
    framework = str(_part(row, "layout").get("framework", ""))
    logical = dict(_LOGICAL)
    if framework == "Levanter":
        logical["data"] = ("batch", "embed")  # parameters are sharded over the data axis
    rules: dict[str, list[str]] = {}
    for name in order:
        for one in logical[name]:
            rules.setdefault(one, []).append(name)
    pairs = list(rules.items())
    for name in ("tensor", "model"):
        if name in axes:
            # Weights have `embed` on fsdp already. Activations, whose batch is on fsdp, get it here.
            pairs.append(("embed", [name]))
    return {
        "mesh": "x".join(str(axes[name]) for name in order),
        "axes": ",".join(order),
        "rules": ",".join(f"{name}={'+'.join(on)}" for name, on in pairs),
    }


def _sizes(row: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, str]:
    """Return the sizes of the model, the batch and the optimizer, as the fields of a layout."""
    batch = _part(row, "batch")
    needed = {name: _count(model.get(name)) for name in ("layers", "d_model", "heads", "d_ff")}
    needed |= {"seq": _count(row.get("seq")), "batch": _count(batch.get("global_sequences"))}
    layers, width, heads, mlp, seq, sequences = (
        _published(value, f"its {name}") for name, value in needed.items()
    )
    vocab = _published(re.search(r"\d{4,}", str(model.get("vocab", ""))), "its vocabulary")
    of_mlp = _experts(row, model) if model.get("num_experts") else _activation(model)
    dtype = _part(row, "dtype")
    sizes: dict[str, object] = {
        "layers": layers,
        "embed": width,
        "mlp": mlp,
        "heads": heads,
        "kv_heads": _count(model.get("kv_heads")) or heads,
        "head_dim": _count(model.get("head_dim")) or width // heads,
        "vocab": vocab[0],
        "tied": str(model.get("tied_logits", False)).lower(),
        "seq": seq,
        "batch": sequences,
        "remat": _remat(_part(row, "remat")),
        "optimizer": "adam" if str(row.get("optimizer", "")).startswith("adam ") else "adamw",
        "dtype": dtype.get("activations") or "bfloat16",
        "weight_dtype": dtype.get("weights") or "float32",
        **of_mlp,
    }
    if model.get("kv_lora_rank"):
        # DeepSeek's rotated elements are 64 in all versions.
        sizes |= {
            "kv_rank": _count(model.get("kv_lora_rank")),
            "q_rank": _count(model.get("q_lora_rank")) or 0,
        }
    if quantization := dtype.get("quantization"):
        if str(quantization) not in _QUANTIZATIONS:
            raise _NotReproducible(f"it multiplies in {quantization}, which the models here do not")
        sizes["quantization"] = _QUANTIZATIONS[str(quantization)]
    # The models of MaxText's `global_parameter_scale` have its default decoder layer, whose MLP reads the
    # normalized input of the attention (MaxText/layers/models.py at 76bd53b).
    if re.fullmatch(r"maxtext-\d+b", str(model.get("name", ""))):
        sizes["parallel"] = "true"
    sizes |= _windows(model, seq)
    if dtype.get("mu"):
        sizes["optimizer_dtype"] = dtype["mu"]
    if (steps := _count(batch.get("grad_accumulation")) or 1) > 1:
        sizes["accumulate"] = steps
    return {name: str(value) for name, value in sizes.items()}


def _published(value: _T | None, name: str) -> _T:
    """Return a value that a layout needs, or raise _NotReproducible."""
    if value is None:
        raise _NotReproducible(f"{name} is not published")
    return value


def _activation(model: Mapping[str, Any]) -> dict[str, str]:
    """Return the sizes of the MLP of a dense model."""
    activations = _list(model.get("mlp_activations")) or ("silu", "linear")
    if activations not in _ACTIVATIONS:
        raise _NotReproducible(f"its activation {'+'.join(activations)} is not known here")
    activation, gated = _ACTIVATIONS[activations]
    return {"activation": activation, "gated": gated}


def _windows(model: Mapping[str, Any], seq: int) -> dict[str, int]:
    """Return the sizes of a model whose layers attend to the last tokens only."""
    name = re.sub(r"[^a-z0-9]", "", str(model.get("name", "")).lower())
    window = _count(model.get("sliding_window_size"))
    if window is None and name.startswith("gemma") and not name.startswith("gemma1"):
        raise _NotReproducible("the size of its sliding windows is not published")
    if window is None or window >= seq:
        return {}
    every = next((number for family, number in _GLOBAL_EVERY.items() if name.startswith(family)), 0)
    return {"window": window, "global_every": every}


def _experts(row: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes of a mixture of experts. A dropless one is assumed to have equally busy experts."""
    flags = _part(_part(row, "layout"), "flags")
    width = _count(model.get("moe_mlp_dim")) or _count(model.get("d_ff"))
    dense, shared = _count(model.get("first_num_dense_layers")), _count(model.get("shared_experts"))
    # Without MaxText's sparse_matmul, experts have buffers; its recipes have a capacity factor of 1.25.
    drops = str(flags.get("sparse_matmul")).lower() == "false"
    sizes = {
        "mlp": width,
        "experts": _count(model.get("num_experts")),
        "experts_per_token": _count(model.get("num_experts_per_tok")) or 1,
        "routing": "masks" if drops else "sorted",
        "capacity_factor": flags.get("capacity_factor", 1.25) if drops else 1,
    }
    if dense:
        sizes |= {"dense_layers": dense, "dense_mlp": _count(model.get("d_ff"))}
    if shared:
        # The shared experts of DeepSeek are as wide as its others; that of Gemma 4 has the width d_ff.
        sizes["shared_mlp"] = (
            shared * (width or 0) if dense or width == model.get("d_ff") else model.get("d_ff")
        )
    return sizes


def _compiler_options(row: Mapping[str, Any]) -> list[str]:
    """Return the options of XLA with which the run was compiled, `name=value`. The last of a name counts."""
    flags, options = row.get("xla_flags"), dict[str, str]()
    for flag in flags if isinstance(flags, list) else []:
        text = _VMEM_LIMIT.sub(r"xla_tpu_scoped_vmem_limit_kib=\1", str(flag))
        if text.lstrip("-").startswith(tuple(NO_OPTIONS)):
            continue
        match = _OPTION.fullmatch(text)
        if match is None and text not in _option_groups() and not _NO_OPTIONS.fullmatch(text):
            raise _NotReproducible(f"its compiler flag {shown(text)} is not known here")
        for option in (match[1],) if match else _option_groups().get(text, ()):
            options[option.partition("=")[0]] = option
    return list(options.values())


def _remat(remat: Mapping[str, Any]) -> str:
    """Return the model's `remat` for a published policy."""
    policy = str(remat.get("policy", "")).lower()
    policy = re.split(r"[(=;]", policy)[0].strip()
    if policy == "custom":
        kept = {verb: [] for verb in ("device", "offload")}  # type: dict[str, list[str]]
        for name in _NAMES:
            verb = str(remat.get(name))  # anything that a file can contain
            if verb in kept:
                kept[verb].append(name)
        parts = (("save", kept["device"]), ("offload", kept["offload"]))
        return ",".join(f"{verb}:{'+'.join(names)}" for verb, names in parts if names) or "full"
    try:
        return remat_names.normalized(_POLICIES.get(policy, policy))
    except InvalidInput:
        raise _NotReproducible(f"its rematerialization policy {policy!r} is not known here") from None


def _list(value: Any) -> tuple[str, ...]:
    """Return the words of `["silu","linear"]`, as a list or as text."""
    return tuple(re.findall(r"[a-z_]+", str(value).lower())) if value else ()


def _count(value: Any) -> int | None:
    whole = isinstance(value, (int, float)) and not isinstance(value, bool)
    return int(value) if whole and value == int(value) and 0 < value < 2**53 else None


def _positive(value: Any) -> float | None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if number and 0 < value < float("inf") else None
