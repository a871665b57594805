"""Everything that asks JAX: what a worker process can be told to do, by name.

The functions are named as text so that the table can be read without importing JAX.
"""

from __future__ import annotations

JOBS = {
    "abstract": "inspector.producers.abstract:abstract",
    "assemble": "inspector.producers.assemble:assemble",
    "describe": "inspector.producers.describe:describe",
    "compile": "inspector.producers.ahead_of_time:compile_",
    "emulate": "inspector.producers.emulate:emulate",
    "exchange": "inspector.producers.processes:exchange",
    "import": "inspector.producers.importing:import_",
    "restore_checkpoint": "inspector.producers.checkpoint:restore",
    "save_checkpoint": "inspector.producers.checkpoint:save",
    "time_together": "inspector.producers.time_together:time_together",
    "walk": "inspector.producers.tutorials.replay:replay",
}

# What makes the processes of a worker that is several one JAX.
MEET = "inspector.producers.distributed:meet"
