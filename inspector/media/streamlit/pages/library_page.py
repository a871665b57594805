"""The Library page: search, open, pin, download, annotate, rename, share and delete saved Snapshots."""

from collections.abc import Sequence

import streamlit as st

from inspector.answers import subject
from inspector.compare import board as boards
from inspector.compare.board import Board
from inspector.jobs import serving
from inspector.jobs.library import (
    LONGEST_NAME,
    LONGEST_NOTE,
    Library,
    LibraryEntry,
    Unreadable,
    file_name,
    zipped,
)
from inspector.layout import Layout, layout_of
from inspector.media.streamlit.page import buttons, page_switch
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.pages import open_page
from inspector.media.streamlit.parts import downloads, keep_buttons, table
from inspector.media.streamlit.session import pins, user
from inspector.media.streamlit.streamlit_internals import uninterrupted
from inspector.records import snapshot
from inspector.records.snapshot import Snapshot
from inspector.text.errors import InvalidInput
from inspector.text.formatting import bytes_text, counted

CHOSEN = "library_chosen"  # name of the selected Snapshot
_SEARCH, _READ = "library_search", "library_read"
_SEARCH_CHARACTERS = 200
_NOTE_COLUMN_CHARACTERS = 200
_NOTE_PX = 230


def show() -> None:
    """Draw the search field, the table, and the selected Snapshot."""
    page_switch.follow()
    library = user.library()
    st.markdown("### Library")
    buttons.show_problem()
    try:
        everything = library.entries()
        _show_all(library, everything)
    except Unreadable as error:
        st.error(plain(str(error)), icon=":material/error:")
        if serving.current().team:
            return
        label = "Move file aside and start a new library"
        buttons.draw(label, "library_move_aside", "drive_file_move", _move_aside)
    except InvalidInput as error:
        st.error(plain(str(error)), icon=":material/error:")


def _show_all(library: Library, everything: Sequence[LibraryEntry]) -> None:
    if not everything:
        st.info(
            "The library is empty. Save a Snapshot with *Save* on the Layout page, or with "
            "`sharding-inspector library save`.",
            icon=":material/bookmark:",
        )
        return
    together = sum(entry.bytes for entry in everything)
    # The folders of a server are of no use to its users.
    place = "" if serving.current().team else f" in {plain(str(library.path))}"
    st.caption(f"{counted(len(everything), 'entry', 'entries')}, {bytes_text(together)}{place}")
    left, right = st.columns([4, 1], vertical_alignment="bottom")
    words = left.text_input(
        "Search",
        key=_SEARCH,
        max_chars=_SEARCH_CHARACTERS,
        icon=":material/search:",
        placeholder="name, note, model, mesh, target or source",
    )
    entries = library.entries(words)
    with right:
        downloads.draw_file(
            "Export all" if len(entries) == len(everything) else f"Export {len(entries)}",
            lambda: zipped(library, entries),
            "library.zip",
            "library_export",
            mime="application/zip",
            icon=":material/folder_zip:",
            type="secondary",
            disabled=not entries,
            width="stretch",
            help="Download a zip of the Snapshots, with names and notes in `library.json`.",
        )
    if not entries:
        st.info("No entry contains all of these words.", icon=":material/search_off:")
        return
    _show_table(entries)
    by_name = {entry.name: entry for entry in entries}
    # If the search does not find the selected entry, the newest is shown.
    _show_chosen(library, by_name.get(st.session_state.get(CHOSEN, ""), entries[0]))


def _show_table(entries: Sequence[LibraryEntry]) -> None:
    names = [entry.name for entry in entries]
    owners = [_owner_text(entry) for entry in entries]
    table.show_entries(
        {
            "Name": names,
            "Note": [" ".join(entry.note.split())[:_NOTE_COLUMN_CHARACTERS] for entry in entries],
            **({"Owner": owners} if any(owners) else {}),
            "Target": [entry.source_text for entry in entries],
            "Model": [entry.model or "" for entry in entries],
            "Mesh": [entry.text_of(entry.mesh) for entry in entries],
            "Train state per device": [_state_text(entry) for entry in entries],
            "Saved (UTC)": [entry.saved[:16].replace("T", " ") for entry in entries],
            "Size": [bytes_text(entry.bytes) for entry in entries],
        },
        "library_table",
        names,
        CHOSEN,
        column_config={"Note": st.column_config.TextColumn(width=_NOTE_PX)},
    )


def _state_text(entry: LibraryEntry) -> str:
    return entry.text_of(None if entry.per_device is None else bytes_text(entry.per_device))


def _owner_text(entry: LibraryEntry) -> str:
    """Return the owner, and whether others see the entry; empty if it has no owner."""
    if entry.owner is None:
        return ""
    return f"{entry.owner} ({'shared' if entry.shared else 'private'})"


def _show_chosen(library: Library, entry: LibraryEntry) -> None:
    with st.container(border=True):
        st.markdown(f"#### {plain(entry.name)}")
        if entry.owner is not None:
            st.caption(f"Owner: {plain(_owner_text(entry))}")
        try:
            opened = _opened(library, entry)
        except InvalidInput as error:
            st.error(plain(str(error)), icon=":material/error:")
            if entry.changeable:
                _draw_delete(entry)
            return
        board = opened if isinstance(opened, Board) else None
        named = opened.named if isinstance(opened, Board) else ((entry.name, opened),)
        lines = subject.source_lines(named) if board else (subject.source_line(named[0][1]),)
        st.caption("  \n".join(map(plain, lines)))
        st.markdown("  \n".join(plain(line) for line in entry.note.splitlines()) or ":gray[*No note*]")
        if board is None:
            _show_amounts(entry)
        with st.container(horizontal=True, gap="small", vertical_alignment="center"):
            _draw_open(entry, opened)
            if not isinstance(opened, Board):
                keep_buttons.show_pin(opened, entry.name, key="library_pin")
            downloads.draw_file(
                "Download",
                lambda: _text(library, entry, opened),
                file_name(entry.name),
                "library_download",
                help="Download it as JSON.",
            )
            if entry.changeable:
                _draw_share(entry)
                _draw_note(entry)
                _draw_rename(entry)
                _draw_delete(entry)


def _show_amounts(entry: LibraryEntry) -> None:
    columns = st.columns(4)
    columns[0].metric("Devices", "unknown" if entry.devices is None else f"{entry.devices:,}")
    columns[1].metric("Arrays", f"{entry.arrays:,}")
    columns[2].metric("Train state", bytes_text(entry.state_bytes))
    columns[3].metric("Train state per device", bytes_text(entry.per_device))


def _draw_open(entry: LibraryEntry, opened: Snapshot | Board) -> None:
    # This opens the shown entry, even if another tab has deleted it since.
    buttons.draw("Open", "library_open", "open_in_full", _open, entry, opened, type="primary")
    if isinstance(opened, Board):
        return
    layout = layout_of(opened)
    if layout is not None:
        help = "Open its layout on the Layout page."
        buttons.draw("Edit layout", "library_edit", "edit", _edit, layout, type="tertiary", help=help)


@uninterrupted()
def _open(entry: LibraryEntry, opened: Snapshot | Board) -> None:
    """Open a Board or a Snapshot on its page in the next run."""
    if isinstance(opened, Board):
        pins.open_kept(entry.name, opened)
        page_switch.in_next_run(page_switch.BOARD)
    else:
        open_page.put(entry.name, opened, saved=True)
        page_switch.in_next_run(page_switch.OPEN)


@uninterrupted()
def _edit(layout: Layout) -> None:
    """Open the layout on its page in the next run."""
    st.session_state["last_layout"] = layout
    page_switch.in_next_run(page_switch.LAYOUT)


def _draw_note(entry: LibraryEntry) -> None:
    with st.popover("Note", icon=":material/edit_note:", type="tertiary", key="library_note_popover"):
        # Each entry has its own field, so that no note goes to another Snapshot.
        key = f"library_note:{entry.name}:{entry.saved}"
        st.text_area("Note", value=entry.note, key=key, max_chars=LONGEST_NOTE, height=160)
        st.button("Save note", key="library_annotate", on_click=_annotate, args=(entry, key))


def _draw_share(entry: LibraryEntry) -> None:
    if entry.owner is None:
        return  # everyone sees it
    label, icon, help = "Share", "group", "Let all users of this server open it."
    if entry.shared:
        label, icon, help = "Make private", "lock", "Only you see it."
    buttons.draw(label, "library_share", icon, _share, entry, type="tertiary", help=help)


def _draw_rename(entry: LibraryEntry) -> None:
    with st.popover("Rename", icon=":material/edit:", type="tertiary", key="library_rename_popover"):
        key = f"library_name:{entry.name}:{entry.saved}"
        st.text_input("New name", value=entry.name, key=key, max_chars=LONGEST_NAME)
        st.button("Save name", key="library_rename", on_click=_rename, args=(entry, key))


def _draw_delete(entry: LibraryEntry) -> None:
    with st.popover("Delete", icon=":material/delete:", type="tertiary", key="library_delete_popover"):
        st.markdown(f"{plain(entry.name)} cannot be recovered.")
        buttons.draw("Delete entry", "library_delete", "delete_forever", _delete, entry)


def _opened(library: Library, entry: LibraryEntry) -> Snapshot | Board:
    """Return the Snapshot or Board of the selected entry, which is read once."""
    state = st.session_state
    key = (library.path, entry.name, entry.saved)
    known = state.get(_READ)
    if known is None or known[0] != key:
        read = library.board if entry.is_board else library.open
        known = state[_READ] = key, read(entry.name)
    return known[1]


def _text(library: Library, entry: LibraryEntry, opened: Snapshot | Board) -> str:
    """Return the file of the entry; if another tab has deleted it, that of the one shown."""
    try:
        return library.text(entry.name)
    except InvalidInput:
        return boards.dumps(opened) if isinstance(opened, Board) else snapshot.dumps(opened)


def _annotate(entry: LibraryEntry, key: str) -> None:
    with buttons.keep_problem():
        user.library().annotate(entry.name, st.session_state.get(key) or "")


def _share(entry: LibraryEntry) -> None:
    with buttons.keep_problem():
        user.library().share(entry.name, not entry.shared)


def _rename(entry: LibraryEntry, key: str) -> None:
    with buttons.keep_problem():
        renamed = user.library().rename(entry.name, st.session_state.get(key) or "")
        st.session_state[CHOSEN] = renamed.name


def _delete(entry: LibraryEntry) -> None:
    with buttons.keep_problem():
        user.library().delete(entry.name)
        st.session_state.pop(_READ, None)
        st.toast(f"Deleted {plain(entry.name)}.", icon=":material/delete:")


def _move_aside() -> None:
    with buttons.keep_problem():
        aside = user.library().move_aside()
        st.toast(f"Renamed the old file to {plain(aside.name)}.", icon=":material/drive_file_move:")
