"""The layout of a browser session, in the widgets of the sidebar and in the URL.

The widgets hold what the user typed, valid or not. A valid layout is written to the URL. If the URL differs
from the last one written (a link, the back button), it is read into the widgets.
"""

import itertools
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import streamlit as st

from inspector import layout as layouts
from inspector.layout import Layout, mesh_shapes
from inspector.machines import hardware
from inspector.media.streamlit.page import page_switch
from inspector.media.streamlit.session import chip_choice, screenshot_mode, view_link
from inspector.media.streamlit.streamlit_internals import uninterrupted
from inspector.model import ModelEntry
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.records.snapshot import Snapshot
from inspector.text.errors import InvalidInput
from inspector.text.field_parser import Parsed

TABS_KEY = "panel"  # of the tabs of the Layout page

_row_numbers = itertools.count()

# The tables of the sidebar: of rules, and of patterns with the PartitionSpecs of `state_specs`.
Table = Literal["rule", "pattern"]

_LAST_TAB, _NEW_FIELD = "last_tab", "new_field"
# On a slow server, a timer of *Compare* can replace the URL that the back button has sent by its own.
_PIN = "pin"
# Streamlit reserves these URL parameters, so the fields have other names there. Sizes have no hyphens.
_PARAMETERS = {name: f"{name}-size" for name in ("embed", "embed_options")}


@dataclass
class RuleRow:
    """A rule, or a pattern with its spec. The number identifies the widgets when rows move."""

    number: int
    table: Table = "rule"

    @property
    def name_key(self) -> str:
        return f"{self.table}:{self.number}:name"

    @property
    def axes_key(self) -> str:
        return f"{self.table}:{self.number}:axes"

    def text(self) -> str:
        state = st.session_state
        axes = state.get(self.axes_key) or ""
        if self.table == "rule":
            axes = axes.replace(",", "+")  # several mesh axes are written both ways
        return f"{state.get(self.name_key) or ''}={axes}"


@uninterrupted()
def begin(on_layout_page: bool, tabs: Collection[str] = ()) -> None:
    """Set the session's layout before a page is drawn. `tabs` are the tabs of the Layout page.

    Only the Layout page has the layout in its URL. A page switch empties the URL. On return to the
    Layout page, the last valid layout is put into the URL and the fields.
    """
    state = st.session_state
    was_on_layout_page, state.on_layout_page = state.get("on_layout_page"), on_layout_page
    if "last_layout" not in state and not on_layout_page:
        put(layouts.parse(layouts.opening_fields()).unwrap())
    elif (
        on_layout_page
        and ("last_layout" not in state or (page_switch.was_pressed() and _PIN not in _query()))
        and _query() != state.get("written_query")
    ):
        # A link, or another URL of the browser's history.
        view, fields = view_link.split(_query())
        chip = fields.pop(chip_choice.KEY, None)
        parsed = layouts.parse_leniently(fields or layouts.opening_fields())
        state.url_problems, state.url_layout = dict(parsed.problems), parsed.value
        put(parsed.unwrap())
        state.url_problems |= view_link.read(view, tabs, TABS_KEY)
        if (problem := screenshot_mode.problem()) is not None:
            state.url_problems[screenshot_mode.PARAMETER] = problem
        try:
            chip_choice.put(None if chip is None else hardware.chip(chip).name)
        except InvalidInput as error:
            state.url_problems[chip_choice.KEY] = str(error)
    elif on_layout_page and was_on_layout_page is False:
        put(state["last_layout"])
        if (tab := state.get(_LAST_TAB)) in tabs:
            state[TABS_KEY] = tab  # Streamlit forgets tabs that are not drawn
        state.written_query = None
        view_link.forget()
    # The widget of the chip is not always drawn, so the choice is set again.
    chip_choice.keep()


@uninterrupted()
def put(layout: Layout) -> None:
    """Set every widget to this layout, in a callback or before the widgets are drawn."""
    state = st.session_state
    fields = layouts.to_fields(layout)
    same = ("model", "steps", "target", "device_order", "processes")
    for name in (*same, *(switch.name for switch in layouts.SWITCHES)):
        state[f"field:{name}"] = getattr(layout, name)
    state["field:mesh"] = fields["mesh"]
    state["field:axes"] = ", ".join(layout.axis_names)
    state["field:explicit"] = list(layout.explicit_axes)
    state["field:optimizer_axes"] = list(layout.optimizer_axes)
    state["field:compiler_options"] = fields.get("compiler_options", "")
    state["field:constraints"] = [
        name for name in layout.entry.constraints if name not in layout.unconstrained
    ]
    for name, value in layout.sizes.items():
        state[size_key(name)] = value
    if layout.entry.has_rules:
        _put_rows("rule", [(name, " + ".join(axes)) for name, axes in layout.rules])
    if layout.entry.state_specs is not None:
        rows = [(row.pattern, layouts.print_row_spec(row.spec)) for row in layout.state_specs]
        _put_rows("pattern", [(pattern, _spaced(spec)) for pattern, spec in rows])
    if not layout.entry.has_rules:
        for place, spec in layout.specs.items():
            state[spec_key(place)] = layouts.print_spec(spec).replace(".", ", ")
    state["axis_names"] = layout.axis_names
    state["last_layout"] = layout


def _put_rows(table: Table, texts: list[tuple[str, str]]) -> None:
    st.session_state[f"{table}_rows"] = [_new_row(table, name, axes) for name, axes in texts]


def _new_row(table: Table, name: str, axes: str = "") -> RuleRow:
    row = RuleRow(next(_row_numbers), table)
    st.session_state[row.name_key] = name
    st.session_state[row.axes_key] = axes
    return row


def _spaced(spec: str) -> str:
    """Return the text of a spec for reading: `None, model`, `fsdp(data, 1024)`."""
    return re.sub(r"[.,]", ", ", spec).replace("+", " + ")


def parsed() -> Parsed[Layout]:
    """Return the layout in the widgets, or the problems of their fields."""
    return layouts.parse(fields())


def fields() -> dict[str, str]:
    """Return the text of every field."""
    state = st.session_state
    entry, axes = model_entry(), typed_axes()
    explicit, constrained = state["field:explicit"], state["field:constraints"]
    text = {
        "model": entry.name,
        "mesh": state["field:mesh"],
        "axes": state["field:axes"],
        "axis_types": ",".join("explicit" if axis in explicit else "auto" for axis in axes),
        "optimizer_axes": ",".join(axis for axis in state["field:optimizer_axes"] if axis in axes),
        "steps": _printed(state["field:steps"]),
        "target": state["field:target"],
        "compiler_options": state.get("field:compiler_options", ""),
        # The next two are drawn for some targets only.
        "device_order": state.get("field:device_order", layouts.DEVICE_ORDERS[0]),
        "processes": _printed(state.get("field:processes", 1)),
        "unconstrained": ",".join(name for name in entry.constraints if name not in constrained),
    }
    text |= {switch.name: _printed(state[f"field:{switch.name}"]) for switch in layouts.SWITCHES}
    for size in entry.sizes:
        text[size.name] = _printed(state.get(size_key(size.name), size.default))
    if entry.has_rules:
        text["rules"] = ",".join(row.text() for row in rule_rows())
    if entry.state_specs is not None:
        text["state_specs"] = ";".join(row.text() for row in rule_rows("pattern"))
    if not entry.has_rules and entry.state_specs is None:
        # A comma separates the specs, so a point separates the dimensions of each.
        text["specs"] = ",".join(
            f"{place}={state[spec_key(place)].replace(',', '.')}"
            for place in entry.partitions
            if spec_key(place) in state
        )
    return text


def typed_axes() -> list[str]:
    """Return the names of the mesh axes as typed, valid or not."""
    return [name.strip() for name in st.session_state["field:axes"].split(",")]


def forget_absent_axes() -> None:
    """Remove the axes that the mesh no longer has from the choices of axes."""
    axes = typed_axes()
    for key in ("field:explicit", "field:optimizer_axes"):
        st.session_state[key] = [axis for axis in st.session_state[key] if axis in axes]


def model_entry() -> ModelEntry:
    return CATALOGUE[st.session_state["field:model"]]


def rule_rows(table: Table = "rule") -> list[RuleRow]:
    rows: list[RuleRow] = st.session_state.setdefault(f"{table}_rows", [])
    return rows


@uninterrupted()
def add_pattern() -> None:
    """Add a pattern at the end that all paths match. It replicates the arrays that no other row matches."""
    _add_row("pattern", ".*")


@uninterrupted()
def add_rule() -> None:
    """Add a rule for the first logical axis without one. It maps to no mesh axis, so it changes nothing."""
    ruled = {st.session_state.get(other.name_key) for other in rule_rows()}
    unruled = [name for name in model_entry().logical_axes if name not in ruled]
    _add_row("rule", unruled[0] if unruled else "")


def _add_row(table: Table, name: str) -> None:
    """Add a row, whose first empty field gets the focus."""
    row = _new_row(table, name)
    st.session_state[_NEW_FIELD] = row.axes_key if name else row.name_key
    rule_rows(table).append(row)


def new_field() -> str | None:
    """Return the key of the field that the row which was added last begins with, or None."""
    return st.session_state.get(_NEW_FIELD)


def rule_actions(position: int, table: Table = "rule") -> list[str]:
    """Return the entries of the menu of a row."""
    up, down = position > 0, position < len(rule_rows(table)) - 1
    return [*(["Move up"] if up else []), *(["Move down"] if down else []), "Delete"]


@uninterrupted()
def act_on_rule(position: int, action: str | None, table: Table = "rule") -> None:
    """Do one of `rule_actions`."""
    rows = rule_rows(table)
    if action not in rule_actions(position, table):
        return
    row = rows.pop(position)
    if action != "Delete":
        rows.insert(position + (1 if action == "Move down" else -1), row)


def change_model() -> None:
    """Take the rules or specs of the selected model. Keep the mesh and the sizes that both models have."""
    state = st.session_state
    last: Layout = state["last_layout"]
    sizes = {name: layouts.print_size(value) for name, value in last.sizes.items()}
    known = {size.name for size in model_entry().sizes}
    mesh = {
        "mesh": layouts.print_mesh(last.mesh_shape),
        "axes": ",".join(last.axis_names),
        "axis_types": ",".join(axis.type for axis in last.mesh().axes),
    }
    # A model that names other mesh axes gets its own mesh.
    fits = set(model_entry().mesh_axes) <= set(last.axis_names)
    kept = {
        "model": model_entry().name,
        **(mesh if fits else {}),
        "steps": str(last.steps),
        "target": last.target,
        "processes": str(last.processes),
    } | {name: text for name, text in sizes.items() if name in known}
    put(layouts.parse_leniently(kept).unwrap())


def change_mesh() -> None:
    """Give a mesh of another rank as many axis names. The first names stay."""
    state = st.session_state
    try:
        shape = layouts.parse_mesh(state["field:mesh"], layouts.most_devices(state["field:target"]))
    except InvalidInput:
        return
    names = state["axis_names"]
    if len(shape) == len(names):
        return
    # A mesh that was reduced and is enlarged again gets its old names.
    spare = (
        *last_layout().axis_names,
        *layouts.default_names(len(shape)),
        *layouts.default_names(layouts.MOST_AXES),
    )
    fitted = tuple(mesh_shapes.fitted_names(",".join(names), len(shape), spare))
    state["field:axes"] = ", ".join(fitted)
    state["axis_names"] = fitted


def change_axes() -> None:
    """Rename a mesh axis in the rules or specs too. `data:explicit` sets the type of an axis."""
    state = st.session_state
    before = state["axis_names"]
    try:
        names, types = layouts.split_axes(state["field:axes"])
    except InvalidInput:
        return
    if types is not None:
        state["field:axes"] = names.replace(",", ", ")
        typed = zip(names.split(","), types.split(","), strict=True)
        state["field:explicit"] = [name for name, kind in typed if kind == "explicit"]
    try:
        # An invalid name is not put into the rules: it could not be found there when it is corrected.
        after = layouts.parse_axes(state["field:axes"], (1,) * len(before))
    except InvalidInput:
        return
    renamed = {old: new for old, new in zip(before, after, strict=True) if old != new}
    if len(renamed) == 1:
        for field in ("field:explicit", "field:optimizer_axes"):
            state[field] = [renamed.get(name, name) for name in state[field]]
        for row in (*rule_rows(), *rule_rows("pattern")):
            _rename(row.axes_key, renamed)
        for place in model_entry().partitions:
            _rename(spec_key(place), renamed)
    state["axis_names"] = after


def _rename(key: str, renamed: dict[str, str]) -> None:
    """Replace the name of a mesh axis in a widget's text."""
    for old, new in renamed.items():
        text = st.session_state.get(key) or ""
        st.session_state[key] = re.sub(rf"\b{re.escape(old)}\b", new, text)


def remember(layout: Layout) -> None:
    """Keep the last valid layout."""
    st.session_state["last_layout"] = layout
    st.session_state["axis_names"] = layout.axis_names
    if layout != st.session_state.get("url_layout"):
        st.session_state.url_problems = {}
        view_link.forget()


def write_url(planned: Snapshot | None, tabs: Collection[str]) -> None:
    """Write the last valid layout to the URL, with the open tab, the array and the program.

    Args:
      planned: the plan of the layout, or None if there is none.
      tabs: the tabs of the page.
    """
    layout = last_layout()
    st.session_state[_LAST_TAB] = st.session_state.get(TABS_KEY)
    query = layouts.to_query(layout)
    chip = chip_choice.chosen_chip()
    if chip is not None:
        query[chip_choice.KEY] = chip.name
    query |= view_link.query(tabs, TABS_KEY, planned)
    if _query() != query:
        st.query_params.from_dict(to_parameters(query) | screenshot_mode.query())
    st.session_state.written_query = query


def _query() -> dict[str, str]:
    """Return the fields in the URL, without the parameter of screenshot mode."""
    return of_parameters(screenshot_mode.without(st.query_params.to_dict()))


def to_parameters(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the URL parameters of fields by name."""
    return {_PARAMETERS.get(name, name): text for name, text in fields.items()}


def of_parameters(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of URL parameters."""
    names = {parameter: name for name, parameter in _PARAMETERS.items()}
    return {names.get(parameter, parameter): text for parameter, text in parameters.items()}


def last_layout() -> Layout:
    layout: Layout = st.session_state["last_layout"]
    return layout


def spec_key(place: str) -> str:
    return f"spec:{place}"


def size_key(name: str) -> str:
    return f"size:{name}"


def _printed(value: Any) -> str:
    return "" if value is None else layouts.print_size(value)
