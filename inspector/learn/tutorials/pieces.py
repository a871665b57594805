"""Build an array from shards, after the reference of `make_array_from_single_device_arrays`."""


def tutorial(mesh_shape, axis_names):
    """Make global arrays from single-device arrays, for data parallel and tensor parallel loading."""
    # %% The index of each device
    # For a global shape, a sharding has the index of the shard on each device.

    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    mesh = Mesh(np.array(jax.devices()).reshape(mesh_shape), axis_names)
    sharding = NamedSharding(mesh, P(*axis_names))
    # 8, rounded up to a multiple of the mesh
    global_shape = tuple(-(-8 // size) * size for size in mesh_shape)
    indices = sharding.addressable_devices_indices_map(global_shape)
    for device, index in indices.items():
        cuts = zip(index, global_shape, strict=True)
        print("device", device.id, *("{}:{}".format(*cut.indices(size)) for cut, size in cuts))
    # draw: mesh

    # %% Slice and put
    # Each piece is a separate array, committed to its device.

    numbers = np.arange(np.prod(global_shape), dtype=np.int32).reshape(global_shape)
    pieces = [jax.device_put(numbers[index], device) for device, index in indices.items()]
    print(len(pieces), "pieces of", pieces[0].shape)
    print("the last one, on", pieces[-1].devices())
    print(pieces[-1])

    # %% Join
    # `make_array_from_single_device_arrays` makes one array of the pieces without a copy. It checks
    # the shape of each piece against the global shape, but not the values. The order of the pieces
    # does not matter, because each is committed to its device.

    joined = jax.make_array_from_single_device_arrays(global_shape, sharding, pieces)
    print(joined.shape, joined.sharding.spec, "in shards of", joined.addressable_data(0).shape)
    print("equal to the sliced array:", bool((np.asarray(joined) == numbers).all()))
    # draw: joined

    # %% From a callback
    # `make_array_from_callback` calls a function with the index of each shard of this process. Use it
    # if a shard can be read from a file without reading the rest.

    indices_read = []

    def read(index):
        indices_read.append(index)
        return numbers[index]

    called = jax.make_array_from_callback(global_shape, sharding, read)
    print("called", len(indices_read), "times, first for", indices_read[0])
    print("the same array:", bool((np.asarray(called) == np.asarray(joined)).all()))

    # %% A batch sharded over all mesh axes
    # Data loaders produce rows. Each device gets different rows, so all mesh axes shard the first
    # dimension, and the global shape is *(rows per device × devices, features)*. Each process puts the
    # rows of its own devices; the global shape counts the devices of all processes.

    rows_per_device = 2
    features = -(-32 // mesh_shape[1]) * mesh_shape[1]  # 32, rounded up to a multiple
    batch_sharding = NamedSharding(mesh, P(axis_names, None))
    local_devices = list(batch_sharding.addressable_devices_indices_map((mesh.size, 1)))
    local_rows = np.arange(rows_per_device * len(local_devices) * features, dtype=np.float32)
    local_rows = local_rows.reshape(-1, features)
    per_device = np.split(local_rows, len(local_devices))
    batch_shape = (rows_per_device * mesh.size, features)
    batch_pieces = [
        jax.device_put(rows, device) for rows, device in zip(per_device, local_devices, strict=True)
    ]
    batch = jax.make_array_from_single_device_arrays(batch_shape, batch_sharding, batch_pieces)
    print("from", batch_pieces[0].shape, "on each of", mesh.size, "devices:", batch.shape)
    # draw: batch

    # %% The same in one call
    # If a process has its rows in one array, `make_array_from_process_local_data` slices and puts
    # them, and computes the global shape.

    short = jax.make_array_from_process_local_data(batch_sharding, local_rows)
    print(short.shape, short.sharding == batch.sharding)
    print("the same numbers:", bool((np.asarray(short) == np.asarray(batch)).all()))

    # %% For tensor parallelism, reshard inside jit
    # A tensor parallel computation also shards the features. Load rows as before, and let a jitted
    # function reshard them: the compiled program moves the data between devices.

    import re

    wanted = NamedSharding(mesh, P(*axis_names))
    reshard = jax.jit(lambda batch: batch, out_shardings=wanted)
    compiled = reshard.lower(batch).compile()
    resharded = reshard(batch)
    print(batch.sharding.spec, "→", resharded.sharding.spec)
    print("shards of", batch_pieces[0].shape, "→", resharded.addressable_data(0).shape)
    # A collective operation names the groups or the pairs of devices that communicate.
    collective = r" ([\w-]+?)(?:-start)?\(.*(?:replica_groups|source_target_pairs)="
    collectives = re.findall(collective, compiled.as_text())
    print("by", ", ".join(sorted(set(collectives))) or "nothing: the sharding is the same")
    # draw: resharded

    # %% A piece of the wrong shape
    # One piece lacks a row. All pieces must have the shard shape of the global shape. JAX checks every
    # piece; its error has the expected and the actual shape.

    broken = list(batch_pieces)
    broken[-1] = broken[-1][:-1]
    refusal = None
    try:
        jax.make_array_from_single_device_arrays(batch_shape, batch_sharding, broken)
    except ValueError as error:
        refusal = error
    print(refusal)
    # refused: refusal
