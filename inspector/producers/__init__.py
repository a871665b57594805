"""All code that imports JAX. `JOBS` has the jobs of a worker process.

A function is named as text, so that reading the table does not import JAX. A job raises `InvalidInput` for
a request that is not valid or does not fit the devices of its process.
"""

JOBS = {
    "abstract": "inspector.producers.model.abstract:abstract",
    "board": "inspector.producers.readers.import_file:board_job",
    "bound": "inspector.producers.partition.evaluate:bound",
    "assemble": "inspector.producers.learn.assemble:assemble",
    "describe": "inspector.producers.model.describe:describe",
    "compile": "inspector.producers.compile.compile_layout:compile_job",
    "compile_lowered": "inspector.producers.recorded.for_target:compile_lowered",
    "compare_results": "inspector.producers.learn.compare_results.job:compare_results",
    "effects": "inspector.producers.partition.effects:effects",
    "evaluate": "inspector.producers.partition.evaluate:evaluate",
    "run": "inspector.producers.compile.run_layout:run_job",
    "exchange": "inspector.producers.learn.host_local_arrays:exchange",
    "import": "inspector.producers.readers.import_file:import_job",
    "partition_lowered": "inspector.producers.recorded.lowered_module:partition_lowered",
    "partition": "inspector.producers.partition.partition_layout:partition",
    "rules": "inspector.producers.readers.import_file:rules_job",
    "time_together": "inspector.producers.learn.time_together:time_together",
    "tutorial": "inspector.producers.learn.tutorials.replay:replay",
}

# Connects the processes of a worker with several processes.
MEET = "inspector.producers.arrays.live_arrays:meet"
