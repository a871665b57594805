"""The picture of the whole model has the cuts, copies, bytes and moves that the rest of the page has."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.answers import reasons, whole_model
from inspector.assessment import assess
from inspector.figures.whole_model.picture import draw
from inspector.figures.whole_model.record import Dimension, Move, Tile, WholeModel, telling_device
from inspector.layout.plan import INDIVISIBLE
from inspector.records.collectives import OPS
from inspector.records.snapshot import (
    Array,
    Collective,
    CollectivePart,
    Finding,
    Mesh,
    Origin,
    Pipeline,
    Program,
    Snapshot,
)
from inspector.sharding import placement as sharding
from tests.figures import samples
from tests.machines import torus

_NAMES = ("attention/query", "attention/key", "norm/scale", "mlp/up/kernel", "mlp/down/kernel", "bias")
_SVG = "{http://www.w3.org/2000/svg}"


@st.composite
def meshes(draw: st.DrawFn) -> Mesh:
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=3))
    return samples.mesh(**dict(zip("abc", sizes, strict=False)))


@st.composite
def array_at(draw: st.DrawFn, path: str, mesh: Mesh) -> Array:
    """An array that divides evenly, over any of the mesh axes."""
    rank = draw(st.integers(0, 3))
    free = list(draw(st.permutations(mesh.axis_names)))
    spec, shape = [], []
    for _ in range(rank):
        axes = tuple(free.pop() for _ in range(draw(st.integers(0, min(2, len(free))))))
        spec.append(axes or None)
        shape.append(mesh.ways(axes) * draw(st.sampled_from([1, 2, 5, 40])))
    return samples.array(path, tuple(shape), tuple(spec), mesh)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    mesh = draw(meshes())
    arrays = []
    names = draw(st.lists(st.sampled_from(_NAMES), min_size=1, unique=True))
    alike = [draw(array_at(f"params/x/{name}", mesh)) for name in names]
    for layer in range(draw(st.integers(1, 5))):
        own = alike if draw(st.booleans()) else [draw(array_at(f"params/x/{name}", mesh)) for name in names]
        arrays += [replace(array, path=array.path.replace("/x/", f"/layer_{layer}/")) for array in own]
    arrays += [draw(array_at(f"params/{name}", mesh)) for name in ("embedding", "head")]
    paths = [array.path for array in arrays]
    axes = st.sampled_from(mesh.axis_names)
    collectives = tuple(
        Collective(
            op=draw(st.sampled_from(OPS)), asynchronous=False, name=f"c.{number}", computation="main",
            executions=draw(st.integers(0, 4)), conditional=False,
            mesh_axes=draw(st.none() | st.lists(axes, min_size=1, unique=True).map(tuple)),
            group_size=2, groups=1, payload_bytes=8, wire_bytes_per_device=draw(st.integers(0, 10**9)),
            op_name=draw(st.sampled_from([
                None, "jit(step)/jvp(M)/layer_1/mlp/dot_general", "jit(step)/transpose(jvp(M))/dot_general",
                "jit(step)/add",
            ])),
            arrays=tuple(moved), parts=(CollectivePart(8, tuple(moved), ()),) if moved else None,
        )
        for number in range(draw(st.integers(0, 8)))
        for moved in (draw(st.lists(st.sampled_from(paths), max_size=1)),)
    )  # fmt: skip
    order = draw(st.none() | st.permutations(paths).map(tuple))
    step = Program("train_step", collectives=collectives, stage="partitioned", first_used=order)
    return replace(samples.planned(mesh, *arrays), programs=(step,))


def tiles_of(model: WholeModel) -> list[Tile]:
    return [tile for group in model.groups for tile in group.tiles]


def moves_of(model: WholeModel) -> list[Move]:
    own = [move for group in model.groups for tile in group.tiles for move in tile.moves]
    return [*own, *(move for group in model.groups for move in group.moves), *model.elsewhere]


@given(snapshot=snapshots(), device=st.integers(0, 63))
def test_every_cut_copy_and_byte_is_that_of_the_arrays(snapshot: Snapshot, device: int) -> None:
    mesh = snapshot.mesh
    assert mesh is not None
    device %= mesh.size
    model = whole_model.of_snapshot(snapshot, device=device)
    assert model is not None
    drawn = Counter(path for tile in tiles_of(model) for path in tile.paths)
    assert drawn == Counter(array.path for array in snapshot.arrays) or model.more
    for layers, tile in [(group.layers, tile) for group in model.groups for tile in group.tiles]:
        members = [snapshot.array(path) for path in tile.paths]
        assert tile.bytes == sum(array.bytes_per_device or 0 for array in members)
        for member in members:
            placement = sharding.place_array(member, mesh)
            assert placement is not None
            assert tile.copies == member.replicas
            assert tile.copies == math.prod(mesh.sizes[axis] for axis in tile.copied_over)
            held = [
                (int(a), int(b))
                for a, b in zip(placement.starts[device], placement.stops[device], strict=True)
            ]
            whole = [] if layers is None else [layers]
            if tile.experts > 1:
                whole.append(Dimension(tile.experts, held=(0, tile.experts)))
            dimensions = [*whole, *tile.dimensions]
            assert [dimension.held for dimension in dimensions] == held
            cuts = [{int(start) for start in placement.starts[:, n]} - {0} for n in range(len(held))]
            assert [set(dimension.cuts) for dimension in dimensions] == cuts


@given(snapshot=snapshots())
def test_the_moves_add_up_to_the_traffic(snapshot: Snapshot) -> None:
    model = whole_model.of_snapshot(snapshot)
    assert model is not None
    traffic = assess(snapshot, None).traffic
    assert traffic is not None
    by_axes: Counter[str] = Counter()
    for move in moves_of(model):
        by_axes["unknown" if move.axes is None else "+".join(move.axes)] += move.bytes or 0
    assert {axes: size for axes, size in by_axes.items() if size} == traffic.by_axes or model.more


@given(snapshot=snapshots())
def test_weights_are_moved_only_along_axes_that_cut_them(snapshot: Snapshot) -> None:
    model = whole_model.of_snapshot(snapshot)
    assert model is not None
    for group in model.groups:
        for tile in group.tiles:
            for move in tile.moves:
                cutting = {
                    axis
                    for path in tile.paths
                    for one in snapshot.array(path).spec or ()
                    for axis in one or ()
                }
                assert move.subject != "weights" or set(move.axes or ()) <= cutting


@pytest.mark.parametrize(
    ("axes", "part", "phase", "subject"),
    [
        (("data",), CollectivePart(8, ("params/w",), ()), "jvp(M)", "weights"),
        (("model",), CollectivePart(8, ("params/w",), ()), "jvp(M)", "parts of weights"),
        # The end of an all-reduce over slices, and weights that are updated in shards.
        (("model",), CollectivePart(8, (), ("params/w",)), "transpose(jvp(M))", "gradients"),
        (("model",), CollectivePart(8, (), ("params/w",)), None, "updated weights"),
    ],
)
def test_what_an_all_gather_moves(
    axes: tuple[str, ...], part: CollectivePart, phase: str | None, subject: str
) -> None:
    array = samples.array("params/w", (8, 8), (("data",), None), samples.DEFAULT_MESH)
    collective = Collective(
        "all-gather", False, "c", "main", 3, False, axes, 2, 1, 8, 8,
        op_name=phase and f"jit(step)/{phase}/dot_general", arrays=("params/w",), parts=(part,),
    )  # fmt: skip
    step = Program("train_step", collectives=(collective,), stage="partitioned")
    model = whole_model.of_snapshot(replace(samples.planned(samples.DEFAULT_MESH, array), programs=(step,)))
    assert model is not None
    (move,) = moves_of(model)
    assert move.subject == subject
    becomes = subject in ("gradients", "updated weights")
    moved = "what becomes params/w" if becomes else "parts of params/w"
    assert f"over {axes[0]} collects {moved} from the devices" in (move.reason or "")


@pytest.mark.parametrize("gathers", [False, True])
def test_an_all_reduce_of_weights_for_a_product_gathers_them(gathers: bool) -> None:
    """The operand of the sum is a slice of the weights, in a block of zeros."""
    part = CollectivePart(8, ("params/w",) if gathers else (), () if gathers else ("params/w",))
    collective = Collective(
        "all-reduce", False, "c", "main", 1, False, ("model",), 4, 2, 8, 12,
        op_name="jit(step)/transpose(jvp(M))/dot_general", arrays=("params/w",), parts=(part,),
    )  # fmt: skip
    array = samples.array("params/w", (8, 8), (("model",), None), samples.DEFAULT_MESH)
    (move,) = moves_of(of_program(samples.DEFAULT_MESH, collective, arrays=(array,)))
    assert (move.subject == f"weights {reasons.GATHERED}") == gathers
    assert ("zeros" in (move.reason or "")) == gathers


def test_what_is_sent_inside_and_between_slices_are_two_moves() -> None:
    """Eight devices of `data` in two slices: of 7 parts of a gather, each sends 6 inside of its slice."""
    mesh = replace(samples.mesh(data=8), slice_index=(0,) * 4 + (1,) * 4)
    whole = Collective("all-gather", False, "c", "main", 1, False, ("data",), 8, 1, 8000, 7000)
    inside = Collective(
        "all-gather", False, "d", "main", 1, False, None, 4, 2, 400, 300,
        axis_parts=("data:(2)4",), device_groups=((0, 1, 2, 3), (4, 5, 6, 7)),
    )  # fmt: skip
    moves = moves_of(of_program(mesh, whole, inside))
    assert {(move.axes, move.network, move.bytes) for move in moves} == {
        (("data",), "dcn", 1000), (("data",), None, 6000), (("data:(2)4",), None, 300)
    }  # fmt: skip
    texts = texts_of(draw(of_program(mesh, whole, inside)).text)
    assert sum("between slices" in text for text in texts) == 1
    assert sum("inside a slice" in text for text in texts) == 2


def test_arrays_that_are_not_gathered_again_are_named() -> None:
    """Of two arrays of a tile, one is gathered for both passes, and the other one for the forward pass."""
    paths = [f"params/layer_{layer}/w" for layer in range(2)]
    arrays = tuple(samples.array(path, (8, 8), (("data",), None), samples.DEFAULT_MESH) for path in paths)
    gathers = tuple(
        Collective(
            "all-gather", False, name, "main", 1, False, ("data",), 2, 1, 8, 8,
            op_name=f"jit(step)/{phase}/dot_general", arrays=(path,),
        )
        for name, path, phase in (
            ("a", paths[0], "jvp(M)"), ("b", paths[1], "jvp(M)"), ("c", paths[0], "transpose(jvp(M))")
        )
    )  # fmt: skip
    step = Program("train_step", collectives=gathers, stage="partitioned")
    planned = samples.planned(samples.DEFAULT_MESH, *arrays)
    model = whole_model.of_snapshot(replace(planned, programs=(step,)))
    assert model is not None
    (move,) = moves_of(model)
    assert (move.phases, move.executions, move.once) == (("forward", "backward"), 3, (paths[1],))
    (shown,) = ElementTree.fromstring(draw(model).text).iterfind(f".//{_SVG}g[@class='move']/{_SVG}title")
    assert paths[1] in (shown.text or "").rpartition("backward pass: ")[2]
    step = replace(step, collectives=gathers[:2])
    model = whole_model.of_snapshot(replace(planned, programs=(step,)))
    assert model is not None
    assert [move.once for move in moves_of(model)] == [()]


def test_bytes_of_several_arrays_name_their_number() -> None:
    """Names times layers is the number of arrays, else the tile has it."""
    mesh = samples.DEFAULT_MESH

    def texts(names: Sequence[str], layers: int, width: int) -> list[str]:
        arrays = tuple(
            samples.array(f"params/layer_{layer}/{name}", (2048,), (("data",),), mesh)
            for layer in range(layers)
            for name in names
        )
        model = whole_model.of_snapshot(samples.planned(mesh, *arrays))
        assert model is not None
        assert [len(tile.paths) for group in model.groups for tile in group.tiles] == [len(arrays)]
        return texts_of(draw(model, width_px=width).text)

    numbered = [f"part_{number}/scale" for number in range(4)]
    for width in (400, 800, 1440):
        plain = texts(["attention_norm/scale", "norm/scale"], 8, width)
        assert any("× 8" in text for text in plain) and not any("arrays" in text for text in plain)
        assert any("32 arrays" in text for text in texts(numbered, 8, width))


def texts_of(text: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(text).iter(f"{_SVG}text")]


def of_program(mesh: Mesh, *collectives: Collective, arrays: tuple[Array, ...] = ()) -> WholeModel:
    own = arrays or (samples.array("params/w", (8, 8), (None, None), mesh),)
    step = Program("solve", collectives=collectives, stage="compiled")
    model = whole_model.of_snapshot(replace(samples.planned(mesh, *own), programs=(step,)))
    assert model is not None
    return model


def test_devices_exchange_data_only_with_those_that_a_permute_names() -> None:
    mesh = samples.mesh(x=8, y=2)
    ring = tuple((2 * n, 2 * ((n + 1) % 8)) for n in range(8))
    permute = Collective(
        "collective-permute", False, "c", "main", 1, False, ("x",), 8, 2, 8, 8, source_target_pairs=ring
    )
    model = whole_model.of_snapshot(
        replace(
            samples.planned(mesh, samples.array("u", (8, 8), (("x",), None), mesh)),
            programs=(Program("solve", collectives=(permute,), stage="compiled"),),
        ),
        device=6,
    )
    assert model is not None
    assert model.partners == {"x": [4, 8], "y": []}
    gather = Collective("all-gather", False, "g", "main", 1, False, ("x",), 8, 2, 8, 56)
    assert of_program(mesh, permute, gather).partners == {
        "x": [n for n in range(model.mesh.size) if n % 2 == 1 and n != telling_device(mesh)],
        "y": [],
    }


@pytest.mark.parametrize(
    ("primitive", "because"), [("dot_general", ("w",)), ("reduce_max", ()), ("gather", ())]
)
def test_only_products_have_an_array_as_their_cause(primitive: str, because: tuple[str, ...]) -> None:
    reduce = Collective(
        "all-reduce", False, "c", "main", 1, False, ("model",), 4, 2, 8, 12,
        op_name=f"jit(step)/{primitive}", arrays=(), origins=(Origin("model", "params/w"),),
        operation=primitive,
    )  # fmt: skip
    (move,) = moves_of(of_program(samples.DEFAULT_MESH, reduce))
    assert move.because == because and primitive in (move.reason or "")
    assert move.reason == reasons.shared(Program("solve", collectives=(reduce,)))[0].reason


def test_optimizer_state_with_other_copies_is_beside_its_array() -> None:
    mesh = samples.mesh(data=2, model=4)
    arrays = [samples.array("params/w", (8, 8), (None, ("model",)), mesh)]
    arrays += [samples.array(f"opt_state/{moment}/w", (8, 8), (None, None), mesh) for moment in ("mu", "nu")]
    (tile,) = tiles_of(of_program(mesh, arrays=tuple(arrays)))
    assert tile.state == (2 * 8 * 8 * 4, 8)
    alike = tuple(replace(array, spec=arrays[0].spec, replicas=arrays[0].replicas) for array in arrays)
    (tile,) = tiles_of(of_program(mesh, arrays=alike))
    assert tile.state is None


def test_nothing_moves_in_a_layout_that_jax_rejects() -> None:
    array = samples.array("params/w", (8, 8), (("data",), None), samples.DEFAULT_MESH)
    collective = Collective("all-gather", False, "c", "main", 1, False, ("data",), 2, 1, 8, 8)
    step = Program("train_step", collectives=(collective,), stage="partitioned")
    snapshot = replace(samples.planned(samples.DEFAULT_MESH, array), programs=(step,))
    uneven = Finding("error", INDIVISIBLE, "w of size 8 is not divisible by 3")
    model = whole_model.of_snapshot(replace(snapshot, findings=(uneven,)))
    assert model is not None
    assert not moves_of(model) and tiles_of(model)
    assert not model.facts
    assert uneven.message in model.rejected
    assert any(
        uneven.message in (text.text or "") for text in ElementTree.fromstring(draw(model).text).iter()
    )


@given(snapshot=snapshots(), width=st.sampled_from([360, 700, 960, 1400]))
def test_the_drawing_has_the_parts_that_the_facts_have(snapshot: Snapshot, width: int) -> None:
    model = whole_model.of_snapshot(snapshot)
    assert model is not None
    svg = draw(model, width_px=width)
    root = ElementTree.fromstring(svg.text)
    groups = [element for element in root.iter(f"{_SVG}g") if element.get("class") == "tile"]
    assert [group.get("data-path") for group in groups] == [tile.paths[0] for tile in tiles_of(model)]
    for drawn, tile in zip(groups, tiles_of(model), strict=True):
        cuts = [line for line in drawn.iter(f"{_SVG}line") if line.get("class") == "cut"]
        assert {line.get("data-axis") for line in cuts} <= set(tile.axes)
        assert any(rect.get("class") == "held" for rect in drawn.iter(f"{_SVG}rect")) == bool(
            math.prod(d.size for d in tile.dimensions)
        )
    for label in root.iter(f"{_SVG}g"):
        texts_of_edge = [text.text or "" for text in label.findall(f"{_SVG}text")]
        if any(text.startswith("÷") for text in texts_of_edge):  # its axes are squares
            assert label.findall(f"{_SVG}rect")
    texts = [float(text.get("font-size") or 0) for text in root.iter(f"{_SVG}text")]
    assert min(texts) >= 9


@pytest.mark.parametrize("shape", [{"a": 4, "b": 4}, {"a": 2, "b": 4}, {"a": 2, "b": 4, "c": 4}, {"a": 8}])
def test_the_filled_device_has_different_places_on_the_axes(shape: dict[str, int]) -> None:
    mesh = samples.mesh(**shape)
    position = telling_device(mesh)
    places = [position // math.prod(mesh.shape[n + 1 :]) % mesh.shape[n] for n in range(len(mesh.shape))]
    assert len(set(places)) == len(places)


def test_the_order_is_that_of_the_first_use() -> None:
    mesh = samples.DEFAULT_MESH
    arrays = [samples.array(f"params/{name}", (8, 8), (None, None), mesh) for name in ("head", "table")]
    arrays += [samples.array(f"params/layer_{n}/w", (8, 8), (None, ("model",)), mesh) for n in range(3)]
    arrays += [samples.array(f"params/layer_{n}/v", (8, 8), (("model",), None), mesh) for n in range(3)]
    used = ("params/table", *(f"params/layer_{n}/{name}" for n in range(3) for name in "wv"), "params/head")
    step = Program("train_step", first_used=used, collectives=())
    model = whole_model.of_snapshot(replace(samples.planned(mesh, *arrays), programs=(step,)))
    assert model is not None
    assert [tile.paths[0] for tile in tiles_of(model)] == [used[0], used[1], used[2], used[-1]]
    assert [(group.title, group.count) for group in model.groups] == [("", 1), ("layer_0…2", 3), ("", 1)]


def test_layers_of_other_shardings_are_another_block() -> None:
    mesh = samples.DEFAULT_MESH
    arrays = [
        samples.array(f"params/layer_{n}/{name}", (8, 8), (("data",) if n == 3 else None, ("model",)), mesh)
        for n in range(6)
        for name in "wv"
    ]
    model = whole_model.of_snapshot(samples.planned(mesh, *arrays))
    assert model is not None
    assert [(group.count, len(tile.paths)) for group in model.groups for tile in group.tiles] == [
        (5, 10),
        (1, 2),
    ]


def test_stacked_layers_are_a_block_with_its_multiplicity() -> None:
    mesh = samples.DEFAULT_MESH
    arrays = [
        samples.array(
            f"params/blocks/{name}", (6, 8, 16), (None, None, ("model",)), mesh, ("layers", None, None)
        )
        for name in ("up", "gate")
    ]
    model = whole_model.of_snapshot(samples.planned(mesh, *arrays))
    assert model is not None
    (group,) = model.groups
    assert (group.title, group.count) == ("blocks", 6)
    assert [dimension.size for dimension in group.tiles[0].dimensions] == [8, 16]


@pytest.mark.parametrize(
    "mesh",
    [
        torus.on_torus((4, 4), (False, False), (4, 4)),
        torus.on_torus((2, 2, 4), (False, False, False), (4, 4)),
        replace(samples.mesh(a=2, b=4, c=2), slice_index=(0,) * 8 + (1,) * 8),
        samples.mesh(a=2, b=2, c=4),
        samples.mesh(a=12),
    ],
    ids=["torus", "torus of three sides", "slices", "three axes", "one axis"],
)
def test_the_machine_has_each_device_once(mesh: Mesh) -> None:
    names = mesh.axis_names
    array = samples.array("params/w", (64, 64), ((names[0],), None), mesh)
    model = whole_model.of_snapshot(samples.planned(mesh, array))
    assert model is not None
    root = ElementTree.fromstring(draw(model).text)
    cells = [element for element in root.iter(f"{_SVG}g") if element.get("class") == "device"]
    assert sorted(int(cell.get("data-position") or -1) for cell in cells) == list(range(mesh.size))
    lit = Counter(cell.get("data-axis") for cell in cells if cell.get("data-axis"))
    assert lit == {axis.name: axis.size - 1 for axis in mesh.axes if axis.size > 1}


def test_names_from_files_are_text() -> None:
    mesh = samples.DEFAULT_MESH
    array = samples.with_path(samples.kernel(), samples.HOSTILE_PATH)
    model = whole_model.of_snapshot(samples.planned(mesh, array))
    assert model is not None
    root = ElementTree.fromstring(draw(model).text)
    assert not list(root.iter("img"))
    assert any("<img" in (text.text or "") for text in root.iter())


def test_many_arrays_on_many_devices_are_quick_and_small() -> None:
    mesh = samples.mesh(data=16, fsdp=16, model=16)
    arrays = [
        samples.array(f"{root}/layer_{n}/{name}/kernel", (512, 1024), (("fsdp",), ("model",)), mesh)
        for root in ("params", "opt_state/mu")
        for n in range(25)
        for name in "abcdef"
    ]
    started = time.process_time()
    model = whole_model.of_snapshot(samples.planned(mesh, *arrays))
    assert model is not None
    svg = draw(model)
    assert time.process_time() - started < 0.3
    assert len(svg.text) < 200_000


def test_a_snapshot_without_a_mesh_has_no_picture() -> None:
    assert whole_model.of_snapshot(samples.planned(None, samples.kernel())) is None


def test_degrees_of_sharding_and_of_copies_look_different() -> None:
    """As lines, thin lines and tints that grow stronger, and with a sheet for each doubling of copies."""
    cut, copied = [], []
    for devices in (4, 16, 256, 1024):
        mesh = samples.mesh(fsdp=devices)
        for spec, looks in ((("fsdp",), cut), (None, copied)):
            own = samples.array("params/w", (4096, 4096), (spec, None), mesh)
            model = whole_model.of_snapshot(samples.planned(mesh, own))
            assert model is not None
            root = ElementTree.fromstring(draw(model).text)
            (tile,) = (group for group in root.iter(f"{_SVG}g") if group.get("class") == "tile")
            lines = [
                line.get("stroke-width") for line in tile.iter(f"{_SVG}line") if line.get("class") == "cut"
            ]
            tints = [
                rect.get("fill-opacity") for rect in tile.iter(f"{_SVG}rect") if rect.get("class") == "cuts"
            ]
            looks.append((len(lines), {*lines}, tints, len([*tile.iter(f"{_SVG}path")])))
    assert [lines for lines, _, tints, _ in cut if not tints] == [3, 15]
    strengths = [float(tints[0]) for _, _, tints, _ in cut if tints]
    assert len(strengths) == 2 and strengths[0] < strengths[1]
    assert [sheets for _, _, _, sheets in copied] == [2, 4, 8, 10]


@pytest.mark.parametrize("axes", [("stage",), ("data",)])
def test_each_stage_of_a_pipeline_has_a_box(axes: tuple[str, ...]) -> None:
    mesh = samples.mesh(stage=4, data=2)
    spec = (("stage",), None, None)
    arrays = [samples.array(f"params/stages/{name}", (4, 64, 64), spec, mesh) for name in ("up", "down")]
    step = Program("train_step", collectives=(), pipelines=(Pipeline(4, 8, "permute.1", axes),))
    model = whole_model.of_snapshot(replace(samples.planned(mesh, *arrays), programs=(step,)))
    assert model is not None
    (group,) = model.groups
    assert group.stages == (4 if axes == ("stage",) else 1)

    def boxes(drawn: WholeModel) -> int:
        return sum(
            one.get("rx") == "8" for one in ElementTree.fromstring(draw(drawn).text).iter(f"{_SVG}rect")
        )

    assert boxes(model) - boxes(replace(model, groups=(replace(group, stages=1),))) == group.stages - 1
