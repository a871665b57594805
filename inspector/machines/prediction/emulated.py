"""Estimate the step of a partitioned program on emulated devices, to rank layouts before they are run."""

from inspector.core.snapshot import Mesh, Program

# All emulated devices share the cores of the machine, so their work adds up. Source: the step times of the
# default MLP, transformer and mixture of experts on 8 emulated devices of a machine with 2 cores; they are
# within a factor of two. Only the ratios between layouts matter.
FLOPS_PER_SECOND = 5e10  # of matrix products in float32, all cores together
BYTES_PER_SECOND = 3e9  # of collectives, which copy memory
COLLECTIVE_SECONDS = 1e-4  # for the devices to meet in one collective


def emulated_seconds(program: Program, mesh: Mesh) -> float | None:
    """Return the estimated seconds of one run on emulated devices; None if the program is unknown."""
    products = program.work.matmul if program.work else None
    if products is None or program.collectives is None:
        return None
    seconds = mesh.size * sum(product.flops for product in products) / FLOPS_PER_SECOND
    for collective in program.collectives:
        if collective.executions == 0:
            continue
        if collective.executions is None or collective.wire_bytes_per_device is None:
            return None
        sent = mesh.size * collective.wire_bytes_per_device / BYTES_PER_SECOND
        seconds += collective.executions * (sent + COLLECTIVE_SECONDS)
    return seconds
