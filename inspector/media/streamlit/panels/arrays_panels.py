"""The tab *Arrays*: views of all arrays, as a table, a tree, by device, by rule, and inside the programs."""

import functools
from collections.abc import Callable, Mapping, Sequence

import plotly.graph_objects as go
import streamlit as st

from inspector import figures
from inspector.answers import array as array_section
from inspector.answers import arrays, causes, collectives, devices, unknown
from inspector.answers import rules as ledger_section
from inspector.answers.arrays import GROUP_TITLES
from inspector.answers.section import text
from inspector.compiled.causes import dependents, rules_behind
from inspector.layout import Layout
from inspector.media.streamlit.page import page_width
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.panels import program_panels
from inspector.media.streamlit.parts import chart, render, table
from inspector.media.streamlit.session import kept_field, screenshot_mode, selection, view_link
from inspector.media.streamlit.session.selection import ToggledRows
from inspector.model.built_in.catalogue import semantics
from inspector.records.snapshot import Array, Mesh, Snapshot
from inspector.sharding import device_holdings
from inspector.sharding import placement as sharding
from inspector.sharding.meshes import mesh_of_all_devices
from inspector.sharding.rules import Rule, written
from inspector.sharding.rules.entries import ledger_of
from inspector.sharding.rules.written import recorded
from inspector.sharding.sharding_text import dimension_text
from inspector.sharding.totals import STATE_GROUPS, state_groups
from inspector.text.errors import InvalidInput

_GIVEN, _NEXT = "ledger_rules", "ledger_next"
_EXAMPLE = "batch=data, embed=fsdp+tensor, layer=   or   [['embed', ['fsdp', 'tensor']], …]"


def show_rules(snapshot: Snapshot, layout: Layout | None) -> None:
    """Draw one array rule by rule, then all arrays and whether they follow the rules."""
    named = [array for array in snapshot.arrays if array.logical_axes is not None]
    if layout is not None and not layout.entry.has_rules:
        st.info("This model names mesh axes itself, so it has no rules.", icon=":material/edit:")
        return
    if not named:
        st.info(
            "The reasons for these shardings are unknown: the Snapshot contains neither logical axes nor "
            "rules.",
            icon=":material/help:",
        )
        return
    rules = recorded(snapshot)
    if rules is None:
        rules = _ask_for_rules()
        if rules is None:
            return
    reading = semantics(snapshot)
    array = _choose_named(snapshot, named)
    ledger = ledger_of(array, snapshot.mesh_of(array), rules, reading)
    if ledger is None:
        st.info("This array has no logical axes, so no rule applies.", icon=":material/block:")
    else:
        render.show(ledger_section.of_array(array, ledger, rules, reading))
    render.show(filter(None, [causes.of_array(array)]))
    _show_all(snapshot, rules)
    _show_dependents(snapshot)


def _show_dependents(snapshot: Snapshot) -> None:
    known = rules_behind(snapshot)
    if not known:
        return
    rule = st.pills("What depends on a rule", known, format_func=plain, key="ledger_rule")
    if rule is not None:
        render.show([causes.of_rule(dependents(snapshot, rule))])


def _choose_named(snapshot: Snapshot, named: Sequence[Array]) -> Array:
    selection.select(st.session_state.pop(_NEXT, None))
    array = selection.selected(snapshot)
    paths = [candidate.path for candidate in named]
    if array.path not in paths:
        paths.insert(0, array.path)
    selection.draw(paths)
    return array


def _ask_for_rules() -> tuple[Rule, ...] | None:
    """Draw a field for rules; return None if it is empty or invalid."""
    st.info(
        "This Snapshot contains logical axes but no rules. Enter rules to see whether the shardings follow "
        "from them.",
        icon=":material/help:",
    )
    text = st.text_area(
        "Rules, in order",
        key=_GIVEN,
        placeholder=_EXAMPLE,
        height=100,
        max_chars=written.MOST_CHARACTERS,
        persist_state="session",
    )
    if not text.strip():
        return None
    try:
        return written.parse(text)
    except InvalidInput as error:
        st.error(plain(str(error)), icon=":material/error:")
        return None


def _show_all(snapshot: Snapshot, rules: Sequence[Rule]) -> None:
    known = ledger_section.ledgers(snapshot, rules)

    def pick(row: int | None) -> None:
        if row is None:
            return
        path = known[row][0].path
        if path != st.session_state.get("ledger_selected"):
            # The choice above is drawn already, so it can only change in the next run.
            st.session_state["ledger_selected"] = path
            st.session_state[_NEXT] = path
            st.rerun()

    render.show([ledger_section.overall(known, semantics(snapshot))], {"ledger_table": pick})


ONE, PROCESS, SEVERAL = "One device", "One process", "Several devices"
STATE, EVERYTHING = "Train state", "All arrays"
_WHICH, _DEVICES, _PROCESS = "device_which", "device_devices", "device_process"
_DEVICE, _GROUPS = "device_device", "device_groups"


def show_devices(snapshot: Snapshot, _: Layout | None) -> None:
    """Draw the choice of devices, and everything that they hold."""
    mesh = mesh_of_all_devices(snapshot)
    missing = unknown.no_arrays(snapshot) or unknown.no_mesh(snapshot)
    if missing is not None or mesh is None:
        render.show(filter(None, [missing]))
        return
    chosen = _choose_devices(snapshot, mesh)
    if not chosen:
        st.info("Choose at least one device.", icon=":material/touch_app:")
        return
    groups = _choose_groups(snapshot)
    held = device_holdings.holdings(snapshot, chosen, groups)
    hint = text("Click a device to select it.", quiet=True)
    pick = table.array_picker(
        [piece.path for piece in devices.ordered(held)],
        "device_selected",
        "Data with the most bytes comes first.",
    )
    render.show(
        [
            devices.facts(held),
            *devices.copies(snapshot, held, groups, hint),
            devices.table(held),
            *devices.uncounted(held),
        ],
        {"copies_map": _pick_device, "device_table": pick},
    )


def _choose_devices(snapshot: Snapshot, mesh: Mesh) -> tuple[int, ...]:
    processes = sorted(set(mesh.processes or ()))
    ways = [ONE, *([PROCESS] if len(processes) > 1 else []), SEVERAL]
    left, right = page_width.beside([2, 3])
    with left:
        which = kept_field.draw_one_of("Devices of interest", ways, _WHICH)
    with right:
        if which == PROCESS:
            if st.session_state.get(_PROCESS) not in processes:
                st.session_state[_PROCESS] = processes[0]
            process = kept_field.draw(st.selectbox, "Process", processes, key=_PROCESS)
            return device_holdings.devices_of_process(snapshot, process)
        if which == SEVERAL:
            st.session_state[_DEVICES] = [
                device for device in st.session_state.get(_DEVICES, ()) if device in mesh.devices
            ] or [mesh.devices[0]]
            return tuple(kept_field.draw(st.multiselect, "Devices", mesh.devices, key=_DEVICES))
        if st.session_state.get(_DEVICE) not in mesh.devices:
            st.session_state[_DEVICE] = mesh.devices[0]
        return (kept_field.draw(st.selectbox, "Device", mesh.devices, key=_DEVICE),)


def _choose_groups(snapshot: Snapshot) -> tuple[str, ...] | None:
    """Draw the choice between the train state and all arrays; return None for all arrays."""
    present = {array.group for array in snapshot.arrays}
    if not present - set(STATE_GROUPS) or state_groups(snapshot) != STATE_GROUPS:
        return None
    chosen = kept_field.choose("Arrays", [STATE, EVERYTHING], _GROUPS)
    return STATE_GROUPS if chosen == STATE else None


def _pick_device(device: int | None) -> None:
    if device is not None:
        st.session_state[_WHICH], st.session_state[_DEVICE] = ONE, device


View = Callable[[Snapshot, Layout | None], None]
WHOLE = "Whole train state"
PARTS = {
    "Parameters": ("params",),
    "Optimizer state": ("opt_state",),
    WHOLE: STATE_GROUPS,
}


def show(snapshot: Snapshot, layout: Layout | None, instead: Mapping[str, View] | None = None) -> None:
    """Draw the choice of a view, and the view. `instead` has views that the page draws in another way."""
    view = kept_field.draw_one_of("View", view_link.VIEWS, selection.VIEW_KEY)
    {**VIEWS, **(instead or {})}[view](snapshot, layout)


def show_tree(snapshot: Snapshot, _: Layout | None) -> None:
    """Draw the tree of PartitionSpecs as a figure and as text to copy."""
    if _cannot_show(snapshot):
        return
    part = _choose_part(snapshot, "tree_groups")
    toggled = ToggledRows("spec_tree", part)
    picks = dict.fromkeys(arrays.picture_keys(snapshot, "spec_tree"), toggled.pick)
    render.show(arrays.tree_pictures(snapshot, part, toggled.keys()), picks)
    st.caption(selection.CAPTION)
    folded = st.toggle(
        "Fold identical layers",
        value=True,
        key="tree_folded",
        help="Show layers that differ only in their number as one.",
    )
    render.show(arrays.tree_texts(snapshot, part, folded))


def show_table(snapshot: Snapshot, layout: Layout | None) -> None:
    """Draw the maps of the selected array and the reasons for its sharding, then all arrays with filters."""
    if _cannot_show(snapshot):
        return
    show_maps(snapshot, layout)
    present = {array.group for array in snapshot.arrays}
    left, right = page_width.beside([3, 2])
    groups = left.pills(
        "Groups",
        [group for group in GROUP_TITLES if group in present],
        selection_mode="multi",
        format_func=GROUP_TITLES.__getitem__,
        key="table_groups",
    )
    words = right.text_input(
        "Filter",
        key="table_filter",
        placeholder="words in path, axes or spec, such as W2 model",
    )
    shown = arrays.by_bytes(arrays.matching(snapshot.arrays, groups or list(present), words))
    if not shown:
        st.info("No array contains all of these words.", icon=":material/search_off:")
        return
    pick = table.array_picker(
        [array.path for array in shown],
        "table_selected",
        f"{len(shown)} of {len(snapshot.arrays)} arrays.",
    )
    render.show([arrays.table(shown)], {"array_table": pick})


def _cannot_show(snapshot: Snapshot) -> bool:
    """Draw the reason if there are no arrays."""
    missing = unknown.no_arrays(snapshot)
    if missing is not None:
        render.show([missing])
    return missing is not None


def _choose_part(snapshot: Snapshot, key: str) -> list[Array]:
    """Draw the choice of a part of the train state and return its arrays."""
    present = {array.group for array in snapshot.arrays}
    names = [name for name, groups in PARTS.items() if present.intersection(groups)] or [WHOLE]
    part = kept_field.choose("Part of the train state", names, key, names[0])
    return [array for array in snapshot.arrays if array.group in PARTS[part]]


_SHOW = (show_table, show_tree, show_devices, show_rules, program_panels.show_train_state)
VIEWS: dict[str, View] = dict(zip(view_link.VIEWS, _SHOW, strict=True))


def show_torus(snapshot: Snapshot) -> None:
    """Draw them, if the Snapshot contains the machine."""
    target = devices.target_of(snapshot)
    if target is None:
        return
    st.markdown("##### Mesh on the machine")
    st.markdown(plain(target.sentence))
    render.show([devices.links(snapshot, target)])


def show_maps(snapshot: Snapshot, layout: Layout | None) -> None:
    """Draw the choice of an array, its two maps, and the details of the array."""
    missing = unknown.no_arrays(snapshot) or unknown.no_mesh(snapshot)
    array = None if missing else selection.selected(snapshot)
    mesh = None if array is None else snapshot.mesh_of(array)
    if array is None or mesh is None:
        render.show([missing] if missing else [])
        return
    selection.draw([candidate.path for candidate in snapshot.arrays])
    reason = figures.block_map.why_no_map(array, mesh)
    if reason is not None:
        st.info(plain(reason), icon=":material/block:")
        return
    drawn = (array, mesh, _arrangement(array, mesh), _highlighted(array, mesh), page_width.half_px())
    blocks, devices = _maps(*drawn)
    left, right = page_width.halves()
    with left:
        _chart(blocks, "block_map", array)
    with right:
        _chart(devices, "mesh_map", array)
        chart.end_of_figures()
        render.show(array_section.why(array, snapshot, layout))
    render.show(array_section.notes(array))
    caption = "Same color, same data."
    if not screenshot_mode.on():
        caption += " Click a block or a device to highlight it; hover for index ranges and bytes."
    st.caption(caption)
    _show_shards(array, snapshot)
    render.show(collectives.of_array(array, snapshot))
    show_torus(snapshot)


def _show_shards(array: Array, snapshot: Snapshot) -> None:
    # A hidden table would cost the browser as much as a visible one.
    drawer = st.expander("Shards by device", key="shards_drawer", on_change="rerun")
    if drawer.open:
        with drawer:
            render.show([array_section.attributes(array, snapshot), array_section.shards(array, snapshot)])


@functools.lru_cache(maxsize=64)
def _maps(
    array: Array,
    mesh: Mesh,
    arrangement: figures.block_grid.Arrangement,
    highlight: int | None,
    width_px: int,
) -> tuple[go.Figure, go.Figure]:
    """Return the block map and the mesh map. Most changes on a page leave both as they are."""
    return (
        figures.block_map.block_map(array, mesh, arrangement, highlight=highlight, width_px=width_px),
        figures.mesh_map.mesh_map(array, mesh, highlight=highlight, width_px=width_px),
    )


def _chart(figure: go.Figure, name: str, array: Array) -> None:
    chart.draw(
        figure,
        name,
        alt=f"{name.replace('_', ' ').capitalize()} of {array.path}",
        on_pick=lambda value: _pick((array.path, name, value)),
    )


def _pick(picked: tuple[str, str, int | None]) -> None:
    # A second click, or a click outside of all cells, removes the highlight.
    remove = picked[2] is None or picked == st.session_state.get("picked")
    st.session_state["picked"] = None if remove else picked


def _highlighted(array: Array, mesh: Mesh) -> int | None:
    """Return the block that was clicked: by its number, or by a device that holds it."""
    path, name, value = st.session_state.get("picked") or (None, None, None)
    placement = sharding.place_array(array, mesh) if path == array.path else None
    if placement is None:
        return None
    if name == "mesh_map":
        return int(placement.block[mesh.devices.index(value)]) if value in mesh.devices else None
    return value if value in placement.block else None


def _arrangement(array: Array, mesh: Mesh) -> figures.block_grid.Arrangement:
    """Draw the choice of dimensions for an array of rank 3 or more, and return it."""
    shape = array.shape or ()
    rank = len(shape)
    if rank < 3:
        return figures.block_grid.Arrangement()
    names = {dimension: dimension_text(array, mesh, dimension) for dimension in range(rank)}
    split = figures.block_map.split_dimensions(array, mesh)
    others = [dimension for dimension in reversed(range(rank)) if dimension not in split]
    default = sorted((*split, *others[: max(2 - len(split), 0)]))
    at: dict[int, int] = {}
    with st.expander("Dimensions"):
        drawn = st.multiselect(
            "Drawn dimensions, outer first; the others are whole or cut at one index",
            range(rank),
            default=default,
            format_func=lambda dimension: names[dimension],
            key=f"laid_out:{array.path}",
        )
        for dimension in split:
            if dimension not in drawn:
                at[dimension] = st.slider(f"Index along {plain(names[dimension])}", 0, shape[dimension] - 1)
    if drawn == default:
        return figures.block_grid.Arrangement()
    # The last dimension runs along the lines of the page, as in printed arrays.
    half = len(drawn) // 2 if len(drawn) > 1 else 0
    return figures.block_grid.Arrangement(tuple(drawn[:half]), tuple(drawn[half:]), tuple(at.items()))
