"""A model's programs, lowered once for every mesh and every set of rules.

A model with logical axes is lowered on an abstract mesh whose axes are the logical axes themselves, each of
size 1, with rules that map every name to itself. The module then carries logical names where it would carry
mesh axes, at its arguments, results and sharding constraints. Rules and a mesh are put in afterwards, without
tracing again (`shardy.rewrite`).

Models that read the rules as nnx does, models with mesh axes, and a user's own models are lowered on the
layout's own mesh, because their code may depend on it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType

from inspector.core.rules import Rule
from inspector.layout import Layout
from inspector.producers.build import Signature, build_model, reading_rules, signatures
from inspector.producers.describe import code_of
from inspector.producers.leaves import leaves_of
from inspector.producers.propagation import shardy
from inspector.producers.propagation.origins import LogicalAxes
from inspector.producers.propagation.xla_form import xla_form

# The platform decides how JAX lowers some operations, such as random numbers; shardings do not depend on it.
PLATFORM = "cpu"


@dataclass(frozen=True)
class Lowered:
    """One lowered program.

    Attributes:
      name: `init`, `train_step` or `apply`.
      module: StableHLO with `sdy` shardings. All arguments are kept, also unused ones.
      inputs, outputs: path of each flattened argument and result, in order.
      logical_axes: the logical axes of arguments and results by path. Empty if the module has mesh axes.
    """

    name: str
    module: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    logical_axes: Mapping[str, LogicalAxes]


@dataclass(frozen=True)
class Template:
    """The programs of a layout; `logical` if their mesh axes are names of logical axes."""

    programs: tuple[Lowered, ...]
    logical: bool


def template_of(layout: Layout) -> Template:
    """Return the layout's lowered programs, from the cache if only mesh or rules changed.

    Raises:
      InvalidInput: the model cannot be built or traced.
    """
    entry = layout.entry
    logical = entry.has_rules and entry.rules_semantics == "linen" and not entry.own
    fields = layout.to_json()
    if logical:
        # What changes neither shapes nor constraints is not part of the key.
        fields = {key: fields[key] for key in ("model", "sizes", "unconstrained") if key in fields}
    return _lowered(json.dumps(fields, sort_keys=True), _Hidden(layout), logical)


@dataclass(frozen=True)
class _Hidden:
    """A layout that is not part of a cache key."""

    layout: Layout

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hidden)

    def __hash__(self) -> int:
        return 0


@functools.lru_cache(maxsize=8)
def _lowered(_key: str, hidden: _Hidden, logical: bool) -> Template:
    layout = hidden.layout
    if logical:
        names = tuple(layout.entry.logical_axes)
        itself: tuple[Rule, ...] = tuple((name, (name,)) for name in names)
        layout = replace(layout, mesh_shape=(1,) * len(names), axis_names=names, rules=itself)
    mesh = AbstractMesh(
        layout.mesh_shape, layout.axis_names, axis_types=(AxisType.Auto,) * len(layout.axis_names)
    )
    model = build_model(layout)
    with jax.sharding.use_abstract_mesh(mesh), reading_rules(layout), code_of(layout):
        programs = [_lower(each, logical) for each in signatures(model, layout, mesh)]
    return Template(tuple(programs), logical)


def _lower(signature: Signature, logical: bool) -> Lowered:
    wanted = tuple(signature.outputs.values())
    jitted = jax.jit(
        signature.function,
        in_shardings=tuple(sharding for _, sharding in signature.inputs.values()),
        out_shardings=wanted[0] if len(wanted) == 1 else wanted,
        keep_unused=True,
    )
    lowered = jitted.trace(*signature.arguments).lower(lowering_platforms=(PLATFORM,))
    module = xla_form(lowered.compiler_ir("stablehlo"))
    results = lowered.out_info
    inputs = tuple(_paths(zip(signature.inputs, signature.arguments, strict=True)))
    outputs = tuple(
        _paths(zip(signature.outputs, (results,) if len(wanted) == 1 else results, strict=True))
    )
    names = dict(shardy.names_of_arguments(module, inputs, outputs)) if logical else {}
    return Lowered(signature.name, module, inputs, outputs, names)


def _paths(named: Any) -> Iterator[str]:
    for name, value in named:
        for leaf in leaves_of(value):
            yield "/".join(part for part in (name, leaf.path) if part not in ("state", ""))
