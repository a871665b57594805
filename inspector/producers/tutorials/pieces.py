"""Build an array from pieces: what `make_array_from_single_device_arrays`' reference explains, replayed."""


def tutorial(mesh_shape, axis_names):
    """Make global arrays from what lies on each device, for data parallel and tensor parallel loading."""
    # %% What each device needs
    # A sharding knows, for a global shape, which part belongs on which device. To build an array from
    # pieces is to make these parts yourself.

    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    mesh = Mesh(np.array(jax.devices()).reshape(mesh_shape), axis_names)
    sharding = NamedSharding(mesh, P(*axis_names))
    global_shape = tuple(-(-8 // size) * size for size in mesh_shape)  # 8, or what the mesh divides
    indices = sharding.addressable_devices_indices_map(global_shape)
    for device, index in indices.items():
        cuts = zip(index, global_shape, strict=True)
        print("device", device.id, *("{}:{}".format(*cut.indices(size)) for cut, size in cuts))

    # %% Cut, and sent
    # Each piece is an array of its own, committed to its device. So far they have nothing to do with
    # one another.

    numbers = np.arange(np.prod(global_shape), dtype=np.int32).reshape(global_shape)
    pieces = [jax.device_put(numbers[index], device) for device, index in indices.items()]
    print(len(pieces), "pieces of", pieces[0].shape)
    print("the last one, on", pieces[-1].devices())
    print(pieces[-1])

    # %% Joined
    # `make_array_from_single_device_arrays` copies nothing: it declares that the pieces are one array.
    # The shape is told again, which is a check. Nothing compares the contents; the pieces' order in
    # the list does not matter, for each lies on its device.

    joined = jax.make_array_from_single_device_arrays(global_shape, sharding, pieces)
    print(joined.shape, joined.sharding.spec, "in shards of", joined.addressable_data(0).shape)
    print("the numbers that were cut:", bool((np.asarray(joined) == numbers).all()))
    # draw: joined

    # %% Made by a function
    # `make_array_from_callback` asks for each part that this process needs, by its index, and sends it
    # off. Good where a part can be read from a file without reading the rest.

    asked = []

    def read(index):
        asked.append(index)
        return numbers[index]

    called = jax.make_array_from_callback(global_shape, sharding, read)
    print("asked", len(asked), "times, first for", asked[0])
    print("the same array:", bool((np.asarray(called) == np.asarray(joined)).all()))

    # %% A batch that every device has rows of
    # Data loaders make rows, and every device shall get rows of its own. So the first dimension is
    # split over all mesh axes at once, and the global shape is *(rows per device × devices, features)*.
    # Each process does this with its own devices only; the global shape counts all of them.

    rows_per_device = 2
    features = -(-32 // mesh_shape[1]) * mesh_shape[1]  # 32, or what the second axis divides
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
    # Where a process has its rows in one array, `make_array_from_process_local_data` cuts and sends
    # them, and works out the global shape.

    short = jax.make_array_from_process_local_data(batch_sharding, local_rows)
    print(short.shape, short.sharding == batch.sharding)
    print("the same numbers:", bool((np.asarray(short) == np.asarray(batch)).all()))

    # %% For tensor parallelism, reshard inside jit
    # A computation that splits features, too, wants another sharding than the one in which rows are
    # easily loaded. Load rows all the same, and let the jitted function have what it wants: the
    # compiled program then moves the parts between devices.

    import re

    wanted = NamedSharding(mesh, P(*axis_names))
    reshard = jax.jit(lambda batch: batch, out_shardings=wanted)
    compiled = reshard.lower(batch).compile()
    resharded = reshard(batch)
    print(batch.sharding.spec, "→", resharded.sharding.spec)
    print("shards of", batch_pieces[0].shape, "→", resharded.addressable_data(0).shape)
    moves = "all-to-all|all-gather|all-reduce|reduce-scatter|collective-permute"
    found = re.findall(rf"\b({moves})(?:-start)?\(", compiled.as_text())
    print("by", ", ".join(sorted(set(found))) or "nothing: every part is in place already")
    # draw: resharded

    # %% A piece of the wrong shape
    # One device has a row too few. All pieces must have the shape that the sharding gives for the
    # global shape; JAX looks at every one, and names the shape it expected and the one it met.

    broken = list(batch_pieces)
    broken[-1] = broken[-1][:-1]
    refusal = None
    try:
        jax.make_array_from_single_device_arrays(batch_shape, batch_sharding, broken)
    except ValueError as error:
        refusal = error
    print(refusal)
    # refused: refusal
