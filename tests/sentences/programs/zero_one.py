"""Cut the state of the optimizer, not the weights."""

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("data",))
adam = optax.adamw(1e-3)
whole, cut = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))


def loss(params, x):
    return jnp.mean((jnp.tanh(x @ params["a"]) @ params["b"]) ** 2)


def step(params, opt, x):
    grads = jax.grad(loss)(params, x)
    updates, opt = adam.update(grads, opt, params)
    return optax.apply_updates(params, updates), opt


params = jax.device_put({"a": jnp.ones((128, 256)), "b": jnp.ones((256, 128))}, whole)
opt = adam.init(params)
opt = jax.tree.map(lambda a: jax.device_put(a, cut if a.ndim else whole), opt)
places = jax.tree.map(lambda a: a.sharding, opt)
train = jax.jit(step, out_shardings=(whole, places))
x = jax.device_put(jnp.ones((64, 128)), cut)
for _ in range(2):
    params, opt = train(params, opt, x)
