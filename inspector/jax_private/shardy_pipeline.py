"""The passes with which jaxlib propagates shardings, as text, cut at the point that this project needs.

It depends on the printed form of a pipeline: the names of passes, their order, and their options.

Public replacement: none. `sdy-propagation-pipeline` is the name of a whole pipeline, without options.
Tried on JAX 0.10.2 and 0.12.0.
"""

import functools
import re

from jax.extend.mlir import ir, passmanager

# The options with which passes note the source of each mesh axis, and the steps of its propagation.
_NOTES = ("debug-sharding-origins", "debug-propagation-edge-sharding")


@functools.cache
def pipelines(origins: bool) -> tuple[str, str]:
    """Return the pipeline that jaxlib itself runs, in two parts, with notes about origins if wanted.

    After the first, sharding constraints still have their names. The second ends before Shardy would make
    reshards explicit, which XLA's partitioner does on its own.
    """
    with ir.Context():
        printed = str(passmanager.PassManager.parse("builtin.module(sdy-propagation-pipeline)"))
    text = printed.removeprefix("builtin.module(").removesuffix(")")
    text = text.replace("sdy-save-module,", "").replace("module-dump-directory= ", "")
    # The canonicalizer would merge equal constraints.
    text = re.sub(r"canonicalize\{[^{}]*\{[^{}]*\}[^{}]*\},", "", text)
    for note in _NOTES if origins else ():  # also `sink-` of it, which moves the notes to values
        text = text.replace(f"{note}=false", f"{note}=true")
    before, _, _ = text.partition("func.func(sdy-insert-explicit-reshards{")
    propagation, constraint, export = before.partition("func.func(sdy-sharding-constraint-to-reshard)")
    return (
        f"builtin.module({propagation.rstrip(',')})",
        f"builtin.module({constraint}{export.rstrip(',')})",
    )
