"""What to inspect: a model with sizes, a mesh, rules that map the model to it, and a target."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inspector.layout.fields import LOCAL, print_mesh, print_row_spec
from inspector.machines import targets
from inspector.machines.targets import Target
from inspector.model import ModelEntry, Partitions, SizeValue
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.prediction.step_program import STEPS
from inspector.records.snapshot import Mesh, MeshAxis, Spec
from inspector.sharding.rules import Rule
from inspector.sharding.state_specs import Fsdp, SpecRow

# JAX numbers the devices of process i from i times this number.
DEVICE_NUMBERS_PER_PROCESS = 2048


@dataclass(frozen=True)
class Layout:
    """A valid layout. `specs` is empty for models with logical axes, `rules` for the others.

    `state_specs` has the PartitionSpecs by path of a model that has `ModelEntry.state_specs`.
    `optimizer_axes` are mesh axes over which the optimizer state is sharded in addition to its parameters.
    `compiler_options` has the name and value of options of XLA, in the order of their names. All are in the
    table of `inspector.machines.compiler_options`.
    `axis_types` has `auto` or `explicit` for each mesh axis. It is empty if all are auto.
    """

    model: str
    sizes: Mapping[str, SizeValue]
    mesh_shape: tuple[int, ...]
    axis_names: tuple[str, ...]
    rules: tuple[Rule, ...]
    specs: Partitions
    target: str
    steps: int
    unconstrained: tuple[str, ...] = ()
    timeit: bool = False
    processes: int = 1
    donate: bool = False
    trace: bool = False
    device_order: str = "row-major"
    axis_types: tuple[str, ...] = ()
    optimizer_axes: tuple[str, ...] = ()
    compiler_options: tuple[tuple[str, str], ...] = ()
    state_specs: tuple[SpecRow, ...] = ()

    @property
    def entry(self) -> ModelEntry:
        return CATALOGUE[self.model]

    @property
    def programs(self) -> tuple[str, ...]:
        """Return the names of the model's programs other than init."""
        entry = self.entry
        return entry.programs if entry.programs_of is None else entry.programs_of(self.sizes)

    @property
    def step_program(self) -> str:
        """Return the program of a step, which decides between layouts: `init` if there is no other."""
        return next((name for name in STEPS if name in self.programs), next(iter(self.programs), "init"))

    @functools.cached_property
    def machine(self) -> Target | None:
        """Return the machine that it is compiled for; None for devices of this machine and plans."""
        return targets.parse(self.target) if targets.is_target(self.target) else None

    @property
    def is_local(self) -> bool:
        """Return whether it runs on the devices that JAX finds on this machine."""
        return self.target == LOCAL

    @property
    def devices(self) -> int:
        return math.prod(self.mesh_shape)

    @property
    def explicit_axes(self) -> tuple[str, ...]:
        """Return the names of the explicit mesh axes."""
        # A mesh without explicit axes has no types.
        pairs = zip(self.axis_names, self.axis_types, strict=False)
        return tuple(name for name, kind in pairs if kind == "explicit")

    def on_mesh(self, shape: tuple[int, ...], axis_names: tuple[str, ...]) -> Layout:
        """Return the layout on another mesh. Axes of the same name keep their type and their use."""
        types = tuple("explicit" if name in self.explicit_axes else "auto" for name in axis_names)
        return dataclasses.replace(
            self,
            mesh_shape=shape,
            axis_names=axis_names,
            axis_types=types if "explicit" in types else (),
            optimizer_axes=tuple(name for name in self.optimizer_axes if name in axis_names),
        )

    def mesh(self) -> Mesh:
        """Return the mesh of a Snapshot: devices in JAX's order, row by row.

        Processes have equal shares of the devices. For a target, the processes are unknown until the
        compile, and the kind of local devices is unknown until a run.
        """
        explicit = self.explicit_axes
        axes = tuple(
            MeshAxis(name, size, "explicit" if name in explicit else "auto")
            for name, size in zip(self.axis_names, self.mesh_shape, strict=True)
        )
        return _mesh_of(axes, self.processes, self.target)

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "model": self.model,
            "sizes": dict(self.sizes),
            "mesh": print_mesh(self.mesh_shape),
            "axes": list(self.axis_names),
        }
        if self.entry.has_rules:
            plain["rules"] = [[name, list(axes)] for name, axes in self.rules]
        elif self.entry.state_specs is None:
            plain["specs"] = {place: _plain(spec) for place, spec in self.specs.items()}
        if self.entry.state_specs is not None:
            plain["state_specs"] = [[row.pattern, _plain(row.spec)] for row in self.state_specs]
        plain |= {"target": self.target, "steps": self.steps}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name != "state_specs" and field.default not in (dataclasses.MISSING, value):
                plain[field.name] = list(value) if isinstance(value, tuple) else value
        if self.compiler_options:
            plain["compiler_options"] = dict(self.compiler_options)
        if not self.axis_types and any(axis.type == "explicit" for axis in self.entry.mesh):
            plain["axis_types"] = ["auto"] * len(self.axis_names)
        return plain

    def key(self, *fields: str) -> str:
        """Return text that two layouts share only if they are equal, in these fields or in all."""
        plain = self._as_json
        chosen = {name: plain[name] for name in fields if name in plain} if fields else plain
        return json.dumps(chosen, sort_keys=True)

    @functools.cached_property
    def _as_json(self) -> dict[str, Any]:
        return self.to_json()


def _plain(spec: Spec | Fsdp) -> str | list[list[str] | None]:
    if isinstance(spec, Fsdp):
        return print_row_spec(spec)
    return [list(axes) if axes else None for axes in spec]


@functools.lru_cache(32)  # layouts share it; one of 100,000 devices takes about 10 MB
def _mesh_of(axes: tuple[MeshAxis, ...], processes: int, target: str) -> Mesh:
    machine = targets.parse(target) if targets.is_target(target) else None
    devices = math.prod(axis.size for axis in axes)
    share = devices // processes
    slices = machine.slices if machine else 1
    places = tuple(range(devices))
    return Mesh(
        axes=axes,
        devices=tuple(
            process * DEVICE_NUMBERS_PER_PROCESS + device
            for process in range(processes)
            for device in range(share)
        ),
        processes=None if machine else tuple(place // share for place in places),
        device_kind=machine.chip.title if machine else None if target == LOCAL else "cpu",
        topology=machine.slice.shape if machine and machine.slice else None,
        # One block of the mesh after another.
        slice_index=None if slices == 1 else tuple(place // (devices // slices) for place in places),
    )
