"""The page where a global array is made by hand from pieces, and broken on purpose."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import streamlit as st

from inspector.core import snapshot as snapshots
from inspector.core.errors import InvalidInput
from inspector.core.field_parser import Parsed
from inspector.core.formatting import (
    bytes_text,
    counted,
    ranges_text,
    shape_text,
    spec_text,
)
from inspector.core.sharding import shards
from inspector.figures import array_provenance
from inspector.figures import pieces as figures
from inspector.guides import assembly as assemblies
from inspector.guides.assembly import Assembled, Assembly, pieces
from inspector.guides.assembly import snapshot as assembly_snapshot
from inspector.guides.assembly.script import script
from inspector.media.streamlit import chart, waiting
from inspector.media.streamlit.plain_text import plain
from inspector.service import inspection

REMEMBERED = 8  # answers; most are a few kilobytes, the largest that are allowed a few megabytes
FIELD_PX = 195  # six of them fill a line of a window of 1440 pixels
COLUMN_PX = 370  # three pictures stand side by side there, two in a window of 800
RESHARDED_PX, TABLE_PX = 440, 760

WAYS = {
    "pieces": "You cut the array, you move each piece to its device, and JAX joins what already lies "
    "there: nothing is copied.",
    "callback": "JAX asks your function for each device's index, and moves what it gives to the device.",
    "device_put": "You have the whole array on the host; JAX cuts it and moves the parts.",
}
LOADING = {
    "array": "One array",
    "batch": "Data-parallel batch",
    "reshard": "Tensor-parallel batch",
}
LOADING_HELP = (
    "**One array** is cut by any PartitionSpec. A **data-parallel batch** gives every device rows of its "
    "own. A **tensor-parallel batch** is loaded the same way, for that is how data comes in, and then "
    "resharded inside jit to the sharding that the computation wants."
)
# What the mistake is made with; the others are about the whole array.
ABOUT_ONE_DEVICE = ("shape", "missing", "swapped", "same_device", "dtype", "copies")


def show() -> None:
    """Draw the page: what to make, three pictures of it, what can go wrong, and the code."""
    service = inspection.shared()
    _restore_fields()
    st.markdown("### Build an array from pieces")
    parsed = _draw_fields()
    st.session_state["assemble:kept"] = _fields()
    if parsed.value is None:
        for sentence in parsed.problems.values():
            st.error(plain(sentence), icon=":material/error:")
        return
    assembly = parsed.value
    made = _made(service, assembly)
    if made is None:
        return
    st.markdown(_facts(assembly))
    with chart.of(lambda: [provenance_line(assembly, made)]):
        _show_pictures(assembly, made, "assemble:good")
        if made.refusal is not None:
            _show_outcome(assembly, made)
        if made.joined is not None and made.resharded is not None:
            _show_reshard(assembly, made)
    broken = _show_break(service, assembly) if made.refusal is None else None
    shown, answer = broken or (assembly, made)
    _show_code(shown, answer)


def _restore_fields() -> None:
    """Streamlit forgets the widgets of a page that was left; what they held is put back."""
    kept: Mapping[str, str] = st.session_state.get("assemble:kept", assemblies.DEFAULTS)
    for name, default in assemblies.DEFAULTS.items():
        value = kept.get(name, default)
        if name in ("rows", "features", "device"):
            st.session_state.setdefault(_key(name), int(value) if value else None)
        else:
            st.session_state.setdefault(_key(name), value)


def _fields() -> dict[str, str]:
    """The text of every field, as the widgets have it now."""
    texts = {}
    for name, default in assemblies.DEFAULTS.items():
        value = st.session_state.get(_key(name), default)
        texts[name] = "" if value is None else str(value)
    return texts


def _draw_fields() -> Parsed[Assembly]:
    state = st.session_state
    way = st.segmented_control(
        "Way",
        list(WAYS),
        format_func=lambda name: assemblies.WAYS[name],
        key=_key("way"),
        required=True,
    )
    st.caption(plain(WAYS[way]))
    st.segmented_control(
        "Load",
        list(LOADING),
        format_func=LOADING.get,
        key=_key("loading"),
        help=LOADING_HELP,
        required=True,
    )
    # In a narrow window the fields go on to the next line, which columns do not.
    with st.container(horizontal=True, gap="small"):
        st.text_input(
            "Mesh",
            key=_key("mesh"),
            on_change=_change_mesh,
            width=FIELD_PX,
            help="Sizes of one to three mesh axes joined by x, at most 64 devices.",
        )
        st.text_input(
            "Axis names",
            key=_key("axes"),
            width=FIELD_PX,
            help="One name for each mesh axis, joined by commas.",
        )
        if state[_key("loading")] == "array":
            st.text_input(
                "Global shape", key=_key("shape"), width=FIELD_PX, help="Sizes joined by x."
            )
            st.text_input(
                "PartitionSpec",
                key=_key("spec"),
                width=FIELD_PX,
                help="For each dimension a mesh axis, several joined by +, or None.",
            )
        else:
            st.number_input("Rows per device", key=_key("rows"), step=1, width=FIELD_PX)
            st.number_input("Features", key=_key("features"), step=1, width=FIELD_PX)
            st.text_input(
                "Batch axes",
                key=_key("batch_axes"),
                width=FIELD_PX,
                help="The mesh axes along which devices get rows of their own, joined by +. Along the "
                "others they get copies.",
            )
        if state[_key("loading")] == "reshard":
            st.text_input(
                "Reshard to",
                key=_key("target"),
                width=FIELD_PX,
                help="The PartitionSpec to have after jit.",
            )
    # The mistake is made further down, with an array that is known to be right.
    return assemblies.parse(_fields() | {"mistake": assemblies.NO_MISTAKE, "device": "0"})


def _change_mesh() -> None:
    """A mesh of another rank gets as many axis names, and PartitionSpecs without those that are gone."""
    state = st.session_state
    try:
        shape = assemblies.parse_mesh(state[_key("mesh")])
    except InvalidInput:
        return
    names = [name.strip() for name in state[_key("axes")].split(",")]
    if len(names) == len(shape):
        return
    fitted = list(dict.fromkeys([*names, "x", "y", "z"]))[: len(shape)]
    state[_key("axes")] = ", ".join(fitted)
    for field, between in (("spec", ","), ("target", ","), ("batch_axes", "+")):
        parts = [part.strip() for part in state.get(_key(field), "").split(between)]
        if between == "+":
            kept = [part for part in parts if part in fitted] or fitted[:1]
            state[_key(field)] = " + ".join(kept)
        else:
            kept = [
                part if all(axis.strip() in fitted for axis in part.split("+")) else "None"
                for part in parts
            ]
            state[_key(field)] = ", ".join(kept)


def _facts(assembly: Assembly) -> str:
    """The shapes, and how they come about."""
    mesh = assembly.mesh()
    found = pieces.placement(assembly)
    words = f"Global shape **{plain(_tuple(assembly.shape))}**"
    if found is None:
        return words
    part = tuple((found.stops[0] - found.starts[0]).tolist())
    copies = mesh.size // found.blocks
    words += f", each device **{plain(_tuple(part))}**"
    if st.session_state[_key("loading")] != "array":
        ways = mesh.ways(assembly.spec[0])
        words += (
            f": {counted(part[0], 'row')} per device × {counted(ways, 'device')} along the batch "
            f"= {counted(assembly.shape[0], 'row')}"
        )
    if copies > 1:
        words += f"; every part is on {copies} devices"
    return words + "."


def provenance_line(assembly: Assembly, made: Assembled) -> str:
    """What stands on the pictures of what came of an Assembly."""
    said = [f"An array made by {assemblies.WAYS[assembly.way]}"]
    if assembly.mistake != assemblies.NO_MISTAKE:
        said.append(f"on purpose: {assemblies.MISTAKES[assembly.mistake].title}")
    said += [f"global shape {shape_text(made.shape)}", spec_text(assembly.spec)]
    if assembly.target is not None:
        said.append(f"resharded to {spec_text(assembly.target)}")
    return array_provenance.line(said, assembly.mesh(), made.versions)


def _made(service: inspection.Inspection, assembly: Assembly) -> Assembled | None:
    """What JAX made of it, asked for if this session does not know it yet."""
    known: OrderedDict[str, Assembled] = st.session_state.setdefault("assemble:made", OrderedDict())
    key = assembly.key()
    if key not in known:
        try:
            known[key] = waiting.wait_for(
                service.start_assembly(assembly), "Building it with JAX …", service.take_assembly
            )
        except InvalidInput as refused:
            st.error(plain(str(refused)), icon=":material/error:")
            return None
        while len(known) > REMEMBERED:
            known.popitem(last=False)
    known.move_to_end(key)
    return known[key]


def _show_pictures(assembly: Assembly, made: Assembled, key: str) -> None:
    """What was handed over, what lies where, and what came of it."""
    drawn = [
        ("host", figures.host_figure(assembly, made, width_px=COLUMN_PX)),
        ("devices", figures.devices_figure(assembly, made, width_px=COLUMN_PX)),
    ]
    if made.joined is not None:
        title = "3 · The global array"
        figure = figures.array_figure(assembly, made.joined, title, width_px=COLUMN_PX)
        drawn.append(("array", figure))
    with st.container(horizontal=True, gap="small"):
        for name, figure in drawn:
            with st.container(width=COLUMN_PX):
                chart.draw(figure, f"{key}:{name}", alt=figure.layout.title.text)
        if made.refusal is not None:
            with st.container(width=COLUMN_PX):
                st.markdown(f"**{len(drawn) + 1} · JAX's answer**")
                st.code(f"{made.refusal.kind}: {made.refusal.text}", language=None, wrap_lines=True)


def _show_outcome(assembly: Assembly, made: Assembled) -> None:
    """What happened and why, in sentences."""
    sentences = [pieces.verdict(assembly, made)]
    sentences += [fault.sentence for fault in pieces.faults(assembly, made)]
    text = plain(" ".join(sentences))
    if made.refusal is not None:
        st.error(text, icon=":material/block:")
    elif made.joined is not None and pieces.wrong_elements(assembly, made.joined):
        st.warning(text, icon=":material/warning:")
    else:
        st.success(text, icon=":material/check_circle:")


def _show_reshard(assembly: Assembly, made: Assembled) -> None:
    before, after = made.joined, made.resharded
    assert before is not None and after is not None  # the caller has looked
    st.markdown("#### Resharded inside jit")
    arrived = pieces.arrivals(assembly, made)
    kept = sum(one.kept for one in arrived)
    moved = sum(one.received_bytes for one in arrived)
    how = f"by {', '.join(made.collectives)}" if made.collectives else "without any collective"
    bytes_moved = (
        f"{bytes_text(moved)} must change device, {bytes_text(kept)} stay."
        if moved
        else "Nothing has to change device: each already holds its part."
    )
    st.markdown(
        "The data is loaded data-parallel; the jitted function asks for another sharding, and the "
        f"compiled program gets it {how}. {bytes_moved}"
    )
    row = st.container(horizontal=True, gap="small")
    with row.container(width=RESHARDED_PX):
        figure = figures.array_figure(
            assembly, after, "4 · The same array, resharded", width_px=RESHARDED_PX
        )
        chart.draw(figure, "assemble:resharded", alt="The resharded array")
        st.caption("A colour is still the block that the numbers were loaded in.")
    with row.container(width=TABLE_PX):
        st.code(
            f"before  {before.sharding}\nafter   {after.sharding}", language=None, wrap_lines=True
        )
        mesh = assembly.mesh()
        placed = zip(
            arrived,
            shards(before.array, mesh) or (),
            shards(after.array, mesh) or (),
            strict=True,
        )
        st.dataframe(
            [
                {
                    "Device": arrival.device,
                    "Before": ranges_text(was.index),
                    "After": ranges_text(now.index),
                    "Kept": arrival.kept,
                    "Received": arrival.received_bytes,
                    "From": ", ".join(f"{device} ({size} B)" for device, size in arrival.received),
                }
                for arrival, was, now in placed
            ],
            hide_index=True,
            column_config={
                "Kept": st.column_config.NumberColumn(
                    format="%d B", help="Bytes that were on the device before."
                ),
                "Received": st.column_config.NumberColumn(
                    format="%d B", help="Bytes that come from other devices."
                ),
                "From": st.column_config.TextColumn(
                    help="The first device that held them, and how many bytes."
                ),
            },
        )


def _show_break(
    service: inspection.Inspection, assembly: Assembly
) -> tuple[Assembly, Assembled] | None:
    """Choose a mistake; what JAX says to it. None if none is chosen."""
    st.markdown("#### Break it")
    state = st.session_state
    possible = list(assemblies.applicable(assembly))
    if state[_key("mistake")] not in possible:
        state[_key("mistake")] = assemblies.NO_MISTAKE
    last = assembly.devices - 1
    state[_key("device")] = min(max(state[_key("device")] or 0, 0), last)
    with st.container(horizontal=True, gap="small"):
        mistake = st.selectbox(
            "Mistake",
            possible,
            format_func=lambda name: assemblies.MISTAKES[name].title,
            key=_key("mistake"),
            width=2 * FIELD_PX + COLUMN_PX // 2,
        )
        about_one = mistake in ABOUT_ONE_DEVICE and not (
            assembly.way == "device_put" and mistake == "dtype"
        )
        st.number_input(
            "Device",
            min_value=0,
            max_value=last,
            step=1,
            key=_key("device"),
            disabled=not about_one,
            width=FIELD_PX,
            help="The device whose piece is wrong.",
        )
    state["assemble:kept"] = _fields()
    if mistake == assemblies.NO_MISTAKE:
        st.caption(
            "Choose a mistake, and see what JAX says to it: some it refuses, some it does not."
        )
        return None
    broken = assembly.with_mistake(mistake, state[_key("device")] if about_one else 0)
    made = _made(service, broken)
    if made is None:
        return None
    _show_outcome(broken, made)
    with chart.of(lambda: [provenance_line(broken, made)], key="pictures_of_mistake"):
        _show_pictures(broken, made, "assemble:broken")
    return broken, made


def _show_code(assembly: Assembly, made: Assembled) -> None:
    title = (
        "The code" if assembly.mistake == assemblies.NO_MISTAKE else "The code, with the mistake"
    )
    with st.expander(title):
        st.caption(
            f"Runs by itself, on {counted(assembly.devices, 'emulated device')}, and prints each shard."
        )
        st.code(script(assembly), language="python")
    found = assembly_snapshot.snapshot(assembly, made)
    st.download_button(
        "Snapshot",
        data=lambda: snapshots.dumps(found),
        file_name="assembled.json",
        mime="application/json",
        key="assemble:download",
        icon=":material/download:",
        type="tertiary",
        on_click="ignore",
        help="What is shown here as Snapshot JSON, with every number under its key assembly.",
    )


def _tuple(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"


def _key(name: str) -> str:
    return f"assemble:{name}"
