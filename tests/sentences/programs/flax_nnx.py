"""Train a Flax module with an optimizer of Flax."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("data",))
model = nnx.Sequential(nnx.Linear(64, 128, rngs=nnx.Rngs(0)), nnx.relu, nnx.Linear(128, 8, rngs=nnx.Rngs(1)))
optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
state = nnx.state((model, optimizer))
nnx.update((model, optimizer), jax.device_put(state, NamedSharding(mesh, P())))


@nnx.jit
def train(model, optimizer, x, y):
    value, grads = nnx.value_and_grad(lambda m: jnp.mean((m(x) - y) ** 2))(model)
    optimizer.update(model, grads)
    return value


x = jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, P("data")))
y = jax.device_put(jnp.ones((64, 8)), NamedSharding(mesh, P("data")))
for _ in range(2):
    train(model, optimizer, x, y)
