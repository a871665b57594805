"""What a kernel of attention computes, counted by marking the tiles of masks."""

from __future__ import annotations

import numpy as np
import pytest

from inspector.hlo.attention_kernels import PlannedKernel, share_of_products, visited_share
from inspector.hlo.shapes import Shape


@pytest.mark.parametrize(("kind", "tile"), [("tpu", 512), ("gpu", 128), ("tpu7x", 1024)])
@pytest.mark.parametrize("window", [0, 1, 2, 128, 129, 1024, 1025, 5000])
def test_the_tiles_that_a_mask_leaves(kind, tile, window) -> None:
    seq = 2048 if tile < 1024 else 3072  # which 1,024 divides, but not 2,048
    query, key = np.indices((seq, seq))
    seen = (key <= query) & ((key > query - window) if window else True)
    tiles = seen.reshape(seq // tile, tile, seq // tile, tile).any(axis=(1, 3))
    whole = seen.reshape(seq // tile, tile, seq // tile, tile).all(axis=(1, 3))
    # On tpu7x, tiles that an edge of the mask crosses take longer.
    more = 0.6 * (tiles & ~whole) if kind == "tpu7x" else 0
    assert visited_share(seq, window, kind) == pytest.approx((tiles + more).mean())


def test_the_products_of_kernels() -> None:
    # Forward twice, dq with 3 products and dkv with 4, for the 2 · 2 + 4 products of JAX's attention.
    assert share_of_products("nothing", "tpu") == 11 / 8
    # One backward kernel with 5.
    assert share_of_products("nothing", "gpu") == share_of_products("nothing", "v6e") == 9 / 8
    # Without rematerialization, and with scores that are computed again to have the weights.
    assert share_of_products("all", "gpu") == 7 / 6 and share_of_products("result", "gpu") == 7 / 7


def test_scores_of_a_part_of_the_queries() -> None:
    shape = lambda *sizes: Shape("f32", sizes)  # noqa: E731
    whole, part = PlannedKernel(64, 64, 0.5, 0.6), PlannedKernel(16, 64, 0.5, 0.6)
    assert whole.has_scores(shape(2, 4, 1, 64, 64)) and not whole.has_scores(shape(2, 4, 1, 16, 64))
    assert part.has_scores(shape(2, 4, 1, 16, 64)) and not part.has_scores(shape(2, 64, 16, 64))
