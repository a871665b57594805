"""The arrays on one device that a `jax.Array` consists of.

Public replacement: `jax.Array.addressable_shards`, but reading it makes new arrays and keeps them, which
would change the memory of the user's program. Typed keys have `jax.random.key_data`, which computes. The
shape and the sharding of this data without the data are private. Tried on JAX 0.10.2 and 0.12.0.
"""

from collections.abc import Sequence
from typing import Any

from jax._src.array import ArrayImpl as ArrayImpl
from jax._src.core import physical_aval as physical_aval
from jax._src.random.prng import PRNGKeyArray as PRNGKeyArray
from jax._src.sharding_impls import physical_sharding as physical_sharding


def has_host_copy(array: ArrayImpl) -> bool:
    """Return whether JAX has copied the array to the host and keeps the copy."""
    return array._npy_value is not None


def parts(array: ArrayImpl) -> Sequence[Any]:
    """Return the arrays on one device each, without making any."""
    return array._arrays


def typed_keys(dtype: Any, data: Any) -> Any:
    """Return typed keys that hold this key data, without a copy. Public functions would run an operation."""
    return PRNGKeyArray(dtype._impl, data)


def key_implementation(dtype: Any) -> str:
    """Return the name of the random generator of a dtype of typed keys, such as threefry2x32."""
    return dtype._impl.name
