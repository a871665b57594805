"""Capture a job's state, 1,000 live arrays on 512 devices, to a file.

It is compared with `devices_indices_map` of JAX for the same arrays, which caches equal shardings.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.pairing import Result, interleave, seconds_result
from benchmarks.plain_process import PlainProcess

PAIRS = 11
LIMIT = 1.0  # seconds
MESH = (16, 32)
ARRAYS = 1000
LARGE_STATE = Path(__file__).with_name("large_state.py")


def measure(pairs: int = PAIRS, mesh: tuple[int, int] = MESH, arrays: int = ARRAYS) -> list[Result]:
    """Capture the state, and let JAX place it, in turn, in the job that holds it."""
    devices = mesh[0] * mesh[1]
    answers: list[dict[str, float]] = []

    def ours() -> float:
        answers.append(process.ask("capture"))
        return answers[-1]["seconds"]

    with PlainProcess(devices, LARGE_STATE) as process:
        process.ask("hold", arrays=arrays, mesh=list(mesh))
        taken = interleave(ours, lambda: process.ask("places")["seconds"], pairs)
    last = answers[-1]
    if last["arrays"] != arrays:
        raise RuntimeError(f"{last['arrays']} of {arrays} arrays were captured")
    return [
        seconds_result(
            LIMIT,
            name="capture",
            ours=f"capture of {arrays:,} arrays × {devices} devices, {last['bytes'] / 1e6:.2g} MB written",
            baseline="devices_indices_map of JAX for each of them",
            pairs=taken,
            notes=(f"jax.Arrays made while capturing: {max(one['new_arrays'] for one in answers)}",),
        )
    ]
