"""The page *Compare*: up to eight layouts side by side, compared with one of them."""

from collections.abc import Callable
from typing import Literal

import streamlit as st

from inspector.answers import subject
from inspector.compare import board as boards
from inspector.compare.board import MOST_PINS, Board, free_name
from inspector.jobs.inspection import Inspection
from inspector.layout import Layout
from inspector.machines import targets
from inspector.media.streamlit.compare import board_comparison, board_maps, board_pins, board_programs
from inspector.media.streamlit.page import page_switch, page_width
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import chart, downloads, keep_buttons
from inspector.media.streamlit.session import (
    chip_choice,
    current_layout,
    kept_field,
    pins,
    screenshot_mode,
    user,
    view_link,
)
from inspector.media.streamlit.streamlit_internals import uninterrupted
from inspector.text.formatting import and_text

_TIMES = "Times"
_SHOW = (board_maps.show, board_maps.show_trees, board_maps.show_matrix)
VIEWS: dict[str, Callable[[Board], None]] = dict(zip(view_link.BOARD_VIEWS, _SHOW, strict=True))


def show() -> None:
    """Draw the page: the pins and the open section."""
    page_switch.follow()
    pins.read_link(tuple(SECTIONS))
    service = user.service()
    pins.complete(board_programs.completed(service, pins.board()))
    screenshot_mode.hide_controls()
    _head()
    _notices()
    board = pins.board()
    if not board.pins:
        _empty(board)
    else:
        board_pins.show(service, board, _open_layout)
        board_programs.show_runs(service, board)
        board_programs.show_missing(service, board)
        _sections(service, board.aligned())
        _in_the_link(board)
    page_width.measure()
    pins.write_link(tuple(SECTIONS))


def _head() -> None:
    board, kept = pins.board(), pins.kept_name()
    if not board.pins:
        st.markdown("### Compare")
        return
    title = subject.title(board.named, chip_choice.chosen_chip())
    if screenshot_mode.on():
        st.markdown(f"### {plain(title)}")
        screenshot_mode.write_provenance(board.named)
        return
    left, right = page_width.beside([1, 1], least_px=page_width.USUAL_PX)  # the tools take one line
    left.markdown(f"### {plain(kept or 'Compare')}: {plain(title)}")
    if details := subject.details(board.named):
        left.caption(plain(details))
    with right:
        _tools(board)


def _tools(board: Board) -> None:
    align: Literal["left", "right"] = "left" if page_width.content_px() < page_width.USUAL_PX else "right"
    with st.container(horizontal=True, horizontal_alignment=align, vertical_alignment="center", gap="small"):
        if any(targets.chip_of(snapshot) is None for snapshot in board.snapshots):
            chip_choice.select("Chip", label_visibility="collapsed", width=220)
        with downloads.share_popover("share_board"):
            screenshot_mode.draw_button()
            downloads.show_reports(board.named, chip_choice.chosen_chip(), baseline=board.baseline)
            name = pins.kept_name() or free_name(" and ".join(board.names), ())
            keep_buttons.show_save(board, name, key="keep_board", then=pins.open_kept)
            board_pins.draw_download(board)
            board_pins.draw_upload(board)


def _notices() -> None:
    absent = view_link.absent(*pins.board().snapshots)
    wrong = [*pins.problems(), *absent, screenshot_mode.problem()]
    view_link.show_problems([problem for problem in wrong if problem])
    # On a picture, the provenance says that it is a plan.
    if pins.notes() and not screenshot_mode.on():
        st.info("  \n".join(map(plain, pins.notes())), icon=":material/link:")
    if problem := pins.take_problem():
        st.error(plain(problem), icon=":material/error:")


def _empty(board: Board) -> None:
    st.info(
        f"No layout is pinned. Pin up to {MOST_PINS} layouts on the Layout page with *Compare*, open a link "
        "to a comparison, or upload its file.",
        icon=":material/keep:",
    )
    board_pins.draw_upload(board)


def _sections(service: Inspection, board: Board) -> None:
    """Draw the tabs. Times are there if two layouts can run on the devices of this machine."""
    sections = dict(SECTIONS)
    if len(service.timing_candidates(board.snapshots, board.baseline).layouts) < 2:
        del sections[_TIMES]
        if st.session_state.get(pins.TABS_KEY) == _TIMES:
            st.session_state[pins.TABS_KEY] = next(iter(sections))
            st.info(
                "No two of these layouts can run on this machine, so their times cannot be measured here.",
                icon=":material/timer_off:",
            )
    tabs = st.tabs(list(sections), key=pins.TABS_KEY, on_change="rerun")
    for tab, draw in zip(tabs, sections.values(), strict=True):
        if tab.open:
            with tab, chart.of(lambda: subject.source_lines(board.named)):
                draw(board)


def _compare(board: Board) -> None:
    """Compare the layouts of which all is known. The notice above the tabs names the others."""
    known = board_programs.known(board)
    if known is not None:
        board_comparison.show(known, board_programs.running(board))


def _show_arrays(board: Board) -> None:
    with screenshot_mode.controls("arrays"):
        view = kept_field.draw_one_of("View", view_link.BOARD_VIEWS, view_link.BOARD_VIEW_KEY)
    VIEWS[view](board)


SECTIONS: dict[str, Callable[[Board], None]] = {
    "Side by side": _compare,
    "Arrays": _show_arrays,
    _TIMES: lambda board: board_comparison.show_times(board.named, board.baseline),
}


@uninterrupted()
def _open_layout(layout: Layout) -> None:
    current_layout.put(layout)
    page_switch.in_next_run(page_switch.LAYOUT)


def _in_the_link(board: Board) -> None:
    """Describe the state that a link to this page omits."""
    absent, planned = boards.not_in_link(board), boards.only_planned_in_link(board)
    if screenshot_mode.on() or pins.kept_name() is not None or not (absent or planned):
        return
    said = []
    if planned:
        said.append(
            f"A link to this page shows {plain(and_text(planned))} as planned on a server that does not "
            "have the result."
        )
    if absent:
        if len(absent) == len(board.pins):
            which = "None of these layouts is"
        else:
            which = f"{plain(and_text(absent))} {'is' if len(absent) == 1 else 'are'} not"
        said.append(f"{which} in a link, which contains only layouts.")
    said.append("*Save* gives all of it a short link. *Download* writes it to one file.")
    st.caption(" ".join(said))
