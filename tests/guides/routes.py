"""The routes of a Transfer as a matrix."""

import numpy as np

from inspector.guides.transfer import Transfer


def dense(transfer: Transfer) -> np.ndarray:
    """Return the bytes of all routes as a (sources, targets) int64 matrix in mesh order."""
    matrix = np.zeros((len(transfer.sources), len(transfer.targets)), dtype=np.int64)
    for source, target, size in transfer.routes:
        matrix[transfer.sources.index(source), transfer.targets.index(target)] += size
    return matrix
