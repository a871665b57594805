"""The target in the sidebar: emulated or local devices, a TPU slice, GPU nodes, or a plan."""

import math

import streamlit as st

from inspector import layout as layouts
from inspector.jobs.compile_cache import CompileCache
from inspector.machines import slices, targets
from inspector.machines.hardware import CHIPS
from inspector.machines.slices import Slice
from inspector.machines.targets import GPU_CHIPS, GPUS_PER_NODE, Target
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.session import current_layout, kept_field
from inspector.text.errors import InvalidInput
from inspector.text.formatting import bytes_text, counted

KINDS = {
    "cpu": "Emulated devices: build and run",
    "tpu": "TPU: compile for a slice",
    "gpu": "GPU: compile for its nodes",
    "local": "This machine: build and run",
    "plan": "Plan only: compile nothing",
}
_FIRST = {"tpu": "tpu:v5p:2x2x2", "gpu": "gpu:h100:8"}
_GPU_COUNTS = (1, 2, 4, *(GPUS_PER_NODE * 2**n for n in range(10)))


def draw() -> None:
    """Draw the target, which resizes the mesh to its devices."""
    state = st.session_state
    target = chosen()
    state["target:kind"] = target.kind if target else state["field:target"]
    if state["target:kind"] not in KINDS:
        state["target:kind"] = "cpu"
    kept_field.draw(
        st.selectbox,
        "Target",
        list(KINDS),
        format_func=KINDS.get,
        key="target:kind",
        on_change=_change_kind,
    )
    if target is None:
        return
    if target.slice is not None:
        _draw_slice(target)
    else:
        _draw_gpus(target)
    st.caption(plain(target.sentence))


def draw_more(cache: CompileCache) -> None:
    """Draw the use of the compile cache, for a target that it has compiles for."""
    usage = cache.usage()
    if chosen() is None or not usage.count:
        return
    left, right = st.columns([3, 2], vertical_alignment="center")
    left.caption(f"Compile cache: {counted(usage.count, 'layout')}, {bytes_text(usage.bytes)}")
    right.button("Clear cache", key="clear_kept", type="tertiary", on_click=cache.clear)


def _draw_slice(target: Target) -> None:
    state = st.session_state
    state["target:generation"] = target.chip_name
    assert target.slice is not None, "the target is not of GPUs"
    state["target:topology"] = target.slice.topology
    state["target:slices"] = target.slices
    left, right = st.columns([2, 3])
    kept_field.draw(
        left.selectbox,
        "Generation",
        slices.GENERATIONS,
        format_func=lambda name: CHIPS[name].title.removeprefix("TPU "),
        key="target:generation",
        on_change=_change_generation,
    )
    every = {tpus.topology: tpus for tpus in slices.slices(target.chip_name)}
    kept_field.draw(
        right.selectbox,
        "Slice",
        list(every),
        format_func=lambda topology: f"{every[topology].name} · {topology}",
        key="target:topology",
        on_change=_change_topology,
    )
    kept_field.draw(
        left.number_input,
        "Slices",
        1,
        targets.most_slices(target.slice),
        key="target:slices",
        on_change=_change_topology,
        help="Equal slices joined by the data center network (DCN). The first mesh axes cross slices.",
    )
    kept_field.draw(
        right.selectbox,
        "Device order",
        layouts.DEVICE_ORDERS,
        key="field:device_order",
        help="**row-major**: the devices in JAX's order. **torus**: `create_device_mesh` puts each mesh axis "
        "on physical axes, so neighbors in the mesh are neighbors in the machine. Several slices use "
        "`create_hybrid_device_mesh`.",
    )


def _draw_gpus(target: Target) -> None:
    state = st.session_state
    state["target:gpu"] = target.chip_name
    state["target:count"] = target.devices
    left, right = st.columns([3, 2])
    kept_field.draw(
        left.selectbox,
        "GPU",
        GPU_CHIPS,
        format_func=lambda name: CHIPS[name].title,
        key="target:gpu",
        on_change=_change_gpus,
    )
    counts = sorted({*_GPU_COUNTS, target.devices})
    kept_field.draw(right.selectbox, "GPUs", counts, key="target:count", on_change=_change_gpus)


def chosen() -> Target | None:
    """Return the slices or GPUs of the target; None for another target, and for an invalid text."""
    text = st.session_state["field:target"]
    try:
        return targets.parse(text) if targets.is_target(text) else None
    except InvalidInput:
        return None


def _change_kind() -> None:
    kind = st.session_state["target:kind"]
    _put(_FIRST.get(kind, kind))


def _change_generation() -> None:
    """Keep the topology if it is one of the generation, else take its smallest slice of at least 8 chips."""
    generation = st.session_state["target:generation"]
    every = slices.slices(generation)
    before = st.session_state["target:topology"]
    same = [tpus for tpus in every if tpus.topology == before]
    _put_slices((same or [tpus for tpus in every if tpus.chips >= 8] or every[-1:])[0])


def _change_topology() -> None:
    state = st.session_state
    try:
        tpus = slices.slice_of(state["target:generation"], state["target:topology"])
    except InvalidInput:
        return  # of the menu of another generation, which a change of the generation has replaced
    _put_slices(tpus)


def _put_slices(tpus: Slice) -> None:
    """Set the target to slices of this kind, the same number or the largest allowed one."""
    count = min(st.session_state["target:slices"], targets.most_slices(tpus))
    _put(f"tpu:{tpus.generation}:{tpus.topology}" + (f"*{count}" if count > 1 else ""))


def _change_gpus() -> None:
    state = st.session_state
    _put(f"gpu:{state['target:gpu']}:{state['target:count']}")


def _put(text: str) -> None:
    """Set the target, and a mesh with the same number of axes for all of its devices."""
    state = st.session_state
    state["field:target"] = text
    target = chosen()
    if target is not None:
        state["field:processes"] = 1
    try:
        shape = layouts.parse_mesh(state["field:mesh"], layouts.MOST_COMPILED_DEVICES)
    except InvalidInput:
        shape = current_layout.last_layout().mesh_shape
    devices = math.prod(shape)
    fits = devices == target.devices if target else devices <= layouts.most_devices(text)
    if not fits:
        state["field:mesh"] = layouts.print_mesh(layouts.mesh_of(text, len(shape)))
        current_layout.change_mesh()
