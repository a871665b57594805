"""Jobs that capture a state in several JAX processes, each with its own shards."""

from __future__ import annotations

import hashlib
import json

import jax
import numpy as np
import optax
from flax import linen as nn
from flax.training.train_state import TrainState
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from inspector.recording.capture import capture, capture_compiled
from inspector.tracing.leaves import leaves_of, mesh_record
from inspector.tracing.live_arrays import gathered, live_arrays

JOBS = {"captured": f"{__name__}:captured"}
MEET = "inspector.tracing.live_arrays:meet"


class Network(nn.Module):
    """A network of two boxed matrices and a bias without names."""

    @nn.compact
    def __call__(self, x):
        init = nn.initializers.lecun_normal()
        up = nn.with_logical_partitioning(init, ("embed", "hidden"))
        down = nn.with_partitioning(init, ("model", None))
        y = nn.relu(nn.Dense(16, kernel_init=up)(x))
        return nn.Dense(8, kernel_init=down)(y)


NETWORK, OPTIMIZER = Network(), optax.adam(1e-3)


def step(state, x):
    def loss_of(params):
        return NETWORK.apply({"params": params}, x).sum()

    return state.apply_gradients(grads=jax.grad(loss_of)(state.params))


def made(mesh: Mesh):
    """Return a train state and a batch on the mesh, an array on another mesh, and one on a single device."""
    rules = (("embed", "data"), ("hidden", "model"))

    def init(key):
        params = NETWORK.init(key, jnp.ones((4, 8)))["params"]
        return TrainState.create(apply_fn=NETWORK.apply, params=params, tx=OPTIMIZER)

    abstract = jax.eval_shape(init, jax.random.key(0))
    placed = nn.logical_to_mesh_sharding(nn.get_partition_spec(abstract), mesh, rules)
    state = jax.jit(init, out_shardings=placed)(jax.random.key(0))
    batch = _whole((8, 8), NamedSharding(mesh, PartitionSpec(("data", "model"))))
    turned = Mesh(mesh.devices.T, ("rows", "columns"))
    other = _whole((8, 6), NamedSharding(turned, PartitionSpec("rows", "columns")))
    return state, batch, {"state": state, "batch": batch, "other": other}


def captured(payload, report):
    """Capture arrays and a program, and return the Snapshots with facts of each process."""
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
    state, batch, tree = made(mesh)
    with jax.set_mesh(mesh):
        compiled = jax.jit(step, donate_argnums=0).lower(state, batch).compile()
    before = _alive()
    snapshot = capture(tree, f"{payload['folder']}/state.json")
    program = capture_compiled(compiled, f"{payload['folder']}/program.json", name="step")
    after = _alive()
    on_mesh = [leaf for leaf in leaves_of(tree) if leaf.path != "other"]
    asked = live_arrays(on_mesh, mesh_record(mesh), logical=False)  # by every single shard
    plain = snapshot.to_json()
    return {
        "snapshot": plain,
        "program": program.to_json(),
        "same": len({json.dumps(one) for one in gathered(_said(plain))}) == 1,
        "untouched": gathered(before == after),
        "asked": [
            [array.path, array.spec, array.shard_shape, array.bytes_per_device, array.replicas]
            for array in asked
        ],
    }


def _whole(shape, sharding):
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return jax.make_array_from_callback(shape, sharding, lambda index: values[index])


def _alive():
    """Return the live arrays of this process and the bytes of their buffers."""
    return sorted((id(array), array.nbytes) for array in jax.live_arrays())


def _said(plain):
    return hashlib.sha256(json.dumps(plain["arrays"]).encode()).hexdigest()
