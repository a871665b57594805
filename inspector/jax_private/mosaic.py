"""Parse the bodies of Mosaic kernels, which Pallas compiles for TPUs.

Public replacement: none. The body is MLIR with the dialect of Mosaic, which only jaxlib registers. Tried on
JAX 0.10.2 and 0.12.0.
"""

from jax._src.lib import tpu
from jax.extend.mlir import ir


def parse(body: bytes) -> ir.Module:
    """Return the module of a kernel, whose operations can have the names of another version's dialects.

    Raises:
      ir.MLIRError: it cannot be parsed.
    """
    context = ir.Context()
    context.allow_unregistered_dialects = True
    tpu.register_dialect(context)
    with context:
        return ir.Module.parse(body)
