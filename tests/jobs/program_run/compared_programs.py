"""Programs whose results are compared with those on one device. They are written to files, never imported."""

_START = """
import functools, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

devices = np.array(jax.devices()).reshape(4, 2)
mesh = Mesh(devices, ("data", "model"))
random = np.random.default_rng(0)
put = lambda value, *spec: jax.device_put(value, NamedSharding(mesh, P(*spec)))
normal = lambda *shape: random.normal(size=shape).astype("float32")
"""

# Programs that are right: auto and explicit axes, `shard_map`, keys, a callback, a donated argument, a sum.
RIGHT = (
    _START
    + """
@jax.jit
def auto(w, v, x):
    def loss(w, v):
        hidden = jax.lax.with_sharding_constraint(
            jnp.tanh(x @ w), NamedSharding(mesh, P("data", "model"))
        )
        return jnp.mean((hidden @ v) ** 2)

    value, (dw, dv) = jax.value_and_grad(loss, (0, 1))(w, v)
    return {"loss": value, "w": w - dw, "v": v - dv}


auto(put(normal(16, 32), None, "model"), put(normal(32, 8), "model"), put(normal(8, 16), "data"))


@jax.jit
def mapped(x):
    return jax.shard_map(
        lambda part: jax.lax.psum(jnp.sum(part, 0), "data"), mesh=mesh, in_specs=P("data"), out_specs=P()
    )(x)


mapped(put(normal(8, 16), "data"))

# In one line: forward and backward pass of a `shard_map`, and operations like those inside of it.
spec = P(None, "data")
cubes = jax.shard_map(lambda part: (part**3 * 2).sum(0), mesh=mesh, in_specs=spec, out_specs=P("data"))
gradient = jax.jit(lambda x: (jax.grad(lambda x: cubes(x).sum())(x), (cubes(x * 2) * 2, x**3 * 2)))
gradient(put(normal(8, 16), "data"))

draw = jax.jit(lambda key, x, count: (*jax.random.split(key), x + jax.random.normal(key, x.shape), count + 1),
               donate_argnums=1)
draw(jax.random.key(3), put(normal(8, 4), "data"), np.int32(7))


@jax.jit
def total(x):
    jax.debug.print("sum {}", x.sum())
    return x.sum()


total(put(normal(1_000_000), "data"))

explicit = jax.make_mesh((4, 2), ("rows", "columns"), axis_types=(AxisType.Explicit,) * 2)
with jax.set_mesh(explicit):
    product = jax.jit(lambda x, w: jnp.einsum("ij,jk->ik", x, w, out_sharding=P("rows", "columns")))
    product(jax.device_put(normal(8, 16), P("rows")), jax.device_put(normal(16, 6), P(None, "columns")))

jax.jit(lambda x: jnp.linalg.svd(x.T @ x, compute_uv=False))(put(normal(8, 4), "data"))  # LAPACK

ahead = jax.jit(jnp.square).lower(np.float32(1)).compile()  # on one device


@functools.partial(jax.pmap, axis_name="i", in_axes=(None, 0, None), static_broadcasted_argnums=2)
def each(w, x, power):
    return jax.lax.pmean(x @ w, "i") + jax.lax.axis_index("i") ** power


each(normal(4, 3), normal(8, 2, 4), 2)
"""
)

# The programs of issue jax#21232: what each device returns is taken for a copy of one value.
WRONG = (
    _START
    + """
def forgotten(part):
    return jnp.sum(part, 0)


def summed(part):
    return jax.lax.psum(jnp.mean(part, 0), "data")


def step(function, x):
    y = x * 2
    z = jax.shard_map(  # the line of the operation
        function, mesh=mesh, in_specs=P("data"), out_specs=P(), check_vma=False
    )(y)
    return {"z": z + 1, "y": y}


x = put(normal(8, 16), "data")
np.save(sys.argv[1], np.asarray(x))
jax.jit(step, static_argnums=0)(forgotten, x)
jax.jit(step, static_argnums=0)(summed, x)


@jax.jit
def update(x):
    gradient = jax.shard_map(
        summed, mesh=mesh, in_specs=P("data"), out_specs=P(), check_vma=False
    )(x)
    return x - 1e-9 * gradient


update(x)
"""
)
LINE = 1 + WRONG.splitlines().index("    z = jax.shard_map(  # the line of the operation")

# The first program has other constants on one device. The second one exists on eight devices only.
OTHER = (
    _START
    + """
x = put(normal(8, 4), "data")
scale = lambda x: x * mesh.size
jax.jit(scale)(x)
assert mesh.size == 8
local = jax.shard_map(
    lambda part: part.sum(0), mesh=mesh, in_specs=P("data"), out_specs=P(), check_vma=False
)
jax.jit(lambda x: (local(x), x + 1))(x)
"""
)

FAILS = "import jax\nraise ValueError('the mesh is too small')\n"
COMPILES_NOTHING = "print('nothing')\n"
ON_ONE_DEVICE = "import jax\njax.jit(lambda x: x + 1)(1.0)\n"
OUTSIDE_OF_JIT = "import jax.numpy as jnp\njnp.ones(3) + 1\n"
