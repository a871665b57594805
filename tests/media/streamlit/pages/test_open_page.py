"""The Open page: uploads read by real workers, all panels, and hostile files."""

from __future__ import annotations

import io
import json
import re
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from inspector.files import temporary_folder
from inspector.readers import hlo_text, maxtext
from inspector.records import snapshot
from inspector.records.snapshot import Array, Finding, Mesh, MeshAxis, Snapshot, Source
from tests.media.streamlit.drawn_figures import figures
from tests.media.streamlit.scripted_page import PATIENCE, PLACES
from tests.readers import given, own_checkpoints
from tests.readers.test_hlo_text import module
from tests.readers.test_maxtext import ENTRY, KEY
from tests.readers.test_sharding_file import NAMED, written

PAGE = """
from inspector.media.streamlit.pages import open_page
open_page.show()
"""
# Panels are drawn without tabs, because only one tab can be open.
SCRIPT = """
import streamlit as st
from inspector.records import snapshot
from inspector.media.streamlit.panels import snapshot_panels, summary_panel

found = snapshot.read(st.session_state["path"])
summary_panel.show_opened("*it* $x$ :red[a]", found)
snapshot_panels.PANELS[st.session_state["panel"]](found, None)
"""


def opened(*files: tuple[str, bytes], kind: str | None = None) -> AppTest:
    """The page with the Snapshot of these uploads."""
    page = AppTest.from_string(PAGE, default_timeout=PATIENCE).run()
    if kind is not None:
        page.selectbox(key="open_kind").set_value(kind)
    uploads = [(name, content, "application/octet-stream") for name, content in files]
    page.get("file_uploader")[0].set_value(uploads)
    page.run()
    until = time.monotonic() + PATIENCE
    while reading(page) and time.monotonic() < until:
        time.sleep(0.05)
        page.run()
    assert not page.exception, [error.value for error in page.exception]
    return page


def reading(page: AppTest) -> bool:
    return "asked:import" in page.session_state and page.session_state["asked:import"].job is not None


def snapshot_of(page: AppTest) -> Snapshot:
    _, found = page.session_state["opened_snapshot"]
    return found


def errors(page: AppTest) -> list[str]:
    return [re.sub(r"\\(.)|\u2060", r"\1", error.value) for error in page.error]


def packed(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for path in folder.rglob("*"):
            if path.is_file():
                file.write(path, path.relative_to(folder.parent))
    return buffer.getvalue()


def folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob(f"{temporary_folder.PREFIX}*"))


@pytest.mark.parametrize(
    ("folder", "arrays", "held", "whole", "copies"),
    [
        # 49,220 bytes, and 8,260 on each of 8 devices.
        (lambda: own_checkpoints.saved("manager"), 6, "8.1 KiB", "48.1 KiB", "1.34 copies"),
        given.shared(lambda: given.ORBAX / "manager", 17, "16.1 KiB", "97.1 KiB", "1.33 copies"),
    ],
    ids=["own", "of others"],
)
def test_a_zip_of_a_checkpoint(
    _shared_workers: None,
    folder: Callable[[], Path],
    arrays: int,
    held: str,
    whole: str,
    copies: str,
) -> None:
    before = folders()
    page = opened(("run.zip", packed(folder())))
    snapshot = snapshot_of(page)
    assert snapshot.source.kind == "orbax" and len(snapshot.arrays) == arrays
    assert any("run" in text.value for text in page.markdown)
    values = [metric.value.replace("\\", "") for metric in page.metric]
    assert values[:3] == [f"≥ {held}", "unknown", "unknown"] and len(values) == 4
    (line,) = [said for caption in page.caption if "per device" in (said := caption.value.replace("\\", ""))]
    assert all(text in line for text in ("8 devices", whole, held, copies))
    assert folders() <= before, "the upload's folder is gone"


def test_several_files_of_one_job(_shared_workers: None) -> None:
    logical = {KEY: {"partition_spec": ["embed", "mlp"], "shape": [8, 6]}}
    page = opened(
        ("named_shardings.json", json.dumps({KEY: ENTRY}).encode()),
        ("logical_shardings.json", json.dumps(logical).encode()),
    )
    snapshot = snapshot_of(page)
    assert snapshot.source.kind == "maxtext"
    assert snapshot.arrays[0].logical_axes == ("embed", "mlp")
    # Another file replaces it, and its type can be chosen.
    uploads = [("a.txt", module().encode(), "text/plain")]
    page.selectbox(key="open_kind").set_value("HLO text")
    page.get("file_uploader")[0].set_value(uploads)
    page.run()
    while reading(page):
        time.sleep(0.05)
        page.run()
    assert snapshot_of(page).source.kind == "hlo"


def test_a_snapshot_and_a_sharding_file(_shared_workers: None) -> None:
    page = opened(("_sharding", written({"params.a": NAMED})))
    result = snapshot_of(page)
    assert result.arrays[0].spec == (("model",), None)
    again = snapshot_of(opened(("mine.json", snapshot.dumps(result).encode())))
    assert again == result


def hostile() -> dict[str, tuple[tuple[tuple[str, bytes], ...], str]]:
    def zipped(name: str, content: bytes = b"") -> bytes:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr(name, content)
        return buffer.getvalue()

    return {
        "climbs": ((("a.zip", zipped("../../etc/x")),), "leads out of the archive"),
        "deep": ((("a.json", b'{"a": ' * 100_000),), "nested too deeply"),
        "board": ((("b.json", b'{"format": "sharding-board"}'),), "Board page"),
        "same": ((("a", b"1"), ("a", b"2")), "the same name"),
        "name": (((".." , b"1"),), "leads out"),
        "zip in itself": ((("a.zip", zipped("b.zip", zipped("c"))),), "zero byte|not UTF-8"),
    }  # fmt: skip


@pytest.mark.parametrize("case", hostile())
def test_a_hostile_upload_is_an_error_message(_shared_workers: None, case: str) -> None:
    files, words = hostile()[case]
    before = folders()
    page = opened(*files)
    (sentence,) = errors(page)
    assert any(part in sentence for part in words.split("|")), sentence
    assert tempfile.gettempdir() not in sentence
    assert "opened_snapshot" not in page.session_state
    assert folders() <= before


def test_a_wrong_type_is_an_error_message(_shared_workers: None) -> None:
    page = opened(("a.hlo", module().encode()), kind="Orbax checkpoint")
    assert errors(page) == ["a.hlo is a file, but an Orbax checkpoint is a folder"]


# --- Every panel of every kind --------------------------------------------------------------------


def kinds() -> dict[str, Snapshot]:
    """Snapshots with few fields, as readers make them."""
    many = Mesh(tuple(MeshAxis(f"axis{n}", 4 if n == 3 else 1) for n in range(12)), tuple(range(4)))
    source = Source("maxtext", None, "2026-01-01")
    shapeless = Array("params/a", "params", None, "unknown", spec=(("axis3",),), replicas=1)
    typeless = Array(
        "params/b", "params", (8, 2), "unknown", spec=(("axis3", "axis1"), None),
        shard_shape=(2, 2), replicas=1,
    )  # fmt: skip
    placeless = Array("opt_state/c", "opt_state", (8,), "float32", bytes=32)
    finding = Finding("warning", "x", "<b>*names*</b> $are$ text", array="params/a")
    return {
        "no shapes": Snapshot(source, None, many, (shapeless,), (), (finding, finding)),
        "no types": Snapshot(source, None, many, (typeless, shapeless)),
        "no specs": Snapshot(source, None, many, (placeless,)),
        "no mesh": Snapshot(Source("orbax", None, "2026-01-01"), None, None, (placeless,)),
        "nothing": Snapshot(Source("orbax", None, "2026-01-01"), None, None, ()),
    }


@pytest.mark.parametrize(("panel", "view"), PLACES)
@pytest.mark.parametrize("kind", [*kinds(), "hlo"])
def test_every_panel_reports_unknown_values(
    shown: Callable[..., AppTest], tmp_path: Path, kind: str, panel: str, view: str
) -> None:
    if kind == "hlo":
        (tmp_path / "a.hlo").write_text(module() + module("x" * 40))
        snapshot = hlo_text.read(tmp_path / "a.hlo", "a.hlo")
    else:
        snapshot = kinds()[kind]
    page = shown(snapshot, panel=panel, arrays_view=view)
    said = [one.value for one in (*page.info, *page.caption, *page.markdown)]
    assert figures(page) or page.dataframe or len(said) > 2
    # Unknown values are not shown as zero or none.
    assert not any(re.search(r"\b0 B\b", text) for text in said), said


@pytest.mark.parametrize(
    "golden",
    [given.OWN_GOLDENS[-1], *(given.shared(path) for path in given.GOLDENS[-1:])],
    ids=given.golden_name,
)
@pytest.mark.parametrize(("panel", "view"), [*PLACES[:4], ("Memory", "Table")])
def test_every_panel_of_a_golden(shown: Callable[..., AppTest], golden: Path, panel: str, view: str) -> None:
    shown(maxtext.read(golden.parent, "it"), panel=panel, arrays_view=view)


def test_the_head_repeats_no_warning_of_the_audit(shown: Callable[..., AppTest]) -> None:
    of_reader = tuple(Finding("warning", f"reader-{n}", f"read {n}") for n in range(2))
    of_audit = Finding("warning", "optimizer-not-following", "audited")
    page = shown(replace(kinds()["no shapes"], findings=(*of_reader, of_audit)), panel="Summary")
    remarks = [text.value for text in page.expander[0].markdown]
    assert len(remarks) == 2 and all(finding.message in "".join(remarks) for finding in of_reader)
