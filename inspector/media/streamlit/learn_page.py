"""The page that replays the guides: each step in words, with the code that ran, its output and picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import streamlit as st

from inspector.core.errors import InvalidInput
from inspector.core.field_parser import Parsed
from inspector.core.formatting import counted, spec_text
from inspector.figures import array_provenance
from inspector.figures.block_map import block_map
from inspector.figures.mesh_map import mesh_map
from inspector.guides import tutorials as walks
from inspector.guides.tutorials import Drawn, Step, Walk, Walked
from inspector.media.streamlit import chart, waiting
from inspector.media.streamlit.plain_text import plain
from inspector.service import inspection

FIELD_PX = 180
FIGURE_PX = 330  # two stand side by side in a window of 800 pixels
STEP_FIELDS = ("mesh", "axes")


@dataclass(frozen=True)
class Taken:
    """The walk that this session shows of a guide, and what came of it."""

    walk: Walk
    walked: Walked


def show() -> None:
    """Draw the page: which walk on which mesh, then its steps, the first one open."""
    service = inspection.shared()
    st.markdown("### Learn")
    guide = _draw_choice()
    _restore_fields(guide)
    parsed = _draw_fields(guide)
    if parsed.value is not None:
        _take(service, parsed.value)
    taken = _taken().get(guide)
    if taken is not None:
        _show_walk(taken)


def _draw_choice() -> str:
    # Streamlit forgets the widgets of a page that was left; what they held is put back.
    kept = st.session_state.get("learn:kept_guide", walks.DEFAULT_GUIDE)
    st.session_state.setdefault("learn:guide", kept)
    guide = st.segmented_control(
        "Walk",
        list(walks.GUIDES),
        format_func=lambda name: walks.GUIDES[name].title,
        key="learn:guide",
        required=True,
    )
    st.session_state["learn:kept_guide"] = guide
    st.caption(walks.GUIDES[guide].follows)
    return guide


def _restore_fields(guide: str) -> None:
    kept: Mapping[str, str] = st.session_state.get(_key(guide, "kept"), walks.defaults(guide))
    for name in STEP_FIELDS:
        st.session_state.setdefault(_key(guide, name), kept[name])


def _draw_fields(guide: str) -> Parsed[Walk]:
    """The mesh's fields, and beside each the sentence about what is wrong with it."""
    state = st.session_state
    texts = {name: state[_key(guide, name)] for name in STEP_FIELDS}
    state[_key(guide, "kept")] = texts
    parsed = walks.parse(guide, **texts)
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        st.text_input(
            "Mesh",
            key=_key(guide, "mesh"),
            on_change=_fit_axis_names,
            args=(guide,),
            width=FIELD_PX,
            help="Sizes of the mesh axes joined by x, at most "
            f"{walks.MOST_DEVICES} devices. Another mesh runs the walk again.",
        )
        _show_problem(parsed, "mesh")
        st.text_input(
            "Axis names",
            key=_key(guide, "axes"),
            width=FIELD_PX,
            help="One name for each mesh axis, joined by commas.",
        )
        _show_problem(parsed, "axes")
    return parsed


def _show_problem(parsed: Parsed[Walk], name: str) -> None:
    if name in parsed.problems:
        st.markdown(
            f":red[:material/error: :small[{plain(parsed.problems[name])}]]", width="content"
        )


def _fit_axis_names(guide: str) -> None:
    """A mesh of another rank gets as many axis names, if the guide takes such a mesh."""
    state = st.session_state
    rank = len(state[_key(guide, "mesh")].replace("×", "x").split("x"))
    names = [name.strip() for name in state[_key(guide, "axes")].split(",")]
    if rank in walks.GUIDES[guide].axis_counts and len(names) != rank:
        fitted = list(dict.fromkeys([*names, "x", "y", "z"]))[:rank]
        state[_key(guide, "axes")] = ", ".join(fitted)


def _take(service: inspection.Inspection, walk: Walk) -> None:
    """Have the walk taken if this session does not show it; if that fails, the last one stays."""
    taken = _taken()
    if walk.guide in taken and taken[walk.guide].walk == walk:
        return
    try:
        walked = service.known_walk(walk) or waiting.wait_for(
            service.start_walk(walk),
            f"Running the walk on {counted(walk.devices, 'emulated device')} …",
            lambda job: service.take_walk(walk, job),
        )
    except InvalidInput as refused:
        st.error(plain(str(refused)), icon=":material/error:")
        st.button("Try again", icon=":material/refresh:", key="learn:again")
        return
    taken[walk.guide] = Taken(walk, walked)


def _show_walk(taken: Taken) -> None:
    walk, steps = taken.walk, taken.walked.steps
    if not taken.walked.complete:
        _show_failure(walk, steps)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(_provenance(taken), width="stretch")
        _draw_step_buttons(walk, len(steps))
    for number, step in enumerate(steps, 1):
        icon = ":material/error:" if step.problem is not None else None
        drawer = st.expander(
            f"**{number}** · {plain(step.title)}",
            expanded=number == 1,
            key=_step_key(walk.guide, number),
            icon=icon,
            on_change="rerun",
        )
        # What is closed is not drawn, so that the page stays light.
        if drawer.open:
            with drawer:
                _show_step(taken, step, number)


def _provenance(taken: Taken) -> str:
    walk, versions = taken.walk, taken.walked.versions
    mesh = " × ".join(
        f"{name} {size}" for name, size in zip(walk.axis_names, walk.mesh_shape, strict=True)
    )
    ran = ", ".join(
        f"{title} {versions[name]}"
        for name, title in (("jax", "JAX"), ("flax", "Flax"))
        if name in versions
    )
    return plain(f"Run on mesh {mesh}, emulated on this machine, with {ran}.")


def _draw_step_buttons(walk: Walk, count: int) -> None:
    keys = [_step_key(walk.guide, number) for number in range(1, count + 1)]
    all_open = all(st.session_state.get(key) for key in keys)
    st.button(
        "Close all steps" if all_open else "Open all steps",
        icon=":material/unfold_less:" if all_open else ":material/unfold_more:",
        key="learn:open_all",
        type="tertiary",
        on_click=_set_open,
        args=(keys, not all_open),
    )
    taken = _taken()[walk.guide]
    st.download_button(
        "Script",
        data=lambda: walks.script(walk, taken.walked.steps),
        file_name=f"{walk.guide}.py",
        mime="text/x-python",
        key="learn:script",
        icon=":material/download:",
        type="tertiary",
        on_click="ignore",
        help="All steps as one Python script, which runs by itself and prints the same. Editors that "
        "know cells open it as a notebook.",
    )


def _set_open(keys: list[str], is_open: bool) -> None:
    for key in keys:
        st.session_state[key] = is_open


def _show_failure(walk: Walk, steps: tuple[Step, ...]) -> None:
    number, problem = next(
        (number, step.problem) for number, step in enumerate(steps, 1) if step.problem is not None
    )
    st.error(plain(f"Step {number} failed: {problem}"), icon=":material/error:")
    st.button(
        "Run it again",
        icon=":material/refresh:",
        key="learn:again",
        on_click=_taken().pop,
        args=(walk.guide, None),
    )


def _show_step(taken: Taken, step: Step, number: int) -> None:
    st.markdown(step.words)
    st.code(step.code, language="python")
    if step.output:
        with st.container(gap="xxsmall"):
            st.caption("Output")
            st.code(step.output, language=None, wrap_lines=True)
    if step.refusal is not None:
        kind = step.refusal.partition(":")[0]
        st.caption(
            f":material/block: JAX refused this with a `{plain(kind)}`, in its own words above."
        )
    if step.problem is not None:
        st.error(plain(step.problem), icon=":material/error:")
    guide = taken.walk.guide
    for drawn in step.drawn:
        name = f"{guide}:{number}:{drawn.array.path}"
        with chart.of(
            lambda drawn=drawn: [provenance_line(taken, step, number, drawn)],
            key=f"pictures:{name}",
        ):
            _show_array(drawn, name)


def provenance_line(taken: Taken, step: Step, number: int, drawn: Drawn) -> str:
    """What stands on the pictures of a step's array."""
    said = [
        f"{walks.GUIDES[taken.walk.guide].title}, step {number}: {step.title}",
        f"{drawn.array.path} {spec_text(drawn.array.spec)}",
    ]
    return array_provenance.line(said, drawn.mesh, taken.walked.versions)


def _show_array(drawn: Drawn, name: str) -> None:
    figures = {"block_map": block_map(drawn.array, drawn.mesh, width_px=FIGURE_PX)}
    if drawn.mesh.size > 1:
        figures["mesh_map"] = mesh_map(drawn.array, drawn.mesh, width_px=FIGURE_PX)
    # In a narrow window the second goes below the first, which in columns it would not.
    with st.container(horizontal=True, gap="small"):
        for kind, figure in figures.items():
            with st.container(width=FIGURE_PX):
                words = f"{kind.replace('_', ' ').capitalize()} of {drawn.array.path}"
                chart.draw(figure, f"learn:{name}:{kind}", alt=words)


def _taken() -> dict[str, Taken]:
    return st.session_state.setdefault("learn:taken", {})


def _step_key(guide: str, number: int) -> str:
    return _key(guide, f"step_{number}")


def _key(guide: str, name: str) -> str:
    return f"learn:{guide}:{name}"
