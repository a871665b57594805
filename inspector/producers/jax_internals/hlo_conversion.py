"""Turn StableHLO into HLO and back, as XLA does at the start of a compile.

Public replacement: none for the first step. `jax.extend.mlir.hlo_to_stablehlo` does the second one, but takes
a serialized HLO module, which the first step does not return. Tried on JAX 0.10.2 and 0.12.0.
"""

from jax._src.lib import _jax, xla_client


def to_hlo(module: str) -> xla_client.XlaComputation:
    """Return the HLO of a StableHLO module; its method `as_hlo_text` prints it.

    Raises:
      ValueError, RuntimeError: HLO has no form of the module, as for dynamic shapes.
    """
    return _jax.mlir.mlir_module_to_xla_computation(module, use_tuple_args=False, return_tuple=False)


def to_stablehlo(hlo: xla_client.XlaComputation) -> bytes:
    """Return the StableHLO module of an HLO computation, as MLIR bytecode or text."""
    return _jax.mlir.xla_computation_to_mlir_module(hlo)
