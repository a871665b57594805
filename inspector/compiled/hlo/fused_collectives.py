"""Reduce-scatters that the compiler for TPUs writes as fusions.

The text has no instruction for them. A fusion `kind=kCustom` calls a computation `all-reduce-scatter`: an
all-reduce, perhaps of a padded operand, of which each device keeps the slice of its partition id. Several
that were combined are an all-reduce of several arrays, and a tuple of slices. Only the fusion has the name
and the source line of the operation. The devices send the bytes of a reduce-scatter, half of those of an
all-reduce.

Source: texts that libtpu 0.0.42 wrote, with the emitters AllReduceScatterFusion and
SingleInputAllReduceScatterFusion.
"""

from dataclasses import replace

from inspector.compiled.hlo.module import Computation, Instruction, Module, operand_names, users_of

_REDUCED = "all-reduce"


def with_reduce_scatters(module: Module) -> Module:
    """Return a module in which fused reduce-scatters are instructions, with the metadata of their fusion.

    Each keeps the name that its all-reduce has in the text.
    """
    reducing = {
        computation.name
        for computation in module.computations
        if computation.complete
        and {_REDUCED, "partition-id"} <= {instruction.opcode for instruction in computation.instructions}
    }
    fusions = {
        called.computation: instruction
        for _, instruction in module.instructions
        if reducing and instruction.opcode == "fusion"
        for called in instruction.called
        if called.computation in reducing
    }
    if not fusions:
        return module
    return replace(
        module,
        computations=tuple(
            _with_reduce_scatter(computation, fusions[computation.name])
            if computation.name in fusions
            else computation
            for computation in module.computations
        ),
    )


def _with_reduce_scatter(computation: Computation, fusion: Instruction) -> Computation:
    """Return the computation of a fusion with a reduce-scatter, or the same one without any."""
    users = users_of(computation.instructions)
    changed: dict[str, Instruction] = {}
    for collective in computation.instructions:
        if collective.opcode != _REDUCED or collective.root:
            continue
        shape = collective.shape
        several = shape is not None and shape.parts is not None
        parts = users.get(collective.name, []) if several else [collective]
        parts = sorted(parts, key=lambda part: part.tuple_index or 0)
        slices = [user for part in parts for user in users.get(part.name, [])]
        count = len(shape.parts or ()) if shape is not None and several else 1
        if not len(parts) == len(slices) == count or not all(map(_is_cut, parts, slices)):
            continue
        texts = [own.shape_text or "" for own in slices]
        for part, own in zip(parts, slices, strict=True):
            changed[part.name] = part._replace(shape_text=own.shape_text)
            changed[own.name] = own._replace(
                opcode="bitcast", operands_text=f"(%{part.name})", attributes_text=""
            )
        metadata = fusion.attributes.get("metadata")
        own_metadata = f", metadata={metadata}" if metadata and not collective.metadata else ""
        changed[collective.name] = collective._replace(
            opcode="reduce-scatter",
            shape_text=f"({', '.join(texts)})" if several else texts[0],
            attributes_text=collective.attributes_text + own_metadata,
        )
    if not changed:
        return computation
    return replace(
        computation,
        instructions=tuple(
            changed.get(instruction.name, instruction) for instruction in computation.instructions
        ),
    )


def _is_cut(whole: Instruction, own: Instruction) -> bool:
    """Return whether an instruction slices the result of another one into equal parts of one dimension."""
    if own.opcode != "dynamic-slice" or next(iter(operand_names(own)), None) != whole.name:
        return False
    before, after = whole.shape, own.shape
    if before is None or after is None or len(before.dimensions) != len(after.dimensions):
        return False
    sizes = zip(before.dimensions, after.dimensions, strict=True)
    cut = [(size or 0, part or 0) for size, part in sizes if size != part]
    return len(cut) == 1 and cut[0][1] > 0 and cut[0][0] % cut[0][1] == 0
