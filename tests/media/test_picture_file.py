"""Pictures as a real browser draws them: their size, what is on them, and what happens without a browser."""

from __future__ import annotations

import os
import signal
import struct
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from inspector.answers import subject
from inspector.figures import stamp
from inspector.figures.mesh_map import mesh_map
from inspector.media import picture_file
from inspector.text.errors import InvalidInput
from tests.media import hostile

SVG = "{http://www.w3.org/2000/svg}"
NAME = "<img src=x onerror=window.hacked=1>$x^2$</text><script>"


@pytest.fixture(scope="module")
def figure():
    snapshot = hostile.snapshot(NAME)
    return stamp.stamped_with(
        mesh_map(snapshot.arrays[1], snapshot.mesh, width_px=800), [subject.source_line(snapshot)]
    )


def test_a_png_has_twice_the_pixels_of_the_figure(figure) -> None:
    content = picture_file.picture(figure, "png")
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", content[16:24])
    assert (width, height) == (figure.layout.width * 2, figure.layout.height * 2)


@pytest.mark.nightly
def test_an_svg_has_names_as_text_and_the_stamp(figure) -> None:
    root = ElementTree.fromstring(picture_file.picture(figure, "svg", dark=True))
    texts = ["".join(one.itertext()) for one in root.iter(f"{SVG}text")]
    whole = "".join(texts)
    assert "<img src=x onerror=window.hacked=1>$x^2$</text><script>" in whole
    assert any(text.startswith("model unknown · mesh data 2") for text in texts)
    assert not list(root.iter(f"{SVG}script")) and not list(root.iter(f"{SVG}foreignObject"))
    for element in root.iter():
        assert not [name for name in element.attrib if name.lower().startswith("on")]
        links = [value for name, value in element.attrib.items() if name.endswith("href")]
        assert all(link.startswith("data:image/png;base64,") for link in links)  # a heatmap's cells


def test_a_missing_browser_is_an_error(figure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER_PATH", "/nonexistent/chrome")
    with pytest.raises(InvalidInput, match="install one, or run `choreo_get_chrome`"):
        picture_file.picture(figure, "png")
    with pytest.raises(InvalidInput, match="'pdf', but must be png or svg"):
        picture_file.picture(figure, "pdf")


def test_a_browser_that_hangs_is_killed(figure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    hanging = tmp_path / "chrome"
    hanging.write_text(f"#!/bin/sh\necho $$ > {pid}\nexec sleep 600\n")
    hanging.chmod(0o755)
    monkeypatch.setenv("BROWSER_PATH", str(hanging))
    with pytest.raises(InvalidInput, match="was not drawn within 3 seconds"):
        picture_file.picture(figure, "png", limit=3)
    assert pid.exists(), "the browser was not started in time"
    for _ in range(100):
        try:
            os.kill(int(pid.read_text()), 0)
        except ProcessLookupError:
            break
        time.sleep(0.1)
    else:
        os.kill(int(pid.read_text()), signal.SIGKILL)
        raise AssertionError("the browser outlived its picture")
