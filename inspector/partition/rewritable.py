"""Modules whose mesh and shardings are written for one layout after the other, in place."""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from inspector.partition.shardings import (
    SHARDING,
    axes_of_dimensions,
    closed_dimensions,
    spec_of,
    tensor_sharding,
)
from inspector.records.snapshot import Spec
from inspector.text.errors import InvalidInput
from inspector.tracing.mlir.walk import operations, set_signature_attributes, signature_attributes, symbols

Mapped = Callable[[Spec], Spec]
# A module, or its operation: passes change either.
AnyModule: TypeAlias = ir.Module | ir.Operation
_MESH = ("mesh", "stablehlo.mesh")


class RewritableModule:
    """A module, and the shardings that it had at first: those of its template.

    `write` and `restore` start from the template, so nothing of the layout before remains.

    Attributes:
      module: a module, which is changed from now on.
    """

    def __init__(self, module: AnyModule) -> None:
        self.module = module
        operation = module.operation
        self._meshes = [
            (attributes, {name: attributes[name] for name in _MESH if name in attributes})
            for attributes in (mesh.attributes for mesh in symbols(operation, "sdy.mesh").values())
        ]
        self._signatures = [
            (function, name, key, signature_attributes(function, key))
            for name, function in symbols(operation, "func.func").items()
            for key in ("arg_attrs", "res_attrs")
            if key in function.attributes
        ]
        self._shardings = [
            (attributes, key, attributes[key])
            for attributes in (inner.attributes for inner in operations(operation))
            for key in (SHARDING, "sharding")
            if key in attributes
        ]

    def write(
        self,
        mesh: Mapping[str, int],
        mapping: Mapped,
        more: Mapping[str, Sequence[Mapped | None]] | None = None,
    ) -> AnyModule:
        """Write another mesh and other shardings into the module, and return it.

        Args:
          mesh: size of each mesh axis, in order.
          mapping: maps the spec of an argument, a result or a sharding constraint from the template's names
            to mesh axes.
          more: for `arg_attrs` and `res_attrs` of `main`, a change of the spec of each argument or result
            that follows; None keeps it.
        """
        with self.module.context, ir.Location.unknown():
            # Many values of a module have the same sharding.
            mapped = functools.cache(functools.partial(_mapped_attribute, mapping=mapping))
            axes = [sdy.MeshAxisAttr.get(name, size) for name, size in mesh.items()]
            for attributes, _ in self._meshes:
                attributes["mesh"] = sdy.MeshAttr.get(axes)
                if "stablehlo.mesh" in attributes:
                    del attributes["stablehlo.mesh"]
            for function, name, key, listed in self._signatures:
                changes = more[key] if more and name == "main" else ()
                set_signature_attributes(function, key, _mapped_listed(listed, mapped, changes))
            for attributes, key, attribute in self._shardings:
                attributes[key] = mapped(attribute)
        return self.module

    def restore(self) -> AnyModule:
        """Return the module with the mesh and the shardings of the template."""
        with self.module.context, ir.Location.unknown():
            for attributes, named in self._meshes:
                for name, attribute in named.items():
                    attributes[name] = attribute
            for function, _, key, listed in self._signatures:
                set_signature_attributes(function, key, listed)
            for attributes, key, attribute in self._shardings:
                attributes[key] = attribute
        return self.module


def _mapped_listed(
    listed: Sequence[dict[str, Any]],
    mapped: Callable[[Any], Any],
    changes: Sequence[Mapped | None],
) -> list[dict[str, Any]]:
    """Return the attributes of arguments or results with their shardings mapped, and then changed."""
    after = []
    for named, change in itertools.zip_longest(listed, changes):
        attributes = dict(named)
        if SHARDING in attributes:
            attributes[SHARDING] = mapped(attributes[SHARDING])
            if change is not None:
                attributes[SHARDING] = _mapped_attribute(attributes[SHARDING], change)
        after.append(attributes)
    return after


def _mapped_attribute(attribute: ir.Attribute, mapping: Mapped) -> ir.Attribute:
    if sdy.TensorShardingAttr.isinstance(attribute):
        return _mapped(sdy.TensorShardingAttr(attribute), mapping)
    if sdy.TensorShardingPerValueAttr.isinstance(attribute):
        arrays = sdy.TensorShardingPerValueAttr(attribute).shardings
        return sdy.TensorShardingPerValueAttr.get(
            [_mapped(sdy.TensorShardingAttr(sharding), mapping) for sharding in arrays]
        )
    return attribute


def _mapped(sharding: sdy.TensorShardingAttr, mapping: Mapped) -> sdy.TensorShardingAttr:
    axes = axes_of_dimensions(sharding)
    if any(part is not None for dimension in axes for _, part in dimension):
        raise InvalidInput("it shards over a part of a mesh axis, which other meshes lack")
    spec = mapping(spec_of(axes))
    whole = [tuple((name, None) for name in axes or ()) for axes in spec]
    return tensor_sharding(sharding.mesh_or_ref, whole, closed_dimensions(sharding))
