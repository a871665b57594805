"""The candidates of a search: every mesh of the machine with every combination of roles of its axes."""

import functools
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from inspector.layout import LARGE_AXES, Layout, from_json, specs_from_rules
from inspector.layout.changes import neighbors, without_axes
from inspector.layout.fields import parse_rules
from inspector.layout.mesh_shapes import factorings
from inspector.layout.presets import fitting
from inspector.model import SizeValue
from inspector.search.roles import MESH_ORDER, STAGE, LogicalAxes, Role, logical_axes_of, roles_of, rules_of
from inspector.sharding.abstract import AbstractState
from inspector.sharding.rules import Rule, partition_spec
from inspector.text.errors import InvalidInput, shown

MOST_CANDIDATES = 20_000  # ten minutes of propagation on one core
# Fields that a search can vary in addition to the mesh, the rules and the sizes of the model.
VARIED = ("donate", "device_order", "optimizer_axes")
# Sizes with which layers are in a scan, or differ.
_UNEQUAL = ("scan", "dense_layers", "global_every")
_ROUNDS = (1, 2, 4, 8)  # microbatches for each stage of a pipeline
_NO_AXES = "none"  # the value of optimizer_axes that shards the optimizer state as its parameters


@dataclass(frozen=True)
class Locks:
    """The limits of a search.

    Attributes:
      mesh: Keep the mesh: names and sizes of its axes.
      rules: Keep the rules, specs or patterns, and the names of the mesh axes.
      sizes: The size of some mesh axes by name; 1 for an axis that must be absent.
      logical: Rules of some logical axes.
    """

    mesh: bool = False
    rules: bool = False
    sizes: Mapping[str, int] = field(default_factory=dict)
    logical: tuple[Rule, ...] = ()


@dataclass(frozen=True)
class Space:
    """All candidates for one layout.

    Attributes:
      layout: The layout to improve. Its model, sizes and target are kept.
      axes: The logical axes of the model by their part in it; None for a model without logical axes, of which
        only the sizes of the mesh axes vary.
      vary: Values of other fields by name, as text.
    """

    layout: Layout
    axes: LogicalAxes | None
    locks: Locks = Locks()
    vary: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def count(self) -> int:
        """Return the number of candidates, without making them."""
        seeds = sum(len(self._optimizer_axes(seed.axis_names)) for seed in self._seeds())
        others = math.prod(len(values) for values in self._fields.values())
        if not self._varies_stages or seeds * others > MOST_CANDIDATES:
            return (self._count_uses(self.layout) + seeds) * others
        return sum(map(self._count_uses, self._variations())) + seeds * others

    def _count_uses(self, layout: Layout) -> int:
        """Return the number of candidates with these sizes and fields, without seeds."""

        @functools.cache
        def on_meshes(names: tuple[str, ...], stage_axes: tuple[str, ...]) -> int:
            meshes = sum(1 for _ in self._on_meshes(layout, names, stage_axes))
            return meshes * len(self._optimizer_axes(names))

        return sum(on_meshes(names, self._stage_axes(layout, rules)) for names, rules in self._uses())

    def layouts(self) -> Iterator[Layout]:
        """Yield all candidates: first the layout itself and presets, then those with fewer mesh axes."""
        for layout in self._variations():
            for seed in self._seeds(layout):
                yield from self._with_optimizer_axes((seed,))
            for names, rules in self._uses():
                meshes = self._on_meshes(layout, names, self._stage_axes(layout, rules))
                yield from self._with_optimizer_axes([self._candidate(*mesh, rules) for mesh in meshes])

    @property
    def _varies_stages(self) -> bool:
        return self.layout.entry.pipeline is not None and (self.axes is None or bool(self.axes.stages))

    def _stage_axes(self, layout: Layout, rules: tuple[Rule, ...] | None) -> tuple[str, ...]:
        """Return the mesh axes that shard the stages of a pipeline; () if their number does not vary."""
        pipeline = layout.entry.pipeline
        if pipeline is None or not self._varies_stages:
            return ()
        if not layout.entry.has_rules:
            return (STAGE,)
        rules = layout.rules if rules is None else rules
        return next((axes for name, axes in rules if name == pipeline.stages), ())

    def _on_meshes(
        self, layout: Layout, names: tuple[str, ...], stage_axes: tuple[str, ...]
    ) -> Iterator[tuple[Layout, tuple[str, ...], tuple[int, ...]]]:
        """Yield the layout with the sizes of its pipeline, and the names and shape of each mesh."""
        for shape in self._shapes(names):
            if not self._varies_stages:
                yield layout, names, shape
                continue
            sizes = dict(zip(names, shape, strict=True))
            stages = math.prod(sizes.get(axis, 1) for axis in stage_axes)
            for own in self._pipelines(layout, stages):
                yield replace(layout, sizes={**layout.sizes, **own}), names, shape

    def _pipelines(self, layout: Layout, stages: int) -> Iterator[dict[str, SizeValue]]:
        """Yield the stages and microbatches with one stage on each device; nothing if layers are left.

        There are `_ROUNDS` microbatches for each stage, or the present number.
        """
        pipeline = layout.entry.pipeline
        assert pipeline is not None
        divided = (
            layout.sizes[name] for name, base in layout.entry.multiples.items() if base == pipeline.stages
        )
        if any(isinstance(size, int) and size % stages for size in divided):
            return
        if pipeline.stages in self.vary and layout.sizes[pipeline.stages] != stages:
            return
        if stages == 1 or pipeline.microbatches in self.vary:
            yield {pipeline.stages: stages}
            return
        batch, now = layout.sizes.get("batch"), layout.sizes[pipeline.microbatches]
        for count in dict.fromkeys((*(stages * rounds for rounds in _ROUNDS), now)):
            if not isinstance(batch, int) or not isinstance(count, int) or batch % count == 0:
                yield {pipeline.stages: stages, pipeline.microbatches: count}

    def near(self, layout: Layout) -> tuple[Layout, ...]:
        """Return the candidates that differ from another one in one rule, on the same mesh."""
        if self.locks.rules:
            return ()
        fixed = [name for name, _ in self.locks.logical]
        if self.axes is not None:
            fixed += self.axes.stages[:1]  # as many stages as their mesh axis has devices
        return tuple(neighbors(layout, fixed))

    @property
    def _fields(self) -> dict[str, tuple[str, ...]]:
        """The varied fields whose values do not depend on the mesh."""
        return {name: values for name, values in self.vary.items() if name != "optimizer_axes"}

    def _optimizer_axes(self, names: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Return the different values of `optimizer_axes` on a mesh with these axes, if they vary."""
        values = self.vary.get("optimizer_axes", (_NO_AXES,))
        every = (tuple(name for name in value.split("+") if name in names) for value in values)
        return list(dict.fromkeys(every))

    def _with_optimizer_axes(self, layouts: Sequence[Layout]) -> Iterator[Layout]:
        """Yield layouts with the same mesh axes, with each value of `optimizer_axes` if they vary."""
        if "optimizer_axes" not in self.vary or not layouts:
            yield from layouts
            return
        for axes in self._optimizer_axes(layouts[0].axis_names):
            yield from (replace(layout, optimizer_axes=axes) for layout in layouts)

    def _variations(self) -> Iterator[Layout]:
        """Yield the layout with each combination of values of the fields that the mesh does not change."""
        for values in itertools.product(*self._fields.values()):
            changed = dict(zip(self._fields, values, strict=True))
            yield _with_fields(self.layout, changed) if changed else self.layout

    def _seeds(self, layout: Layout | None = None) -> list[Layout]:
        layout = layout or self.layout
        if not self._keeps_locks(layout):
            return []
        seeds = {layout.key("mesh", "axes", "rules", "specs", "state_specs"): layout}
        if self.axes is not None and self.locks == Locks():
            for preset in fitting(layout.entry):
                applied = without_single_axes(preset.applied_to(layout))
                if self.axes.stages:  # no preset has a mesh axis for stages
                    applied = replace(applied, sizes={**applied.sizes, self.axes.stages[0]: 1})
                seeds.setdefault(applied.key("mesh", "axes", "rules", "specs"), applied)
        return list(seeds.values())

    def _keeps_locks(self, layout: Layout) -> bool:
        """Return whether the layout has the locked sizes and rules, so that it can be the best."""
        sizes = dict(zip(layout.axis_names, layout.mesh_shape, strict=True))
        return all(sizes.get(name, 1) == size for name, size in self.locks.sizes.items()) and all(
            rule in layout.rules for rule in self.locks.logical
        )

    def _uses(self) -> Iterator[tuple[tuple[str, ...], tuple[Rule, ...] | None]]:
        """Yield the names of the mesh axes with their rules; None keeps those of the layout."""
        if self.axes is None or self.locks.rules:
            yield self.layout.axis_names, None
            return
        entry, axes = self.layout.entry, self.axes
        for roles in self._roles(axes):
            names = tuple(role.axis for role in roles)
            if all(set(kept) <= set(names) for _, kept in self.locks.logical):
                yield names, rules_of(roles, entry, axes, self.locks.logical)

    def _roles(self, axes: LogicalAxes) -> Iterator[tuple[Role, ...]]:
        """Yield the roles of the mesh axes, with fewer axes first."""
        every = roles_of(axes)
        if self.locks.mesh:
            anything = tuple(dict.fromkeys(role.logical for use in every.values() for role in use))
            roles = {
                name: every.get(name) or tuple(Role(name, axes) for axes in anything)
                for name in self.layout.axis_names
            }
            sizes = zip(self.layout.axis_names, self.layout.mesh_shape, strict=True)
            # The role of an axis of size 1 changes nothing, so one is enough.
            yield from itertools.product(*(roles[name][: 1 if size == 1 else None] for name, size in sizes))
            return
        for count in range(1, LARGE_AXES + 1):
            for names in itertools.combinations(every, count):
                yield from itertools.product(*(every[name] for name in names))

    def _shapes(self, names: tuple[str, ...]) -> Iterator[tuple[int, ...]]:
        """Yield the sizes of mesh axes with these names that the locks allow."""
        if self.locks.mesh:
            yield self.layout.mesh_shape
            return
        fixed = dict(self.locks.sizes)
        if any(size > 1 and name not in names for name, size in fixed.items()):
            return
        if len(names) > LARGE_AXES:
            # Of a longer mesh, the axes of size 1 keep it: there would be millions of meshes.
            now = zip(self.layout.axis_names, self.layout.mesh_shape, strict=True)
            fixed |= {name: 1 for name, size in now if size == 1 and name not in fixed}
        least = 1 if self.axes is None or self.locks.rules else 2
        if any(fixed.get(name, least) < least for name in names):
            return
        free = [name for name in names if name not in fixed]
        left, rest = divmod(self.layout.devices, math.prod(fixed[name] for name in names if name in fixed))
        if rest or (not free and left != 1):
            return
        for shape in factorings(left, len(free), least) if free else [()]:
            sizes = fixed | dict(zip(free, shape, strict=True))
            yield tuple(sizes[name] for name in names)

    def _candidate(
        self,
        layout: Layout,
        names: tuple[str, ...],
        shape: tuple[int, ...],
        rules: tuple[Rule, ...] | None,
    ) -> Layout:
        changed = layout.on_mesh(shape, names)
        if rules is None:
            return changed
        if layout.entry.has_rules:
            return replace(changed, rules=rules)
        return replace(changed, specs=specs_from_rules(layout.entry, rules))


def space_of(
    layout: Layout,
    state: AbstractState,
    locks: Sequence[str] = (),
    vary: Sequence[str] = (),
) -> Space:
    """Return the candidates for a layout.

    Args:
      locks: `mesh`, `rules`, the size of a mesh axis such as `tensor=8`, or the rule of a logical axis such
        as `vocab=tensor`.
      vary: other fields with their values, such as `remat=none,full`.

    Raises:
      InvalidInput: a lock or a varied field is malformed, they contradict each other, or there are more than
        `MOST_CANDIDATES`.
    """
    searched = (layout.entry.has_rules or layout.entry.partitions) and state.names == "logical"
    varies = _varies_stages(layout, vary)
    axes = logical_axes_of(layout.entry, state, varies) if searched else None
    if axes is not None and not any(roles_of(axes)):
        raise InvalidInput(
            f"model {layout.model} names no dimensions of its batch or parameters, so layouts do not differ"
        )
    space = Space(layout, axes, _locks(locks, layout, axes), _vary(vary, layout, axes))
    count = space.count()
    if count > MOST_CANDIDATES:
        raise InvalidInput(
            f"the search has {count:,} candidates, at most {MOST_CANDIDATES:,} are allowed: lock mesh, "
            f"rules, or the size of a mesh axis such as {MESH_ORDER[-1]}=8"
            + (", or vary fewer values" if vary else "")
        )
    if not any(True for names, _ in space._uses() for _ in space._shapes(names)):
        raise InvalidInput(
            f"no mesh of {layout.devices} devices has {_text(space.locks.sizes)}: the locks contradict "
            "each other"
        )
    return space


def _varies_stages(layout: Layout, vary: Sequence[str]) -> bool:
    """Return whether the number of stages varies: in a pipeline, and if the user names them."""
    pipeline = layout.entry.pipeline
    if pipeline is None:
        return False
    named = any(text.partition("=")[0].strip() == pipeline.stages for text in vary)
    return named or layout.entry.own or layout.sizes[pipeline.stages] != 1


def without_single_axes(layout: Layout) -> Layout:
    """Return the layout without mesh axes of size 1, if that leaves one. Rules lose these axes."""
    sizes = dict(zip(layout.axis_names, layout.mesh_shape, strict=True))
    kept = {name: size for name, size in sizes.items() if size > 1}
    if not kept or len(kept) == len(sizes):
        return layout
    changed = without_axes(layout, sizes.keys() - kept.keys()).on_mesh(tuple(kept.values()), tuple(kept))
    return replace(changed, rules=tuple(dict.fromkeys(changed.rules)))


def _locks(texts: Sequence[str], layout: Layout, axes: LogicalAxes | None) -> Locks:
    locks = Locks()
    roles = roles_of(axes) if axes else {}
    names = dict.fromkeys((*roles, *layout.axis_names))
    logical = layout.entry.logical_axes
    for text in texts:
        name, separator, value = (part.strip() for part in text.partition("="))
        if text.strip() == "mesh":
            locks = replace(locks, mesh=True)
        elif text.strip() == "rules":
            locks = replace(locks, rules=True)
        elif separator and name in names:
            if not value.isascii() or not value.isdecimal() or not 1 <= int(value[:9]) <= 10**6:
                raise InvalidInput(
                    f"lock is {shown(text)}, but the size of mesh axis {name} must be a number from 1 up"
                )
            if locks.sizes.get(name, int(value)) != int(value):
                raise InvalidInput(f"lock {shown(text)} contradicts {name}={locks.sizes[name]}")
            locks = replace(locks, sizes={**locks.sizes, name: int(value)})
        elif separator and name in logical and layout.entry.has_rules:
            allowed = tuple(names)
            locks = replace(locks, logical=(*locks.logical, *parse_rules(text, allowed)))
        else:
            raise InvalidInput(
                f"lock is {shown(text)}, but must be mesh, rules, the size of a mesh axis "
                f"({', '.join(names)}) such as {next(iter(names))}=2, or the rule of a logical axis "
                f"({', '.join(logical) or 'the model has none'})"
            )
    product = math.prod(locks.sizes.values())
    if layout.devices % product:
        raise InvalidInput(
            f"locks {_text(locks.sizes)} need a multiple of {product} devices, but "
            f"{layout.target} has {layout.devices}"
        )
    if locks.mesh and locks.rules:
        raise InvalidInput("locks mesh and rules together leave nothing to search")
    if locks.mesh and locks.sizes:
        raise InvalidInput(f"lock mesh contradicts {_text(locks.sizes)}: the mesh has its sizes")
    return locks


def _vary(texts: Sequence[str], layout: Layout, axes: LogicalAxes | None) -> dict[str, tuple[str, ...]]:
    choices: dict[str, tuple[str, ...]] = {}
    allowed = (*VARIED, *layout.sizes)
    for text in texts:
        name, _, values = (part.strip() for part in text.partition("="))
        listed = tuple(dict.fromkeys(value.strip() for value in values.split(",") if value.strip()))
        if name not in allowed or not listed:
            raise InvalidInput(
                f"vary is {shown(text)}, but must be a field with values such as remat=none,full; the fields "
                f"are {', '.join(allowed)}"
            )
        choices[name] = listed
        if name == "optimizer_axes":
            _refuse_other_axes(listed, layout, axes)
            continue
        for value in listed:  # each must be allowed
            _with_fields(layout, {name: value}, "vary")
    return choices


def _with_fields(layout: Layout, texts: Mapping[str, str], what: str = "the layout") -> Layout:
    """Return the layout with other values of sizes and of other fields. Errors call it `what`."""
    plain = layout.to_json()
    sizes = {name: texts.get(name, value) for name, value in plain["sizes"].items()}
    others = {name: text for name, text in texts.items() if name not in sizes}
    return from_json({**plain, **others, "sizes": sizes}, what)


def _refuse_other_axes(values: Sequence[str], layout: Layout, axes: LogicalAxes | None) -> None:
    """Raise InvalidInput if a value of `optimizer_axes` has an axis that no candidate has."""
    allowed = tuple(dict.fromkeys((*(roles_of(axes) if axes else ()), *layout.axis_names)))
    for value in values:
        names = value.split("+")
        if value != _NO_AXES and (not set(names) <= set(allowed) or len(set(names)) < len(names)):
            raise InvalidInput(
                f"vary has optimizer_axes {shown(value)}, but must have {_NO_AXES} or mesh axes joined by "
                f"a plus sign, each once ({', '.join(allowed)})"
            )


def _text(sizes: Mapping[str, int]) -> str:
    return " and ".join(f"{name}={size}" for name, size in sizes.items()) or "these axes"


def activations_key(layout: Layout, axes: LogicalAxes | None) -> str:
    """Return text that candidates share if their activations have the same size on each device."""
    if axes is None:
        return layout.key("mesh", "sizes")
    sizes = dict(zip(layout.axis_names, layout.mesh_shape, strict=True))
    ways = []
    for name in (axes.batch, *axes.sequence, *axes.experts, *axes.parallel):
        rule = next((given for logical, given in layout.rules if logical == name), ())
        ways.append(math.prod(sizes[axis] for axis in rule))
    return f"{ways} {layout.key('sizes')} {layout.donate}"


def equal_layers(layout: Layout) -> int:
    """Return the number of equal layers that a built-in model has between its embeddings in a Python loop.

    It is 0 for other models. Without embeddings, the first layer has no gradient of its input.
    """
    sizes = layout.sizes
    unequal = sizes.get("stages", 1) != 1 or any(sizes.get(name) for name in _UNEQUAL)
    layers = sizes.get("layers")
    known = "vocab" in sizes and not layout.entry.own and not unequal
    return layers if known and isinstance(layers, int) else 0


def identity(layout: Layout) -> str:
    """Return text that two layouts share if they are equal up to the names of mesh axes.

    Rules are equal if they shard each logical axis, and each two of them in one array, alike.
    """
    place = {name: str(number) for number, name in enumerate(layout.axis_names)}
    plain = layout.to_json()
    for name in ("axes", "rules", "specs"):
        plain.pop(name, None)
    plain["optimizer_axes"] = [place[name] for name in layout.optimizer_axes]
    if layout.entry.has_rules:
        renamed = tuple((name, tuple(place.get(axis, axis) for axis in axes)) for name, axes in layout.rules)
        plain["use"] = _use(renamed, tuple(layout.entry.logical_axes), layout.entry.rules_semantics)
    else:
        plain["use"] = [
            (name, [[place.get(axis, axis) for axis in axes or ()] for axes in spec])
            for name, spec in sorted(layout.specs.items())
        ]
    return json.dumps(plain, sort_keys=True)


@functools.lru_cache(maxsize=4096)
def _use(rules: tuple[Rule, ...], names: tuple[str, ...], semantics: str) -> str:
    """Return the mesh axes that the rules give each logical axis and each two of them."""
    if semantics != "linen":
        return repr(sorted(dict(rules).items()))
    arrays: list[tuple[str, ...]] = [(name,) for name in names]
    arrays += [(name, other) for name in names for other in names if name != other]
    return repr([partition_spec(array, rules) for array in arrays])
