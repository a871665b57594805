"""The work of a program on one device that does everything, by the logical axes of its arrays."""

import itertools
from collections import defaultdict
from dataclasses import replace

from cachetools import LRUCache, cached

from inspector.compare.search.bounds import Amounts, Dimensions, alternatives
from inspector.compiled import hlo
from inspector.compiled.hlo.analysis import Analysis
from inspector.compiled.hlo.flops import contracted_sizes, product
from inspector.compiled.hlo.module import Instruction, Module, operand_names, operand_shapes
from inspector.compiled.hlo.shapes import Shape
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Mesh, MeshAxis
from inspector.layout import Layout
from inspector.producers.partition.partition_layout import TRAIN_STEP, Setting, partitioned_module
from inspector.producers.partition.shardable import Shardable, key_of, shardable
from inspector.producers.partition.template import Template, template_key

# The least mesh for which XLA partitions a program. Nothing is sharded over it.
_UNUSED = Mesh((MeshAxis("unused", 2),), (0, 1))


def _key(template: Template, layout: Layout, name: str) -> str:
    setting = Setting.of(layout)
    return f"{template_key(layout)} {setting.kernel} {setting.kind} {name}"


@cached(LRUCache(8), key=_key)
def amounts_of(template: Template, layout: Layout, name: str) -> Amounts | None:
    """Return the work of one program of a template; None if it differs between meshes or is unknown."""
    lowered = next((program for program in template.programs if program.name == name), None)
    if lowered is None or not template.logical:
        return None
    known = shardable(lowered.without_names.restore())
    if known is None:
        return None
    setting = replace(Setting.of(layout), mesh=_UNUSED, rules=(), optimizer_axes=(), watched=None)
    try:
        module, _ = partitioned_module(lowered, setting, True, lowered.without_names)
    except InvalidInput:
        return None
    module = setting.as_compiled(module, _UNUSED)
    analysis = Analysis(module)
    fused = setting.traffic(analysis, sums=True)
    products: dict[tuple[str, Dimensions], float] = defaultdict(float)
    attention: dict[Dimensions, float] = defaultdict(float)
    for computation, instruction in module.instructions:
        matmul = product(computation, instruction)
        if matmul is None:
            continue
        runs = analysis.runs[computation.name].count
        if matmul.flops is None or matmul.dtype is None or runs is None:
            return None
        dimensions = None
        contracted = contracted_sizes(computation, instruction)
        first = _dimensions(next(iter(operand_shapes(computation, instruction)), None), known)
        result = _dimensions(instruction.shape, known)
        if contracted is not None and first is not None and result is not None:
            dimensions = alternatives(
                (*(names for _, names in one), *(names for size, names in other if size in contracted))
                for one, other in itertools.product(result, first)
            )
        products[matmul.dtype, dimensions] += float(matmul.flops) * runs
        if fused is not None and instruction.name in fused.attention:
            attention[dimensions] += float(matmul.flops) * runs
    traffic: dict[Dimensions, float] = defaultdict(float)
    shapes = _shapes(module)
    for name, count in {} if fused is None else fused.bytes.items():
        if name in shapes:
            sized = [_dimensions(shape, known) for shape in shapes[name]]
            values = (
                None if None in sized else [[names for _, names in v] for each in sized for v in each or ()]
            )
            traffic[None if values is None else alternatives(values)] += count
    kernel = setting.kernel
    return Amounts(
        lowered.name,
        dict(products),
        dict(attention),
        kernel.share(lowered.name == TRAIN_STEP) if kernel else 0.0,
        None if fused is None else dict(traffic),
        0.0 if fused is None else float(fused.fusions),
        known.given,
        hlo.work(module, analysis).not_counted,
        known.contractions,
    )


def _shapes(module: Module) -> dict[str, list[Shape | None]]:
    """Return the shapes of each array, and of the rows that are added to it: axes can share the work by both.

    Arrays from which rows are gathered are left out: each user of the rows reads them, unless a collective is
    between.
    """
    shapes = {instruction.name: [instruction.shape] for _, instruction in module.instructions}
    for computation, instruction in module.instructions:
        if instruction.opcode not in ("gather", "scatter"):
            continue
        rows = operand_shapes(computation, instruction)[-1]
        at: Instruction | None = instruction
        while at is not None:
            if instruction.opcode == "scatter":
                shapes.get(at.name, []).append(rows)
            elif at is not instruction:
                shapes.pop(at.name, None)
            at = computation.by_name.get(next(iter(operand_names(at)), None) or "")
    return shapes


def _dimensions(shape: Shape | None, known: Shardable) -> list[list[tuple[int, frozenset[str]]]] | None:
    """Return the size of each dimension with the axes that can shard it, of each value with this shape.

    None without a value.
    """
    if shape is None or shape.parts is not None or None in shape.dimensions:
        return None
    sizes = key_of([size or 0 for size in shape.dimensions])
    values = known.by_sizes.get(sizes)
    return None if values is None else [list(zip(sizes, names, strict=True)) for names in values]
