"""The Processes page: downloads of its figures."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest

from inspector.guides import processes
from inspector.media.streamlit import processes_page
from tests.media.streamlit.picture_menus import drawn, offered
from tests.media.streamlit.scripted_page import PATIENCE

PAGE = "from inspector.media.streamlit import processes_page\nprocesses_page.show()\n"


def test_every_figure_has_downloads_with_provenance(_shared_workers: None) -> None:
    page = AppTest.from_string(PAGE, default_timeout=PATIENCE)
    page.run()
    assert not page.exception, [error.value for error in page.exception]
    names = ("given", "global", "returned", "mesh")
    assert offered(page) == drawn(page) == [f"processes:{name}_figure" for name in names]
    wanted = processes.parse(processes.DEFAULTS).unwrap()
    exchanged = page.session_state["processes:results"][wanted.key()]
    line = processes_page.provenance_line(wanted, exchanged)
    assert line.startswith(
        "Host-local arrays through host_local_array_to_global_array · host-local shape 4×2 · "
        "values different per process · P('x', None) · mesh "
    )
    assert f" · run on emulated devices of 2 processes · versions jax {versions(exchanged)}" in line


def versions(exchanged: processes.Exchanged) -> str:
    return exchanged.versions["jax"]
