"""Scale up a Flax module: what Flax's guide on several devices explains, with our own words and code."""


def tutorial(mesh_shape, axis_names):
    """Shard an MLP's train state over a mesh of two axes: data parallel, and tensor parallel."""
    # %% A mesh of devices
    # A *mesh* arranges devices in a grid and names its axes. Everything below speaks of axis names,
    # never of device numbers. The first axis shall split the batch, the second one the parameters.

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

    # %% The input, in place
    # A `NamedSharding` is a mesh and a `PartitionSpec`, which has a mesh axis or `None` for each
    # dimension. `device_put` cuts the array and sends the parts: here each row of the mesh gets its
    # own rows of the batch, and the devices along a row of the mesh hold copies of one another.

    batch = -(-8 // mesh.shape[data]) * mesh.shape[data]  # 8, rounded up to what the mesh divides
    depth = -(-256 // mesh.shape[model]) * mesh.shape[model]  # the guide has 1024
    x_sharding = NamedSharding(mesh, P(data, None))
    x = jax.device_put(jnp.ones((batch, depth)), x_sharding)

    def holders(array):
        """Which devices hold which part of an array."""
        found = {}
        for shard in array.addressable_shards:
            cuts = zip(shard.index, array.shape, strict=True)
            part = ", ".join("{}:{}".format(*cut.indices(size)) for cut, size in cuts)
            found.setdefault(f"[{part}]", []).append(shard.device.id)
        return found

    print(x.shape, "in shards of", x_sharding.shard_shape(x.shape))
    for part, ids in holders(x).items():
        print(part, "on devices", *ids)
    # draw: x

    # %% A layer that says how it is split
    # `nn.with_partitioning` wraps an initialiser: its parameter comes in a box with a mesh axis or
    # `None` for each dimension. The first matrix is split by columns and the second by rows, so that
    # each device multiplies its own parts, and only the last product has to be summed across devices.
    # `with_sharding_constraint` says the same of an activation; XLA would often find it by itself.

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

    # %% Shardings before there are arrays
    # `jax.eval_shape` traces the initialisation and computes nothing: shapes, dtypes and boxes.
    # `nn.get_sharding` makes a `NamedSharding` of each box, and a tree of the same form as the state.
    # Adam's two moments have the boxes of the parameters, so that they are split in the same way;
    # what has no box, such as the step count, is replicated.

    import optax
    from flax.training.train_state import TrainState

    adam = optax.adam(1e-3)  # made once, because it is a part of what makes two states alike

    def init(key, x):
        params = mlp.init(key, x)["params"]
        return TrainState.create(apply_fn=mlp.apply, params=params, tx=adam)

    key = jax.random.key(0)
    abstract_state = jax.eval_shape(init, key, x)
    state_sharding = nn.get_sharding(abstract_state, mesh)
    for path, sharding in jax.tree_util.tree_leaves_with_path(state_sharding):
        print(jax.tree_util.keystr(path, simple=True, separator="/"), sharding.spec)

    # %% Initialised where it belongs
    # Jitted with `out_shardings`, the initialisation writes each part on the devices that keep it;
    # nowhere is the whole state made first. A column of the mesh shares one part of the matrices: on
    # the guide's 2 × 4 mesh devices 0 and 4, 1 and 5, 2 and 6, 3 and 7.

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
    # A parameter is still in its box, which has the `names` and, as `.value`, the array. `jax.tree.map`
    # looks through boxes; `unbox` takes all of them off, which inside of jit also keeps the sharding;
    # `replace_boxed` puts a new value into the old box.

    from flax.core import meta

    box = block["Dense_0"]["kernel"]
    print(type(box).__name__, box.names)
    print(type(box.value).__name__, box.value.shape, box.value.sharding.spec)
    plain = meta.unbox(block)
    print("unboxed:", jax.tree.map(jnp.shape, plain))
    doubled = meta.replace_boxed(block, jax.tree.map(lambda weight: 2 * weight, plain))
    print("boxed again:", doubled["Dense_0"]["kernel"].names, doubled["W2"].names)

    # %% A train step
    # Jitted with the state's sharding going in and coming out, so that a step can follow a step. The
    # loss is the guide's: the sum of the output, which needs no labels. The gradients are summed over
    # the batch's mesh axis; nobody had to write that.

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
    print("W1 lies where it lay:", new_W1.sharding == W1.sharding)

    # %% Inference
    # The output is asked for as the input is: split over the batch. On the guide's mesh devices 0 to 3
    # hold one half of it and devices 4 to 7 the other.

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

    # %% How long a step takes
    # A jitted call returns before the devices are done, so a clock must wait for every array of the
    # result. Repeated and printed as IPython's `%%timeit -n 1` does. These are emulated devices that
    # share the cores of this machine: the figure says nothing about real ones.

    import statistics
    import timeit

    def block_all(tree):
        return jax.tree.map(lambda array: array.block_until_ready(), tree)

    times = timeit.repeat(lambda: block_all(train_step(state, x)), number=1, repeat=7)
    mean, deviation = (f(times) * 1e3 for f in (statistics.fmean, statistics.pstdev))
    print(f"{mean:.3g} ms ± {deviation:.3g} ms per loop (mean ± std. dev. of 7 runs, 1 loop each)")

    # %% Names that say what a dimension means
    # Mesh axes in a module tie it to one way of splitting. *Logical* axes name what a dimension is:
    # `embed`, `hidden`, `batch`. The module is the same but for the names, and for `nn.with_logical_…`
    # in front of them.

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

    # %% Rules take names to the mesh
    # Rules pair a logical axis with a mesh axis, and `nn.logical_to_mesh_sharding` applies them to the
    # whole state. `embed` has no rule and so is not split: unspecified means unsharded. With these
    # rules every leaf of the state has the very sharding that the mesh axes gave it.

    rules = (("batch", data), ("hidden", model))
    logical_sharding = nn.logical_to_mesh_sharding(logical_spec, mesh, rules)
    logical_block = logical_sharding.params["LogicalDotReluDot_0"]
    print("W1:", logical_block["Dense_0"]["kernel"].spec)
    print("W2:", logical_block["W2"].spec)
    pairs = zip(jax.tree.leaves(state_sharding), jax.tree.leaves(logical_sharding), strict=True)
    equal = [one == other for one, other in pairs]
    print(f"{sum(equal)} of {len(equal)} shardings of the state are equal")

    # %% Other rules, the same module
    # To split the matrices along their other dimension one word of the rules changes, and the module
    # stays as it is. Its constraints on activations look for the mesh and the rules around them. The
    # numbers are the same under both: where a random number is made does not change it.

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
    print("the same numbers:", bool((np.asarray(hidden_W1) == np.asarray(embed_W1)).all()))
    # draw: hidden_W1, embed_W1
