"""The script of every session: page settings, navigation, and the open page."""

import importlib

import streamlit as st

from inspector.jobs import own_model_registration
from inspector.media.streamlit.page import page_files, page_switch
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.pages import jobs_page, layout_page
from inspector.media.streamlit.panels import snapshot_panels
from inspector.media.streamlit.session import current_layout, pins, user
from inspector.media.streamlit.streamlit_internals import StreamlitPage, look_values_up
from inspector.text.formatting import counted

# Four blocks in colors of the shard map. The browser would fetch a named icon from a font server.
ICON = (
    '<svg viewBox="0 0 16 16">'
    '<path fill="#77AADD" d="M1 1h6.5v6.5H1z"/><path fill="#EE8866" d="M8.5 1H15v6.5H8.5z"/>'
    '<path fill="#EEDD88" d="M1 8.5h6.5V15H1z"/><path fill="#FFAABB" d="M8.5 8.5H15V15H8.5z"/>'
    "</svg>"
)

look_values_up()
st.set_page_config(
    page_title="Sharding Inspector",
    page_icon=ICON,
    layout="wide",
    initial_sidebar_state=340,  # pixels; a rule fits a line
)


def page_of(name: str, icon: str, title: str | None = None, *, hidden: bool = False) -> StreamlitPage:
    """Return the page of the module `NAME_page`, which is imported when the page is opened."""

    def show() -> None:
        importlib.import_module(f"inspector.media.streamlit.pages.{name}_page").show()

    return st.Page(
        show,
        title=title or name.capitalize(),
        icon=icon,
        url_path=name,
        visibility="hidden" if hidden else "visible",
    )


def compare_page() -> StreamlitPage:
    """Return the page of the comparison, whose title has the number of pins."""
    pinned = len(pins.board().pins)
    title = f"Compare ({pinned})" if pinned else "Compare"
    return page_of("board", ":material/view_column:", title)


layout = st.Page(layout_page.show, title="Layout", icon=":material/grid_on:", default=True)
compare = compare_page()
running = jobs_page.own()
main_pages = [
    layout,
    compare,
    page_of("search", ":material/search:"),
    page_of("jobs", ":material/progress_activity:", counted(running, "job"), hidden=not running),
]
if user.run_folder() is not None:
    main_pages.insert(1, page_of("run", ":material/terminal:"))
saved = [
    page_of("library", ":material/bookmarks:"),
    page_of("open", ":material/file_open:"),
]
learn = [
    page_of("learn", ":material/school:", "Tutorials"),
    page_of("assemble", ":material/extension:", "Arrays from pieces"),
    page_of("processes", ":material/lan:", "Several processes"),
    page_of("variants", ":material/compare_arrows:", "Two ways to write a model"),
    page_of("restore", ":material/settings_backup_restore:", "Restore and transfer"),
    page_of("accuracy", ":material/target:", "Accuracy of predictions"),
]
pages = {"": main_pages, "Saved": saved, "Learn": learn}
st.logo(page_files.wordmark(), size="large")
page = st.navigation(pages, position="top")
current_layout.begin(on_layout_page=page is layout, tabs=snapshot_panels.PANELS)
for problem in own_model_registration.PROBLEMS:
    st.error(plain(problem), icon=":material/error:")
with page_files.around_page():
    page.run()
if (compared := compare_page()).title != compare.title:  # the page has opened a link
    main_pages[main_pages.index(compare)] = compared
    st.navigation(pages, position="top")
pins.draw_kept()
page_switch.join_entries(page.url_path)
page_switch.forget_press()
