"""Every panel of a Snapshot with two meshes, whose axes have equal names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from streamlit.testing.v1 import AppTest

from inspector.media import report
from inspector.recording.capture import capture
from inspector.records.snapshot import Reshard, ReshardedArrays, Snapshot
from tests.media.streamlit.drawn_figures import figures
from tests.media.streamlit.scripted_page import PLACES

SCRIPT = """
import streamlit as st
from inspector.records import snapshot
from inspector.media.streamlit.panels.snapshot_panels import PANELS
from inspector.media.streamlit.parts import chart
from inspector.answers import subject
found = snapshot.read(st.session_state["path"])
if "array" in st.session_state:
    st.session_state["selected_array"] = st.session_state["array"]
with chart.of(lambda: [subject.source_line(found)], alone=True):
    PANELS[st.session_state["panel"]](found, None)
"""


@pytest.fixture(scope="module")
def found() -> Snapshot:
    devices = np.array(jax.devices())
    meshes = [
        Mesh(devices[:4].reshape(2, 2), ("fsdp", "tp")),
        Mesh(devices[4:8].reshape(1, 4), ("fsdp", "tp")),
    ]
    states = {
        name: {"w": jax.device_put(jnp.ones((16, 8)), NamedSharding(mesh, spec))}
        for name, mesh, spec in zip(
            ("actor", "rollout"), meshes, (P("fsdp", "tp"), P(None, "tp")), strict=True
        )
    }
    x = [jax.device_put(jnp.ones((4, 16)), NamedSharding(mesh, P())) for mesh in meshes]
    step = jax.jit(lambda state, x: (x @ state["w"]).sum())
    programs = {
        name: step.lower(state, batch).compile()
        for (name, state), batch in zip(states.items(), x, strict=True)
    }
    captured = capture(states, programs=programs, group="params")
    moved = Reshard(
        operation="device_put",
        line="train.py:7",
        executions=3,
        source_devices=(0, 1, 2, 3),
        target_devices=(4, 5, 6, 7),
        source_mesh=captured.meshes[0],
        target_mesh=captured.meshes[1],
        arrays=(ReshardedArrays(1, (16, 8), "float32", 512, (("fsdp",), ("tp",)), (None, ("tp",))),),
        routes=((0, 4, 64),),
    )
    return dataclasses.replace(captured, reshards=(moved,))


@pytest.mark.parametrize(("panel", "view"), PLACES)
def test_each_panel_is_drawn(shown: Callable[..., AppTest], found: Snapshot, panel: str, view: str) -> None:
    page = shown(found, panel=panel, arrays_view=view)
    charts = [chart.key for chart in figures(page)]
    assert len(charts) == len(set(charts))
    assert view != "Tree" or len(charts) == 2


def test_programs_have_the_axes_of_their_mesh(found: Snapshot) -> None:
    sizes = {"actor": (0, 1, 2, 3), "rollout": (4, 5, 6, 7)}
    for name, devices in sizes.items():
        program = found.program(name)
        assert program is not None
        mesh = found.mesh_of(program)
        assert mesh is not None and mesh.devices == devices
        assert program.collectives
        assert all(collective.mesh_axes for collective in program.collectives)
        assert found.mesh_of(found.array(f"{name}/w")) == mesh


@pytest.mark.parametrize("ending", [".html", ".md"])
def test_a_report_has_both_meshes_and_the_moves(found: Snapshot, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"report{ending}"
    report.write([("a", found)], path)
    text = path.read_text()
    assert "Moves between meshes" in text and "train.py:7" in text
    assert "mesh 1" in text and "mesh 2" in text
