"""Fields that the session keeps and the server can set.

The browser sends the values of all widgets with each click, and a page that polls sends them often. Until
it has applied an answer of the server, it sends the values from before. In one and the same widget, such a
value would look like a change by the user, and undo that of the server. So a value that the server sets
makes a new widget, and a message of the browser for the previous one has no effect.

The value is the default of the new widget. A value in the state of a widget reaches the browser with one
answer only, and is lost if the next answer comes before the browser has applied it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from inspector.media.streamlit.streamlit_internals import uninterrupted

_DRAWN = "kept_fields"
_OF_OPTIONS = ("multiselect", "pills", "segmented_control")  # their value is the argument `default`


@dataclass(frozen=True)
class _Drawn:
    """The widget of a field.

    Attributes:
      kind: the function of Streamlit and its options. With others, the value that the browser has for the
        previous ones could have another meaning.
      default: the value that the server has set.
      value: the value now, which the user may have changed.
    """

    number: int
    kind: tuple[str, tuple[Any, ...]]
    default: Any
    value: Any


def draw(
    widget: Callable[..., Any],
    label: str,
    *arguments: Any,
    key: str,
    on_change: Callable[..., None] | None = None,
    args: Sequence[Any] = (),
    **settings: Any,
) -> Any:
    """Draw the field `st.session_state[key]` with a function of Streamlit, and return its value.

    The value must exist, can be set at any time before this call, and stays when the field is not drawn.

    Args:
      on_change: called with `args` after the user has changed the value.
    """
    state = st.session_state
    fields: dict[str, _Drawn] = state.setdefault(_DRAWN, {})
    value, drawn = state[key], fields.get(key)
    name = widget.__name__
    kind = (name, arguments)
    if drawn is None:
        drawn = fields[key] = _Drawn(0, kind, value, value)
    # Streamlit forgets a widget that is not drawn, and with it a change of the default.
    forgotten = drawn.value != drawn.default and f"{key}.{drawn.number}" not in state
    if drawn.value != value or drawn.kind != kind or forgotten:
        drawn = fields[key] = _Drawn(drawn.number + 1, kind, value, value)
    number, default = drawn.number, drawn.default
    widget_key = f"{key}.{number}"

    @uninterrupted()
    def changed() -> None:
        if fields[key].number == number:
            state[key] = state[widget_key]
            fields[key] = _Drawn(number, kind, default, state[key])
            if on_change is not None:
                on_change(*args)

    if name == "selectbox":
        options = [*arguments[0]]
        options += [] if default in options else [default]
        arguments, settings["index"] = (options,), options.index(default)
    else:
        settings["default" if name in _OF_OPTIONS else "value"] = default
    widget(label, *arguments, key=widget_key, on_change=changed, **settings)
    return value


def draw_one_of(label: str, names: Sequence[str], key: str) -> str:
    """Draw the choice of one of the names as a field, at first the first one, and return it."""
    if st.session_state.get(key) not in names:
        st.session_state[key] = names[0]
    chosen: str = draw(
        st.segmented_control, label, names, key=key, required=True, label_visibility="collapsed"
    )
    return chosen


def choose(label: str, names: Sequence[str], key: str, first: str | None = None, **settings: Any) -> str:
    """Draw such a choice, at first of `first`. The session forgets it when it is not drawn."""
    if st.session_state.get(key) not in names:
        st.session_state[key] = first or names[0]
    settings = {"label_visibility": "collapsed"} | settings
    return st.segmented_control(label, names, key=key, required=True, **settings) or names[0]


def draw_presets(
    label: str,
    key: str,
    presets: Sequence[Any],
    current: str | None,
    apply: Callable[[Any], None],
    in_list: bool = False,
) -> None:
    """Draw the names of presets with `current` selected. A click calls `apply` with its preset.

    in_list: draw them as a list, which takes one line.
    """
    by_name = {preset.name: preset for preset in presets}
    st.session_state[key] = current or ("Custom" if in_list else None)

    def changed() -> None:
        if (preset := by_name.get(st.session_state[key])) is not None:
            apply(preset)

    if in_list:
        draw(st.selectbox, label, list(by_name), key=key, on_change=changed)
        return
    # A click on the selected preset changes nothing.
    draw(st.pills, label, list(by_name), key=key, required=True, on_change=changed)
