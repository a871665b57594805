"""The target in the sidebar, and the mesh with its devices."""

from __future__ import annotations

import pytest

from inspector.jobs import inspection
from inspector.machines import targets
from inspector.media.streamlit.editor import target_picker
from tests.media.streamlit.drawn_figures import figures
from tests.media.streamlit.scripted_page import widget_of

pytestmark = pytest.mark.usefixtures("without_programs")


def choose_kind(page, kind: str) -> None:
    widget_of(page.test.selectbox, "target:kind").set_value(kind).run()
    assert not page.test.exception, [error.value for error in page.test.exception]


def sidebar_text(page) -> str:
    elements = (*page.test.sidebar.caption, *page.test.markdown)
    return " ".join(element.value.replace("\\", "") for element in elements)


def query(page) -> dict[str, str]:
    given = page.test.query_params.items()
    return {name: value if isinstance(value, str) else value[0] for name, value in given}


def test_choose_a_tpu_slice(page):
    choose_kind(page, "tpu")
    assert query(page) == {"target": "tpu:v5p:2x2x2"}
    assert page.value("field:mesh") == "2x4"
    page.choose("target:topology", "4x4x4")
    assert query(page) == {"target": "tpu:v5p:4x4x4"}
    assert page.value("field:mesh") == "8x8"
    assert targets.parse("tpu:v5p:4x4x4").sentence in sidebar_text(page)
    page.choose("target:generation", "v6e")
    # It has no 4x4x4, so its smallest slice of at least eight chips is chosen.
    assert query(page) == {"target": "tpu:v6e:2x4"}
    assert page.value("field:mesh") == "2x4"


def test_choose_several_slices(open_page):
    page = open_page(target="tpu:v5e:4x4*2")
    assert page.value("target:slices") == 2 and page.value("field:mesh") == "8x4"
    page.set("target:slices", 3)
    assert query(page)["target"] == "tpu:v5e:4x4*3"
    assert page.value("field:mesh") == "12x4"
    page.choose("target:topology", "4x8")
    assert query(page)["target"] == "tpu:v5e:4x8*3"
    page.choose("target:generation", "v6e")
    assert query(page)["target"] == "tpu:v6e:4x8*3"
    page.set("target:slices", 1)
    assert query(page)["target"] == "tpu:v6e:4x8"


def test_choose_gpus(page):
    choose_kind(page, "gpu")
    assert query(page) == {"target": "gpu:h100:8"}
    page.choose("target:gpu", "b200")
    widget_of(page.test.selectbox, "target:count").set_value(64).run()
    assert query(page) == {"target": "gpu:b200:64"}
    assert page.value("field:mesh") == "8x8"


def test_emulated_devices_limit_the_mesh(open_page):
    page = open_page(target="tpu:v5p:16x16x16")
    assert page.value("field:mesh") == "64x64"
    choose_kind(page, "cpu")
    assert page.value("field:mesh") == "2x4"
    assert "target" not in query(page)


def test_the_device_order_is_in_the_link(open_page):
    page = open_page(target="tpu:v5e:4x4", device_order="torus")
    assert page.value("field:device_order") == "torus"
    page.choose("field:device_order", "row-major")
    assert query(page) == {"target": "tpu:v5e:4x4"}


def test_a_wrong_mesh_size_is_marked(open_page):
    page = open_page(target="tpu:v5p:4x4x4")
    page.type("field:mesh", "8x4")
    assert "mesh 8x4 has 32 devices, but tpu:v5p:4x4x4 has 64" in sidebar_text(page)


def test_every_kind_has_a_valid_first_target():
    for kind, text in target_picker._FIRST.items():
        assert targets.parse(text).kind == kind


def test_a_missing_compiler_is_named_once_and_nothing_can_be_compiled(open_page, monkeypatch):
    monkeypatch.setattr(targets, "_COMPILERS", {"tpu": ("no_such_package", "tpu")})
    page = open_page(target="tpu:v5e:2x4")
    elements = (*page.test.caption, *page.test.markdown, *page.test.error, *page.test.warning)
    assert sum("pip install" in element.value for element in elements) == 1
    assert page.test.button(key="run_button").disabled


@pytest.mark.parametrize("target", ["tpu:v5p:16x16x16", "gpu:h100:4096"])
def test_thousands_of_devices(open_page, target):
    page = open_page(target=target)
    assert any("4,096 devices" in caption.value for caption in page.test.main.caption)
    page.open_panel("Arrays")
    assert [chart.key for chart in figures(page.test)] == ["block_map", "mesh_map"]


def test_the_compile_cache_is_counted_and_cleared(open_page):
    kept = inspection.shared().compiled
    kept.clear()
    page = open_page(target="tpu:v5e:2x4")
    page.open("drawer:Advanced")
    assert "clear_kept" not in [button.key for button in page.test.button]
    kept.put("an answer", "x" * 1000)
    page.test.run()
    assert "Compile cache: 1 layout" in sidebar_text(page)
    page.press("clear_kept")
    assert kept.usage().count == 0
    assert "Compile cache" not in sidebar_text(page)
