"""The script of every session: page settings, navigation, and the open page."""

from __future__ import annotations

import importlib

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from inspector.media.streamlit import (
    layout_page,
    page_style,
    run_folder,
    session,
    sign_in,
    snapshot_panels,
)
from inspector.media.streamlit.plain_text import plain
from inspector.service import own_model_registration, serving

# Four blocks in colors of the shard map. The browser would fetch a named icon from a font server.
ICON = (
    '<svg viewBox="0 0 16 16">'
    '<path fill="#77AADD" d="M1 1h6.5v6.5H1z"/><path fill="#EE8866" d="M8.5 1H15v6.5H8.5z"/>'
    '<path fill="#EEDD88" d="M1 8.5h6.5V15H1z"/><path fill="#FFAABB" d="M8.5 8.5H15V15H8.5z"/>'
    "</svg>"
)

st.set_page_config(
    page_title="Sharding Inspector",
    page_icon=ICON,
    layout="wide",
    initial_sidebar_state=340,  # pixels; a rule fits a line
)

if not sign_in.passed():
    st.stop()


def page_of(module: str, title: str, icon: str, url_path: str) -> StreamlitPage:
    """Return a page whose module is imported when the page is opened."""

    def show() -> None:
        importlib.import_module(f"inspector.media.streamlit.{module}").show()

    return st.Page(show, title=title, icon=icon, url_path=url_path)


layout = st.Page(layout_page.show, title="Layout", icon=":material/grid_on:", default=True)
main_pages = [
    layout,
    page_of("board_page", "Board", ":material/view_column:", "board"),
    page_of("search_page", "Search", ":material/search:", "search"),
    page_of("open_page", "Open", ":material/file_open:", "open"),
    page_of("library_page", "Library", ":material/bookmarks:", "library"),
    page_of("history_page", "History", ":material/history:", "history"),
    page_of("jobs_page", "Jobs", ":material/list_alt:", "jobs"),
]
if run_folder.path() is not None:
    main_pages.insert(1, page_of("run_page", "Run", ":material/terminal:", "run"))
guides = [
    page_of("learn_page", "Learn", ":material/school:", "learn"),
    page_of("assemble_page", "Assemble", ":material/extension:", "assemble"),
    page_of("processes_page", "Processes", ":material/lan:", "processes"),
    page_of("restore_page", "Restore", ":material/settings_backup_restore:", "restore"),
    page_of("variants_page", "Variants", ":material/compare_arrows:", "variants"),
    page_of("accuracy_page", "Accuracy", ":material/target:", "accuracy"),
]
pages = {"": main_pages, "Guides": guides}
if serving.current().providers:
    account = st.Page(
        sign_in.show_account, title="Account", icon=":material/account_circle:", url_path="account"
    )
    main_pages.append(account)
page = st.navigation(pages, position="top")
session.begin(on_layout_page=page is layout, tabs=snapshot_panels.PANELS)
for problem in own_model_registration.PROBLEMS:
    st.error(plain(problem), icon=":material/error:")
with page_style.around_page():
    page.run()
