"""The mesh on its machine: the links of each mesh axis."""

from __future__ import annotations

import dataclasses

import pytest
from streamlit.testing.v1 import AppTest

from inspector.machines.targets import parse
from inspector.records.snapshot import MeshAxis, Snapshot
from tests.figures import samples
from tests.machines import torus

SCRIPT = """
import streamlit as st
from inspector.records import snapshot
from inspector.media.streamlit.panels import arrays_panels
arrays_panels.show_torus(snapshot.read(st.session_state["path"]))
"""

MESH = torus.on_torus((4, 4, 4), (True, True, True), (16, 4))


def machine(target: str = "tpu:v5p:4x4x4", mesh=MESH) -> Snapshot:
    snapshot = samples.snapshot(mesh, arrays=())
    return dataclasses.replace(snapshot, source=dataclasses.replace(snapshot.source, target=target))


def texts(page: AppTest) -> str:
    return " ".join(element.value.replace("\\", "") for element in page.markdown)


def test_the_machine_and_every_axis(shown) -> None:
    page = shown(machine())
    said = texts(page)
    assert parse("tpu:v5p:4x4x4").sentence in said
    assert "data**: ring of 4 and ring of 4. The device order (torus) puts data (16) on x and y" in said
    assert "model**: ring of 4. The device order (torus) puts model (4) on z: a ring of 4." in said


@pytest.mark.parametrize(
    "found",
    [
        samples.snapshot(),
        machine("cpu"),
        machine("tpu:v5p:5x5x5"),
        machine(mesh=dataclasses.replace(MESH, coordinates=None)),
    ],
    ids=["emulated", "no machine", "no such slice", "no places"],
)
def test_without_a_machine_nothing_is_drawn(shown, found: Snapshot) -> None:
    page = shown(found)
    assert not page.markdown


def test_names_are_escaped(shown) -> None:
    axes = (MeshAxis("**a** :red[b]", 16), MeshAxis("model", 4))
    page = shown(machine(mesh=dataclasses.replace(MESH, axes=axes)))
    assert r"\*\*a\*\* \:red\[b\]" in " ".join(element.value for element in page.markdown)
