"""The layout of one browser session: in the sidebar's widgets, and in the URL.

The widgets hold what the person typed, right or wrong. Whatever they hold that is a valid layout is
written to the URL; a URL that differs from what was last written (a shared link, the back button) is
read into the widgets.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import Any

import streamlit as st

from inspector import layout as layouts
from inspector.core.errors import InvalidInput
from inspector.core.field_parser import Parsed
from inspector.layout import Layout
from inspector.machines import hardware
from inspector.media.streamlit import chip_choice, page_width, screenshot_mode
from inspector.model import ModelEntry
from inspector.models.catalogue import CATALOGUE

_row_numbers = itertools.count()

# Streamlit keeps these parameters of the URL to itself, so that the field has another one; no size of a
# model has a hyphen in its name.
_PARAMETERS = {name: f"{name}-size" for name in ("embed", "embed_options")}


@dataclass
class RuleRow:
    """One row of the rule table; the number makes its widgets its own when rows move."""

    number: int

    @property
    def name_key(self) -> str:
        return f"rule:{self.number}:name"

    @property
    def axes_key(self) -> str:
        return f"rule:{self.number}:axes"

    def text(self) -> str:
        state = st.session_state
        return f"{state.get(self.name_key) or ''}={state.get(self.axes_key) or ''}"


@dataclass(frozen=True)
class _UrlSent:
    """A URL that the browser has not yet told back: the one before it, and what it had told till then."""

    before: dict[str, str]
    told: dict[str, Any]


def begin(on_layout_page: bool) -> None:
    """Give the session its layout, before any page is drawn.

    Only the layout page has the layout in its URL. A page switch empties the URL, and Streamlit forgets
    widgets that were not drawn, so that on coming back the last layout is put into both again.
    """
    state = st.session_state
    was_on_layout_page, state.on_layout_page = state.get("on_layout_page"), on_layout_page
    if "last_layout" not in state and not on_layout_page:
        put(layouts.parse(layouts.opening_fields()).unwrap())
    elif on_layout_page and was_on_layout_page is False:
        put(state["last_layout"])
        state.written_query = state.url_sent = None
    elif on_layout_page and _query() == state.get("written_query"):
        state.url_sent = None
    elif on_layout_page and not _is_late():
        # A link that was opened, or the browser's back button.
        fields = _query()
        chip = fields.pop(chip_choice.KEY, chip_choice.DEFAULT)
        parsed = layouts.parse_leniently(fields or layouts.opening_fields())
        state.url_problems, state.url_layout = dict(parsed.problems), parsed.value
        state.url_sent = None
        put(parsed.value)
        if (problem := screenshot_mode.problem()) is not None:
            state.url_problems[screenshot_mode.PARAMETER] = problem
        try:
            state[chip_choice.KEY] = hardware.chip(chip).name
        except InvalidInput as refused:
            state.url_problems[chip_choice.KEY] = str(refused)
    # What was chosen in a panel stays when the panel is closed and its widget forgotten.
    state[chip_choice.KEY] = chip_choice.chosen_chip().name


def put(layout: Layout) -> None:
    """Set every widget to this layout; only before the widgets are drawn, or in a callback."""
    state = st.session_state
    fields = layouts.to_fields(layout)
    state["field:model"] = layout.model
    state["field:mesh"] = fields["mesh"]
    state["field:axes"] = ", ".join(layout.axis_names)
    state["field:steps"] = layout.steps
    state["field:target"] = layout.target
    state["field:device_order"] = layout.device_order
    for switch in layouts.SWITCHES:
        state[f"field:{switch.name}"] = getattr(layout, switch.name)
    state["field:processes"] = layout.processes
    state["field:constraints"] = [
        name for name in layout.entry.constraints if name not in layout.unconstrained
    ]
    for name, value in layout.sizes.items():
        state[size_key(name)] = value
    if layout.entry.has_rules:
        put_rules(layout)
    else:
        for place, spec in layout.specs.items():
            state[spec_key(place)] = layouts.print_spec(spec).replace(".", ", ")
    state["mesh_rank"] = len(layout.mesh_shape)
    state["axis_names"] = layout.axis_names
    state["last_layout"] = layout


def put_rules(layout: Layout) -> None:
    rows = []
    for name, axes in layout.rules:
        row = RuleRow(next(_row_numbers))
        st.session_state[row.name_key] = name
        st.session_state[row.axes_key] = " + ".join(axes)
        rows.append(row)
    st.session_state.rule_rows = rows


def parsed() -> Parsed[Layout]:
    """The layout that the widgets hold, or what is wrong with it."""
    return layouts.parse(fields())


def fields() -> dict[str, str]:
    """The text of every field, as the widgets have it now."""
    state = st.session_state
    entry = model_entry()
    text = {
        "model": entry.name,
        "mesh": state["field:mesh"],
        "axes": state["field:axes"],
        "steps": _printed(state["field:steps"]),
        "target": state["field:target"],
        # These two are drawn for some targets only.
        "device_order": state.get("field:device_order", layouts.DEVICE_ORDERS[0]),
        "processes": _printed(state.get("field:processes", 1)),
        "unconstrained": ",".join(
            name for name in entry.constraints if name not in state["field:constraints"]
        ),
    }
    text |= {switch.name: _printed(state[f"field:{switch.name}"]) for switch in layouts.SWITCHES}
    for size in entry.sizes:
        text[size.name] = _printed(state.get(size_key(size.name), size.default))
    if entry.has_rules:
        text["rules"] = ",".join(row.text() for row in rule_rows())
    else:
        # Inside the text of all specs a comma parts places, so here a point parts dimensions.
        text["specs"] = ",".join(
            f"{place}={state[spec_key(place)].replace(',', '.')}"
            for place in entry.partitions
            if spec_key(place) in state
        )
    return text


def model_entry() -> ModelEntry:
    return CATALOGUE[st.session_state["field:model"]]


def rule_rows() -> list[RuleRow]:
    return st.session_state.setdefault("rule_rows", [])


def add_rule() -> None:
    """A rule for the first logical axis that has none yet, to no mesh axis: it changes nothing."""
    row = RuleRow(next(_row_numbers))
    ruled = {st.session_state.get(other.name_key) for other in rule_rows()}
    unruled = [name for name in model_entry().logical_axes if name not in ruled]
    st.session_state[row.name_key] = unruled[0] if unruled else ""
    st.session_state[row.axes_key] = ""
    rule_rows().append(row)


def rule_actions(position: int) -> list[str]:
    """What can be done with the rule at this place of the table."""
    up, down = position > 0, position < len(rule_rows()) - 1
    return [*(["Move up"] if up else []), *(["Move down"] if down else []), "Delete"]


def act_on_rule(position: int, action: str | None) -> None:
    """Do one of `rule_actions`; anything else is left undone."""
    rows = rule_rows()
    if action not in rule_actions(position):
        return
    row = rows.pop(position)
    if action != "Delete":
        rows.insert(position + (1 if action == "Move down" else -1), row)


def change_model() -> None:
    """A model brings its own rules or specs; mesh, names and the sizes that both have stay."""
    state = st.session_state
    last: Layout = state["last_layout"]
    sizes = {name: layouts.print_size(value) for name, value in last.sizes.items()}
    known = {size.name for size in model_entry().sizes}
    kept = {
        "model": model_entry().name,
        "mesh": layouts.print_mesh(last.mesh_shape),
        "axes": ",".join(last.axis_names),
        "steps": str(last.steps),
        "target": last.target,
        "processes": str(last.processes),
    } | {name: text for name, text in sizes.items() if name in known}
    put(layouts.parse_leniently(kept).value)


def change_mesh() -> None:
    """A mesh of another rank gets as many axis names: the first ones stay."""
    state = st.session_state
    try:
        shape = layouts.parse_mesh(state["field:mesh"], layouts.most_devices(state["field:target"]))
    except InvalidInput:
        return
    names = state["axis_names"]
    if len(shape) == len(names):
        return
    # A mesh that was made smaller and is made larger again gets back the names it had.
    known = (
        *names,
        *last_layout().axis_names,
        *layouts.DEFAULT_AXES[len(shape)],
        *layouts.DEFAULT_AXES[layouts.MOST_AXES],
    )
    fitted = tuple(dict.fromkeys(known))[: len(shape)]
    state["field:axes"] = ", ".join(fitted)
    state["axis_names"] = fitted


def change_axes() -> None:
    """A mesh axis that is renamed is renamed in the rules that name it, too."""
    state = st.session_state
    before = state["axis_names"]
    try:
        # Only good names are taken over: a bad one put into the rules could not be told from the
        # rest of their text when it is mended.
        after = layouts.parse_axes(state["field:axes"], (1,) * len(before))
    except InvalidInput:
        return
    renamed = {old: new for old, new in zip(before, after, strict=True) if old != new}
    if len(renamed) == 1:
        for row in rule_rows():
            _rename(row.axes_key, renamed)
        for place in model_entry().partitions:
            _rename(spec_key(place), renamed)
    state["axis_names"] = after


def _rename(key: str, renamed: dict[str, str]) -> None:
    """Put the new name of a mesh axis in place of the old one in a widget's text."""
    for old, new in renamed.items():
        text = st.session_state.get(key) or ""
        st.session_state[key] = re.sub(rf"\b{re.escape(old)}\b", new, text)


def remember(layout: Layout) -> None:
    """Keep the last valid layout."""
    st.session_state["last_layout"] = layout
    st.session_state["axis_names"] = layout.axis_names
    if layout != st.session_state.get("url_layout"):
        st.session_state.url_problems = {}  # what was wrong with the link is of no interest any more


def write_url() -> None:
    """Put the last valid layout into the URL, which keeps the browser busy for a while."""
    layout = last_layout()
    query = layouts.to_query(layout)
    chip = chip_choice.chosen_chip().name
    if chip != chip_choice.DEFAULT:
        query[chip_choice.KEY] = chip
    if (before := _query()) != query:
        st.session_state.url_sent = _UrlSent(before, _told())
        named = {_PARAMETERS.get(name, name): text for name, text in query.items()}
        st.query_params.from_dict(named | screenshot_mode.query())
    st.session_state.written_query = query


def _is_late() -> bool:
    """Whether the browser still tells the URL from before the last one that it was sent.

    It takes up a new URL after it has drawn the figures. A click that comes before would else be taken
    for the back button, which changes nothing but the URL, and the last layout would come back.
    """
    sent: _UrlSent | None = st.session_state.get("url_sent")
    if sent is None or sent.before != _query():
        return False
    told = _told()
    # A widget that is gone was forgotten, and one that is new was not drawn before.
    return any(told[key] != sent.told[key] for key in told.keys() & sent.told.keys())


def _told() -> dict[str, Any]:
    """What the browser tells beside the URL: fields, open tabs, what is chosen, and how wide it is."""
    # Not what is pressed: a button is let go without anybody's doing.
    chosen = {
        key: value
        for key, value in st.session_state.items()
        if isinstance(value, (str, int, float)) and not isinstance(value, bool)
    }
    return chosen | {"fields": fields(), "page_width": page_width.content_px()}


def _query() -> dict[str, str]:
    """The URL's parameters, without those that say how the page is drawn."""
    fields = {parameter: name for name, parameter in _PARAMETERS.items()}
    told = screenshot_mode.without(st.query_params.to_dict())
    return {fields.get(parameter, parameter): text for parameter, text in told.items()}


def last_layout() -> Layout:
    return st.session_state["last_layout"]


def spec_key(place: str) -> str:
    return f"spec:{place}"


def size_key(name: str) -> str:
    return f"size:{name}"


def _printed(value: Any) -> str:
    return "" if value is None else layouts.print_size(value)
