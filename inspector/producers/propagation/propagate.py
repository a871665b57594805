"""Worker job: the programs of a layout as Shardy propagates them, without a compile."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from inspector.compiled import program_text
from inspector.core import rules, typed_json
from inspector.core.snapshot import Collective, Origin, Program, ProgramArray, Spec
from inspector.layout import Layout, from_json
from inspector.producers.propagation import device_program, shardy
from inspector.producers.propagation.origins import Sources, origins_of
from inspector.producers.propagation.template import Lowered, template_of


def propagate(payload: dict[str, Any], report: Callable[..., None]) -> dict[str, Any]:
    """Worker job: a layout as JSON in, its propagated programs as JSON out. Needs no particular devices.

    The payload has `origins`: whether to record where shardings come from.
    """
    report("propagate")
    programs = propagated_programs(from_json(payload["layout"]), payload["origins"])
    return {"programs": [typed_json.encode(program) for program in programs]}


def propagated_programs(layout: Layout, origins: bool = True) -> tuple[Program, ...]:
    """Return init, train step and inference after propagation, with stage `propagated`.

    Args:
      origins: record where shardings come from, for all programs but init.

    Raises:
      InvalidInput: the model cannot be traced, or Shardy refuses a program.
    """
    template = template_of(layout)
    return tuple(
        propagated_program(lowered, layout, template.logical, origins and lowered.name != "init")
        for lowered in template.programs
    )


def _spec(layout: Layout, names: Spec) -> Spec:
    """Return the mesh axes of dimensions whose logical axes stand where mesh axes would."""
    return rules.partition_spec([axes[0] if axes else None for axes in names], layout.rules)


def propagated_program(
    lowered: Lowered, layout: Layout, logical: bool, origins: bool = True
) -> Program:
    """Return one lowered program after propagation.

    Args:
      logical: whether the module has logical axes, to which the layout's rules are applied.

    Raises:
      InvalidInput: Shardy refuses the program.
    """
    sizes = dict(zip(layout.axis_names, layout.mesh_shape, strict=True))
    module = lowered.module
    if logical:
        module = shardy.rewrite(module, sizes, functools.partial(_spec, layout))
    propagated = shardy.propagate(module, origins)
    with propagated.module.context:
        written = device_program.Writer(propagated.module, sizes).write()
    arrays = [
        *(ProgramArray("input", path, None, None, None) for path in lowered.inputs),
        *(ProgramArray("output", path, None, None, None) for path in lowered.outputs),
    ]
    read = program_text.read(written.text, layout.mesh(), arrays)
    sources = Sources(
        lowered.inputs,
        lowered.outputs,
        propagated.constraints,
        lowered.logical_axes,
        layout.rules,
    )
    with propagated.module.context:
        collectives = tuple(
            replace(each, origins=_origins(each, written.operations.get(each.name), sources))
            for each in read.collectives or ()
        )
    return Program(
        lowered.name,
        stage="propagated",
        flops_per_device=None if read.work is None else read.work.flops,
        collectives=None if read.collectives is None else collectives,
        work=read.work,
    )


def _origins(collective: Collective, operation: Any, sources: Sources) -> tuple[Origin, ...] | None:
    if operation is None or collective.mesh_axes is None:
        return None
    return origins_of(operation, collective.mesh_axes, sources) or None
