"""Sharding propagation without a compile: Shardy's own passes, run on an abstract mesh.

`template` lowers a model's programs once. `shardy` puts a mesh and rules into the lowered module and runs
Shardy's passes on it. `device_program` writes the result as the HLO program of one device, which the readers
of compiled programs understand. `propagate` joins these into Snapshot programs.
"""
