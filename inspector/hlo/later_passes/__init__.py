"""Passes of XLA that follow its partitioner and change the bytes sent, on the HLO of one device.

The partitioned program is the same for every platform, unless a compiler simplifies it before. The
compilers for TPUs and GPUs then change its collectives. Their passes that change the bytes on the wire are
applied here; passes that only combine collectives, or run them asynchronously, are not. The compiler for CPUs
does not have these passes.

Two more undo what JAX and a model did because the program was lowered for CPUs (`ragged_products`, and
`_with_ragged_transfers`).

The sources of the passes for GPUs are public: `RunCollectiveOptimizationPasses` in
`xla/service/gpu/gpu_compiler.cc` has their order, `xla/hlo/transforms/collectives` and `xla/service` have the
passes. `AllReduceSplitter` is one of them, but changed no program that was compiled for comparison. The
passes of the compiler for TPUs were measured with libtpu 0.0.42 (`benchmarks/agreement.py`).
"""

from collections.abc import Sequence
from dataclasses import replace

from inspector.hlo.later_passes import gathers, ragged_products, reductions, slices
from inspector.hlo.later_passes.passes import MOVES, Passes
from inspector.hlo.module import Computation, Instruction, Module
from inspector.hlo.ragged_rows import EXPECTED_ROWS
from inspector.records.collectives import BY_OPCODE
from inspector.records.snapshot import Platform


def as_compiled_for(
    module: Module,
    kind: Platform | None,
    slice_numbers: Sequence[int] | None = None,
    torus: Sequence[int] | None = None,
) -> Module:
    """Return a partitioned module after the passes of a kind of machine that change the bytes sent.

    Collectives that stay keep their names, and all have the metadata of those that they replace. A collective
    that replaces others has the name of the first of them, with its own operation: `reduce-scatter.7`
    replaces `all-reduce.7`.

    Args:
      module: the program of one device after XLA's partitioner.
      kind: of machine. Nothing is changed for CPUs and for None, an unknown machine.
      slice_numbers: the number of the TPU slice of each partition; None for one slice.
      torus: the sides of a TPU slice in chips; None if they are unknown.
    """
    if kind not in ("tpu", "gpu"):
        return module
    computations = tuple(
        _passed(module, computation, kind, slice_numbers, torus) for computation in module.computations
    )
    return module if computations == module.computations else replace(module, computations=computations)


def with_ragged_products(module: Module) -> Module:
    """Return a module with the products of groups of rows that JAX lowers for TPUs; the same without any."""
    changed = {}
    for computation in module.computations:
        if computation.complete and ragged_products.may_have(computation):
            passes = Passes(module, computation, None)
            passes.apply(("dot",), ragged_products.restore)
            changed[computation.name] = passes.edited.computation()
    computations = tuple(changed.get(each.name, each) for each in module.computations)
    return module if computations == module.computations else replace(module, computations=computations)


def _passed(
    module: Module,
    computation: Computation,
    kind: Platform,
    slice_numbers: Sequence[int] | None,
    torus: Sequence[int] | None,
) -> Computation:
    """Return a computation after the passes; the same one if they change nothing."""
    computation = _with_ragged_transfers(computation)
    sends = any(instruction.opcode in BY_OPCODE for instruction in computation.instructions)
    ragged = kind == "tpu" and ragged_products.may_have(computation)
    if not computation.complete or not (sends or ragged):
        return computation
    passes = Passes(module, computation, slice_numbers, torus)
    passes.apply(("copy",), _remove_copy)
    (_run_for_gpu if kind == "gpu" else _run_for_tpu)(passes)
    return passes.edited.computation()


def _with_ragged_transfers(computation: Computation) -> Computation:
    """Return a computation with the ragged all-to-alls that a model has where XLA has the operation.

    For CPUs, it has an all-to-all with room for every row, which states the expected number of rows.
    """
    if not any(map(_is_padded, computation.instructions)):
        return computation
    instructions = (
        instruction._replace(opcode="ragged-all-to-all") if _is_padded(instruction) else instruction
        for instruction in computation.instructions
    )
    return replace(computation, instructions=tuple(instructions))


def _is_padded(instruction: Instruction) -> bool:
    shape = instruction.shape if instruction.opcode == "all-to-all" else None
    # One dimension have the positions of the rows.
    return shape is not None and len(shape.dimensions) > 1 and EXPECTED_ROWS in instruction.attributes_text


def _remove_copy(passes: Passes, copy: Instruction) -> None:
    """Use a collective itself instead of a copy of it: `AlgebraicSimplifier`.

    Sharding constraints leave such copies.
    """
    source = passes.edited.operand(copy)
    if source.opcode in BY_OPCODE and source.shape_text == copy.shape_text:
        passes.edited.replace(copy, source)


def _run_for_gpu(passes: Passes) -> None:
    passes.apply(("all-reduce",), reductions.fold)
    passes.apply(("add",), reductions.reassociate)
    passes.apply(MOVES, gathers.narrow_around_conversion)
    passes.apply(("all-reduce",), reductions.scatter)
    passes.apply(("all-gather",), gathers.gather_before_broadcast)


def _run_for_tpu(passes: Passes) -> None:
    passes.apply(("dot",), ragged_products.restore)
    passes.apply(("all-reduce",), reductions.fold)
    passes.apply(("all-gather",), gathers.fold_gathers)
    passes.apply(("add",), reductions.reassociate)
    gathers.gather_again(passes)
    if passes.slices is not None:
        passes.apply(("all-reduce",), slices.scatter_between_slices)
        passes.apply(("all-reduce",), slices.reduce_in_slices)
        passes.apply(("all-gather",), slices.gather_in_slices)
        passes.apply(("collective-permute",), slices.permute_in_slices)
    passes.apply(MOVES, gathers.narrow_for_products)
    gathers.merge_equal(passes)
    passes.apply(("all-reduce",), reductions.scatter_by_fusion)
    if passes.slices is not None:
        passes.apply(("all-reduce", "reduce-scatter"), slices.send_tiles)
