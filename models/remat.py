"""Compute the activations of a block again in the backward pass, except those that the layout keeps."""

from typing import Any

import jax
from flax import linen as nn

from inspector.model.built_in.remat_names import MLP_INPUTS, kept


def rematerialized(block: Any, remat: str, scan: bool) -> Any:
    """Return the Module class `block` with the policy `remat`, a value of `remat_names`."""
    saved, offloaded = (_without_alias(names) for names in kept(remat))
    policies = jax.checkpoint_policies
    policy = None
    if offloaded:
        policy = policies.save_and_offload_only_these_names(
            names_which_can_be_saved=saved,
            names_which_can_be_offloaded=offloaded,
            offload_src="device",
            offload_dst="pinned_host",
        )
    elif saved:
        policy = policies.save_only_these_names(*saved)
    # Inside a scan, XLA cannot merge the recomputed block with the original.
    return nn.remat(block, prevent_cse=not scan, policy=policy)


def _without_alias(names: tuple[str, ...]) -> list[str]:
    return list(dict.fromkeys((*names, *(MLP_INPUTS if "mlpwi" in names else ()))))
