"""The open tab, the selected array and the chosen program, as parameters of a page's URL.

A value that differs from the default is written, so that a link opens the picture that its sender sees. A
link can come from anyone: a tab must be one of the page, and an array or program that the Snapshot lacks is
ignored.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

import streamlit as st

from inspector.media.streamlit.page import page_switch
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.session import chip_choice, screenshot_mode, selection
from inspector.model import RESERVED_PROGRAMS
from inspector.records.snapshot import Snapshot
from inspector.text.errors import shown

TAB, VIEW, ARRAY, PROGRAM = "tab", "view", "array", "program"
PARAMETERS = (TAB, VIEW, ARRAY, PROGRAM)
ARRAYS = "arrays"  # the tab with views
VIEWS = ("Table", "Tree", "By device", "Rules", chip_choice.ARRAYS_VIEW)
BOARD_VIEWS = ("Shard maps", "Tree", "PartitionSpecs")
BOARD_TABS_KEY, BOARD_VIEW_KEY = "board_section", "board_view"
MOST_CHARACTERS = 4_096  # of an array's path or a program's name

_ARTICLES = {ARRAY: "an array", PROGRAM: "a program"}
_LINKED, _SENT = "linked_view", "view_urls_sent"
_MOST_SENT = 40  # URLs that the browser may still send; a click adds two

Text = TypeVar("Text")


def query(tabs: Collection[str], key: str, snapshot: Snapshot | None) -> dict[str, str]:
    """Return the parameters of the open view.

    Args:
      tabs: the labels of the page's tabs; the first one is the default.
      key: the key of the tabs.
      snapshot: the Snapshot whose largest parameter is the default array, or None for a page that has no
        Snapshot.
    """
    state, parameters = st.session_state, {}
    tab = state.get(key)
    if isinstance(tab, str) and tab in tabs and tab != next(iter(tabs)):
        parameters[TAB] = _parameter(tab)
    view_key, views = _views(key)
    view = state.get(view_key)
    if parameters.get(TAB) == ARRAYS and view in views and view != views[0]:
        parameters[VIEW] = _parameter(view)
    array = state.get(selection.KEY)
    known = () if snapshot is None else snapshot.arrays
    if snapshot is not None and isinstance(array, str) and any(own.path == array for own in known):
        default = selection.largest_parameter(snapshot).path
        parameters |= {} if array == default else {ARRAY: array}
    program = chip_choice.chosen(tab)
    if program is not None and _is_short(program) and program != chip_choice.FIRST:
        parameters[PROGRAM] = program
    return parameters


def _views(key: str) -> tuple[str, tuple[str, ...]]:
    """Return key and names of the views of the tab *Arrays*, for the key of the tabs."""
    return (BOARD_VIEW_KEY, BOARD_VIEWS) if key == BOARD_TABS_KEY else (selection.VIEW_KEY, VIEWS)


def split(parameters: Mapping[str, Text]) -> tuple[dict[str, Text], dict[str, Text]]:
    """Return the parameters of the view, and the others."""
    view = {name: parameters[name] for name in PARAMETERS if name in parameters}
    return view, {name: text for name, text in parameters.items() if name not in view}


def of_url() -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the parameters of the view in the URL, and all values of the others, without screenshot mode."""
    names = [name for name in st.query_params if name != screenshot_mode.PARAMETER]
    view, others = split({name: st.query_params.get_all(name) for name in names})
    return {name: values[-1] for name, values in view.items()}, others


def write(view: Mapping[str, str], others: Mapping[str, list[str]], key: str) -> None:
    """Write the parameters to the URL of a page other than the Layout page, if they changed."""
    state, written = st.session_state, _written(key)
    # While URLs are on their way to the browser, the one that it sent is not the one that it will have.
    if of_url() != (dict(view), dict(others)) or _SENT in state:
        sent = (*state.get(_SENT, ()), of_url(), state.get(written))
        state[_SENT] = sent[-_MOST_SENT:]
        st.query_params.from_dict({**others, **view, **screenshot_mode.query()})
    state[written] = (dict(view), dict(others))


def is_written(key: str) -> bool:
    """Return whether the URL is the one that `write` wrote last, or one that it replaced since then.

    The browser applies a URL after it has drawn the figures, and sends earlier ones until then.
    """
    state, url = st.session_state, of_url()
    if url == state.get(_written(key)):
        state.pop(_SENT, None)
        return True
    return url in state.get(_SENT, ()) and not page_switch.was_pressed()


def _written(key: str) -> str:
    return f"{key}:url"


def read(view: Mapping[str, str], tabs: Collection[str], key: str) -> dict[str, str]:
    """Open the tab, array and program of a link, before any widget is drawn.

    Return an error message by parameter. Only `tab` is checked here; `absent` checks array and program.
    """
    state, problems = st.session_state, {}
    labels = {_parameter(tab): tab for tab in tabs}
    asked, asked_view = view.get(TAB, ""), view.get(VIEW)
    view_key, view_names = _views(key)
    tab = labels.get(asked, next(iter(tabs)))
    if TAB in view and asked not in labels:
        problems[TAB] = f"tab is {shown(asked)}, but must be one of {', '.join(labels)}"
    state[key] = tab
    if asked == ARRAYS and asked in labels:
        views = {_parameter(name): name for name in view_names}
        state[view_key] = views.get(asked_view or "", view_names[0])
        if asked_view is not None and asked_view not in views:
            problems[VIEW] = f"view is {shown(asked_view)}, but must be one of {', '.join(views)}"
    state.pop(selection.KEY, None)
    if _is_short(view.get(ARRAY)):
        state[selection.KEY] = view[ARRAY]
    program = view.get(PROGRAM)
    if (program_key := chip_choice.KEYS.get(tab)) is not None:
        state.pop(program_key, None)
    chip_choice.link(program if _is_short(program) else None)
    state[_LINKED] = dict(view)
    return problems


def absent(*snapshots: Snapshot) -> list[str]:
    """Return a sentence for the array and the program of the last link that these Snapshots lack."""
    view = st.session_state.get(_LINKED, {})
    sentences = []
    for name, known in (
        (ARRAY, {array.path for snapshot in snapshots for array in snapshot.arrays}),
        (PROGRAM, set().union(*map(_programs, snapshots))),
    ):
        if name in view and known and view[name] not in known:
            sentences.append(
                f"{name} is {shown(view[name])}, but nothing here has {_ARTICLES[name]} of this name"
            )
    return sentences


def _programs(snapshot: Snapshot) -> set[str]:
    """Return the names of the programs. Those of a plan may not be partitioned yet."""
    names = {program.name for program in snapshot.programs}
    return names.union(RESERVED_PROGRAMS) if names and snapshot.source.kind == "plan" else names


def show_problems(problems: Sequence[str]) -> None:
    """Draw a warning with the problems of a link, if there are any."""
    if problems:
        messages = "  \n".join(map(plain, problems))
        st.warning(
            f"The link has invalid values. Defaults replace them.  \n{messages}",
            icon=":material/link_off:",
        )


def forget() -> None:
    """Forget the last link, because the page shows something else."""
    st.session_state.pop(_LINKED, None)


def _parameter(tab: str) -> str:
    return tab.lower().replace(" ", "-")


def _is_short(text: str | None) -> bool:
    return text is not None and 0 < len(text) <= MOST_CHARACTERS
