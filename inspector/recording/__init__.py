"""Programs of users: recorded while they run unmodified, inspected by a call, or read as StableHLO.

`startup/sitecustomize.py` runs when Python starts. `jax_internals.compile_hook` waits for JAX and sees each
compile, `recorder` writes the compiled programs, and `live` names the live arrays.
`inspector.jobs.program_run` starts the program and reads its records.
"""
