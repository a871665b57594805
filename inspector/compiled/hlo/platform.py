"""The kind of machine for which a text was compiled, from what only its compiler writes."""

import re

from inspector.compiled.hlo.module import Module
from inspector.core.snapshot import Platform

# Tiles in the layout of an array, such as {1,0:T(8,128)}. The text of CPUs has transposed groups, T(1,0).
_TPU = re.compile(r":T\(\d")
_GPU = re.compile(r'"(?:operation_queue_id|fusion_backend_config|gemm_backend_config)"')
# Targets of calls of libraries and kernels of GPUs.
_GPU_CALLS = re.compile(
    r"__cu\w*\$|__gpu\$|(?:cusolver|hipsolver|cublas|hipblas|cusparse)_|mosaic_gpu|triton_kernel_call"
)
_CPU = re.compile(r'"outer_dimension_partitions"')


def platform_of(module: Module) -> Platform | None:
    """Return the kind of machine of a compiled text; None if it does not say."""
    for _, instruction in module.instructions:
        if instruction.shape_text and _TPU.search(instruction.shape_text):
            return "tpu"
        if _GPU.search(instruction.attributes_text):
            return "gpu"
        if _CPU.search(instruction.attributes_text):
            return "cpu"
        if instruction.opcode == "custom-call" and _GPU_CALLS.match(instruction.target):
            return "gpu"
    return None
