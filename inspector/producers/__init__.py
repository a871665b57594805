"""Everything that asks JAX: what a worker process can be told to do, by name.

The functions are named as text so that the table can be read without importing JAX.
"""

from __future__ import annotations

JOBS = {
    "abstract": "inspector.producers.abstract:abstract",
    "assemble": "inspector.producers.assemble:assemble",
    "describe": "inspector.producers.describe:describe",
    "compile": "inspector.producers.compile:compile_job",
    "run": "inspector.producers.run:run_job",
    "exchange": "inspector.producers.host_local_arrays:exchange",
    "import": "inspector.producers.import_file:import_job",
    "restore_checkpoint": "inspector.producers.checkpoint:restore",
    "save_checkpoint": "inspector.producers.checkpoint:save",
    "time_together": "inspector.producers.time_together:time_together",
    "tutorial": "inspector.producers.tutorials.replay:replay",
}

# What makes the processes of a worker that is several one JAX.
MEET = "inspector.producers.distributed:meet"
