"""Arrays across devices and processes: what the migration guide to `jax.Array` explains, replayed."""


def tutorial(mesh_shape, axis_names):
    """Look at one type of array on one device, on several, and on those of several processes."""
    # %% An array that nobody placed
    # Every array is a `jax.Array`, wherever it lies. One that was merely made lies on the default
    # device and is *not committed* to it: JAX may move it to where the rest of a computation is.

    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    count = jax.device_count()
    loose = jnp.arange(count * count, dtype=jnp.float32).reshape(count, count)
    print(isinstance(loose, jax.Array), loose.shape, loose.dtype)
    print("committed:", loose.committed)
    print(loose.sharding)
    # draw: loose

    # %% On one device, on purpose
    # `device_put` with a device commits the array to it. `tell` prints what any array knows of itself;
    # it serves for all that follows.

    def tell(array):
        print("committed:", array.committed)
        print("sharding:", type(array.sharding).__name__, getattr(array.sharding, "spec", ""))
        print("devices:", len(array.sharding.device_set))
        print("fully addressable:", array.is_fully_addressable)
        print("fully replicated:", array.is_fully_replicated)
        shards = len(array.addressable_shards), len(array.global_shards)
        print("addressable shards: {} of {}".format(*shards))
        print("memory kind:", array.sharding.memory_kind)

    single = jax.device_put(loose, jax.devices()[-1])
    tell(single)
    # draw: single

    # %% Sharded over a mesh
    # With a `NamedSharding` the same call cuts the array. Each entry of `addressable_shards` is one
    # device's part: its index in the whole, its data, and its `replica_id`, which counts the devices
    # that hold the same part. Replica 0 of each makes the array, the others are copies.

    devices = np.array(jax.devices()).reshape(mesh_shape)
    mesh = Mesh(devices, axis_names)
    sharded = jax.device_put(loose, NamedSharding(mesh, P(axis_names[0])))
    tell(sharded)
    for shard in sharded.addressable_shards:
        first, end, _ = shard.index[0].indices(count)
        print(f"device {shard.device.id}: rows {first}:{end}, replica {shard.replica_id}")
    # draw: sharded

    # %% Replicated
    # An empty `PartitionSpec` splits nothing: every device holds all of it. Fully replicated is not
    # fully addressable: with several processes an array can be the first and not the second.

    replicated = jax.device_put(loose, NamedSharding(mesh, P()))
    tell(replicated)
    print("replicas:", *(shard.replica_id for shard in replicated.addressable_shards))
    print("bytes on all devices:", sum(s.data.nbytes for s in replicated.addressable_shards))
    print("bytes of the array:", replicated.nbytes)
    # draw: replicated

    # %% From one sharding to another
    # `device_put` also takes an array that lies on devices already, and moves what has to move. The
    # numbers are the same, and the first array stays as it was.

    by_columns = jax.device_put(sharded, NamedSharding(mesh, P(None, axis_names)))
    print(sharded.sharding.spec, "→", by_columns.sharding.spec)
    print("shards of", sharded.addressable_data(0).shape, "→", by_columns.addressable_data(0).shape)
    print("the same numbers:", bool((np.asarray(sharded) == np.asarray(by_columns)).all()))
    # draw: by_columns

    # %% Computation follows sharding
    # No function was told of a mesh: where the operands lie decides where it is computed, and where
    # the result lies. What does not fit together is moved inside the compiled program.

    product = sharded @ sharded.T
    for name, result in {
        "jnp.sin(sharded)": jnp.sin(sharded),
        "sharded @ sharded.T": product,
        "sharded.sum(axis=0)": sharded.sum(axis=0),
        "sharded.sum(axis=1)": sharded.sum(axis=1),
        "by_columns.sum(axis=0)": by_columns.sum(axis=0),
    }.items():
        shard_shape = result.addressable_data(0).shape
        print(f"{name:24}{result.sharding.spec!s:24}in shards of {shard_shape}")
    # draw: product

    # %% What is not committed goes along
    # `loose` lies on one device and `sharded` on all of them, but only the second was put there. So
    # the first is moved, and the result lies where the committed operand does.

    both = loose + sharded
    print("committed:", loose.committed, "+", sharded.committed, "→", both.committed)
    print("on", len(both.sharding.device_set), "devices", both.sharding.spec)

    # %% What is committed elsewhere does not
    # Two arrays committed to different devices contradict each other, and JAX will not choose. Put one
    # of them where the other is, and the sum is defined.

    here = jax.device_put(loose, jax.devices()[0])
    there = jax.device_put(loose, jax.devices()[1])
    refusal = None
    try:
        here + there
    except ValueError as error:
        refusal = error
    print(refusal)
    together = here + jax.device_put(there, here.sharding)
    print("together on", together.devices())
    # refused: refusal

    # %% What is alive
    # `jax.live_arrays()` lists every array that still takes memory, whether or not anybody remembers
    # it. Each device holds the bytes of its own shards; a name that is deleted gives them back on
    # every device that held a part.

    mine = {id(loose): "loose", id(sharded): "sharded", id(replicated): "replicated"}

    def show_alive():
        held = dict.fromkeys(jax.devices(), 0)
        found = [array for array in jax.live_arrays() if id(array) in mine]
        for array in found:
            for shard in array.addressable_shards:
                held[shard.device] += shard.data.nbytes
        print("alive:", *sorted(mine[id(array)] for array in found))
        print("bytes on each device:", *held.values())

    show_alive()
    del replicated
    show_alive()

    # %% Several processes
    # Here one process addresses every device. With several, each has its own devices and its own part
    # of each array: `addressable_shards` is that part, `global_shards` is all, with no data for what
    # others hold. The page [Processes](processes) runs this for real.

    print("process", jax.process_index(), "of", jax.process_count())
    print("devices here:", jax.local_device_count(), "of", jax.device_count())
    print("addressable everywhere:", {shard.data is not None for shard in sharded.global_shards})

    # %% The mistake that the guide warns of
    # jit takes *global* shapes. A process that hands it only its own part, say half of the rows, hands
    # it an array of that size, and a dimension smaller than its mesh axes cannot be split over them.
    # For eight devices the guide has it as *should be divisible by 8, but it is equal to 4*.
    # `host_local_array_to_global_array` says that the part is a part; in one process it is the whole.

    from jax.experimental.multihost_utils import host_local_array_to_global_array

    every_row = P(axis_names)
    identity = jax.jit(lambda rows: rows, in_shardings=NamedSharding(mesh, every_row))
    refusal = None
    try:
        identity(np.ones((count // 2, 2), np.float32))
    except ValueError as error:
        refusal = error
    print(refusal)
    rows = host_local_array_to_global_array(np.ones((count, 2), np.float32), mesh, every_row)
    print("global shape", identity(rows).shape, "in shards of", rows.addressable_data(0).shape)
    # draw: rows
    # refused: refusal
