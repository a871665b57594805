"""Programs as users write them, for `run`. They are written to files and never imported."""

# It compiles in every style, and prints the shards of its arrays as JAX knows them.
TRAINS = """
import atexit, functools, json, os, sys
import inspector  # a module of the program, which has the name of this package

atexit.register(lambda: print("first registered, last run"))
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
put = lambda value, *spec: jax.device_put(value, NamedSharding(mesh, P(*spec)))


@functools.partial(jax.jit, donate_argnums=0, static_argnames="scale")
def train_step(state, batch, scale=1):
    loss, grads = jax.value_and_grad(lambda w: ((batch @ w) ** 2).sum() * scale)(state["params"]["w"])
    return {"params": {"w": state["params"]["w"] - grads}, "step": state["step"] + 1}, loss


def main():
    state = {"params": {"w": put(np.ones((16, 8), "float32"), None, "model")}, "step": put(np.int32(0))}
    batch = put(np.ones((4, 16), "float32"), "data")
    for _ in range(3):
        state, loss = train_step(state, batch)
    state, loss = train_step(state, batch[:2], scale=2)
    print("loss", float(loss), file=sys.stderr)
    return state


state = main()
model = nnx.Linear(8, 8, rngs=nnx.Rngs(0))
out = nnx.jit(lambda model, x: model(x))(model, jnp.ones((2, 8)))
jax.jit(jnp.tanh).lower(out).compile()
ahead = jax.jit(lambda x: x + 1).lower(out).compile()
places = {
    path: {
        str(device.id): [part.indices(size)[:2] for part, size in zip(index, array.shape)]
        for device, index in array.sharding.devices_indices_map(array.shape).items()
    }
    for path, array in (("state/params/w", state["params"]["w"]), ("state/step", state["step"]))
}
print(json.dumps({
    "places": places, "argv": sys.argv, "path": sys.path[0], "name": __name__, "mine": inspector.MINE,
    "modules": "sitecustomize" in sys.modules, "variables": sorted(os.environ),
    "live": sorted(array.shape for array in jax.live_arrays()),
}))
raise SystemExit(3)
"""

# It ends as its argument says.
ENDS = """
import os, signal, sys

if sys.argv[1] == "plain":
    print("no arrays here")
    sys.exit("a reason")
import jax
import jax.numpy as jnp


def main():
    weights = jnp.ones((64, 64))
    square = jax.jit(lambda weights: weights @ weights)
    square(weights)
    if sys.argv[1] == "fork":
        child = os.fork()
        if child == 0:
            jax.jit(lambda x: x)  # nothing more: JAX in a forked process can hang
            os._exit(0)
        print(os.waitpid(child, 0)[1])
    elif sys.argv[1] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif sys.argv[1] == "terminate":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
        os.kill(os.getppid(), signal.SIGTERM)
        signal.pause()


main()
if sys.argv[1] == "raise":
    jax.jit(lambda x: x.no_such_attribute)(1.0)
"""

# JAX traces a part of `argmax` while it lowers the function.
PRINTS_TEXT = """
import jax, jax.numpy as jnp

print(jax.jit(jnp.argmax).lower(jnp.ones((8, 8))).compile().as_text())


@jax.jit
def largest(x):
    return jnp.argmax(x, axis=-1)


print(largest.lower(jnp.ones((8, 8))).as_text(debug_info=True))
"""

# `main` owns all arrays, and they die when it returns. The argument says when and how that is.
TRAINS_IN_MAIN = """
import os, signal, sys, time
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
rows = NamedSharding(mesh, P("x"))


class Trainer:
    def __init__(self):
        self.me = self  # only the garbage collector frees it
        self.params = {"w": jax.device_put(np.ones((64, 64), "float32"), rows)}
        self.mu = {"w": jax.device_put(np.zeros((64, 64), "float32"), rows)}


@jax.jit
def init(key):
    return jax.lax.with_sharding_constraint(jnp.ones((128, 64)), rows)


@jax.jit
def step(params, mu):
    mu = jax.tree.map(lambda m, p: m + p * p, mu, params)
    return jax.tree.map(lambda p, m: p - m, params, mu), mu, jax.tree.map(jnp.sum, mu)


def main(how):
    cache = init(jax.random.key(0))
    trainer = Trainer()
    if how == "phases":
        step(trainer.params, trainer.mu)
        time.sleep(2)
        cache.delete()
        for _ in range(35):
            trainer.params, trainer.mu, total = step(trainer.params, trainer.mu)
            time.sleep(0.2)
    trainer.params, trainer.mu, total = step(trainer.params, trainer.mu)
    total["w"].block_until_ready()
    if how == "slowly":
        time.sleep(2)
    elif how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how in ("returns", "phases"):
        trainer.me = None


main(sys.argv[1])
"""

# It jits in the ways that put a function of JAX between `jax.jit` and the program, and copies arrays.
USES_LIBRARIES = """
import functools
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
rows = NamedSharding(mesh, P("x"))
w = jax.device_put(np.ones((8, 16, 16), "float32"), rows)
x = jax.device_put(np.ones((8, 4, 16), "float32"), rows)


@functools.partial(jax.pmap, axis_name="batch", static_broadcasted_argnums=0)
def train_step(scale, state, batch):
    grads = jax.grad(lambda w: jnp.sum((batch @ w) ** 2))(state["w"])
    return {"w": state["w"] - scale * jax.lax.pmean(grads, "batch")}


@jax.jit
def double(x):
    return x * 2


state = train_step(0.5, {"w": w}, x)
sizes = jax.jit(jax.vmap(jnp.fft.fft))(w)
jax.shard_map(lambda w: jax.lax.psum(w, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())(w)
double(np.ones((8, 8), "float32")), double(jnp.ones((8, 8))), double(np.ones((8, 4), "float32"))
"""

# It compiles nothing. Each line makes JAX create arrays for the shards of the two.
ONLY_PLACES = """
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

devices = np.array(jax.devices())
x = jax.device_put(np.ones((64, 16), "float32"), NamedSharding(Mesh(devices, ("x",)), P("x")))
copied = jax.device_put(np.ones((8, 16), "float32"), NamedSharding(Mesh(devices, ("x",)), P()))
one = jax.device_put(np.zeros((8, 16), "float32"), devices[0])
np.asarray(x), str(x), jax.device_get(copied), [shard.data for shard in x.addressable_shards]
"""

# It shards its result on no CPU only, as many kernels and layers decide.
ASKS = """
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "model"))
w = jax.device_put(np.ones((16, 8), "float32"), NamedSharding(mesh, P("data", "model")))


def shard(x):
    if jax.devices()[0].platform == "cpu":
        return x
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("data")))


step = jax.jit(lambda w: shard(w @ w.T).sum())
step(w)
step(w[:8])
"""

KEEPS = """
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

whole = NamedSharding(Mesh(jax.devices(), ("data",)), P())
double = jax.jit(lambda w: w * 2)
w = jax.device_put(np.ones((64, 128), np.float32), whole)
kept = [double(w)]
for _ in range(40):
    x = jax.device_put(np.ones(8, np.float32), whole)
    kept.append(double(w))
    jax.device_put(x, NamedSharding(whole.mesh, P("data")))
print(sum(array.nbytes for array in kept))
del kept
"""
