"""Experts without a capacity: tokens sorted by expert, and products of groups of rows.

All experts of a device multiply their tokens in one product of groups, `jax.lax.ragged_dot`, so none of them
has a capacity (MegaBlocks, arXiv:2211.15841). The code runs on one device of a `jax.shard_map`:

* If the mesh axes of `expert` shard the tokens, too, the tokens are sent to the devices of their experts and
  back: by `jax.lax.ragged_all_to_all`, or on CPUs, for which XLA has no such operation, by an all-to-all with
  room for every token.
* Otherwise each device has the tokens of all its experts, and the results are summed over these axes.

A device knows its number of rows only when the router has chosen. Arrays have room for all that it can get,
or for `buffer_factor` times its equal share; more are dropped. Each operation in the program has a note: the
rows that the busiest device is expected to get, `imbalance` times this share.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax import numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata
from jax.sharding import PartitionSpec

from inspector.model.built_in.explicit import DimensionNames, has_explicit_axes, mesh_spec, resharded
from inspector.model.built_in.flash import require_divisible, ways

# The attribute of an operation in the program with the rows that are expected to be in use.
EXPECTED_ROWS = "expected_rows"


class Axes(NamedTuple):
    """The mesh axes that shard tokens, experts and columns of experts.

    Attributes:
      batch, seq: of the tokens of a device.
      expert: of the experts.
      column: of the columns inside of each expert.
      gathered: those of the width of the weights, over which each device gathers them.
      sends: whether tokens are sent to the devices of their experts.
    """

    batch: tuple[str, ...]
    seq: tuple[str, ...]
    expert: tuple[str, ...]
    column: tuple[str, ...]
    gathered: tuple[str, ...]
    sends: bool


class Room(NamedTuple):
    """Rows of the experts of one device: its room for rows, and those that the busiest one expects."""

    rows: int
    expected: int


def grouped_experts(
    x: jax.Array,
    experts: jax.Array,
    weights: jax.Array,
    matrices: tuple[jax.Array, jax.Array, jax.Array],
    names: DimensionNames,
    buffer_factor: float,
    imbalance: float,
) -> jax.Array:
    """Return the weighted sum of the outputs of each token's experts, as x (batch, seq, embed).

    Args:
      experts, weights: the experts of each token and their weights, (batch, seq, choice).
      matrices: gate and up (expert, embed, mlp), and down (expert, mlp, embed).
      names: the logical axes of x.
      buffer_factor: rows for which a device has room, as a multiple of its equal share; 0 for all.
      imbalance: rows that the busiest device is expected to have, as a multiple of its equal share.

    Raises:
      InvalidInput: the tokens cannot be divided among the devices.
    """
    if jax.sharding.get_abstract_mesh().empty:
        axes = Axes((), (), (), (), (), False)
        return on_one_device(x, experts, weights, *matrices, axes, buffer_factor, imbalance)
    axes = axes_of_rules(names)
    require_divisible({"batch": axes.batch, "seq": axes.seq}, x, "dropless routing")
    by_token = PartitionSpec(axes.batch, axes.seq)
    into = PartitionSpec(axes.expert, axes.gathered, axes.column)
    out_of = PartitionSpec(axes.expert, axes.column, axes.gathered)
    specs = (by_token, by_token, by_token, into, into, out_of)
    arguments: tuple[jax.Array, ...] = (x, experts, weights, *matrices)
    if has_explicit_axes():
        arguments = tuple(map(functools.partial(resharded, logical=False), arguments, specs))
    body = functools.partial(on_one_device, axes=axes, buffer_factor=buffer_factor, imbalance=imbalance)
    return jax.shard_map(body, in_specs=specs, out_specs=by_token)(*arguments)


def axes_of_rules(of_tokens: DimensionNames) -> Axes:
    """Return the mesh axes that the current rules give the dimensions of tokens and experts.

    of_tokens: the logical axes of the tokens (batch, seq, embed).
    """

    def axes_of(names: DimensionNames) -> tuple[tuple[str, ...], ...]:
        spec = mesh_spec(names, logical=True)
        entries = (*spec, *(None,) * (len(names) - len(spec)))
        return tuple((entry,) if isinstance(entry, str) else tuple(entry or ()) for entry in entries)

    batch, seq, _ = axes_of((*of_tokens[:2], None))
    expert, embed, column = axes_of(("expert", "embed", "mlp"))
    sends = bool(expert) and set(expert) <= {*batch, *seq}
    if not sends:
        batch, seq = (tuple(axis for axis in axes if axis not in expert) for axes in (batch, seq))
    column = tuple(axis for axis in column if axis not in (*batch, *seq))
    gathered = tuple(axis for axis in embed if axis in (*batch, *seq))
    return Axes(batch, seq, expert, column, gathered, sends)


def room(tokens: int, per_token: int, experts: int, axes: Axes, factor: float, imbalance: float) -> Room:
    """Return the rows of the experts of a device.

    Args:
      tokens: of one device.
      experts: of one device.
    """
    number = ways(axes.expert)
    all_tokens = tokens * number if axes.sends else tokens
    share = all_tokens * per_token / number
    most = all_tokens * min(per_token, experts)  # a token chooses an expert once
    rows = min(most, math.ceil(share * factor)) if factor else most
    return Room(rows, min(rows, math.ceil(share * imbalance)))


def on_one_device(
    x: jax.Array,
    experts: jax.Array,
    weights: jax.Array,
    gate: jax.Array,
    up: jax.Array,
    down: jax.Array,
    axes: Axes,
    buffer_factor: float,
    imbalance: float,
) -> jax.Array:
    """Return `grouped_experts` of the tokens of one device, with its part of the matrices."""
    if axes.gathered:
        gate, up = (jax.lax.all_gather(matrix, axes.gathered, axis=1, tiled=True) for matrix in (gate, up))
        down = jax.lax.all_gather(down, axes.gathered, axis=2, tiled=True)
    *shape, per_token = experts.shape
    tokens, here = math.prod(shape), gate.shape[0]
    number = here * ways(axes.expert)
    space = room(tokens, per_token, here, axes, buffer_factor, imbalance)
    chosen = experts.reshape(-1)
    if not axes.sends and axes.expert:
        # The experts of this device come first. Gradients of its tokens are summed over these axes.
        x, weights = (jax.lax.pcast(value, axes.expert, to="varying") for value in (x, weights))
        chosen = (chosen - jax.lax.axis_index(axes.expert) * here) % number
    order = jnp.argsort(chosen, stable=True)
    sorted_rows = taken(x.reshape(tokens, -1), order // per_token)
    counts = jnp.sum(jax.nn.one_hot(chosen, number, dtype=jnp.int32), axis=0)

    def computed(buffer: jax.Array, groups: jax.Array) -> jax.Array:
        """Return the outputs of the experts for rows in the order of `groups`, the rows of each expert."""
        with set_xla_metadata(**{EXPECTED_ROWS: str(space.expected)}):
            gates, values = (jax.lax.ragged_dot(buffer, matrix, groups) for matrix in (gate, up))
        hidden = jax.nn.silu(gates) * values
        with set_xla_metadata(**{EXPECTED_ROWS: str(space.expected)}):
            return jax.lax.ragged_dot(hidden, down, groups)

    if axes.sends:
        returned = sent(sorted_rows, counts, axes, space, computed)
    else:
        returned = computed_here(sorted_rows, counts[:here], space, computed)
    of_choices = taken(returned, jnp.argsort(order)).reshape(*shape, per_token, -1)
    output = jnp.sum(weights[..., None].astype(x.dtype) * of_choices, axis=-2)
    summed = (*axes.column, *(() if axes.sends else axes.expert))
    return jax.lax.psum(output, summed) if summed else output


def computed_here(
    sorted_rows: jax.Array, counts: jax.Array, space: Room, computed: Callable[..., jax.Array]
) -> jax.Array:
    """Return the outputs of rows of which the first ones belong to the experts here; 0 for the others."""
    ends = jnp.minimum(jnp.cumsum(counts), space.rows)
    used = (jnp.arange(space.rows) < ends[-1])[:, None]
    groups = jnp.diff(ends, prepend=0)
    # Rows of no group are not defined in the result of a product.
    outputs = jnp.where(used, computed(jnp.where(used, sorted_rows[: space.rows], 0), groups), 0)
    return jnp.pad(outputs, ((0, len(sorted_rows) - space.rows), (0, 0)))


def sent(
    sorted_rows: jax.Array,
    counts: jax.Array,
    axes: Axes,
    space: Room,
    computed: Callable[..., jax.Array],
) -> jax.Array:
    """Return the outputs of rows that are sent to the devices of their experts; 0 for dropped ones.

    counts: the rows of each expert of all devices.
    """
    devices = ways(axes.expert)
    here = len(counts) // devices
    # (sender, receiver, expert of the receiver)
    rows = jax.lax.all_gather(counts, axes.expert).reshape(devices, devices, here)
    me = jax.lax.axis_index(axes.expert)
    starts = jnp.cumsum(rows.sum(axis=2), axis=1) - rows.sum(axis=2)  # of each receiver, at each sender
    # A receiver has room for the first rows, in the order of the senders.
    ends = jnp.minimum(jnp.cumsum(rows.swapaxes(0, 1).reshape(devices, -1), axis=1), space.rows)
    rows = jnp.diff(ends, axis=1, prepend=0).reshape(devices, devices, here).swapaxes(0, 1)
    exchange = ragged_exchange if has_ragged_all_to_all() else padded_exchange
    forward, back = exchange(rows.sum(axis=2), starts, me, axes, space)
    buffer, experts = forward(sorted_rows, rows[:, me])
    order = jnp.argsort(experts, stable=True)
    outputs = computed(taken(buffer, order), rows[:, me].sum(axis=0))
    return back(taken(outputs, jnp.argsort(order)), sorted_rows)


def ragged_exchange(
    sizes: jax.Array, starts: jax.Array, me: jax.Array, axes: Axes, space: Room
) -> tuple[Callable[..., tuple[jax.Array, jax.Array]], Callable[..., jax.Array]]:
    """Return functions that send rows to the devices of their experts, and outputs back.

    Args:
      sizes: rows by sender and receiver.
      starts: the first row for each receiver, at each sender.
      me: the number of this device.
    """
    places = jnp.cumsum(sizes, axis=0) - sizes  # of each sender, at each receiver
    of_tokens = (*axes.batch, *axes.seq)

    def all_to_all(operand: jax.Array, output: jax.Array, *arguments: jax.Array) -> jax.Array:
        with set_xla_metadata(**{EXPECTED_ROWS: str(space.expected)}):
            return jax.lax.ragged_all_to_all(operand, output, *arguments, axis_name=axes.expert)

    def forward(sorted_rows: jax.Array, received: jax.Array) -> tuple[jax.Array, jax.Array]:
        shape = (space.rows, sorted_rows.shape[-1])
        buffer = jax.lax.pcast(jnp.zeros(shape, sorted_rows.dtype), of_tokens, to="varying")
        buffer = all_to_all(sorted_rows, buffer, starts[me], sizes[me], places[me], sizes[:, me])
        return buffer, experts_of_rows(received.reshape(-1), space.rows, received.shape[1])

    def back(outputs: jax.Array, sorted_rows: jax.Array) -> jax.Array:
        arguments = places[:, me], sizes[:, me], starts[:, me], sizes[me]
        output = jax.lax.pcast(
            jnp.zeros(sorted_rows.shape, outputs.dtype), (*of_tokens, *axes.column), to="varying"
        )
        return all_to_all(outputs, output, *arguments)

    return forward, back


def padded_exchange(
    sizes: jax.Array, starts: jax.Array, me: jax.Array, axes: Axes, space: Room
) -> tuple[Callable[..., tuple[jax.Array, jax.Array]], Callable[..., jax.Array]]:
    """Return the functions of `ragged_exchange`, with an all-to-all of as many rows for every receiver."""
    devices = len(sizes)

    def positions(rows: int, most: int) -> jax.Array:
        """Return the sorted row at each place, of one receiver after the other; `rows` for none."""
        place = jnp.arange(most)
        at = starts[me][:, None] + place
        return jnp.where(place < sizes[me][:, None], at, rows).reshape(-1)

    def all_to_all(buffers: jax.Array) -> jax.Array:
        with set_xla_metadata(**{EXPECTED_ROWS: str(space.expected)}):
            return jax.lax.all_to_all(buffers, axes.expert, 0, 0, tiled=True)

    def forward(sorted_rows: jax.Array, received: jax.Array) -> tuple[jax.Array, jax.Array]:
        most = min(len(sorted_rows), space.rows)
        places = positions(len(sorted_rows), most)
        buffers = sorted_rows.at[places].get(mode="fill", fill_value=0)
        of_sender = functools.partial(experts_of_rows, rows=most, experts=received.shape[1])
        return all_to_all(buffers), jax.vmap(of_sender)(received).reshape(-1)

    def back(outputs: jax.Array, sorted_rows: jax.Array) -> jax.Array:
        places = positions(len(sorted_rows), len(outputs) // devices)
        zeros = jnp.zeros_like(sorted_rows, outputs.dtype)
        return zeros.at[places].add(all_to_all(outputs), mode="drop")

    return forward, back


def experts_of_rows(counts: jax.Array, rows: int, experts: int) -> jax.Array:
    """Return the expert of each row, and `experts` after the last one.

    counts: rows of each expert, for one sender after the other.
    """
    numbers = jnp.searchsorted(jnp.cumsum(counts), jnp.arange(rows), side="right")
    return jnp.where(numbers < len(counts), numbers % experts, experts)


def taken(x: jax.Array, numbers: jax.Array) -> jax.Array:
    """Return the rows `numbers` of x (row, embed)."""
    return x.at[numbers].get(mode="promise_in_bounds")


def has_ragged_all_to_all() -> bool:
    """Return whether XLA has the operation for the devices of the mesh. A plan is for those that have it."""
    device: Any = jax.sharding.get_abstract_mesh().abstract_device
    return device is None or device.platform != "cpu"
