"""The Open page with profiles: complete ones, and those that lack something, on every panel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from inspector.media.streamlit.panels.snapshot_panels import PANELS
from inspector.readers import profile
from inspector.records import snapshot
from tests.media.streamlit.pages.test_open_page import SCRIPT, errors, opened, packed, snapshot_of
from tests.media.streamlit.scripted_page import PATIENCE
from tests.readers.profiles.tpu_files import Profile, usual

pytestmark = pytest.mark.first_jax_is_enough


def test_a_file_and_the_zip_of_its_folder_are_the_same(tmp_path: Path) -> None:
    content = usual().serialized()
    file = opened(("host.xplane.pb", content))
    (program,) = snapshot_of(file).programs
    assert program.stage == "measured" and program.trace is not None
    usual().write(tmp_path / "traces/plugins/profile/2026_01_01/host.xplane.pb")
    folder = opened(("traces.zip", packed(tmp_path / "traces")))
    (same,) = snapshot_of(folder).programs
    assert same.trace == program.trace


def test_another_file_of_this_name_is_refused() -> None:
    (error,) = errors(opened(("host.xplane.pb", b"PK no profile")))
    assert "host.xplane.pb" in error


@pytest.mark.parametrize("panel", PANELS)
@pytest.mark.parametrize(
    "made",
    [usual, lambda: usual(hlo={}), lambda: Profile({}), lambda: Profile({}, hlo={})],
    ids=["complete", "no HLO", "no time", "nothing"],
)
def test_every_panel_shows_what_is_there(made: Callable[[], Profile], panel: str, tmp_path: Path) -> None:
    made().write(tmp_path / "host.xplane.pb")
    (tmp_path / "profile.json").write_text(snapshot.dumps(profile.read(tmp_path, "traces")))
    page = AppTest.from_string(SCRIPT, default_timeout=PATIENCE)
    page.session_state["path"] = str(tmp_path / "profile.json")
    page.session_state["panel"] = panel
    page.run()
    assert not page.exception, [error.value for error in page.exception]
    assert not page.error
    if panel == "Time" and made is usual:
        headings = [markdown.value for markdown in page.markdown]
        assert any("Measured and predicted step" in heading for heading in headings)
