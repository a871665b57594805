"""Flags of XLA that make compiles for emulated devices fast.

Most compiled programs run once, so a fast compile is worth more than fast machine code. The flags change how
machine code is made from an optimized program: no collective, FLOP or byte.
"""

from __future__ import annotations

from importlib.metadata import version

# JAX 0.12 has no other way to compile fusions, and XLA ends the process for a flag that it does not know.
_EMITTERS_CAN_BE_OFF = version("jaxlib").startswith("0.10.")
# Without LLVM's optimizations, a train step of a small model compiles in about half of the time, and with the
# other two in a quarter.
FAST_COMPILES = " ".join(
    (
        "--xla_backend_optimization_level=0",
        "--xla_cpu_parallel_codegen_split_count=1",
        *(("--xla_cpu_use_fusion_emitters=false",) if _EMITTERS_CAN_BE_OFF else ()),
    )
)
