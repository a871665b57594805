"""The catalogue of models: those of this project, and the user's own (`inspector.model.own_model`).

Nothing here imports JAX; `build` names a function that does.
"""

from collections.abc import Mapping

from inspector.model import ModelEntry, PipelineSizes, Size, SizeValue, own_model
from inspector.model.built_in import published, remat_names
from inspector.records.snapshot import Snapshot
from inspector.sharding.rules import RulesSemantics

OPTIMIZERS = ("adam", "adamw", "lion", "momentum", "sgd")
DTYPES = ("float32", "bfloat16", "float16")
STORED = ("int8", "int4", "fp8")  # types of weights with scales, which cannot be trained
POSITIONS = ("rotary", "learned", "none")

MLP_SIZES = (
    Size("batch", 8, "rows of the input", least=1, most=1_048_576),
    Size("layers", 4, "DotReluDot blocks", least=1, most=1024),
    Size("depth", 1024, "width of the input and of each hidden layer", least=1, most=1_048_576),
    Size("scan", False, "one scanned block instead of a Python loop over blocks"),
    Size("optimizer", "adam", "Optax optimizer", choices=OPTIMIZERS),
    Size("learning_rate", 1e-3, "step size of the optimizer", least=0.0, most=10.0),
    Size(
        "loss",
        "sum",
        "loss of a train step: the sum of the output, or mean squared error against |x|",
        choices=("sum", "mse"),
    ),
    Size("dtype", "float32", "type of parameters and activations", choices=DTYPES),
)

BIAS = Size("bias", False, "add a vector to each product, sharded like the columns of its matrix")

MLP_LOGICAL_AXES = {
    "batch": "rows of the input and of every activation",
    "embed": "columns of the input and of each block's output",
    "hidden": "columns inside a block, between its two matrices",
    "layer": "blocks stacked by scan",
}

MLP_EXTENTS = {"batch": "batch", "embed": "depth", "hidden": "depth", "layer": "layers"}

# Data parallel over `data`, tensor parallel over `model`: the layout of the Flax guide.
MLP_RULES = (("batch", ("data",)), ("hidden", ("model",)))

# Arrays of a DotReluDot block with a PartitionSpec, and the logical axes of their dimensions.
MLP_PARTITIONS = {
    "W1": ("embed", "hidden"),
    "W2": ("hidden", "embed"),
    "x": ("batch", "embed"),
    "y": ("batch", "hidden"),
    "z": ("batch", "embed"),
    "layer": ("layer",),
}
MLP_PARTITION_PATHS = {
    ("Dense_0", "kernel"): "W1",
    ("W2",): "W2",
    ("batch", "x"): "x",
    ("batch", "y"): "z",  # the target of the output
    ("output",): "z",
}

TRANSFORMER_SIZES = (
    Size("batch", 8, "sequences of a batch", least=1, most=1_048_576),
    Size("seq", 128, "tokens of a sequence", least=1, most=1_048_576),
    Size("layers", 4, "blocks of attention and feed-forward layer", least=1, most=1024),
    Size("embed", 256, "width of the residual stream between layers", least=1, most=1_048_576),
    Size("mlp", 512, "width inside each MLP", least=1, most=1_048_576),
    Size("heads", 8, "query heads", least=1, most=65_536),
    Size("kv_heads", 4, "key and value heads; they divide the query heads", least=1, most=65_536),
    Size(
        "head_dim",
        32,
        "width of one head, an even number for rotary positions",
        least=2,
        most=65_536,
    ),
    Size("vocab", 1024, "different tokens", least=1, most=16_777_216),
    Size(
        "positions",
        "rotary",
        "order of tokens: rotated queries and keys, a learned row for each position, or nothing",
        choices=POSITIONS,
    ),
    Size(
        "attention",
        "plain",
        "plain: matrix products; flash: splash attention, JAX's Pallas kernel, on TPUs, plain elsewhere; a "
        "plan for GPUs has the cost of a flash kernel, which cannot be compiled without a GPU; ring: devices "
        "that share a sequence pass blocks of keys and values around instead of gathering them",
        choices=("plain", "flash", "ring"),
    ),
    Size(
        "q_rank", 0, "width from which latent attention computes queries; 0 for embed", least=0, most=65_536
    ),
    Size(
        "kv_rank",
        0,
        "width from which latent attention computes keys and values, as in DeepSeek; 0 for plain attention",
        least=0,
        most=65_536,
    ),
    Size("rotary_dim", 64, "rotated elements of queries and keys of latent attention", least=2, most=65_536),
    Size(
        "window",
        0,
        "tokens that a query sees in a layer with a sliding window, itself included; 0 for all",
        least=0,
        most=1_048_576,
    ),
    Size(
        "global_every",
        0,
        "with a window, every so many layers one sees all tokens, as in Gemma; 0 if none does",
        least=0,
        most=1024,
    ),
    Size("scan", False, "one scanned block instead of a Python loop over blocks"),
    Size(
        "remat",
        "none",
        "what the backward pass computes again: none, full, minimal (all but projections), or all but "
        "save:NAME+NAME and offload:NAME+NAME (kept on the host)",
        choices=remat_names.POLICIES,
        normalize=remat_names.normalized,
    ),
    Size("tied", False, "the output matrix is the embedding, transposed"),
    Size("optimizer", "adam", "Optax optimizer", choices=OPTIMIZERS),
    Size("learning_rate", 1e-3, "step size of the optimizer", least=0.0, most=10.0),
    Size("dtype", "float32", "type of activations and matrix products", choices=DTYPES),
    Size(
        "weight_dtype",
        "same",
        "type of parameters, which are cast to dtype before use; same as dtype. In int8, int4 or fp8 (e4m3) "
        "the weights of a block are stored with one scale for each output, for inference only",
        choices=("same", *DTYPES, *STORED),
    ),
    Size(
        "cache",
        0,
        "positions of the caches of keys and values. The programs are then a decode step of batch sequences, "
        "and a prefill of prompts with seq tokens; 0 for training",
        least=0,
        most=16_777_216,
    ),
    Size(
        "cache_dtype",
        "same",
        "type of the caches, in int8 or fp8 with one scale for each position and head; same as dtype",
        choices=("same", "int8", "fp8"),
    ),
    Size("prefill_batch", 1, "prompts of one prefill", least=1, most=1_048_576),
    Size(
        "quantization",
        "none",
        "type of the operands of products with the weights of a block, and in their gradients: none for "
        "dtype, int8, or fp8 (e4m3, incoming gradients e5m2)",
        choices=("none", "int8", "fp8"),
    ),
    Size(
        "optimizer_dtype",
        "same",
        "type of the optimizer's first moment; same as the parameters",
        choices=("same", *DTYPES),
    ),
    Size("accumulate", 1, "microbatches of a train step, one after the other", least=1, most=65_536),
)

# Sizes of the transformer that the mixture of experts lacks: its experts are gated by silu, its blocks not
# parallel.
MLP_FORM = (
    Size("activation", "silu", "activation function of each MLP", choices=("silu", "gelu", "relu")),
    Size("gated", True, "multiply the activation by a second product: three matrices per MLP"),
    Size("parallel", False, "the MLP of a block reads what its attention reads, as in GPT-J"),
    Size(
        "stages",
        1,
        "stages of a pipeline, each with the same number of layers; 1 for none",
        least=1,
        most=1024,
    ),
    Size("microbatches", 4, "parts of the batch that go through the stages", least=1, most=65_536),
)

TRANSFORMER_LOGICAL_AXES = {
    "batch": "sequences",
    "seq": "tokens of a sequence",
    "embed": "width of the residual stream between layers",
    "mlp": "columns inside an MLP, between its matrices",
    "heads": "query heads",
    "kv_heads": "key and value heads",
    "head_dim": "width of one head",
    "vocab": "different tokens: rows of the embedding, columns of the logits",
    "layers": "blocks stacked by scan",
}

# Every logical axis has the size of the same name.
TRANSFORMER_EXTENTS = {name: name for name in TRANSFORMER_LOGICAL_AXES}
TRANSFORMER_MULTIPLES = {"heads": "kv_heads", "batch": "accumulate"}

# Rules for mesh axes with the usual names; rules with other mesh axes are left out. The batch is sharded over
# `data`, `fsdp` and `expert`, parameters over `fsdp` and `expert`, and layers over `model` or `tensor`. Rules
# of `expert` come before those of `batch`, which can have the same mesh axis.
MOE_RULES = (
    ("expert", ("expert",)),
    *((name, (axis,)) for axis in ("model", "tensor") for name in ("vocab", "mlp", "heads", "kv_heads")),
    ("batch", ("data", "fsdp", "expert")),
    ("batch", ("data", "fsdp")),
    ("batch", ("fsdp", "expert")),
    ("batch", ("data",)),
    ("batch", ("fsdp",)),
    ("embed", ("fsdp", "expert")),
    ("embed", ("fsdp",)),
)
_WITHOUT_EXPERTS = tuple(rule for rule in MOE_RULES if "expert" not in (rule[0], *rule[1]))
# Outside of the stages of a pipeline, their mesh axis shards the vocabulary.
TRANSFORMER_RULES = (
    ("stages", ("stage",)),
    *(("vocab", ("stage", *axes)) for axes in (("model",), ("tensor",), ())),
    *_WITHOUT_EXPERTS,
)

ATTENTION_CONSTRAINTS = ("query", "key", "value", "attended")
TRANSFORMER_CONSTRAINTS = (
    "table",
    "embedded",
    *ATTENTION_CONSTRAINTS,
    "after_attention",
    "hidden",
    "after_feed_forward",
    "logits",
)


def language_programs(sizes: Mapping[str, SizeValue]) -> tuple[str, ...]:
    """Return the programs of a language model with these sizes."""
    if sizes["cache"]:
        return "decode", "prefill"
    return ("apply",) if sizes["weight_dtype"] in STORED else ("train_step", "apply")


MOE_SIZES = (
    *TRANSFORMER_SIZES[:9],
    Size("experts", 8, "gated MLPs of each block; a token uses a few of them", least=1, most=4096),
    Size("experts_per_token", 2, "experts that each token is sent to", least=1, most=4096),
    Size(
        "capacity_factor",
        1.25,
        "places of an expert's buffer, as a multiple of its equal share of tokens; not with dropless routing",
        least=0.01,
        most=4096.0,
    ),
    Size(
        "routing",
        "masks",
        "how tokens get to experts: into buffers by products with masks, as in GShard, or by gathers of "
        "sorted tokens; or without a capacity, as groups of a ragged product",
        choices=("masks", "sorted", "dropless"),
    ),
    Size(
        "buffer_factor",
        0.0,
        "with dropless routing, rows that a device has room for, as a multiple of its equal share of tokens; "
        "0 for all that it can get",
        least=0.0,
        most=4096.0,
    ),
    Size(
        "imbalance",
        1.0,
        "with dropless routing, rows that the experts of the busiest device are expected to get, as a "
        "multiple of their equal share; the others wait for it",
        least=1.0,
        most=4096.0,
    ),
    Size("dense_layers", 0, "first layers, which have one MLP instead of experts", least=0, most=1023),
    Size("dense_mlp", 512, "width of this MLP", least=1, most=1_048_576),
    Size(
        "shared_mlp", 0, "width of one more expert that all tokens use; 0 for none", least=0, most=1_048_576
    ),
    *TRANSFORMER_SIZES[9:],
)

CATALOGUE = {
    entry.name: entry
    for entry in (
        ModelEntry(
            name="logical_mlp",
            title="MLP, logical axes",
            build="inspector.model.built_in.logical_mlp:logical_mlp",
            sizes=(*MLP_SIZES, BIAS),
            logical_axes=MLP_LOGICAL_AXES,
            rules=MLP_RULES,
            partitions={},
            constraints=("y", "z"),
            presets=(published.FLAX_GUIDE,),
            extents=MLP_EXTENTS,
        ),
        ModelEntry(
            name="mlp",
            title="MLP, device axes",
            build="inspector.model.built_in.mlp:mlp",
            sizes=MLP_SIZES,
            logical_axes=MLP_LOGICAL_AXES,
            rules=MLP_RULES,
            partitions=MLP_PARTITIONS,
            partition_paths=MLP_PARTITION_PATHS,
            constraints=("y", "z"),
            presets=(published.FLAX_GUIDE,),
            extents=MLP_EXTENTS,
        ),
        ModelEntry(
            name="transformer",
            title="Transformer",
            build="inspector.model.built_in.transformer:transformer",
            sizes=(*TRANSFORMER_SIZES, *MLP_FORM),
            logical_axes=TRANSFORMER_LOGICAL_AXES | {"stages": "stages of a pipeline"},
            rules=TRANSFORMER_RULES,
            partitions={},
            constraints=TRANSFORMER_CONSTRAINTS,
            presets=(published.SMALL_125M, published.LLAMA_3_8B, published.LLAMA_3_70B),
            extents=TRANSFORMER_EXTENTS | {"stages": "stages"},
            multiples=TRANSFORMER_MULTIPLES | {"layers": "stages"},
            pipeline=PipelineSizes("stages", "microbatches", ("vocab",)),
            programs_of=language_programs,
            on_mesh={"attention": "ring"},
        ),
        ModelEntry(
            name="moe",
            title="Mixture of experts",
            build="inspector.model.built_in.moe:mixture_of_experts",
            sizes=MOE_SIZES,
            logical_axes=TRANSFORMER_LOGICAL_AXES | {"expert": "experts of a block"},
            rules=MOE_RULES,
            partitions={},
            constraints=(
                *TRANSFORMER_CONSTRAINTS[:-2],
                "combine",
                "sent",
                "buffers",
                "returned",
                "received",
                *TRANSFORMER_CONSTRAINTS[-2:],
            ),
            presets=(published.MIXTRAL_8X7B,),
            extents=TRANSFORMER_EXTENTS | {"expert": "experts"},
            multiples=TRANSFORMER_MULTIPLES,
            programs_of=language_programs,
            on_mesh={"attention": "ring", "routing": "dropless"},
        ),
    )
}

# A worker inherits the models of the server.
CATALOGUE |= {entry.name: entry for entry in own_model.from_environment()}


def semantics(snapshot: Snapshot) -> RulesSemantics:
    """Return how the model of a Snapshot applies rules: `linen` for a model that is not in the catalogue."""
    model = (snapshot.layout or {}).get("model")
    entry = CATALOGUE.get(model) if isinstance(model, str) else None
    return "linen" if entry is None else entry.rules_semantics


def register(entry: ModelEntry) -> None:
    """Register a user's own model, also for workers that start from now on."""
    CATALOGUE[entry.name] = entry
    own_model.to_environment([one for one in CATALOGUE.values() if one.own])
