"""The page about arrays of several processes: host-local, global, and back."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import plotly.graph_objects as go
import streamlit as st

from inspector.core import snapshot as snapshots
from inspector.core.errors import InvalidInput
from inspector.core.field_parser import Parsed
from inspector.core.formatting import (
    counted,
    devices_text,
    ranges_text,
    shape_text,
    spec_text,
)
from inspector.figures import array_provenance
from inspector.figures import host_local as figures
from inspector.figures.mesh_map import mesh_map
from inspector.guides import processes
from inspector.guides.processes import Exchanged, HostLocal
from inspector.guides.processes import snapshot as processes_snapshot
from inspector.guides.processes.script import script
from inspector.media.streamlit import chart, waiting
from inspector.media.streamlit.plain_text import plain
from inspector.service import inspection

REMEMBERED = 32  # answers, each of a few hundred numbers
COLUMN_PX = 304  # three pictures stand side by side in a window of 1440 pixels with a sidebar

DATA = {"own": "Its own on each process", "same": "The same on every process"}


def show() -> None:
    """Draw the page: what each process has, what becomes of it, and what each process sees."""
    service = inspection.shared()
    _restore_fields()
    st.markdown("### Arrays of several processes")
    st.caption(
        "Each process has an array of its own; jit takes global arrays, which all processes make "
        "together. This runs real processes on this machine, joined by `jax.distributed` over loopback."
    )
    parsed = _draw_fields()
    st.session_state["processes:kept"] = _fields()
    if parsed.value is None:
        for sentence in parsed.problems.values():
            st.error(plain(sentence), icon=":material/error:")
        return
    wanted = parsed.value
    exchanged = _exchanged(service, wanted)
    if exchanged is None:
        return
    _show_outcome(wanted, exchanged)
    with chart.of(lambda: [provenance_line(wanted, exchanged)]):
        _show_pictures(wanted, exchanged)
    _show_views(wanted, exchanged)
    _show_code(wanted, exchanged)


def _restore_fields() -> None:
    """Streamlit forgets the widgets of a page that was left; what they held is put back."""
    kept: Mapping[str, str] = st.session_state.get("processes:kept", processes.DEFAULTS)
    for name, default in processes.DEFAULTS.items():
        text = kept.get(name, default)
        st.session_state.setdefault(_key(name), text == "true" if name == "convert" else text)


def _fields() -> dict[str, str]:
    """The text of every field, as the widgets have it now."""
    texts = {}
    for name in processes.DEFAULTS:
        value = st.session_state[_key(name)]
        texts[name] = str(value).lower() if isinstance(value, bool) else value
    return texts


def _draw_fields() -> Parsed[HostLocal]:
    columns = st.columns([2, 2, 2, 3, 3, 4])
    columns[0].segmented_control(
        "Processes",
        list(map(str, processes.PROCESS_COUNTS)),
        key=_key("processes"),
        required=True,
        help="They have equal shares of the devices.",
    )
    columns[1].text_input(
        "Mesh",
        key=_key("mesh"),
        on_change=_change_mesh,
        help="Sizes of one to three mesh axes joined by x, at most 32 devices of all processes together.",
    )
    columns[2].text_input("Axis names", key=_key("axes"), help="One name for each mesh axis.")
    columns[3].text_input(
        "PartitionSpec",
        key=_key("spec"),
        help="For each dimension a mesh axis, several joined by +, or None.",
    )
    columns[4].text_input(
        "Host-local shape",
        key=_key("local"),
        help="The shape that each process has: one or two sizes joined by x.",
    )
    columns[5].selectbox("Numbers", list(DATA), format_func=DATA.get, key=_key("data"))
    st.toggle(
        "Convert with host_local_array_to_global_array",
        key=_key("convert"),
        help="Off: the host-local array goes into jit as it is, the mistake that the migration guide "
        "warns of.",
    )
    return processes.parse(_fields())


def _change_mesh() -> None:
    """A mesh of another rank gets as many axis names, and a PartitionSpec without those that are gone."""
    state = st.session_state
    rank = len(state[_key("mesh")].replace("×", "x").split("x"))
    names = [name.strip() for name in state[_key("axes")].split(",")]
    if len(names) == rank or rank > processes.MOST_MESH_AXES:
        return
    fitted = list(dict.fromkeys([*names, "x", "y", "z"]))[:rank]
    state[_key("axes")] = ", ".join(fitted)
    parts = [part.strip() for part in state[_key("spec")].split(",")]
    state[_key("spec")] = ", ".join(
        part if all(axis.strip() in fitted for axis in part.split("+")) else "None"
        for part in parts
    )


def _exchanged(service: inspection.Inspection, wanted: HostLocal) -> Exchanged | None:
    """What JAX made of it, asked for if this session does not know it yet."""
    known: OrderedDict[str, Exchanged] = st.session_state.setdefault(
        "processes:made", OrderedDict()
    )
    key = wanted.key()
    if key not in known:
        try:
            known[key] = waiting.wait_for(
                service.start_exchange(wanted),
                f"Running it in {counted(wanted.processes, 'process', 'processes')} …",
                service.take_exchange,
            )
        except InvalidInput as refused:
            st.error(plain(str(refused)), icon=":material/error:")
            st.button("Try again", icon=":material/refresh:", key="processes:again")
            return None
        while len(known) > REMEMBERED:
            known.popitem(last=False)
    known.move_to_end(key)
    return known[key]


def _show_outcome(wanted: HostLocal, exchanged: Exchanged) -> None:
    """What happened and why, and JAX's own words where it refused."""
    text = plain(processes.verdict(wanted, exchanged))
    refusal = exchanged.refusal
    if refusal is not None:
        st.error(text, icon=":material/block:")
        who = (
            f"process{'es' * (len(refusal.processes) > 1)} {', '.join(map(str, refusal.processes))}"
        )
        st.caption(f"JAX {exchanged.versions.get('jax', '')} in its own words, on {who}:")
        st.code(f"{refusal.kind}: {refusal.text}", language=None, wrap_lines=True)
        if not wanted.convert and refusal.kind == "IndivisibleError":
            st.caption(
                "The migration guide shows the words of an older JAX for this: the global size of its "
                "dimension 0 “should be divisible by 8, but it is equal to 4”."
            )
    elif processes.differing_copies(exchanged) or not wanted.convert:
        st.warning(text, icon=":material/warning:")
    else:
        st.success(text, icon=":material/check_circle:")


def _show_pictures(wanted: HostLocal, exchanged: Exchanged) -> None:
    """What each process gives, the global array on the mesh, and what comes back."""
    drawn = [("given", figures.local_figure(wanted, exchanged.views, width_px=COLUMN_PX))]
    if exchanged.array is not None:
        drawn.append(("global", figures.global_figure(exchanged, width_px=COLUMN_PX)))
    if all(view.returned is not None for view in exchanged.views):
        back = figures.local_figure(wanted, exchanged.views, returned=True, width_px=COLUMN_PX)
        drawn.append(("returned", back))
    with st.container(horizontal=True, gap="small"):
        for name, figure in drawn:
            with st.container(width=COLUMN_PX):
                _chart(figure, name)
    if exchanged.array is not None:
        st.caption(
            "The same colour is addressed by the same process; hover for devices. "
            f"`{exchanged.sharding}`"
        )
        figure = mesh_map(exchanged.array, exchanged.mesh, width_px=2 * COLUMN_PX)
        if figure is not None:
            with st.container(width=2 * COLUMN_PX):
                _chart(figure, "mesh")


def _chart(figure: go.Figure, name: str) -> None:
    chart.draw(figure, f"processes:{name}_figure", alt=figure.layout.title.text)


def provenance_line(wanted: HostLocal, exchanged: Exchanged) -> str:
    """What stands on the pictures of what the processes made."""
    how = "host_local_array_to_global_array" if wanted.convert else "jit without conversion"
    said = [
        f"Host-local arrays through {how}",
        f"host-local shape {shape_text(wanted.local_shape)}",
        f"{DATA[wanted.data][:1].lower()}{DATA[wanted.data][1:]}",
        spec_text(wanted.spec),
    ]
    return array_provenance.line(said, wanted.mesh(), exchanged.versions, wanted.processes)


def _show_views(wanted: HostLocal, exchanged: Exchanged) -> None:
    """The same calls on every process, and what each answered."""
    st.markdown("#### What each process sees")
    rows = {
        "`process_index()`": lambda view: str(view.process),
        "`process_count()`": lambda view: str(view.processes),
        "`local_devices()`": lambda view: devices_text(view.devices, most=8),
        "`device_count()`": lambda view: str(view.all_devices),
        "`mesh.local_mesh`": lambda view: _local_mesh(view.local_mesh, wanted),
        "host-local shape": lambda view: str(wanted.local_shape),
    }
    if exchanged.array is not None:
        shape = str(exchanged.array.shape)
        rows |= {
            "global shape": lambda view: shape,
            "`is_fully_addressable`": lambda view: str(view.fully_addressable),
            "`is_fully_replicated`": lambda view: str(view.fully_replicated),
            "`addressable_shards`": lambda view: "; ".join(
                f"device {held.device} {ranges_text(held.index)}" for held in view.addressable
            ),
            "`global_shards`": lambda view: (
                f"{view.global_shards}, of which {view.without_data} have no data here"
            ),
            "`np.asarray(global)`": lambda view: view.reading or "works",
        }
    if any(view.returned_shape is not None for view in exchanged.views):
        rows["shape that came back"] = lambda view: str(view.returned_shape)
        rows["same numbers as given"] = lambda view: str(view.returned == view.given)
    # A table and no data frame: it wraps JAX's long sentences. It reads Markdown.
    st.table(
        [
            {"": name} | {f"process {view.process}": plain(read(view)) for view in exchanged.views}
            for name, read in rows.items()
        ],
        hide_index=True,
    )


def _local_mesh(part: tuple[int, ...] | None, wanted: HostLocal) -> str:
    if part is None:
        return "none: its devices are no block of the mesh"
    return ", ".join(f"{name} {size}" for name, size in zip(wanted.axis_names, part, strict=True))


def _show_code(wanted: HostLocal, exchanged: Exchanged) -> None:
    with st.expander("The code" if wanted.convert else "The code, with the mistake"):
        st.caption(
            "Runs by itself: it starts its own processes, and each prints what it addresses."
        )
        st.code(script(wanted), language="python")
    found = processes_snapshot.snapshot(wanted, exchanged)
    st.download_button(
        "Snapshot",
        data=lambda: snapshots.dumps(found),
        file_name="processes.json",
        mime="application/json",
        key="processes:download",
        icon=":material/download:",
        type="tertiary",
        on_click="ignore",
        help="What is shown here as Snapshot JSON, with what each process saw under its key host_local.",
    )


def _key(name: str) -> str:
    return f"processes:{name}"
