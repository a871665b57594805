"""The guide that builds a global array from pieces, and shows what JAX does with mistakes."""

import plotly.graph_objects as go
import streamlit as st

from inspector.answers import subject
from inspector.figures import pieces as figures
from inspector.guides import assembly as assemblies
from inspector.guides.array_fields import MAX_MESH_AXES
from inspector.guides.assembly import Assembled, Assembly, pieces
from inspector.guides.assembly.script import script
from inspector.layout import mesh_shapes
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import chart, guide_form
from inspector.media.streamlit.parts.guide_form import FormFields
from inspector.media.streamlit.session import user
from inspector.sharding.placement import shards
from inspector.sharding.sharding_text import spec_text
from inspector.text.formatting import bytes_text, counted, ranges_text, shape_text

FIELD_PX = 195  # six fields fit a line of a window of 1440 pixels
COLUMN_PX = 370  # three figures fit there, two in a window of 800 pixels
RESHARDED_PX, TABLE_PX = 440, 760

WAYS = {
    "pieces": "You cut the array and move each piece to its device. JAX joins the pieces without a copy.",
    "callback": "JAX calls your function with the index of each device and moves the result there.",
    "device_put": "You have the whole array on the host. JAX cuts it and moves the pieces.",
}
LOADING = {"array": "One array", "batch": "Data-parallel batch", "reshard": "Tensor-parallel batch"}
LOADING_HELP = (
    "**One array**: any PartitionSpec. **Data-parallel batch**: different rows on each device. "
    "**Tensor-parallel batch**: loaded data-parallel, then resharded inside `jit`."
)
# Mistakes in the piece of one device; the others concern the whole array.
ABOUT_ONE_DEVICE = ("shape", "missing", "swapped", "same_device", "dtype", "copies")


def show() -> None:
    """Draw the page."""
    st.markdown("### Arrays from pieces")
    numbers = {"rows", "features", "device"}
    fields = FormFields(
        "assemble",
        {
            name: (int(text) if text else None) if name in numbers else text
            for name, text in assemblies.DEFAULTS.items()
        },
    )
    _draw_fields(fields)
    # The mistake is chosen further down, for an array that is correct without it.
    parsed = assemblies.parse(fields.texts() | {"mistake": assemblies.NO_MISTAKE, "device": "0"})
    if (assembly := parsed.value) is None:
        guide_form.show_problems(parsed.problems)
        return
    assembled = _assembled(assembly)
    if assembled is None:
        return
    st.markdown(_shapes(assembly, fields["loading"]))
    with chart.of(lambda: [provenance_line(assembly, assembled)]):
        _show_figures(assembly, assembled, "good")
        if assembled.refusal is not None:
            _show_outcome(assembly, assembled)
        if assembled.joined is not None and assembled.resharded is not None:
            _show_reshard(assembly, assembled)
    broken = _show_mistake(fields, assembly) if assembled.refusal is None else None
    shown, result = broken or (assembly, assembled)
    guide_form.show_script(
        "assemble",
        "Script" if shown.mistake == assemblies.NO_MISTAKE else "Script with the mistake",
        f"The script runs on {counted(shown.devices, 'emulated device')} and prints each shard.",
        script(shown),
        pieces.snapshot(shown, result),
    )


def _draw_fields(fields: FormFields) -> None:
    way = fields.draw(
        st.segmented_control,
        "way",
        "Function",
        list(WAYS),
        format_func=lambda name: assemblies.WAYS[name],
        required=True,
    )
    st.caption(WAYS[way])
    loading = fields.draw(
        st.segmented_control,
        "loading",
        "Data",
        list(LOADING),
        format_func=LOADING.get,
        help=LOADING_HELP,
        required=True,
    )
    # In a narrow window the fields wrap, which columns do not.
    with st.container(horizontal=True, gap="small"):

        def text(name: str, label: str, help: str) -> None:
            fields.draw(st.text_input, name, label, help=help, width=FIELD_PX)

        help = "Sizes of one to three mesh axes joined by x; at most 64 devices."
        fields.draw_mesh(st.text_input, "Mesh", _change_mesh, help, width=FIELD_PX)
        text("axes", "Axis names", guide_form.AXIS_NAMES_HELP)
        if loading == "array":
            text("shape", "Global shape", "Sizes joined by x.")
            text("spec", "PartitionSpec", guide_form.SPEC_HELP)
        else:
            for name, label in (("rows", "Rows per device"), ("features", "Features")):
                fields.draw(st.number_input, name, label, step=1, width=FIELD_PX)
            text(
                "batch_axes",
                "Batch axes",
                "Mesh axes joined by + over which rows are sharded. Rows are replicated over the others.",
            )
        if loading == "reshard":
            text("target", "Reshard to", "PartitionSpec of the result of `jit`.")


def _change_mesh(fields: FormFields) -> None:
    names = mesh_shapes.fit_axis_names(fields, MAX_MESH_AXES)
    if names is None:
        return
    for name in ("spec", "target"):
        fields[name] = mesh_shapes.fitted_spec(fields[name], names)
    axes = [axis.strip() for axis in fields["batch_axes"].split("+")]
    fields["batch_axes"] = " + ".join([axis for axis in axes if axis in names] or names[:1])


def _shapes(assembly: Assembly, loading: str) -> str:
    """Return the global shape and the shape per device, as Markdown."""
    mesh = assembly.mesh()
    placement = pieces.placement(assembly)
    text = f"Global shape **{plain(_tuple(assembly.shape))}**"
    if placement is None:
        return text
    part = tuple((placement.stops[0] - placement.starts[0]).tolist())
    text += f", per device **{plain(_tuple(part))}**"
    if loading != "array":
        text += (
            f": {counted(part[0], 'row')} × {counted(mesh.ways(assembly.spec[0]), 'device')} along the "
            f"batch = {counted(assembly.shape[0], 'row')}"
        )
    copies = mesh.size // placement.blocks
    return text + (f". Each part is on {copies} devices." if copies > 1 else ".")


def provenance_line(assembly: Assembly, assembled: Assembled) -> str:
    """Return the line on the saved pictures."""
    facts = [f"An array made by {assemblies.WAYS[assembly.way]}"]
    if assembly.mistake != assemblies.NO_MISTAKE:
        facts.append(f"mistake: {assemblies.MISTAKES[assembly.mistake].title}")
    facts += [f"global shape {shape_text(assembled.shape)}", spec_text(assembly.spec)]
    if assembly.target is not None:
        facts.append(f"resharded to {spec_text(assembly.target)}")
    return subject.source_line_of_arrays(facts, assembly.mesh(), assembled.versions)


def _assembled(assembly: Assembly) -> Assembled | None:
    request = user.service().assembly(assembly)
    return guide_form.result("assemble", request, "Building the array with JAX …")


def _show_figures(assembly: Assembly, assembled: Assembled, name: str) -> None:
    """Draw the pieces on the host, the devices, and the global array or JAX's error."""
    drawn: dict[str, go.Figure] = {
        "host": figures.host_figure(assembly, assembled, width_px=COLUMN_PX),
        "devices": figures.devices_figure(assembly, assembled, width_px=COLUMN_PX),
    }
    if assembled.joined is not None:
        drawn["array"] = figures.array_figure(
            assembly, assembled.joined, "3 · Global array", width_px=COLUMN_PX
        )
    guide_form.draw_figures(drawn, f"assemble:{name}:{{}}", COLUMN_PX)
    if assembled.refusal is not None:
        guide_form.show_refusal(assembled.refusal.kind, assembled.refusal.text)


def _show_outcome(assembly: Assembly, assembled: Assembled) -> None:
    sentences = [pieces.verdict(assembly, assembled)]
    sentences += [fault.sentence for fault in pieces.faults(assembly, assembled)]
    text = plain(" ".join(sentences))
    if assembled.refusal is not None:
        st.error(text, icon=":material/block:")
    elif assembled.joined is not None and pieces.wrong_elements(assembly, assembled.joined):
        st.warning(text, icon=":material/warning:")
    else:
        st.success(text, icon=":material/check_circle:")


def _show_reshard(assembly: Assembly, assembled: Assembled) -> None:
    before, after = assembled.joined, assembled.resharded
    assert before is not None and after is not None
    st.markdown("#### Resharding inside jit")
    arrivals = pieces.arrivals(assembly, assembled)
    row = st.container(horizontal=True, gap="small")
    with row.container(width=RESHARDED_PX):
        title = "4 · Array after resharding"
        figure = figures.array_figure(assembly, after, title, width_px=RESHARDED_PX)
        chart.draw(figure, "assemble:resharded", alt="The resharded array")
        st.caption("Colors show the blocks before resharding.")
    with row.container(width=TABLE_PX):
        kept = sum(arrival.kept for arrival in arrivals)
        moved = sum(arrival.received_bytes for arrival in arrivals)
        used = assembled.collectives
        how = f"with {', '.join(used)}" if used else "without a collective"
        st.markdown(
            f"The compiled program reshards {how}: {bytes_text(moved)} move to another device, "
            f"{bytes_text(kept)} stay."
        )
        shardings = f"before  {before.sharding}\nafter   {after.sharding}"
        st.code(shardings, language=None, wrap_lines=True)
        mesh = assembly.mesh()
        held, wanted = shards(before.array, mesh) or (), shards(after.array, mesh) or ()
        st.dataframe(
            [
                {
                    "Device": arrival.device,
                    "Before": ranges_text(old.index),
                    "After": ranges_text(new.index),
                    "Kept": arrival.kept,
                    "Received": arrival.received_bytes,
                    "From": ", ".join(f"{device} ({size} B)" for device, size in arrival.received),
                }
                for arrival, old, new in zip(arrivals, held, wanted, strict=True)
            ],
            hide_index=True,
            column_config={
                "Kept": st.column_config.NumberColumn(
                    format="%d B", help="Bytes that were already on the device."
                ),
                "Received": st.column_config.NumberColumn(format="%d B", help="Bytes from other devices."),
                "From": st.column_config.TextColumn(help="First device that held the bytes, and how many."),
            },
        )


def _show_mistake(fields: FormFields, assembly: Assembly) -> tuple[Assembly, Assembled] | None:
    """Draw the choice of a mistake and its outcome. Return None if no mistake is chosen."""
    st.markdown("#### Mistakes")
    possible = list(assemblies.applicable(assembly))
    if fields["mistake"] not in possible:
        fields["mistake"] = assemblies.NO_MISTAKE
    last = assembly.devices - 1
    fields["device"] = min(max(fields["device"] or 0, 0), last)
    with st.container(horizontal=True, gap="small"):
        mistake = fields.draw(
            st.selectbox,
            "mistake",
            "Mistake",
            possible,
            format_func=lambda name: assemblies.MISTAKES[name].title,
            width=2 * FIELD_PX + COLUMN_PX // 2,
        )
        has_device = mistake in ABOUT_ONE_DEVICE and not (assembly.way == "device_put" and mistake == "dtype")
        device = fields.draw(
            st.number_input,
            "device",
            "Device",
            min_value=0,
            max_value=last,
            step=1,
            disabled=not has_device,
            width=FIELD_PX,
            help="Device with the wrong piece.",
        )
    if mistake == assemblies.NO_MISTAKE:
        st.caption("Pick a mistake to see how JAX reacts.")
        return None
    broken = assembly.with_mistake(mistake, device if has_device else 0)
    assembled = _assembled(broken)
    if assembled is None:
        return None
    with chart.of(lambda: [provenance_line(broken, assembled)], key="pictures_of_mistake"):
        _show_figures(broken, assembled, "broken")
    _show_outcome(broken, assembled)
    return broken, assembled


def _tuple(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"
