"""Programs before a compile: Shardy's own passes and XLA's partitioner, run on an abstract mesh.

`template` lowers a model's programs once. `shardy` puts a mesh and rules into the lowered module and runs
Shardy's passes on it. `mlir.xla_partitioner` gives the HLO program of one device, which the readers of
compiled programs understand. `partition_layout` joins these into Snapshot programs.
"""
