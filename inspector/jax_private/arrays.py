"""The arrays on one device that a `jax.Array` consists of.

Public replacement: `jax.Array.addressable_shards`, but JAX keeps the arrays that it makes for it, which
changes `jax.live_arrays()` of the user's program. Typed keys have `jax.random.key_data`, which computes. The
shape and the sharding of this data without the data are private. Tried on JAX 0.10.2 and 0.12.0.
"""

from collections.abc import Sequence
from typing import Any

from jax._src.array import ArrayImpl as ArrayImpl
from jax._src.core import physical_aval as physical_aval
from jax._src.lib import xla_client
from jax._src.random.prng import PRNGKeyArray as PRNGKeyArray
from jax._src.sharding_impls import physical_sharding as physical_sharding
from jax.extend.sharding import GSPMDSharding


def parts(array: ArrayImpl) -> Sequence[Any]:
    """Return the arrays on one device each, of a second array with the same memory, which is dropped."""
    devices, kind = array.sharding._internal_device_list, array.sharding.memory_kind
    alias = GSPMDSharding.get_replicated(devices, memory_kind=kind)  # never the array's own sharding
    reuse = [xla_client.ArrayCopySemantics.REUSE_INPUT]
    (same,) = xla_client.batched_copy_array_to_devices_with_sharding(
        [array], [devices.addressable_device_list], [alias], reuse
    )
    return same._arrays


def typed_keys(dtype: Any, data: Any) -> Any:
    """Return typed keys that hold this key data, without a copy. Public functions would run an operation."""
    return PRNGKeyArray(dtype._impl, data)


def key_implementation(dtype: Any) -> str:
    """Return the name of the random generator of a dtype of typed keys, such as threefry2x32."""
    return dtype._impl.name
