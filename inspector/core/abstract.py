"""The arrays of a model before they are created: shapes, dtypes and axis names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from inspector.core.snapshot import Group, Program
from inspector.core.typed_json import NonNegativeInt, Record


@dataclass(frozen=True)
class AbstractArray(Record):
    """One array from `jax.eval_shape`.

    Attributes:
      itemsize: Bytes per element.
      names: For each dimension one logical axis, or any number of mesh axes (see `AbstractState`).
        None if the model does not name the dimensions. The array is then replicated.
    """

    path: str
    group: Group
    shape: tuple[NonNegativeInt, ...]
    dtype: str
    itemsize: NonNegativeInt
    names: tuple[tuple[str, ...] | None, ...] | None


@dataclass(frozen=True)
class AbstractState(Record):
    """All arrays of a model: batch, train state and output. Their names are logical axes or mesh axes."""

    names: Literal["logical", "mesh"]
    arrays: tuple[AbstractArray, ...]
    versions: dict[str, str]


@dataclass(frozen=True)
class PropagatedPrograms(Record):
    """The programs of a layout after sharding propagation, without a compile."""

    programs: tuple[Program, ...]
