"""Everything that depends on private names of JAX: one module for each thing that this project needs.

Private are the modules `jax._src`, `jaxlib._jax` and `jaxlib.xla_client`, and attributes of JAX's objects
that begin with an underscore. JAX changes them without notice, and so the text of its passes and what its
compiler writes to a folder, which are here, too. Each module says what it gives, what a public
replacement lacks, and the versions of JAX it was tried on. If one of them changes,
`tests/jax_private/test_names.py` fails with a sentence.

`jax.extend.mlir.ir`, its dialects, and `make_ir_context` of `jax.interpreters.mlir` are public names, so code
that reads or changes MLIR imports those.

Nothing is imported here, so that a worker loads only its parts. `compile_hook` and `move_hook` run inside
the user's program and are loaded by path, without this package.
"""
