"""Turn StableHLO into HLO and back, as XLA does at the start of a compile.

Public replacement: none for the first step. `jax.extend.mlir.hlo_to_stablehlo` does the second one, but takes
a serialized HLO module, which the first step does not return. Tried on JAX 0.10.2 and 0.12.0.
"""

from jax._src import sharding_impls
from jax._src.lib import _jax, hlo, xla_client
from jax.sharding import Mesh, PartitionSpec, Sharding

# Write the sharding that XLA chose as a PartitionSpec.
#
# Public replacement: none. `jax.extend.sharding` makes XLA's object from its bytes, not a PartitionSpec.
# Tried on JAX 0.10.2 and 0.12.0.


def spec_of(sharding: Sharding, mesh: Mesh) -> PartitionSpec:
    """Return the spec of the sharding of one array on a mesh."""
    (spec,) = sharding_impls.parse_flatten_op_sharding(sharding, mesh)
    return spec


# Turn a serialized HLO module into text, as a profile or a dump contains it.
#
# Public replacement: none. `jax.stages.Compiled.as_text` has the text of a program that was compiled here.
# Tried on JAX 0.10.2 and 0.12.0.


def text_of(module: bytes) -> str:
    """Return the text of a serialized `HloModuleProto`.

    Raises:
      RuntimeError, ValueError: it is not a module.
    """
    return hlo.HloModule.from_serialized_hlo_module_proto(module).to_string()  # type: ignore[no-any-return]


def to_hlo(module: str) -> xla_client.XlaComputation:
    """Return the HLO of a StableHLO module; its method `as_hlo_text` prints it.

    Raises:
      ValueError, RuntimeError: HLO has no form of the module, as for dynamic shapes.
    """
    return _jax.mlir.mlir_module_to_xla_computation(module, use_tuple_args=False, return_tuple=False)


def to_stablehlo(hlo: xla_client.XlaComputation) -> bytes:
    """Return the StableHLO module of an HLO computation, as MLIR bytecode or text."""
    return _jax.mlir.xla_computation_to_mlir_module(hlo)
