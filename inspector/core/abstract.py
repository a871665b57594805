"""The arrays of a model before anything is built: shapes, types and the names at their dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from inspector.core.snapshot import Group, Program
from inspector.core.typed_json import NonNegativeInt, Record


@dataclass(frozen=True)
class AbstractArray(Record):
    """One array as `jax.eval_shape` gives it. `itemsize` is bytes an element.

    `names` has an entry for each dimension: logical axes (at most one each) or mesh axes (any number),
    as `AbstractState.names` says; None as a whole where the model names nothing, which means replicated.
    """

    path: str
    group: Group
    shape: tuple[NonNegativeInt, ...]
    dtype: str
    itemsize: NonNegativeInt
    names: tuple[tuple[str, ...] | None, ...] | None


@dataclass(frozen=True)
class AbstractState(Record):
    """Every array of a model: batch, train state, output."""

    names: Literal["logical", "mesh"]
    arrays: tuple[AbstractArray, ...]
    versions: dict[str, str]


@dataclass(frozen=True)
class PropagatedPrograms(Record):
    """The programs of a layout after sharding propagation, without a compile."""

    programs: tuple[Program, ...]
