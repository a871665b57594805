"""Place arrays and compile nothing."""

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("a", "b"))
whole = jax.device_put(np.ones((64, 64), np.float32), NamedSharding(mesh, P()))
cut = jax.device_put(np.ones((64, 64), np.float32), NamedSharding(mesh, P("a", "b")))
