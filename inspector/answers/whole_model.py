"""The whole model in one picture: every array with its cuts and copies, and what moves because of them."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from inspector.answers import assessed, reasons, subject, unknown
from inspector.answers.section import Block, Drawing
from inspector.assessment import assess
from inspector.compiled import collective_roles
from inspector.compiled.collective_roles import (
    ACTIVATIONS,
    EXPERTS,
    GRADIENTS,
    OTHER_ARRAYS,
    PARAMETERS,
    by_role,
)
from inspector.figures.whole_model.picture import draw
from inspector.figures.whole_model.record import (
    Dimension,
    Move,
    Tile,
    TileGroup,
    WholeModel,
    along_axes,
    coordinates,
    telling_device,
)
from inspector.hlo.op_name import BACKWARD, PHASES, parse_op_name, phases_of
from inspector.machines.hardware import Chip
from inspector.machines.mesh_links import by_network
from inspector.prediction.evidence import for_chip
from inspector.prediction.step_program import step_program
from inspector.records.assessment import MEMORY
from inspector.records.snapshot import Array, Collective, Mesh, Phase, Program, Snapshot
from inspector.records.statistics import sum_known
from inspector.sharding.folding import NUMBER, fold, numbers_text
from inspector.sharding.memory_kinds import in_host_memory, memory_kind
from inspector.sharding.meshes import mesh_name
from inspector.sharding.sharding_text import mesh_text
from inspector.sharding.totals import STATE_GROUPS, counted_arrays, totals
from inspector.sharding.traffic import executions_of, least_bytes, wire_bytes_of_iteration, wire_bytes_of_run
from inspector.text.formatting import axis_of, bytes_text, counted
from inspector.text.program_names import run_of

KEY = "whole_model"

# Subject, operation, mesh axes and network.
_Kind = tuple[str, str, tuple[str, ...] | None, str | None]

_MOST_GROUPS = 10
_MOST_TILES = 16  # of a group
# Names of an array that say nothing without its module.
_GENERIC = frozenset(
    {"kernel", "scale", "weight", "weights", "w", "value", "embedding", "table", "bias", "b"}
)
_LAYERS = re.compile(r"layer|block|stack|scan|stage", re.IGNORECASE)
_LAYER_AXES = frozenset({"layer", "layers", "blocks", "stages", "stage"})


def blocks(
    snapshot: Snapshot, chip: Chip | None = None, device: int | None = None, titled: bool = True
) -> tuple[Block, ...]:
    """Return the picture, or why there is none. The arguments are those of `of_snapshot` and of `draw`."""
    model = of_snapshot(snapshot, chip, device)
    if model is None:
        missing = unknown.no_arrays(snapshot) or unknown.no_mesh(snapshot)
        return () if missing is None else (missing,)
    shown = model if titled else replace(model, facts=(), rejected="")  # they are in the head
    drawing = Drawing(KEY, "The whole model", lambda width_px: draw(shown, width_px=width_px, titled=titled))
    return (drawing,)


def of_snapshot(snapshot: Snapshot, chip: Chip | None = None, device: int | None = None) -> WholeModel | None:
    """Return the picture's facts; None if the Snapshot has no mesh or no array of a known shape.

    Args:
      device: the position in mesh order of the device whose blocks are filled; by default one
        with another index along each mesh axis.
    """
    arrays = _model_arrays(snapshot)
    assessment = assess(snapshot, chip)
    # A partitioned program that JAX refused runs nowhere, so nothing moves.
    # On a chosen chip, traffic is that of the program of the verdict, which is not the one of the CPU.
    program = step_program(for_chip(snapshot, chip)) if assessment.rejected is None else None
    mesh = (None if program is None else snapshot.mesh_of(program)) or snapshot.mesh or _only_device(arrays)
    if mesh is None or not arrays or len({*mesh.devices}) != mesh.size:
        return None
    if device is None or not 0 <= device < mesh.size:
        device = telling_device(mesh)
    reader = _Reader(snapshot, mesh, coordinates(mesh, device), program)
    groups, elsewhere = reader.groups(arrays)
    facts: tuple[str, ...] = ()
    missing = "" if assessment.rejected else "What moves is known once the program is partitioned."
    if program is not None:
        unknown_traffic = assessment.unknown_traffic
        missing = f"Traffic unknown: {unknown_traffic}" if unknown_traffic else ""
        facts = (f"{MEMORY}: {assessed.fits_text(assessment)}", f"Step: {assessed.step_text(assessment)}")
    name = subject.model(snapshot) or subject.made(snapshot)
    return WholeModel(
        title=f"{name} on {mesh_text(mesh, max_axes_of_size_1=0)}",
        groups=groups,
        elsewhere=elsewhere,
        mesh=mesh,
        device=device,
        partners=_partners(mesh, device, program),
        missing=missing,
        rejected="" if assessment.rejected is None else assessed.rejection(assessment.rejected),
        facts=facts,
        step=run_of(None if program is None else program.name),
        held=_held_text(arrays, snapshot),
        lane=reader.lane,
        more=reader.more,
    )


def _held_text(arrays: Sequence[Array], snapshot: Snapshot) -> str:
    """Return the bytes of these parameters on one device, and with the optimizer state; "" without one."""
    own = sum_known(array.bytes_per_device for array in arrays)
    state = totals(snapshot, ("params", "opt_state")).per_device
    if own is None or state is None or state <= own or any(array.group != "params" for array in arrays):
        return ""
    return f"Parameters {bytes_text(own)}, {bytes_text(state)} with optimizer state"


def _only_device(arrays: Sequence[Array]) -> Mesh | None:
    """Return a mesh without axes if all arrays are whole on one device, as in a program without a mesh."""
    devices = {shard.device for array in arrays for shard in array.shards or ()}
    return Mesh((), (*devices,)) if len(devices) == 1 and all(array.shards for array in arrays) else None


def _partners(mesh: Mesh, device: int, program: Program | None) -> dict[str, list[int]] | None:
    """Return `WholeModel.partners`: all along an axis, or those of the permutes if nothing else is sent."""
    if program is None or program.collectives is None:
        return None
    sent = [collective for collective in program.collectives if collective.wire_bytes_per_device != 0]
    if any(collective.mesh_axes is None and collective.axis_parts is None for collective in sent):
        return None
    partners = {}
    for axis, positions in along_axes(mesh, device).items():
        over = [collective for collective in sent if axis in map(axis_of, collective.axis_names)]
        pairs = [collective.source_target_pairs for collective in over]
        if over and all(pairs):
            ends = {end for own in pairs for pair in own or () if device in pair for end in pair}
            positions = [position for position in positions if position in ends]
        partners[axis] = positions if over else []
    return partners


def _model_arrays(snapshot: Snapshot) -> list[Array]:
    """Return the parameters, else the state, else all arrays, of one program if each lists its own."""
    arrays = [array for array in counted_arrays(snapshot) if array.shape is not None]
    for groups in (("params", "cache"), STATE_GROUPS):
        chosen = [array for array in arrays if array.group in groups]
        if any(array.group == groups[0] for array in chosen):
            return chosen
    inside = ("activation", "gradient", "output")
    return [array for array in arrays if array.group not in inside] or arrays


@dataclass
class _Layer:
    """Arrays below one numbered key of a path."""

    number: str
    arrays: list[Array]


class _Reader:
    """Reads the groups of one Snapshot."""

    def __init__(
        self, snapshot: Snapshot, mesh: Mesh, places: Mapping[str, int], program: Program | None
    ) -> None:
        self._snapshot, self._mesh, self._places, self._program = snapshot, mesh, places, program
        used = (program.first_used if program is not None else None) or ()
        self._rank = {path: number for number, path in enumerate(used)}
        # The arrays of a recorded run have other paths than the inputs of its programs: the ends are alike.
        for number, path in enumerate(used):
            keys = _segments(path)
            for start in range(1, len(keys)):
                self._rank.setdefault("/".join(keys[start:]), number)
        # The optimizer state of a parameter has its shape, and a path that ends with its path.
        self._moments: dict[str, list[Array]] = defaultdict(list)
        for array in snapshot.arrays:
            keys = _segments(array.path) if array.group == "opt_state" and array.shape else []
            for start in range(1, len(keys)):
                self._moments["/".join(keys[start:])].append(array)
        self._depth = 0
        self.more = ""
        self.lane = ACTIVATIONS

    def groups(self, arrays: Sequence[Array]) -> tuple[tuple[TileGroup, ...], tuple[Move, ...]]:
        """Return the groups of these arrays with their moves, and the moves of none."""
        order = {array.path: number for number, array in enumerate(arrays)}
        self._order = order
        self._depth = _common(arrays)
        while self._depth and _LAYERS.search(_segments(arrays[0].path)[self._depth - 1]):
            self._depth -= 1
        items: list[tuple[int, TileGroup]] = []
        singles: list[Tile] = []
        for key, layers in _layers(arrays, self._depth).items():
            if key is None:
                for stack, members in _stacked(layers[0].arrays, self._depth).items():
                    tiles = self._tiles([members], stack is not None, single=stack is None)
                    if stack is None:
                        singles += tiles
                    else:
                        items.append((self._first(tiles), self._stack_group(stack, members, tiles)))
                continue
            for alike in _alike(layers, self._depth):
                tiles = self._tiles([layer.arrays for layer in alike], False)
                if len(alike) == 1 and len(tiles) == 1:
                    singles += tiles
                    continue
                title = _layers_title(key, alike)
                items.append((self._first(tiles), TileGroup(title, len(alike), tiles)))
        items += [(self._first([tile]), TileGroup("", 1, (tile,))) for tile in singles]
        items.sort(key=lambda item: item[0])
        groups = self._fewer(_joined(group for _, group in items))
        return self._with_moves(groups)

    def _first(self, tiles: Sequence[Tile]) -> int:
        """Return when the program first uses one of these arrays; the others follow in their own order.

        A plan without programs has its arrays in the order of the code.
        """

        def rank(path: str) -> int:
            later = len(self._rank) + self._order.get(path, 0)
            end = "/".join(_segments(path)[self._depth :])
            return self._rank.get(path, self._rank.get(end, later))

        return min(rank(path) for tile in tiles for path in tile.paths)

    def _stack_group(self, stack: str, members: Sequence[Array], tiles: tuple[Tile, ...]) -> TileGroup:
        (layers, *_) = self._dimensions(members[0])
        pipelines = (self._program.pipelines if self._program is not None else None) or ()
        staged = layers.axes and any(pipeline.axes == layers.axes for pipeline in pipelines)
        return TileGroup(stack, layers.size, tiles, layers, layers.parts if staged else 1)

    def _fewer(self, groups: list[TileGroup]) -> list[TileGroup]:
        """Return the largest groups, and count the arrays that are left out."""
        kept = []
        left: list[Tile] = []
        largest = sorted(groups, key=lambda group: -(sum(tile.bytes or 0 for tile in group.tiles)))
        for group in groups:
            if any(group is large for large in largest[:_MOST_GROUPS]):
                ranked = sorted(group.tiles, key=lambda tile: -(tile.bytes or 0))
                chosen = {id(tile) for tile in ranked[:_MOST_TILES]}
                kept.append(replace(group, tiles=tuple(t for t in group.tiles if id(t) in chosen)))
                left += ranked[_MOST_TILES:]
            else:
                left += group.tiles
        if left:
            count = sum(len(tile.paths) for tile in left)
            size = bytes_text(sum_known(tile.bytes for tile in left))
            self.more = f"{counted(count, 'smaller array')}, {size} per device, not drawn"
        return kept

    def _tiles(
        self, layers: Sequence[Sequence[Array]], stacked: bool, single: bool = False
    ) -> tuple[Tile, ...]:
        """Return the tiles of layers that are alike, in the order of their first use.

        single: whether they are not layers, so that arrays of several modules are apart.
        """
        first = layers[0]
        by_place = list(
            zip(*(sorted(layer, key=lambda a: self._order[a.path]) for layer in layers), strict=True)
        )
        across = {members[0].path: members for members in by_place}
        alike: dict[tuple[str, object, str], list[tuple[str, list[Array]]]] = defaultdict(list)
        prefix = len(_segments(first[0].path)) if len(first) == 1 else _common(first)
        prefix = max(min(prefix, len(_segments(first[0].path)) - 1), self._depth)
        for folded in fold(sorted(first, key=lambda a: self._order[a.path])):
            members = [array for first_layer in folded.arrays for array in across[first_layer.path]]
            rest = _segments(folded.path)[prefix:]
            array = folded.first
            parent = rest[0] if len(rest) > 1 and len(array.shape or ()) - stacked > 1 else ""
            layout = array.shape, array.spec, array.dtype, array.mesh, array.replicas, memory_kind(array)
            apart = array.path if array.shards is not None else rest[0] if single else ""
            key = parent, layout, apart
            alike[key].append(("/".join(rest), members))
        tiles = [
            self._tile([rest for rest, _ in same], [a for _, group in same for a in group], key[0], stacked)
            for key, same in alike.items()
        ]
        return tuple(sorted(_named(tiles), key=lambda tile: self._first([tile])))

    def _tile(self, names: Sequence[str], arrays: Sequence[Array], section: str, stacked: bool) -> Tile:
        array = arrays[0]
        dimensions = self._dimensions(array)
        layers = experts = 1
        if stacked:
            layers, dimensions = dimensions[0].size, dimensions[1:]
        if len(dimensions) > 2 and dimensions[0].parts == 1 and _has_experts(array, dimensions[0]):
            experts, dimensions = dimensions[0].size, dimensions[1:]
        mesh = self._snapshot.mesh_of(array)
        used = {axis for axes in array.spec or () for axis in axes or ()} | set(array.unreduced)
        copied: tuple[str, ...] = ()
        if array.spec is not None and mesh is not None:
            copied = tuple(axis.name for axis in mesh.axes if axis.size > 1 and axis.name not in used)
        place = ""
        if mesh is not None and mesh is not self._mesh:
            place = f"on {mesh_name(array)}"
        elif in_host_memory(array, mesh):
            place = "in host memory"
        elif self._mesh.size > 1 and array.shards and len({shard.device for shard in array.shards}) == 1:
            place = f"only on device {array.shards[0].device}"
        return Tile(
            label="\n".join(names),
            paths=tuple(array.path for array in arrays),
            dimensions=dimensions,
            rows=_rows(dimensions),
            copies=array.replicas,
            copied_over=copied,
            bytes=sum_known(array.bytes_per_device for array in arrays),
            dtype=array.dtype,
            shape=array.shape,
            section=section,
            place=place,
            layers=layers,
            experts=experts,
            state=self._state(arrays),
        )

    def _state(self, arrays: Sequence[Array]) -> tuple[int, int] | None:
        """Return the bytes and the copies of the optimizer state if they are other copies."""
        moments = [
            moment
            for array in arrays
            if array.group == "params"
            for moment in self._moments[_inner(array.path)]
            if moment.shape == array.shape
        ]
        copies = {moment.replicas for moment in moments}
        size = sum_known(moment.bytes_per_device for moment in moments)
        if len(copies) != 1 or None in copies or size is None or arrays[0].replicas in copies:
            return None
        return size, copies.pop() or 1

    def _dimensions(self, array: Array) -> tuple[Dimension, ...]:
        """Return the dimensions of an array with their cuts, and the part that the selected device holds."""
        mesh = self._snapshot.mesh_of(array)
        rank = len(array.shape or ())
        names = array.logical_axes or ()
        names = names if len(names) == rank else (None,) * rank
        here = mesh is self._mesh
        if array.shards is not None or mesh is None or array.spec is None:
            return self._listed(array, names)
        dimensions = []
        for size, axes, name in zip(array.shape or (), array.spec or (), names, strict=True):
            cutting = tuple(axis for axis in axes or () if mesh.sizes[axis] > 1)
            sizes = tuple(mesh.sizes[axis] for axis in cutting)
            dimension = Dimension(size, math.prod(sizes), cutting, None, name, sizes=sizes)
            if here:
                at = 0
                for axis in cutting:
                    at = at * mesh.sizes[axis] + self._places[axis]
                piece = dimension.piece
                dimension = replace(dimension, held=(min(at * piece, size), min((at + 1) * piece, size)))
            dimensions.append(dimension)
        return tuple(dimensions)

    def _listed(self, array: Array, names: Sequence[str | None]) -> tuple[Dimension, ...]:
        """Return the dimensions of an array whose shards are listed, or are unknown."""
        shape = array.shape or ()
        if not array.shards or any(len(shard.index) != len(shape) for shard in array.shards):
            return tuple(Dimension(size, name=name) for size, name in zip(shape, names, strict=True))
        position = 0
        for axis in self._mesh.axes:
            position = position * axis.size + self._places[axis.name]
        device = self._mesh.devices[position]
        mine = next((shard.index for shard in array.shards if shard.device == device), None)
        dimensions = []
        for place, (size, name) in enumerate(zip(shape, names, strict=True)):
            edges = sorted({end for shard in array.shards for end in shard.index[place]} | {0, size})
            dimensions.append(
                Dimension(
                    size,
                    max(len(edges) - 1, 1),
                    (),
                    None if mine is None else mine[place],
                    name,
                    tuple(edges),
                )
            )
        return tuple(dimensions)

    def _with_moves(self, groups: Sequence[TileGroup]) -> tuple[tuple[TileGroup, ...], tuple[Move, ...]]:
        """Return the groups with their activations and moves, and the moves that belong to none."""
        places = {
            path: (number, place)
            for number, group in enumerate(groups)
            for place, tile in enumerate(group.tiles)
            for path in tile.paths
        }
        finder = _Finder(places, self._depth)
        of_tiles: dict[tuple[int, int], list[tuple[str | None, Collective]]] = defaultdict(list)
        of_groups: dict[int | None, list[tuple[str | None, Collective]]] = defaultdict(list)
        program = self._program
        roles = {} if program is None else by_role(program, self._snapshot)
        if not {ACTIVATIONS, EXPERTS} & {*roles} and not any(map(self._activation, groups)):
            self.lane = "values computed"  # such as in a solver, without activations
        for role, collectives in roles.items():
            for collective in by_network(collectives, self._mesh):
                moved = finder.moved(collective)
                if moved is not None and role not in (ACTIVATIONS, EXPERTS):
                    of_tiles[moved].append((role, collective))
                else:
                    of_groups[finder.group(collective)].append((role, collective))
        finished = []
        for number, group in enumerate(groups):
            tiles = tuple(
                replace(
                    tile,
                    moves=self._moves(
                        of_tiles[number, place],
                        finder,
                        groups,
                        {*tile.axes, *(() if group.layers is None else group.layers.axes)},
                    ),
                )
                for place, tile in enumerate(group.tiles)
            )
            finished.append(
                replace(
                    group,
                    tiles=tiles,
                    moves=self._moves(of_groups[number], finder, groups, apart=True),
                    activation=self._activation(group),
                )
            )
        return tuple(finished), self._moves(of_groups[None], finder, groups, apart=True)

    def _moves(
        self,
        collectives: Sequence[tuple[str | None, Collective]],
        finder: _Finder,
        groups: Sequence[TileGroup],
        cutting: Iterable[str] = (),
        apart: bool = False,
    ) -> tuple[Move, ...]:
        """Return the moves of these collectives, those with the most bytes first.

        cutting: the mesh axes that cut the arrays of parameters that they move.
        apart: whether those that have other reasons are other moves.
        """
        alike: dict[tuple[_Kind, str | None], list[Collective]] = defaultdict(list)
        for role, collective in collectives:
            assert self._program is not None
            axes = collective.axis_parts if collective.mesh_axes is None else collective.mesh_axes
            why = reasons.of_part(self._program, collective) if apart else None
            subject = _subject(role, collective, cutting)
            alike[(subject, collective.op, axes, collective.network), why].append(collective)
        moves = []
        for ((subject, op, axes, network), _), members in alike.items():
            assert self._program is not None
            ranked = sorted(members, key=lambda member: -least_bytes(member))
            by_name = {member.name: member for member in ranked}  # a combined collective has several parts
            sources = dict.fromkeys(
                label
                for member in ranked
                if reasons.is_of_product(member) and (place := finder.source(member)) is not None
                for label in (groups[place[0]].tiles[place[1]].label,)
            )
            phases = {phase for member in members for phase in phases_of(member.op_name)}
            whys = {reasons.of_part(self._program, member) for member in members}
            moves.append(
                Move(
                    op=op,
                    axes=axes,
                    network=network,
                    subject=subject,
                    phases=() if "unknown" in phases else tuple(phase for phase in PHASES if phase in phases),
                    bytes=wire_bytes_of_run(*ranked),
                    executions=executions_of(by_name.values()),
                    collectives=tuple(by_name),
                    because=tuple(sources),
                    reason=whys.pop() if len(whys) == 1 else None,
                    of_iteration=wire_bytes_of_iteration(*ranked),
                    once=() if apart else _gathered_once(members),
                )
            )
        return tuple(sorted(moves, key=lambda move: -(move.bytes or move.of_iteration or 0)))

    def _activation(self, group: TileGroup) -> Tile | None:
        """Return the activation that most modules of a group have, such as the residual stream."""
        if self._program is None:
            return None
        name = self._program.name
        # The modules of a group, or of a block the block itself.
        every_level = group.count == 1 and group.layers is None
        paths = [_segments(path)[self._depth :] for tile in group.tiles for path in tile.paths]
        heads = {head for path in paths for head in _prefixes(path)[: None if every_level else 1]}
        inside = [
            array
            for array in self._snapshot.arrays
            if array.group == "activation"
            and array.program in (None, name)
            and array.shape
            and any(f"{_inner(array.path)}/".startswith(f"{head}/") for head in heads)
        ]
        if not inside:
            return None
        # The one that leaves the group is the last of the outermost level.
        level = min(_inner(array.path).count("/") for array in inside)
        last = [array for array in inside if _inner(array.path).count("/") == level][-1]
        return self._tile([_inner(last.path).rpartition("/")[2]], [last], "", False)


class _Finder:
    """Finds the arrays that a collective moves, and the group of those that it serves."""

    def __init__(self, places: Mapping[str, tuple[int, int]], depth: int) -> None:
        self._places = places
        self._by_inner: dict[str, tuple[int, int]] = {}
        self._modules: dict[str, tuple[int, int]] = {}
        for path, place in places.items():
            segments = _segments(path)[depth:]
            self._by_inner.setdefault("/".join(segments), place)
            for end in range(len(segments), 0, -1):
                self._modules.setdefault("/".join(segments[:end]), place)

    def moved(self, collective: Collective) -> tuple[int, int] | None:
        """Return group and tile of the first array of the model that a collective moves."""
        for path in collective.arrays or ():
            place = self._places.get(path) or self._mirrored(path)
            if place is not None:
                return place
        return None

    def _mirrored(self, path: str) -> tuple[int, int] | None:
        """Return the array whose moment or gradient this is, by the end of its path."""
        segments = _segments(path)
        for start in range(1, len(segments)):
            place = self._by_inner.get("/".join(segments[start:]))
            if place is not None:
                return place
        return None

    def source(self, collective: Collective) -> tuple[int, int] | None:
        """Return group and tile of the array that an operation uses, as its origins or its module say."""
        for origin in collective.origins or ():
            if origin.from_ in self._places:
                return self._places[origin.from_]
        module = parse_op_name(collective.op_name)[0].module
        parts = module.split("/") if module else []
        exact = self._modules.get(module) if module else None
        return exact if exact is not None and len(parts) > 1 else None

    def group(self, collective: Collective) -> int | None:
        """Return the group of the module or array that a collective serves; None if it is unknown."""
        module = parse_op_name(collective.op_name)[0].module
        while module:
            place = self._modules.get(module)
            if place is not None:
                return place[0]
            module = module.rpartition("/")[0]
        source = self.source(collective)
        return None if source is None else source[0]


def _gathered_once(collectives: Iterable[Collective]) -> tuple[str, ...]:
    """Return the arrays that all-gathers of the forward pass alone move, if others are gathered again.

    The backward pass then reads the same result, or does not need it.
    """
    passes: dict[str, set[Phase]] = defaultdict(set)
    for collective in collectives:
        for path in collective.arrays or () if collective.op == "all-gather" else ():
            passes[path] |= phases_of(collective.op_name)
    if not any(phases & BACKWARD for phases in passes.values()):
        return ()
    return tuple(sorted(path for path, phases in passes.items() if phases == {"forward"}))


def _subject(role: str | None, collective: Collective, cutting: Iterable[str]) -> str:
    """Return the arrays that a collective moves, in words: weights only along mesh axes that cut them."""
    if role != PARAMETERS:
        return {GRADIENTS: "gradients", OTHER_ARRAYS: "arrays"}.get(role or "", role or "arrays")
    if collective_roles.makes_results(collective):
        return "updated weights"
    axes = set(map(axis_of, collective.axis_names))
    words = "weights" if axes <= set(cutting) else "parts of weights"
    return f"{words} {reasons.GATHERED}" if reasons.is_gather(collective) else words


def _segments(path: str) -> list[str]:
    return path.split("/")


def _prefixes(keys: Sequence[str]) -> list[str]:
    """Return the paths of the modules around the last key: `block`, `block/mlp`, `block/mlp/kernel`."""
    return ["/".join(keys[:end]) for end in range(1, len(keys) + 1)]


def _inner(path: str) -> str:
    """Return the path without its group."""
    return path.partition("/")[2]


def _common(arrays: Sequence[Array]) -> int:
    """Return the number of keys that all paths begin with."""
    split = [_segments(array.path)[:-1] for array in arrays]
    return sum(1 for _ in itertools.takewhile(lambda keys: len(set(keys)) == 1, zip(*split, strict=False)))


def _layers(arrays: Sequence[Array], depth: int) -> dict[str | None, list[_Layer]]:
    """Return the arrays by the pattern of their first numbered key and by its number; None without one."""
    numbers: dict[str, set[str]] = defaultdict(set)
    split: dict[str, list[tuple[str, str]]] = {}
    for array in arrays:
        keys = _segments(array.path)
        candidates = []
        for place in range(depth, len(keys)):
            parts = NUMBER.split(keys[place])
            if len(parts) > 1:
                numbered = "/".join([*keys[:place], f"{''.join(parts[:-2])}*{parts[-1]}"])
                candidates.append((numbered, parts[-2]))
                numbers[numbered].add(parts[-2])
        split[array.path] = candidates
    by_pattern: dict[str | None, dict[str, _Layer]] = defaultdict(dict)
    for array in arrays:
        chosen = next((pair for pair in split[array.path] if len(numbers[pair[0]]) > 1), None)
        pattern: str | None = chosen[0] if chosen else None
        number = chosen[1] if chosen else ""
        by_pattern[pattern].setdefault(number, _Layer(number, [])).arrays.append(array)
    return {pattern: list(layers.values()) for pattern, layers in by_pattern.items()}


def _alike(layers: Sequence[_Layer], depth: int) -> list[list[_Layer]]:
    """Return the layers whose arrays have the same names, shapes and shardings, together."""
    same: dict[object, list[_Layer]] = defaultdict(list)
    for layer in layers:
        key = frozenset(
            (
                re.sub(rf"(?<![0-9]){layer.number}(?![0-9])", "*", array.path, count=1),
                array.shape, array.spec, array.dtype, array.bytes_per_device, array.mesh, array.shards,
            )
            for array in layer.arrays
        )  # fmt: skip
        same[key].append(layer)
    return list(same.values())


def _layers_title(pattern: str, layers: Sequence[_Layer]) -> str:
    """Return `block_0…7`, the key of layers with their numbers."""
    name = pattern.rpartition("/")[2]
    if name == "*":
        name = pattern.rpartition("/")[0].rpartition("/")[2] + "/*"
    numbers = sorted((layer.number for layer in layers), key=int)
    return name.replace("*", numbers_text(numbers), 1)


def _stacked(arrays: Sequence[Array], depth: int) -> dict[str | None, list[Array]]:
    """Return the arrays whose leading dimension is layers by the key that they share; None for the others."""
    by_key: dict[str, list[Array]] = defaultdict(list)
    for array in arrays:
        keys = _segments(array.path)
        by_key[keys[depth] if len(keys) > depth + 1 else ""].append(array)
    stacks: dict[str | None, list[Array]] = defaultdict(list)
    for key, members in by_key.items():
        leading = {(array.shape or (0,))[0] for array in members}
        cuts = {(array.spec or (None,))[0] for array in members}
        named = all((array.logical_axes or (None,))[0] in _LAYER_AXES for array in members)
        alike = len(members) > 1 and _LAYERS.search(key) is not None and not NUMBER.search(key)
        if key and len(leading) == len(cuts) == 1 and max(leading) > 1 and (named or alike):
            stacks[key] += members
        else:
            stacks[None] += members
    return stacks


def _joined(groups: Iterable[TileGroup]) -> list[TileGroup]:
    """Return the groups, single arrays that follow each other as one."""
    joined: list[TileGroup] = []
    for group in groups:
        if joined and not group.title and not joined[-1].title:
            joined[-1] = replace(joined[-1], tiles=(*joined[-1].tiles, *group.tiles))
        else:
            joined.append(group)
    return joined


def _named(tiles: Sequence[Tile]) -> list[Tile]:
    """Return the tiles with short names, and with their module as a section if several are in it."""
    in_section = Counter(tile.section for tile in tiles)
    named = []
    for tile in tiles:
        section = tile.section if in_section[tile.section] > 1 else ""
        names = [name.removeprefix(f"{section}/") for name in tile.label.split("\n")]
        short = list(dict.fromkeys(map(_short, names)))
        named.append(
            replace(tile, section=section, label=", ".join(short if len(short) == len(names) else names))
        )
    return named


def _short(name: str) -> str:
    keys = name.split("/")
    if len(keys) > 2 and keys[-1] == "value" and keys[-2] in _GENERIC:  # as nnx names its variables
        keys.pop()
    if len(keys) > 1 and keys[-1] in ("kernel", "scale", "weight", "embedding"):
        keys.pop()
    if len(keys) > 1 and keys[-1] in _GENERIC:
        return " ".join(keys[-2:])
    return keys[-1]


def _has_experts(array: Array, leading: Dimension) -> bool:
    return collective_roles.EXPERT.search(leading.name or array.path) is not None


def _rows(dimensions: Sequence[Dimension]) -> int:
    """Return the number of dimensions that are rows. A tile is as square as it can be; cuts stay whole."""
    if len(dimensions) < 2:
        return 0

    def cost(rows: int) -> tuple[int, float]:
        high, wide = (
            math.prod(max(dimension.size, 1) for dimension in side)
            for side in (dimensions[:rows], dimensions[rows:])
        )
        nested = sum(
            dimension.parts > 1 and any(outer.size > 1 for outer in side[:place])
            for side in (dimensions[:rows], dimensions[rows:])
            for place, dimension in enumerate(side)
        )
        return nested, abs(math.log(high / wide))

    return min(range(1, len(dimensions)), key=cost)
