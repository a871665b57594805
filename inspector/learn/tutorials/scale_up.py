"""Scale up a Flax module, after Flax's guide *Scale up Flax Modules on multiple devices*."""


def tutorial(mesh_shape, axis_names):
    """Shard an MLP's train state over a mesh of two axes: data parallel, and tensor parallel."""
    # %% A mesh of devices
    # A *mesh* arranges devices in a grid and names its axes. Shardings refer to axis names, not to
    # device ids. The first axis shards the batch, the second one the parameters.

    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    devices = np.array(jax.devices()).reshape(mesh_shape)
    mesh = Mesh(devices, axis_names)
    data, model = axis_names
    print(mesh)
    print(np.vectorize(lambda device: device.id)(devices))
    # draw: mesh

    # %% Shard the input
    # A `NamedSharding` is a mesh and a `PartitionSpec`, which has a mesh axis or `None` for each
    # dimension. `device_put` shards the array: each row of the mesh gets different rows of the batch,
    # and the devices in one row of the mesh hold replicas.

    batch = -(-8 // mesh.shape[data]) * mesh.shape[data]  # 8, rounded up
    depth = -(-256 // mesh.shape[model]) * mesh.shape[model]  # the guide has 1024
    x_sharding = NamedSharding(mesh, P(data, None))
    x = jax.device_put(jnp.ones((batch, depth)), x_sharding)

    def holders(array):
        """Return the device ids by index of the shard."""
        by_index = {}
        for shard in array.addressable_shards:
            cuts = zip(shard.index, array.shape, strict=True)
            part = ", ".join("{}:{}".format(*cut.indices(size)) for cut, size in cuts)
            by_index.setdefault(f"[{part}]", []).append(shard.device.id)
        return by_index

    print(x.shape, "in shards of", x_sharding.shard_shape(x.shape))
    for part, ids in holders(x).items():
        print(part, "on devices", *ids)
    # draw: x

    # %% A layer with shardings
    # `nn.with_partitioning` wraps an initializer: it puts the parameter in a box with a mesh axis or
    # `None` for each dimension. The first matrix is sharded by columns and the second by rows. Each
    # device multiplies its own shards, and only the last product needs an all-reduce.
    # `with_sharding_constraint` does this for an activation; XLA often finds the same sharding.

    from flax import linen as nn

    class DotReluDot(nn.Module):
        depth: int

        @nn.compact
        def __call__(self, x):
            init = nn.initializers.xavier_normal()
            w1_init = nn.with_partitioning(init, (None, model))
            y = nn.relu(nn.Dense(self.depth, use_bias=False, kernel_init=w1_init)(x))
            y = jax.lax.with_sharding_constraint(y, NamedSharding(mesh, P(data, model)))
            w2_init = nn.with_partitioning(init, (model, None))
            z = y @ self.param("W2", w2_init, (self.depth, x.shape[-1]))
            return jax.lax.with_sharding_constraint(z, NamedSharding(mesh, P(data, None)))

    class MLP(nn.Module):
        depth: int
        layers: int = 2

        @nn.compact
        def __call__(self, x):
            for _ in range(self.layers):
                x = DotReluDot(self.depth)(x)
            return x

    mlp = MLP(depth)
    print(mlp)

    # %% Shardings without arrays
    # `jax.eval_shape` traces the initialization without computing: it returns shapes, dtypes and
    # boxes. `nn.get_sharding` makes a tree of `NamedSharding`s from the boxes. Adam's two moments have
    # the boxes of the parameters, so they are sharded in the same way. An array without a box, such as
    # the step count, is replicated.

    import optax
    from flax.training.train_state import TrainState

    adam = optax.adam(1e-3)  # created once: it is part of the tree structure of a state

    def init(key, x):
        params = mlp.init(key, x)["params"]
        return TrainState.create(apply_fn=mlp.apply, params=params, tx=adam)

    key = jax.random.key(0)
    abstract_state = jax.eval_shape(init, key, x)
    state_sharding = nn.get_sharding(abstract_state, mesh)
    for path, sharding in jax.tree_util.tree_leaves_with_path(state_sharding):
        print(jax.tree_util.keystr(path, simple=True, separator="/"), sharding.spec)

    # %% Sharded initialization
    # Jitted with `out_shardings`, the initialization creates each shard on its device, and no device
    # holds the whole state. The devices in one column of the mesh have the same shard of the matrices:
    # on the guide's 2 × 4 mesh, devices 0 and 4, 1 and 5, 2 and 6, 3 and 7.

    whole = NamedSharding(mesh, P())
    jit_init = jax.jit(init, in_shardings=(whole, x_sharding), out_shardings=state_sharding)
    state = jit_init(key, x)
    block = state.params["DotReluDot_0"]
    W1, W2 = block["Dense_0"]["kernel"].value, block["W2"].value
    for name, weight in {"W1": W1, "W2": W2}.items():
        for part, ids in holders(weight).items():
            print(name, part, "on devices", *ids)
    # draw: W1, W2

    # %% Boxes
    # A parameter is still in its box, which has the `names` and the array as `.value`. `jax.tree.map`
    # maps over the arrays inside of boxes. `unbox` removes all boxes; inside of jit it also keeps the
    # sharding. `replace_boxed` puts new values into the boxes.

    from flax.core import meta

    box = block["Dense_0"]["kernel"]
    print(type(box).__name__, box.names)
    print(type(box.value).__name__, box.value.shape, box.value.sharding.spec)
    plain = meta.unbox(block)
    print("unboxed:", jax.tree.map(jnp.shape, plain))
    doubled = meta.replace_boxed(block, jax.tree.map(lambda weight: 2 * weight, plain))
    print("boxed again:", doubled["Dense_0"]["kernel"].names, doubled["W2"].names)

    # %% A train step
    # The step has the same sharding for the input and the output state, so steps can be repeated. The
    # loss is that of the guide: the sum of the output, without labels. XLA inserts the all-reduce of
    # the gradients over the mesh axis of the batch.

    def loss_of(params, x):
        return mlp.apply({"params": params}, x).sum()

    def step(state, x):
        loss, gradients = jax.value_and_grad(loss_of)(state.params, x)
        return state.apply_gradients(grads=gradients), loss

    train_step = jax.jit(
        step, in_shardings=(state_sharding, x_sharding), out_shardings=(state_sharding, None)
    )
    new_state, loss = train_step(state, x)
    _, new_loss = train_step(new_state, x)
    print("step", state.step, "→", new_state.step, "replicated:", new_state.step.sharding.spec)
    print("the loss fell:", bool(new_loss < loss))
    new_W1 = new_state.params["DotReluDot_0"]["Dense_0"]["kernel"].value
    print("W1 has the same sharding:", new_W1.sharding == W1.sharding)

    # %% Inference
    # The output is sharded over the batch, as the input is. On the guide's mesh, devices 0 to 3 hold
    # one half of it and devices 4 to 7 the other.

    apply = jax.jit(
        lambda state, x: state.apply_fn({"params": state.params}, x),
        in_shardings=(state_sharding, x_sharding),
        out_shardings=x_sharding,
    )
    output = apply(new_state, x)
    print(type(output).__name__, output.dtype, output.shape)
    for part, ids in holders(output).items():
        print(part, "on devices", *ids)
    # draw: output

    # %% Step time
    # A jitted call returns before the devices finish, so the timer waits for every array of the
    # result, as IPython's `%%timeit -n 1` would report it. The emulated devices share the cores of
    # this machine: the time says nothing about accelerators.

    import statistics
    import timeit

    def block_all(tree):
        return jax.tree.map(lambda array: array.block_until_ready(), tree)

    times = timeit.repeat(lambda: block_all(train_step(state, x)), number=1, repeat=7)
    mean, deviation = (f(times) * 1e3 for f in (statistics.fmean, statistics.pstdev))
    print(f"{mean:.3g} ms ± {deviation:.3g} ms per loop (mean ± std. dev. of 7 runs, 1 loop each)")

    # %% Logical axes
    # A module with mesh axes supports only one sharding. *Logical* axes name the meaning of a
    # dimension: `embed`, `hidden`, `batch`. The module differs only in the names and in the functions
    # `nn.with_logical_…`.

    class LogicalDotReluDot(nn.Module):
        depth: int

        @nn.compact
        def __call__(self, x):
            init = nn.initializers.xavier_normal()
            w1_init = nn.with_logical_partitioning(init, ("embed", "hidden"))
            y = nn.relu(nn.Dense(self.depth, use_bias=False, kernel_init=w1_init)(x))
            y = nn.with_logical_constraint(y, ("batch", "hidden"))
            w2_init = nn.with_logical_partitioning(init, ("hidden", "embed"))
            z = y @ self.param("W2", w2_init, (self.depth, x.shape[-1]))
            return nn.with_logical_constraint(z, ("batch", "embed"))

    class LogicalMLP(nn.Module):
        depth: int
        layers: int = 2

        @nn.compact
        def __call__(self, x):
            for _ in range(self.layers):
                x = LogicalDotReluDot(self.depth)(x)
            return x

    logical_mlp = LogicalMLP(depth)

    def logical_init(key, x):
        params = logical_mlp.init(key, x)["params"]
        return TrainState.create(apply_fn=logical_mlp.apply, params=params, tx=adam)

    logical_spec = nn.get_partition_spec(jax.eval_shape(logical_init, key, x))
    spec_block = logical_spec.params["LogicalDotReluDot_0"]
    print("W1:", spec_block["Dense_0"]["kernel"])
    print("W2:", spec_block["W2"])

    # %% Rules
    # A rule maps a logical axis to a mesh axis. `nn.logical_to_mesh_sharding` applies the rules to the
    # whole state. `embed` has no rule, so it is not sharded. With these rules, every leaf of the state
    # has the same sharding as with mesh axes.

    rules = (("batch", data), ("hidden", model))
    logical_sharding = nn.logical_to_mesh_sharding(logical_spec, mesh, rules)
    logical_block = logical_sharding.params["LogicalDotReluDot_0"]
    print("W1:", logical_block["Dense_0"]["kernel"].spec)
    print("W2:", logical_block["W2"].spec)
    pairs = zip(jax.tree.leaves(state_sharding), jax.tree.leaves(logical_sharding), strict=True)
    equal = [by_mesh == by_rules for by_mesh, by_rules in pairs]
    print(f"{sum(equal)} of {len(equal)} shardings of the state are equal")

    # %% Other rules, the same module
    # One changed rule shards the matrices along their other dimension, without a change of the module.
    # Its constraints on activations use the current mesh and rules. The values are the same for both
    # shardings, because random numbers do not depend on the sharding.

    def init_W1(rules):
        sharding = nn.logical_to_mesh_sharding(logical_spec, mesh, rules)
        with jax.set_mesh(mesh), nn.logical_axis_rules(rules):
            init = jax.jit(logical_init, in_shardings=(whole, x_sharding), out_shardings=sharding)
            params = init(key, x).params
        return params["LogicalDotReluDot_0"]["Dense_0"]["kernel"].value

    hidden_W1 = init_W1(rules)
    embed_W1 = init_W1((("batch", data), ("embed", model)))
    print(hidden_W1.sharding.spec, "in shards of", hidden_W1.addressable_data(0).shape)
    print(embed_W1.sharding.spec, "in shards of", embed_W1.addressable_data(0).shape)
    print("the same values:", bool((np.asarray(hidden_W1) == np.asarray(embed_W1)).all()))
    # draw: hidden_W1, embed_W1
