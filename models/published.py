"""Sizes of the Flax guide's MLP and of published language models.

The batch is not part of a published model: here it has 64 sequences, and 512 (4M tokens) for the largest.
Nothing here imports JAX.
"""

import math
from collections.abc import Mapping, Sequence

from inspector.model import SizePreset, SizeValue

# Large language models scan one block, recompute activations in the backward pass, and use bfloat16.
_AT_SCALE: dict[str, SizeValue] = {
    "scan": True,
    "remat": "full",
    "optimizer": "adamw",
    "learning_rate": 3e-4,
    "dtype": "bfloat16",
}

# https://flax-linen.readthedocs.io/en/latest/guides/parallel_training/flax_on_pjit.html
FLAX_GUIDE = SizePreset(
    "Flax guide",
    "the MLP of Flax's guide to scaling up",
    {
        "batch": 8,
        "layers": 4,
        "depth": 1024,
        "scan": False,
        "optimizer": "adam",
        "dtype": "float32",
    },
)

# Width, depth and heads of GPT-2 small (Radford et al. 2019, table 2); its MLP of 4·768 has as many
# weights gated at 8/3·768, and its vocabulary of 50,257 is rounded up to a multiple of 128.
SMALL_125M = SizePreset(
    "125M",
    "of the shape of GPT-2 small, with a gated MLP: 123.6M parameters",
    _AT_SCALE
    | {
        **{"batch": 64, "seq": 1024, "layers": 12, "embed": 768, "mlp": 2048, "vocab": 50_304},
        **{"heads": 12, "kv_heads": 12, "head_dim": 64, "tied": True, "remat": "none"},
    },
)

# The Llama 3 Herd of Models, arXiv:2407.21783, table 3; the vocabulary of 128,256 and the sequences of
# 8,192 are in the models' own configuration (https://huggingface.co/meta-llama/Meta-Llama-3-8B).
LLAMA_3_8B = SizePreset(
    "Llama-3-8B",
    "8.03B parameters",
    _AT_SCALE
    | {
        **{"batch": 64, "seq": 8192, "layers": 32, "embed": 4096, "mlp": 14_336, "vocab": 128_256},
        **{"heads": 32, "kv_heads": 8, "head_dim": 128, "tied": False},
    },
)
LLAMA_3_70B = SizePreset(
    "Llama-3-70B",
    "70.6B parameters",
    _AT_SCALE
    | {
        **{"batch": 512, "seq": 8192, "layers": 80, "embed": 8192, "mlp": 28_672, "vocab": 128_256},
        **{"heads": 64, "kv_heads": 8, "head_dim": 128, "tied": False},
    },
)

# Mixtral of Experts, arXiv:2401.04088, table 1. Its context is 32,768; here 4,096, because the masks that
# dispatch tokens grow with its square.
MIXTRAL_8X7B = SizePreset(
    "Mixtral-8x7B",
    "46.7B parameters, 12.9B of them at work on a token",
    _AT_SCALE
    | {
        **{"batch": 64, "seq": 4096, "layers": 32, "embed": 4096, "mlp": 14_336, "vocab": 32_000},
        **{"heads": 32, "kv_heads": 8, "head_dim": 128, "tied": False},
        **{"experts": 8, "experts_per_token": 2},
    },
)

_MULTIPLE = 128  # of the width of an MLP, as matrix units of TPUs have it
_USUAL_MLP = (1, 8)  # times the width of the model


def following(
    sizes: Mapping[str, SizeValue], presets: Sequence[SizePreset]
) -> tuple[dict[str, SizeValue], SizePreset] | None:
    """Return the sizes inside a block that follow from the width of the model, and the model they follow.

    They have the proportions of the preset with the nearest width. Return None if the heads together, and the
    MLP, already have a usual width, if the model has no such sizes, or if the width is no multiple of a head.

    >>> sizes = {"embed": 2048, "mlp": 512, "heads": 8, "kv_heads": 4, "head_dim": 32}
    >>> found, preset = following(sizes, [SMALL_125M, LLAMA_3_8B])
    >>> preset.name, found
    ('Llama-3-8B', {'mlp': 7168, 'heads': 16, 'kv_heads': 4, 'head_dim': 128})
    """
    try:
        embed, mlp, heads, head_dim = (int(sizes[name]) for name in ("embed", "mlp", "heads", "head_dim"))
    except KeyError:
        return None
    if heads * head_dim == embed and _USUAL_MLP[0] * embed <= mlp <= _USUAL_MLP[1] * embed:
        return None

    def distance(preset: SizePreset) -> float:
        return abs(math.log(embed / int(preset.sizes["embed"])))

    nearest = min(presets, key=distance, default=None)
    if nearest is None or embed % int(nearest.sizes["head_dim"]):
        return None
    like = {name: int(nearest.sizes[name]) for name in ("embed", "mlp", "heads", "kv_heads", "head_dim")}
    heads = embed // like["head_dim"]
    groups = max(1, heads * like["kv_heads"] // like["heads"])
    return {
        "mlp": _MULTIPLE * max(1, round(embed * like["mlp"] / like["embed"] / _MULTIPLE)),
        "heads": heads,
        "kv_heads": next(count for count in range(groups, 0, -1) if heads % count == 0),
        "head_dim": like["head_dim"],
    }, nearest
