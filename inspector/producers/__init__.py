"""All code that imports JAX. `JOBS` has the jobs of a worker process.

A function is named as text, so that reading the table does not import JAX. A job raises `InvalidInput` for
a request that is not valid or does not fit the devices of its process.
"""

from __future__ import annotations

JOBS = {
    "abstract": "inspector.producers.abstract:abstract",
    "board": "inspector.producers.import_file:board_job",
    "bound": "inspector.producers.propagation.evaluate:bound",
    "assemble": "inspector.producers.assemble:assemble",
    "describe": "inspector.producers.describe:describe",
    "compile": "inspector.producers.compile:compile_job",
    "compile_lowered": "inspector.producers.program_run.for_target:compile_lowered",
    "compare_results": "inspector.producers.compare_results.job:compare_results",
    "effects": "inspector.producers.propagation.effects:effects",
    "evaluate": "inspector.producers.propagation.evaluate:evaluate",
    "run": "inspector.producers.run:run_job",
    "exchange": "inspector.producers.host_local_arrays:exchange",
    "import": "inspector.producers.import_file:import_job",
    "partition_lowered": "inspector.producers.propagation.lowered_module:partition_lowered",
    "propagate": "inspector.producers.propagation.propagate:propagate",
    "remedies": "inspector.producers.propagation.remedies:remedies",
    "rules": "inspector.producers.import_file:rules_job",
    "restore_checkpoint": "inspector.producers.checkpoint:restore",
    "save_checkpoint": "inspector.producers.checkpoint:save",
    "time_together": "inspector.producers.time_together:time_together",
    "tutorial": "inspector.producers.tutorials.replay:replay",
}

# Connects the processes of a worker with several processes.
MEET = "inspector.producers.distributed:meet"
