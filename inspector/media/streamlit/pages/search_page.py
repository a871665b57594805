"""The Search page: what to search, the search while it runs, and its result."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import streamlit as st

from inspector import layout as layouts
from inspector.answers import search as section
from inspector.answers import subject
from inspector.answers.section import Block
from inspector.jobs.request import Progress
from inspector.layout import Layout
from inspector.machines import hardware, targets
from inspector.machines.hardware import CHIPS
from inspector.media.streamlit.page import buttons, page_switch
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.panels import summary_panel
from inspector.media.streamlit.parts import downloads, keep_buttons, render
from inspector.media.streamlit.session import (
    asked,
    chip_choice,
    current_layout,
    kept_field,
    planning,
    user,
    view_link,
)
from inspector.media.streamlit.streamlit_internals import uninterrupted
from inspector.search import registry
from inspector.search import result as results
from inspector.search.order import goal_of
from inspector.search.registry import SearchRequest, Watched
from inspector.search.result import OBJECTIVES, Candidate, SearchResult, layout_of
from inspector.search.run import DEFAULT_BUDGET
from inspector.search.space import MOST_CANDIDATES, space_of
from inspector.sharding.sharding_text import mesh_text
from inspector.text.errors import InvalidInput, require_one_of, shown
from inspector.text.formatting import counted, whole_seconds_text

# The searched space, as fields of the Search page and as its URL.
#
# A link can come from anyone. Its layout is read as that of the Layout page, and nothing is searched before a
# click.


MOST_BUDGET = 200  # compiles of one search from a page
MEASURED = "Emulated devices"  # in the list of chips
OBJECTIVE, BUDGET, LOCKS, VARY = "search_objective", "search_budget", "search_locks", "search_vary"
CHIP = "search_chip"
WEIGHTS, LIMITS = "search_weights", "search_limits"
_DEFAULTS: dict[str, Any] = {
    OBJECTIVE: OBJECTIVES[0],
    BUDGET: DEFAULT_BUDGET,
    LOCKS: "",
    VARY: "",
    CHIP: MEASURED,
    WEIGHTS: "",
    LIMITS: "",
}
_KEY, _PROBLEMS = "search", "search_link_problems"
_MOST_CHARACTERS = 2_000  # of a field with text


def read() -> tuple[str, ...]:
    """Set the layout and the fields to those of the URL, before any is drawn. Return its faults.

    A URL without a search, such as after a page switch, changes nothing.
    """
    state = st.session_state
    for key, default in _DEFAULTS.items():
        state.setdefault(key, default)
    _, query = view_link.of_url()
    if not query:
        state[_PROBLEMS] = ()
    elif not view_link.is_written(_KEY) or page_switch.was_pressed():
        put({name: texts[-1] for name, texts in query.items()})
    known: tuple[str, ...] = state.setdefault(_PROBLEMS, ())
    return known


@uninterrupted()
def put(query: Mapping[str, str]) -> None:
    """Set the layout and the fields to those of URL parameters, and keep their faults."""
    state, fields, problems = st.session_state, dict(query), []
    for key, default in _DEFAULTS.items():
        state[key] = default
        if (text := fields.pop(_parameter(key), None)) is not None:
            try:
                state[key] = _value(key, text)
            except InvalidInput as error:
                problems.append(str(error))
    parsed = layouts.parse_leniently(current_layout.of_parameters(fields))
    current_layout.put(parsed.unwrap())
    state[_PROBLEMS] = (*parsed.problems.values(), *problems)


def write(layout: Layout) -> None:
    """Write the layout and the fields to the URL, if they changed."""
    view_link.write({}, {name: [text] for name, text in parameters(layout).items()}, _KEY)


def parameters(layout: Layout) -> dict[str, str]:
    """Return the URL parameters of the layout and the fields."""
    state = st.session_state
    query = current_layout.to_parameters(layouts.to_query(layout))
    for key, default in _DEFAULTS.items():
        # The objective is always there, so that no URL of a search is empty.
        is_default = state[key] == default and key != OBJECTIVE
        if not is_default and (key != CHIP or layout.machine is None):
            query[_parameter(key)] = layouts.print_size(state[key])
    return query


def _parameter(key: str) -> str:
    """Return the URL parameter of a field. Sizes of models have no hyphens."""
    return chip_choice.KEY if key == CHIP else key.replace("_", "-")


def _value(key: str, text: str) -> Any:
    name = _parameter(key)
    if key == OBJECTIVE:
        require_one_of(name, text, OBJECTIVES)
        return text
    if key == CHIP:
        return hardware.chip(text).name
    if key == BUDGET:
        digits = text.isascii() and text.isdecimal() and len(text) <= len(str(MOST_BUDGET))
        if not digits or int(text) > MOST_BUDGET:
            raise InvalidInput(f"{name} is {shown(text)}, but must be a number from 0 to {MOST_BUDGET}")
        return int(text)
    if len(text) > _MOST_CHARACTERS:
        raise InvalidInput(f"{name} has {len(text):,} characters, at most {_MOST_CHARACTERS:,}")
    return text


_OBJECTIVES = {"time": "Time of a step", "memory": "Memory", "traffic": "Traffic"}
_POLL_SECONDS = 2.0  # between looks at other searches
# Phases in order, with their shares of a progress bar.
_SHARES = {
    "bound": 0.05, "partition": 0.25, "improve": 0.05, "compile": 0.65, "done": 0.0,
}  # fmt: skip


def show() -> None:
    """Draw the fields, the progress of the search, and its result."""
    page_switch.follow()
    st.markdown("### Search")
    view_link.show_problems(read())
    layout = current_layout.last_layout()
    service = user.service()
    st.caption(
        f"The best layouts for {plain(_subject(layout))}, from the layout of the Layout page. What can be "
        "among the best is partitioned, the most promising ones are compiled."
    )
    if planning.planned(service, layout) is None:
        return
    state = service.state(layout).known()
    assert state is not None
    fields = _fields(layout)
    write(layout)
    chip = layout.machine.chip if layout.machine else CHIPS.get(fields["chip"])
    try:
        space = space_of(layout, state, fields["locks"], fields["vary"])
        goal = goal_of(layout, chip, fields["weights"], fields["limits"])
    except InvalidInput as error:
        st.error(plain(str(error)), icon=":material/error:")
        return
    request = SearchRequest(space, chip, fields["budget"], fields["objective"], goal)
    watched = registry.shared().get(request)
    _buttons(request, watched)
    st.fragment(_others, run_every=_POLL_SECONDS)(watched)
    if watched is None:
        compiles = (
            f"and up to {counted(request.budget, 'compile')}" if request.budget else "without a compile"
        )
        st.info(
            f"{space.count():,} candidates (at most {MOST_CANDIDATES:,}), {compiles}. "
            "The search goes on if you leave this page or close it.",
            icon=":material/info:",
        )
        return
    if watched.running:
        st.fragment(_watch, run_every=asked.POLL_SECONDS)(watched, user.current().owner)
        st.fragment(_results_so_far, run_every=_POLL_SECONDS)(watched)
        return
    if watched.error:
        st.error(plain(watched.error), icon=":material/error:")
    _show_result(watched.result(), layout)


def _subject(layout: Layout) -> str:
    machine = layout.machine.text if layout.machine else f"{layout.devices} devices"
    return f"{subject.model_name(layout)} on {machine}"


def _fields(layout: Layout) -> dict[str, Any]:
    """Draw the fields and return their values. Without the compiler of the target, nothing is compiled."""
    missing = None if layout.machine is None else targets.missing_compiler(layout.machine)
    budget = 0
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        objective = kept_field.draw(
            st.selectbox,
            "Least",
            list(OBJECTIVES),
            format_func=_OBJECTIVES.__getitem__,
            key=OBJECTIVE,
            width=170,
        )
        if missing is None:
            budget = kept_field.draw(
                st.number_input,
                "Compiles, at most",
                0,
                MOST_BUDGET,
                key=BUDGET,
                width=150,
                help="The compiler confirms the best candidates. A large model takes minutes for each.",
            )
        chip = None if layout.machine is not None else _chip()
    weights = limits = ""
    with st.expander("Advanced"):
        locks, vary = _texts()
        if len(layout.programs) > 1 and (layout.machine is not None or chip in CHIPS):
            weights, limits = _programs(layout)
    if missing is not None:
        st.caption(f"Layouts are partitioned, but not compiled: {plain(missing)}")
    return {
        "objective": objective,
        "budget": int(budget),
        "locks": [part.strip() for part in locks.split(",") if part.strip()],
        "vary": [part.strip() for part in vary.split(";") if part.strip()],
        "chip": chip,
        "weights": weights,
        "limits": limits,
    }


def _texts() -> tuple[str, str]:
    """Draw and return the text of the common part of all candidates, and of the other differences."""
    locks = kept_field.draw(
        st.text_input,
        "Fixed",
        key=LOCKS,
        width=260,
        placeholder="mesh, tensor=8, vocab=tensor",
        help="What is the same in all candidates, separated by commas: mesh, rules, the size of a mesh "
        "axis such as tensor=8, or the rule of a logical axis such as vocab=tensor.",
    )
    vary = kept_field.draw(
        st.text_input,
        "Also vary",
        key=VARY,
        width=260,
        placeholder="remat=none,full; batch=64,128",
        help="Other fields with their values, separated by semicolons: a size of the model, donate, "
        "device_order, or optimizer_axes=none,data. Times are compared for each example of the batch.",
    )
    return locks, vary


def _programs(layout: Layout) -> tuple[str, str]:
    """Draw and return the weights and the limits of the programs of a model with several."""
    names = ", ".join(layout.programs)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        weights = kept_field.draw(
            st.text_input,
            "Weights of programs",
            key=WEIGHTS,
            width=260,
            placeholder=f"{layout.step_program}=1",
            help="Rank layouts by the time of several programs: the runs of each for one example, such as "
            f"prefill=1,decode=256. The programs are {names}. By default {layout.step_program} alone.",
        )
        limits = kept_field.draw(
            st.text_input,
            "Limits of programs",
            key=LIMITS,
            width=260,
            placeholder=f"{layout.step_program}=25ms",
            help="Leave out layouts in which one run of a program takes longer.",
        )
    return weights, limits


def _chip() -> str:
    """Draw the choice of chip for the steps of a layout without a machine, and return its name."""
    chip: str = kept_field.draw(
        st.selectbox,
        "Time on",
        [MEASURED, *CHIPS],
        format_func=lambda name: CHIPS[name].title if name in CHIPS else name,
        key=CHIP,
        width=190,
        help="Measured on emulated devices of this machine, or predicted for a chip.",
    )
    return chip


def _buttons(request: SearchRequest, watched: Watched | None) -> None:
    """Draw the button that starts or continues the search."""
    if watched is None:
        label = "Start search"
    elif not watched.running and (watched.stopped or watched.error):
        label = "Continue search"
    else:
        return
    if st.button(label, key="start_search", type="primary", icon=":material/search:"):
        try:
            link = parameters(current_layout.last_layout())
            registry.shared().start(request, user.current(), link)
        except InvalidInput as error:
            st.error(plain(str(error)), icon=":material/error:")
        else:
            st.rerun()


def _others(shown: Watched | None) -> None:
    """Draw a line for each other search of the user that runs, and for the one that ended last."""
    owner = user.current().owner
    others = [other for other in registry.shared().of(owner) if other is not shown and other.link]
    ended = [other for other in others if not other.running][-1:]
    for number, other in enumerate((*ended, *(other for other in others if other.running))):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            what = f"Search for {_subject(other.layout)}"
            state = section.progress_text(other.progress()) if other.running else "ended"
            st.markdown(
                plain(f"{what}, from mesh {mesh_text(other.layout.mesh())}: {state}"), width="content"
            )
            buttons.draw("Show", f"other_show:{number}", "visibility", put, other.link)
            if other.running:
                leave = registry.shared().leave
                buttons.draw("Cancel", f"other_cancel:{number}", "stop", leave, other, owner)


def _watch(watched: Watched, owner: str) -> None:
    """Draw the progress with Cancel. Rerun the page at the end."""
    if (progress := _progress(watched, owner)) is None:
        st.rerun()
    asked.draw("search", progress, lambda: registry.shared().leave(watched, owner))


def _results_so_far(watched: Watched) -> None:
    """Draw the results so far, less often than the progress: they take longer to draw."""
    page_switch.follow()  # a click on Open reruns this fragment alone
    result = watched.result()
    if result.candidates:
        _show_table(result, [section.picture(result), section.table(result)], None)


def _progress(watched: Watched, owner: str) -> Progress | None:
    if not watched.running:
        return None
    if place := registry.shared().place(watched):
        label = f"Waiting for another search, place {place} in the queue"
        return Progress(label, 0.0, "Starts when the searches before it have ended.")
    state = watched.progress()
    phases = list(_SHARES)
    share = sum(_SHARES[phase] for phase in phases[: phases.index(state.phase)])
    if state.total:
        share += _SHARES[state.phase] * min(state.done / state.total, 1.0)
    if watched.stopped:
        return Progress("Stopping", share)
    note = f"{whole_seconds_text(watched.elapsed)} elapsed."
    if owner not in watched.wanted_by:
        note += " It goes on for other users."
    return Progress(section.progress_text(state), share, note)


def _show_table(result: SearchResult, blocks: Sequence[Block], best: Candidate | None) -> None:
    """Draw blocks of a result. The layout of the selected row, also while a search runs, can be opened."""
    listed, layout = section.listed(result), current_layout.last_layout()

    def pick(row: int | None) -> None:
        chosen = best if row is None else listed[row]
        if chosen is None:
            return
        if chosen is not best:
            with st.container(border=True):
                st.markdown(f"**{plain(section.name_of(chosen))}**")
                render.show([section.why(result, chosen)])
                _actions(chosen, result, layout, "row")
            return
        st.caption(
            "The best layout. Select another (Shift+Space) to see why it differs, to open or compare it."
        )
        render.show([section.why(result, chosen)])

    render.show(blocks, {section.TABLE: pick})


def _show_result(result: SearchResult, layout: Layout) -> None:
    best = result.best_candidate
    render.show(section.head(result))
    if best is not None:
        _actions(best, result, layout, "best")
    _show_table(result, section.details(result), best)
    downloads.draw_file(
        "Result",
        lambda: results.dumps(result),
        "search.json",
        "search_download",
        help="All candidates as JSON, with their figures and the reason of each rejected one.",
    )


def _actions(
    candidate: Candidate, result: SearchResult, layout: Layout, place: Literal["best", "row"]
) -> None:
    """Draw what can be done with a candidate: the best one, or that of a selected row."""
    chosen = layout_of(candidate)
    with st.container(horizontal=True, gap="small"):
        buttons.draw("Open", f"{place}_open", "open_in_new", _open, chosen, result.chip, type="primary")
        pin = st.button("Compare", key=f"{place}_pin", icon=":material/view_column:")
        summary_panel.draw_button(chosen, "code" if place == "best" else f"{place}_code")
    if pin:
        _keep_chip(chosen, result.chip)
        keep_buttons.compare(user.service(), layout, section.name_of(candidate), chosen, searched=True)


@uninterrupted()
def _open(layout: Layout, chip: str | None) -> None:
    current_layout.put(layout)
    _keep_chip(layout, chip)
    page_switch.in_next_run(page_switch.LAYOUT)


def _keep_chip(layout: Layout, chip: str | None) -> None:
    """Choose the chip for which the search predicted times, unless the target has a chip."""
    if layout.machine is None and chip is not None:
        chip_choice.put(chip)
