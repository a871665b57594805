"""Arrays across devices and processes, after the `jax.Array` migration guide."""


def tutorial(mesh_shape, axis_names):
    """Inspect arrays on one device, on several devices, and in several processes."""
    # %% An uncommitted array
    # Every array is a `jax.Array`, on any device. A new array is on the default device and is *not
    # committed* to it: JAX may move it to the devices of the other operands.

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

    # %% Committed to one device
    # `device_put` with a device commits the array to it. `describe` prints the properties of an array
    # and is used in the next steps.

    def describe(array):
        print("committed:", array.committed)
        print("sharding:", type(array.sharding).__name__, getattr(array.sharding, "spec", ""))
        print("devices:", len(array.sharding.device_set))
        print("fully addressable:", array.is_fully_addressable)
        print("fully replicated:", array.is_fully_replicated)
        shards = len(array.addressable_shards), len(array.global_shards)
        print("addressable shards: {} of {}".format(*shards))
        print("memory kind:", array.sharding.memory_kind)

    single = jax.device_put(loose, jax.devices()[-1])
    describe(single)
    # draw: single

    # %% Sharded over a mesh
    # With a `NamedSharding`, `device_put` shards the array. Each entry of `addressable_shards` has the
    # index, the data and the `replica_id` of one device's shard. The replicas of a shard are numbered
    # from 0.

    devices = np.array(jax.devices()).reshape(mesh_shape)
    mesh = Mesh(devices, axis_names)
    sharded = jax.device_put(loose, NamedSharding(mesh, P(axis_names[0])))
    describe(sharded)
    for shard in sharded.addressable_shards:
        first, end, _ = shard.index[0].indices(count)
        print(f"device {shard.device.id}: rows {first}:{end}, replica {shard.replica_id}")
    # draw: sharded

    # %% Replicated
    # An empty `PartitionSpec` shards no dimension: every device holds the whole array. With several
    # processes, a fully replicated array is not fully addressable.

    replicated = jax.device_put(loose, NamedSharding(mesh, P()))
    describe(replicated)
    print("replicas:", *(shard.replica_id for shard in replicated.addressable_shards))
    print("bytes on all devices:", sum(s.data.nbytes for s in replicated.addressable_shards))
    print("bytes of the array:", replicated.nbytes)
    # draw: replicated

    # %% From one sharding to another
    # `device_put` also reshards an array that is already on devices. It returns a new array with the
    # same values.

    by_columns = jax.device_put(sharded, NamedSharding(mesh, P(None, axis_names)))
    print(sharded.sharding.spec, "→", by_columns.sharding.spec)
    print("shards of", sharded.addressable_data(0).shape, "→", by_columns.addressable_data(0).shape)
    print("the same numbers:", bool((np.asarray(sharded) == np.asarray(by_columns)).all()))
    # draw: by_columns

    # %% Computation follows sharding
    # No function receives a mesh. The shardings of the operands determine the devices of the
    # computation and the sharding of the result. The compiled program moves data if it must.

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

    # %% Uncommitted and committed operands
    # `loose` is uncommitted on one device, `sharded` is committed to all devices. JAX moves `loose`,
    # and the result has the devices of the committed operand.

    both = loose + sharded
    print("committed:", loose.committed, "+", sharded.committed, "→", both.committed)
    print("on", len(both.sharding.device_set), "devices", both.sharding.spec)

    # %% Operands committed to different devices
    # JAX raises an error if operands are committed to different devices. Move one of them with
    # `device_put` first.

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

    # %% Live arrays
    # `jax.live_arrays()` lists every array that uses memory. Each device holds the bytes of its
    # shards. Deleting the last reference to an array frees its shards on all devices.

    mine = {id(loose): "loose", id(sharded): "sharded", id(replicated): "replicated"}

    def show_alive():
        held = dict.fromkeys(jax.devices(), 0)
        arrays = [array for array in jax.live_arrays() if id(array) in mine]
        for array in arrays:
            for shard in array.addressable_shards:
                held[shard.device] += shard.data.nbytes
        print("alive:", *sorted(mine[id(array)] for array in arrays))
        print("bytes on each device:", *held.values())

    show_alive()
    del replicated
    show_alive()

    # %% Several processes
    # Here one process addresses every device. With several processes, each has its own devices and
    # shards: `addressable_shards` lists these, `global_shards` all shards, without the data of other
    # processes. The page [Several processes](processes) runs several processes.

    print("process", jax.process_index(), "of", jax.process_count())
    print("devices here:", jax.local_device_count(), "of", jax.device_count())
    print("addressable everywhere:", {shard.data is not None for shard in sharded.global_shards})

    # %% A local array instead of a global one
    # jit takes *global* shapes. If a process passes only its own half of the rows, jit takes the half
    # for the whole array, and its dimension is too small for the mesh axes. The guide's message for
    # eight devices is *should be divisible by 8, but it is equal to 4*.
    # `host_local_array_to_global_array` makes a global array from local ones. With one process, the
    # local array is the whole.

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
