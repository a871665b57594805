"""What is too small to be told. Shares are of the train state that one device holds."""

from __future__ import annotations

# Arrays that together waste less are biases, scales and counters, not a mistake in a layout. MaxText's own
# check tolerates 2% of unsharded parameters (`sharding_tolerance`); half of that, since arrays add up.
LEAST_SHARE = 0.01

# Below this nothing is told whatever its share: the state of a model this small fits anywhere.
LEAST_BYTES = 1024

# The state that is repeated along a mesh axis is told from this share on: data parallelism is a choice.
LEAST_REPEATED_SHARE = 0.10

# How much more than the mean a device may hold: so much of its memory is idle on all the others.
MOST_IMBALANCE = 0.05

# So many findings of one kind stand by themselves; what is left is told together in one more.
MOST_OF_A_KIND = 5

# Collectives over a mesh axis are told where they move this multiple of the parameters that it splits.
LEAST_TRAFFIC = 1.0
