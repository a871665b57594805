"""The functions of the jobs of a worker process, by their kind.

A function is named as text, so that reading the table does not import JAX. A job raises `InvalidInput` for
a request that is not valid or does not fit the devices of its process.
"""

JOBS = {
    "abstract": "inspector.tracing.model.abstract:abstract",
    "board": "inspector.readers.import_file:board_job",
    "bound": "inspector.partition.evaluate:bound",
    "assemble": "inspector.learn.assemble:assemble",
    "describe": "inspector.tracing.model.describe:describe",
    "compile": "inspector.compiling.compile_layout:compile_job",
    "compile_lowered": "inspector.recording.for_target:compile_lowered",
    "compare_results": "inspector.learn.compare_results.job:compare_results",
    "effects": "inspector.partition.effects:effects",
    "estimate": "inspector.partition.evaluate:estimate",
    "evaluate": "inspector.partition.evaluate:evaluate",
    "run": "inspector.compiling.run_layout:run_job",
    "exchange": "inspector.learn.host_local_arrays:exchange",
    "import": "inspector.readers.import_file:import_job",
    "partition_lowered": "inspector.recording.lowered_module:partition_lowered",
    "partition": "inspector.partition.partition_layout:partition",
    "rules": "inspector.readers.import_file:rules_job",
    "time_together": "inspector.learn.time_together:time_together",
    "tutorial": "inspector.learn.tutorials.replay:replay",
}

# Connects the processes of a worker with several processes.
MEET = "inspector.tracing.live_arrays:meet"
