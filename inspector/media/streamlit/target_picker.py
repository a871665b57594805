"""The target in the sidebar: emulated devices, a TPU slice by name and topology, or GPU nodes."""

from __future__ import annotations

import math

import streamlit as st

from inspector import layout as layouts
from inspector.core.errors import InvalidInput
from inspector.core.formatting import bytes_text, counted
from inspector.machines import slices, targets
from inspector.machines.hardware import CHIPS
from inspector.machines.targets import GPU_CHIPS, GPUS_PER_NODE, Target
from inspector.media.streamlit import session
from inspector.media.streamlit.plain_text import plain
from inspector.service.compile_cache import CompileCache

KINDS = {"cpu": "Emulated", "tpu": "TPU", "gpu": "GPU", "plan": "Plan only"}
_FIRST = {"tpu": "tpu:v5p:2x2x2", "gpu": "gpu:h100:8"}
_GPU_COUNTS = (1, 2, 4, *(GPUS_PER_NODE * 2**n for n in range(10)))


def draw(kept: CompileCache) -> None:
    """The kind of target, and for a machine which one; a change gives the mesh as many devices.

    kept: what compilers answered before, which a person can clear.
    """
    state = st.session_state
    target = _target()
    state["target:kind"] = target.kind if target else state["field:target"]
    if state["target:kind"] not in KINDS:
        state["target:kind"] = "cpu"
    st.segmented_control(
        "Target",
        list(KINDS),
        format_func=KINDS.get,
        key="target:kind",
        required=True,
        on_change=_change_kind,
        help="Emulated devices are built and run here. For a TPU slice or GPU nodes the layout is compiled "
        "by that machine's own compiler, which need not be there, and nothing is run.",
    )
    if target is None:
        return
    if target.slice is not None:
        _draw_slice(target)
    else:
        _draw_gpus(target)
    st.caption(plain(target.sentence))
    missing = targets.missing_compiler(target)
    if missing is not None:
        st.markdown(f":orange[:material/download: :small[{plain(missing)}]]")
    _draw_kept(kept)


def _draw_kept(kept: CompileCache) -> None:
    held = kept.usage()
    if not held.count:
        return
    verb = "is" if held.count == 1 else "are"
    words = (
        f"{counted(held.count, 'compiled layout')} {verb} kept on disk, {bytes_text(held.bytes)}"
    )
    left, right = st.columns([3, 2], vertical_alignment="center")
    left.caption(words)
    right.button("Clear", key="clear_kept", type="tertiary", on_click=kept.clear)


def _draw_slice(target: Target) -> None:
    state = st.session_state
    state["target:generation"] = target.chip_name
    state["target:topology"] = target.slice.topology
    left, right = st.columns([2, 3])
    left.selectbox(
        "Generation",
        slices.GENERATIONS,
        format_func=lambda name: CHIPS[name].title.removeprefix("TPU "),
        key="target:generation",
        on_change=_change_generation,
    )
    every = {one.topology: one for one in slices.slices(target.chip_name)}
    right.selectbox(
        "Slice",
        list(every),
        format_func=lambda topology: f"{every[topology].name} · {topology}",
        key="target:topology",
        on_change=_change_topology,
        help="A slice is named after its TensorCores; several topologies can have the same number.",
    )
    st.segmented_control(
        "Device order",
        layouts.DEVICE_ORDERS,
        key="field:device_order",
        required=True,
        help="Row-major: the mesh takes the devices in JAX's order. Torus: `create_device_mesh` lays each "
        "mesh axis along physical axes, so that neighbours in the mesh are neighbours in the machine.",
    )


def _draw_gpus(target: Target) -> None:
    state = st.session_state
    state["target:gpu"] = target.chip_name
    state["target:count"] = target.devices
    left, right = st.columns([3, 2])
    left.selectbox(
        "GPU",
        GPU_CHIPS,
        format_func=lambda name: CHIPS[name].title,
        key="target:gpu",
        on_change=_change_gpus,
    )
    counts = sorted({*_GPU_COUNTS, target.devices})
    right.selectbox("GPUs", counts, key="target:count", on_change=_change_gpus)


def _target() -> Target | None:
    text = st.session_state["field:target"]
    try:
        return targets.parse(text) if targets.is_target(text) else None
    except InvalidInput:
        return None


def _change_kind() -> None:
    kind = st.session_state["target:kind"]
    _put(_FIRST.get(kind, kind))


def _change_generation() -> None:
    """The same topology, if the generation has it; else its smallest slice of at least eight chips."""
    generation = st.session_state["target:generation"]
    every = slices.slices(generation)
    before = st.session_state["target:topology"]
    same = next((one for one in every if one.topology == before), None)
    chosen = same or next((one for one in every if one.chips >= 8), every[-1])
    _put(f"tpu:{generation}:{chosen.topology}")


def _change_topology() -> None:
    state = st.session_state
    _put(f"tpu:{state['target:generation']}:{state['target:topology']}")


def _change_gpus() -> None:
    state = st.session_state
    _put(f"gpu:{state['target:gpu']}:{state['target:count']}")


def _put(text: str) -> None:
    """Take this target, and a mesh of as many axes as before with all of its devices."""
    state = st.session_state
    state["field:target"] = text
    target = _target()
    if target is not None:
        state["field:processes"] = 1
    try:
        shape = layouts.parse_mesh(state["field:mesh"], layouts.MOST_COMPILED_DEVICES)
    except InvalidInput:
        shape = session.last_layout().mesh_shape
    devices = math.prod(shape)
    fits = devices == target.devices if target else devices <= layouts.most_devices(text)
    if not fits:
        state["field:mesh"] = layouts.print_mesh(layouts.mesh_of(text, len(shape)))
        session.change_mesh()
