"""The values of the size `remat`: what of a block's activations is kept for the backward pass.

`none` keeps all, `full` only the input of the block, `minimal` also the outputs of all projections and of the
matrices of the MLP. `save:NAME+NAME` keeps these activations, `offload:NAME+NAME` keeps them in the memory of
the host, and a comma joins both. The names and `minimal` are MaxText's, whose other policies are accepted as
well. Nothing here imports JAX.
"""

import re

from inspector.text.errors import InvalidInput, shown

# A gated MLP has two products with x, `mlpwi_0` and `mlpwi_1`; `mlpwi` is both of them, or the only one.
MLP_INPUTS = ("mlpwi", "mlpwi_0", "mlpwi_1")
MINIMAL = ("query_proj", "key_proj", "value_proj", "out_proj", *MLP_INPUTS, "mlpwo")
# The operands of products that are quantized.
QUANTIZED = "quantization"
NAMES = ("decoder_layer_input", "context", *MINIMAL, QUANTIZED)
POLICIES = ("none", "full", "minimal")
_PROJECTIONS = "query_proj+key_proj+value_proj"
# `get_remat_policy` of MaxText's layers/decoders.py (e591f30c), without those of the same name here.
OF_MAXTEXT = {
    "minimal_flash": f"save:{_PROJECTIONS}+context+out_proj+mlpwi+mlpwo",
    "minimal_with_context": f"save:{_PROJECTIONS}+context+out_proj+mlpwi+mlpwo",
    "minimal_with_quantization": f"save:{_PROJECTIONS}+out_proj+mlpwi+mlpwo+{QUANTIZED}",
    "minimal_with_context_and_quantization": (
        f"save:{_PROJECTIONS}+context+out_proj+mlpwi+mlpwo+{QUANTIZED}"
    ),
    "save_dot_with_context_except_mlp": f"save:{_PROJECTIONS}+context+out_proj",
    "save_dot_except_mlpwi": f"save:{_PROJECTIONS}+out_proj+mlpwo",
    "save_dot_except_mlp": f"save:{_PROJECTIONS}+out_proj",
    "save_qkv_proj": f"save:{_PROJECTIONS}",
    "save_out_proj": "save:out_proj",
    "qkv_proj_offloaded": f"offload:{_PROJECTIONS}",
    "minimal_offloaded": f"offload:{_PROJECTIONS}+out_proj+mlpwi+mlpwo",
}
_BOOLEANS = {"false": "none", "0": "none", "no": "none", "off": "none"}
_BOOLEANS |= {"true": "full", "1": "full", "yes": "full", "on": "full"}


def normalized(text: str) -> str:
    """Return the value of a text; the booleans of earlier versions are `none` and `full`.

    Raises:
      InvalidInput: it is no policy, or a name is unknown or repeated.
    """
    text = text.strip()
    value = (_BOOLEANS | OF_MAXTEXT).get(text.lower(), text)
    if value in POLICIES:
        return value
    saved, offloaded = kept(value)
    parts = (("save", saved), ("offload", offloaded))
    return ",".join(f"{verb}:{'+'.join(names)}" for verb, names in parts if names)


def kept(value: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the activations that are kept on the device, and those kept on the host.

    Raises:
      InvalidInput: as for `normalized`.
    """
    if value in POLICIES:
        return (MINIMAL if value == "minimal" else ()), ()
    found: dict[str, tuple[str, ...]] = {"save": (), "offload": ()}
    for part in value.split(","):
        verb, _, names = part.strip().partition(":")
        if verb not in found or found[verb]:
            raise InvalidInput(
                f"remat is {shown(value)}, but must be {', '.join((*POLICIES, *OF_MAXTEXT))}, "
                "save:NAME+NAME, offload:NAME+NAME, or the last two joined by a comma"
            )
        found[verb] = tuple(re.split(r"[+\s]+", names.strip()))  # a link can have spaces for +
    every = (*found["save"], *found["offload"])
    for name in every:
        if name not in NAMES or every.count(name) > 1:
            raise InvalidInput(
                f"remat has {shown(name)}, but must have, each at most once, {', '.join(NAMES)}"
            )
    return found["save"], found["offload"]
