"""The guide to arrays of several processes: host-local, global, and back."""

from collections.abc import Callable

import streamlit as st

from inspector.answers import subject
from inspector.figures import pieces
from inspector.figures.mesh_map import mesh_map
from inspector.guides import processes
from inspector.guides.array_fields import MAX_MESH_AXES
from inspector.guides.processes import Exchanged, HostLocal, ProcessView
from inspector.layout import mesh_shapes
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import chart, guide_form
from inspector.media.streamlit.parts.guide_form import FormFields
from inspector.media.streamlit.session import user
from inspector.sharding.sharding_text import spec_text
from inspector.text.formatting import counted, devices_text, mesh_sizes_text, ranges_text, shape_text

COLUMN_PX = 304  # three figures side by side in a window of 1440 pixels with a sidebar

DATA = {"own": "Different per process", "same": "Same on all"}


def show() -> None:
    """Draw the page."""
    st.markdown("### Several processes")
    st.caption(
        "Each process has a host-local array. `jit` takes global arrays, which all processes make together. "
        "This page runs real processes on this machine, connected by `jax.distributed`."
    )
    fields = FormFields("processes", processes.DEFAULTS | {"convert": True})
    _draw_fields(fields)
    parsed = processes.parse(fields.texts())
    if (request := parsed.value) is None:
        guide_form.show_problems(parsed.problems)
        return
    exchanged = guide_form.result(
        "processes",
        user.service().exchange(request),
        f"Running {counted(request.processes, 'process', 'processes')} …",
    )
    if exchanged is None:
        return
    with chart.of(lambda: [provenance_line(request, exchanged)]):
        _show_figures(request, exchanged)
    _show_outcome(request, exchanged)
    _show_views(request, exchanged)
    guide_form.show_script(
        "processes",
        "Script" if request.convert else "Script with the mistake",
        "The script starts its own processes. Each prints its addressable shards.",
        processes.script(request),
        processes.snapshot(request, exchanged),
    )


def _draw_fields(fields: FormFields) -> None:
    columns = st.columns([2, 2, 2, 3, 3, 4])
    fields.draw(
        columns[0].segmented_control,
        "processes",
        "Processes",
        list(map(str, processes.PROCESS_COUNTS)),
        required=True,
        help="Every process has the same number of devices.",
    )
    help = "Sizes of one to three mesh axes joined by x; at most 32 devices."
    fields.draw_mesh(columns[1].text_input, "Mesh", _change_mesh, help)
    fields.draw(columns[2].text_input, "axes", "Axis names", help=guide_form.AXIS_NAMES_HELP)
    fields.draw(columns[3].text_input, "spec", "PartitionSpec", help=guide_form.SPEC_HELP)
    fields.draw(
        columns[4].text_input,
        "local",
        "Host-local shape",
        help="Shape of each process's array: one or two sizes joined by x.",
    )
    fields.draw(columns[5].selectbox, "data", "Values", list(DATA), format_func=DATA.get)
    fields.draw(
        st.toggle,
        "convert",
        "Convert with host_local_array_to_global_array",
        help="Off: `jit` takes the host-local array as it is, the mistake that JAX's migration guide "
        "describes.",
    )


def _change_mesh(fields: FormFields) -> None:
    names = mesh_shapes.fit_axis_names(fields, MAX_MESH_AXES)
    if names is not None:
        fields["spec"] = mesh_shapes.fitted_spec(fields["spec"], names)


def _show_outcome(request: HostLocal, exchanged: Exchanged) -> None:
    text = plain(processes.verdict(request, exchanged))
    refusal = exchanged.refusal
    if refusal is None:
        if processes.differing_copies(exchanged) or not request.convert:
            st.warning(text, icon=":material/warning:")
        else:
            st.success(text, icon=":material/check_circle:")
        return
    st.error(text, icon=":material/block:")
    raised_in = refusal.processes or ()
    where = f"process{'es' * (len(raised_in) > 1)} {', '.join(map(str, raised_in))}"
    st.caption(f"JAX {exchanged.versions.get('jax', '')} raised this error in {where}:")
    guide_form.show_refusal(refusal.kind, refusal.text)
    if not request.convert and refusal.kind == "IndivisibleError":
        st.caption(
            "The migration guide shows the message of an older JAX: the global size of its dimension 0 "
            "“should be divisible by 8, but it is equal to 4”."
        )


def _show_figures(request: HostLocal, exchanged: Exchanged) -> None:
    """Draw the host-local arrays, the global array, the arrays that came back, and the mesh."""
    drawn = {"given": pieces.local_figure(request, exchanged.views, width_px=COLUMN_PX)}
    if exchanged.array is not None:
        drawn["global"] = pieces.global_figure(exchanged, width_px=COLUMN_PX)
    if all(view.returned is not None for view in exchanged.views):
        drawn["returned"] = pieces.local_figure(request, exchanged.views, returned=True, width_px=COLUMN_PX)
    guide_form.draw_figures(drawn, "processes:{}_figure", COLUMN_PX)
    if exchanged.array is not None:
        st.caption(f"One color per process; hover for devices. Sharding: `{exchanged.sharding}`")
        figure = mesh_map(exchanged.array, exchanged.mesh, width_px=2 * COLUMN_PX)
        if figure is not None:
            guide_form.draw_figures({"mesh": figure}, "processes:{}_figure", 2 * COLUMN_PX)


def provenance_line(request: HostLocal, exchanged: Exchanged) -> str:
    """Return the line on the saved pictures."""
    how = "host_local_array_to_global_array" if request.convert else "jit without conversion"
    facts = [
        f"Host-local arrays through {how}",
        f"host-local shape {shape_text(request.local_shape)}",
        f"values {DATA[request.data].lower()}",
        spec_text(request.spec),
    ]
    return subject.source_line_of_arrays(facts, request.mesh(), exchanged.versions, request.processes)


def _show_views(request: HostLocal, exchanged: Exchanged) -> None:
    """Draw a table with the same expressions on every process."""
    st.markdown("#### View of each process")
    rows: dict[str, Callable[[ProcessView], str]] = {
        "`process_index()`": lambda view: str(view.process),
        "`process_count()`": lambda view: str(view.processes),
        "`local_devices()`": lambda view: devices_text(view.devices, most=8),
        "`device_count()`": lambda view: str(view.all_devices),
        "`mesh.local_mesh`": lambda view: _local_mesh(view.local_mesh, request),
        "host-local shape": lambda view: str(request.local_shape),
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
        rows["shape returned"] = lambda view: str(view.returned_shape)
        rows["values unchanged"] = lambda view: str(view.returned == view.given)
    # Unlike a data frame, a table wraps the long messages of JAX.
    st.table(
        [
            {"": name} | {f"process {view.process}": plain(read(view)) for view in exchanged.views}
            for name, read in rows.items()
        ],
        hide_index=True,
    )


def _local_mesh(shape: tuple[int, ...] | None, request: HostLocal) -> str:
    if shape is None:
        return "none: its devices are not a block of the mesh"
    return mesh_sizes_text(request.axis_names, shape)
