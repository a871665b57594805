"""Factors of a sparse matrix of ratings: gathers of rows, and sums of updates per user and item."""

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh((8,), ("shard",), axis_types=(AxisType.Auto,))


@jax.jit
def sweep(users, items, who, what, rating):
    predicted = jnp.sum(users[who] * items[what], -1)
    error = rating - predicted
    users = users + 0.1 * jax.ops.segment_sum(error[:, None] * items[what], who, users.shape[0])
    items = items + 0.1 * jax.ops.segment_sum(error[:, None] * users[who], what, items.shape[0])
    counts = jnp.zeros(items.shape[0]).at[what].add(1.0)
    best = jax.lax.top_k(counts, 4)[1]
    return users, items, jnp.sqrt(jnp.mean(error**2)), best


@jax.jit
def recommend(users, items):
    scores = users @ items.T
    return jnp.argmax(scores, -1), jnp.sort(scores, -1)[:, -4:]


def put(value, *spec):
    return jax.device_put(value, NamedSharding(mesh, P(*spec)))


users, items = put(jnp.ones((512, 16)), "shard"), put(jnp.ones((256, 16)), "shard")
key = jax.random.key(0)
who = put(jax.random.randint(key, (4096,), 0, 512), "shard")
what = put(jax.random.randint(key, (4096,), 0, 256), "shard")
rating = put(jnp.ones(4096), "shard")
for _ in range(2):
    users, items, error, best = sweep(users, items, who, what, rating)
choice, top = recommend(users, items)
