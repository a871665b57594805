"""The kernel that will compute the attention of a built-in model, whose plan has matrix products for it."""

import math
from typing import Literal

from inspector.hlo.attention_kernels import PlannedKernel, kernel_on, share_of_products, visited_share
from inspector.layout import Layout
from inspector.model.built_in.remat_names import kept
from inspector.sharding.rules import partition_spec

_QUERY = ("batch", "seq", "heads", "head_dim")


def planned_kernel(layout: Layout) -> PlannedKernel | None:
    """Return the kernel of a layout; None if its attention is plain.

    The plan of a machine that is not known is that of a TPU.
    """
    sizes = layout.sizes
    seq, remat = sizes.get("seq"), sizes.get("remat")
    if sizes.get("attention") != "flash" or not isinstance(seq, int):
        return None
    machine = layout.machine
    name = kernel_on(machine.chip.name, machine.kind) if machine else "tpu"
    window, period, layers = (int(sizes.get(name, 0)) for name in ("window", "global_every", "layers"))
    of_all = layers // period if window and period else 0
    of_window = layers - of_all
    visited = of_all * visited_share(seq, 0, name) + of_window * visited_share(seq, window, name)
    visited /= layers
    saved: Literal["all", "result", "nothing"] = "all"
    if remat != "none":
        saved = "result" if any("context" in names for names in kept(str(remat))) else "nothing"
    sharded = partition_spec(_QUERY, layout.rules)[1] if layout.entry.has_rules else ()
    ways = math.prod(layout.mesh().sizes.get(axis, 1) for axis in sharded or ())
    # Of latent attention, queries have rotated elements beyond those of the values.
    width, turned = (int(sizes[name]) for name in ("head_dim", "rotary_dim"))
    widths = (width + turned if sizes.get("kv_rank") else width, width)
    return PlannedKernel(-(-seq // ways), seq, visited, visited * share_of_products(saved, name), widths)
