"""The models that ship with the inspector: what each is called and which sizes it has.

Nothing here imports JAX; `build` names the function that does.
"""

from __future__ import annotations

from inspector.model import ModelEntry, Size

MLP_SIZES = (
    Size("batch", 8, "rows of the input", least=1, most=1_048_576),
    Size("layers", 4, "DotReluDot blocks", least=1, most=1024),
    Size("depth", 1024, "width of the input and of each hidden layer", least=1, most=1_048_576),
    Size("scan", False, "one scanned block instead of a Python loop over blocks"),
    Size(
        "optimizer", "adam", "Optax optimizer", choices=("adam", "adamw", "lion", "momentum", "sgd")
    ),
    Size("learning_rate", 1e-3, "step size of the optimizer", least=0.0, most=10.0),
    Size(
        "loss",
        "sum",
        "what a train step makes smaller: the sum of the output, or mean squared error against |x|",
        choices=("sum", "mse"),
    ),
    Size(
        "dtype",
        "float32",
        "type of parameters and activations",
        choices=("float32", "bfloat16", "float16"),
    ),
)

MLP_LOGICAL_AXES = {
    "batch": "rows of the input and of every activation",
    "embed": "columns of the input and of each block's output",
    "hidden": "columns inside a block, between its two matrices",
    "layer": "blocks stacked by scan",
}

# Data parallel over `data`, tensor parallel over `model`: the layout of the Flax guide.
MLP_RULES = (("batch", ("data",)), ("hidden", ("model",)))

# Every place of a DotReluDot block that has a PartitionSpec, with the logical axes of its dimensions.
MLP_PARTITIONS = {
    "W1": ("embed", "hidden"),
    "W2": ("hidden", "embed"),
    "x": ("batch", "embed"),
    "y": ("batch", "hidden"),
    "z": ("batch", "embed"),
    "layer": ("layer",),
}

CATALOGUE = {
    entry.name: entry
    for entry in (
        ModelEntry(
            name="logical_mlp",
            title="MLP, logical axes",
            build="models.logical_mlp:build",
            sizes=MLP_SIZES,
            logical_axes=MLP_LOGICAL_AXES,
            rules=MLP_RULES,
            partitions={},
            constraints=("y", "z"),
        ),
        ModelEntry(
            name="mlp",
            title="MLP, device axes",
            build="models.mlp:build",
            sizes=MLP_SIZES,
            logical_axes=MLP_LOGICAL_AXES,
            rules=MLP_RULES,
            partitions=MLP_PARTITIONS,
            constraints=("y", "z"),
        ),
    )
}
