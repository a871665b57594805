"""The arrays of a model before they are created: shapes, dtypes and axis names."""

from dataclasses import dataclass
from typing import Literal

from inspector.records.snapshot import Array, Finding, Group, Program, Spec
from inspector.records.typed_json import NonNegativeInt, Record


@dataclass(frozen=True)
class AbstractArray(Record):
    """One array from `jax.eval_shape`.

    Attributes:
      itemsize: Bytes per element.
      names: For each dimension one logical axis, or any number of mesh axes (see `AbstractState`).
        None if the model does not name the dimensions. The array is then replicated.
      type_spec: The explicit mesh axes that shard each dimension, or None, from the type of an array whose
        dimensions the model does not name. None without explicit axes.
      given_spec: The PartitionSpec that the layout's `state_specs`, or those of the model, give the path.
      pattern: The pattern of the row of `state_specs` that gives it. None if no row does.
      memory_kind: The memory, other than that of the device, in which `state_specs` of the model keep it.
      unmatched: Whether the model has `state_specs` and none of them gives the path a PartitionSpec.
    """

    path: str
    group: Group
    shape: tuple[NonNegativeInt, ...]
    dtype: str
    itemsize: NonNegativeInt
    names: tuple[tuple[str, ...] | None, ...] | None
    type_spec: Spec | None = None
    given_spec: Spec | None = None
    pattern: str | None = None
    unmatched: bool = False
    memory_kind: str | None = None

    @property
    def logical_axes(self) -> tuple[str | None, ...]:
        """The logical axis of each dimension, if `names` are logical axes; empty without names."""
        return tuple(names[0] if names else None for names in self.names or ())


@dataclass(frozen=True)
class AbstractState(Record):
    """All arrays of a model: batch, train state and output. Their names are logical axes or mesh axes.

    Attributes:
      refused: The programs that JAX refuses to trace on explicit axes. Arrays that only they make are absent.
    """

    names: Literal["logical", "mesh"]
    arrays: tuple[AbstractArray, ...]
    versions: dict[str, str]
    refused: tuple[Program, ...] = ()


@dataclass(frozen=True)
class PartitionedPrograms(Record):
    """The programs of a layout after sharding propagation, without a compile.

    Attributes:
      arrays: Activations and gradients of the train step.
      findings: A note for each program that cannot be partitioned.
      only: The names of the programs that were asked for; empty if all were.
      on_platforms: The same programs after the passes for other platforms, without origins.
      complete: Whether origins, conflicts and arrays are known. If not, only the totals of programs are.
    """

    programs: tuple[Program, ...]
    arrays: tuple[Array, ...] = ()
    findings: tuple[Finding, ...] = ()
    only: tuple[str, ...] = ()
    on_platforms: tuple[Program, ...] = ()
    complete: bool = True
