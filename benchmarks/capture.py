"""What capturing a job's state costs it: 1,000 live arrays on 512 devices, to the file that is written.

Against JAX telling where every shard of these arrays lies, which it looks up for equal ones.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.pairing import Result, at_most, interleave
from benchmarks.plain_process import PlainProcess

PAIRS = 11
LIMIT = 1.0  # seconds
MESH = (16, 32)
ARRAYS = 1000
LARGE_STATE = Path(__file__).with_name("large_state.py")


def measure(pairs: int = PAIRS, mesh: tuple[int, int] = MESH, arrays: int = ARRAYS) -> list[Result]:
    """Capture the state and have JAX place it, in turn, in a job that holds it."""
    devices = mesh[0] * mesh[1]
    told: list[dict[str, float]] = []

    def ours() -> float:
        told.append(process.ask("capture"))
        return told[-1]["seconds"]

    with PlainProcess(devices, LARGE_STATE) as process:
        process.ask("hold", arrays=arrays, mesh=list(mesh))
        taken = interleave(ours, lambda: process.ask("places")["seconds"], pairs)
    last = told[-1]
    if last["arrays"] != arrays:
        raise RuntimeError(f"{last['arrays']} of {arrays} arrays were captured")
    result = Result(
        name="capture",
        ours=f"capture of {arrays:,} arrays × {devices} devices, {last['bytes'] / 1e6:.2g} MB written",
        baseline="devices_indices_map of JAX for each of them",
        pairs=taken,
        target=f"under {LIMIT:.0f} s",
        notes=(f"jax.Arrays made while capturing: {max(one['new_arrays'] for one in told)}",),
    )
    return [result.judged(at_most(result.seconds[0].median, LIMIT))]
