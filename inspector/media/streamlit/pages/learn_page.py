"""The guide that runs tutorials: each step with its text, code, output and figures."""

import functools
from dataclasses import dataclass

import streamlit as st

from inspector.answers import subject
from inspector.figures.block_map import block_map
from inspector.figures.mesh_map import mesh_alone, mesh_map
from inspector.guides import tutorials
from inspector.guides.tutorials import DrawnArray, TutorialRequest, TutorialRun, TutorialStep
from inspector.layout import mesh_shapes
from inspector.media.streamlit.page import buttons
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import chart, downloads, guide_form
from inspector.media.streamlit.parts.guide_form import FormFields
from inspector.media.streamlit.session import asked, user
from inspector.sharding.sharding_text import spec_text
from inspector.text.formatting import counted, mesh_sizes_text

FIELD_PX = 180
FIGURE_PX = 330  # two figures fit side by side in a window of 800 pixels


@dataclass(frozen=True)
class Taken:
    """A finished tutorial and its results."""

    request: TutorialRequest
    result: TutorialRun


def show() -> None:
    """Draw the page."""
    st.markdown("### Learn")
    page = FormFields("learn", {"guide": tutorials.DEFAULT_TUTORIAL})
    guide = page.draw(
        st.segmented_control,
        "guide",
        "Tutorial",
        list(tutorials.TUTORIALS),
        format_func=lambda name: tutorials.TUTORIALS[name].title,
        required=True,
    )
    st.caption(tutorials.TUTORIALS[guide].follows)
    taken = _taken()
    if (request := _draw_fields(guide)) is not None and (
        guide not in taken or taken[guide].request != request
    ):
        result = guide_form.result(
            "learn",
            user.service().tutorial(request),
            f"Running the tutorial on {counted(request.devices, 'emulated device')} …",
        )
        if result is not None:
            taken[guide] = Taken(request, result)
    # A mesh that cannot be used leaves the last result on the page.
    if guide in taken:
        _show_tutorial(taken[guide])


def _draw_fields(guide: str) -> TutorialRequest | None:
    """Draw the fields of the mesh with their problems. Return None if a field is wrong."""
    fields = FormFields(f"learn:{guide}", tutorials.defaults(guide))
    parsed = tutorials.parse(guide, **fields.texts())
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        sizes = f"Sizes of the mesh axes joined by x; at most {tutorials.MOST_DEVICES} devices. "
        help = sizes + "A change runs the tutorial again."
        fields.draw_mesh(st.text_input, "Mesh", _change_mesh, help, guide, width=FIELD_PX)
        fields.draw(st.text_input, "axes", "Axis names", width=FIELD_PX, help=guide_form.AXIS_NAMES_HELP)
        for problem in parsed.problems.values():
            st.markdown(f":red[:material/error: :small[{plain(problem)}]]", width="content")
    return parsed.value


def _change_mesh(guide: str, fields: FormFields) -> None:
    counts = tutorials.TUTORIALS[guide].axis_counts
    if len(fields["mesh"].replace("×", "x").split("x")) in counts:
        mesh_shapes.fit_axis_names(fields, max(counts))


def _show_tutorial(taken: Taken) -> None:
    request, steps = taken.request, taken.result.steps
    failed = [(number, step) for number, step in enumerate(steps, 1) if step.problem is not None]
    if failed:
        number, step = failed[0]
        st.error(plain(f"Step {number} failed: {step.problem}"), icon=":material/error:")
        buttons.draw("Run again", "learn:again", "refresh", _run_again, request)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(_run_text(taken), width="stretch")
        _draw_step_buttons(taken)
    for number, step in enumerate(steps, 1):
        expander = st.expander(
            f"**{number}** · {plain(step.title)}",
            expanded=number == 1,
            key=_step_key(request.guide, number),
            icon=":material/error:" if step.problem is not None else None,
            on_change="rerun",
        )
        if expander.open:
            with expander:
                _show_step(taken, step, number)


def _run_text(taken: Taken) -> str:
    request, versions = taken.request, taken.result.versions
    names = {"jax": "JAX", "flax": "Flax"}
    ran = ", ".join(f"{title} {versions[name]}" for name, title in names.items() if name in versions)
    mesh = mesh_sizes_text(request.axis_names, request.mesh_shape)
    return plain(f"Run on mesh {mesh}, emulated on this machine, with {ran}.")


def _draw_step_buttons(taken: Taken) -> None:
    request, steps = taken.request, taken.result.steps
    keys = [_step_key(request.guide, number) for number in range(1, len(steps) + 1)]
    all_open = all(st.session_state.get(key) for key in keys)
    label, icon = "Open all steps", "unfold_more"
    if all_open:
        label, icon = "Close all steps", "unfold_less"
    act, state = st.session_state.update, dict.fromkeys(keys, not all_open)
    buttons.draw(label, "learn:open_all", icon, act, state, type="tertiary")
    downloads.draw_file(
        "Script",
        lambda: tutorials.script(request, steps),
        f"{request.guide}.py",
        "learn:script",
        mime="text/x-python",
        help="Download all steps as one Python script with notebook cells.",
    )


def _show_step(taken: Taken, step: TutorialStep, number: int) -> None:
    st.markdown(step.words)
    st.code(step.code, language="python")
    if step.output:
        with st.container(gap="xxsmall"):
            st.caption("Output")
            st.code(step.output, language=None, wrap_lines=True)
    if step.refusal is not None:
        st.caption(f":material/block: JAX raised `{plain(step.refusal.partition(':')[0])}`.")
    if step.problem is not None:
        st.error(plain(step.problem), icon=":material/error:")
    if step.mesh is not None:
        name = f"{taken.request.guide}:{number}:mesh"
        mesh, run = step.mesh, taken.result
        with chart.of(
            lambda: [subject.source_line_of_arrays([_step_text(taken, step, number)], mesh, run.versions)],
            key=f"pictures:{name}",
        ):
            figure = mesh_alone(mesh, width_px=FIGURE_PX)
            guide_form.draw_figures({"mesh_map": figure}, f"learn:{name}:{{}}", FIGURE_PX)
    for drawn in step.drawn:
        name = f"{taken.request.guide}:{number}:{drawn.array.path}"
        with chart.of(
            functools.partial(provenance_lines, taken, step, number, drawn),
            key=f"pictures:{name}",
        ):
            _show_array(drawn, name)


def provenance_lines(taken: Taken, step: TutorialStep, number: int, drawn: DrawnArray) -> list[str]:
    """Return the text below the saved pictures of a step's array."""
    facts = [
        _step_text(taken, step, number),
        f"{drawn.array.path} {spec_text(drawn.array.spec)}",
    ]
    return [subject.source_line_of_arrays(facts, drawn.mesh, taken.result.versions)]


def _step_text(taken: Taken, step: TutorialStep, number: int) -> str:
    return f"{tutorials.TUTORIALS[taken.request.guide].title}, step {number}: {step.title}"


def _show_array(drawn: DrawnArray, name: str) -> None:
    figures = {"block_map": block_map(drawn.array, drawn.mesh, width_px=FIGURE_PX)}
    if drawn.mesh.size > 1:
        figures["mesh_map"] = mesh_map(drawn.array, drawn.mesh, width_px=FIGURE_PX)
    guide_form.draw_figures(figures, f"learn:{name}:{{}}", FIGURE_PX)


def _taken() -> dict[str, Taken]:
    taken: dict[str, Taken] = st.session_state.setdefault("learn:taken", {})
    return taken


def _run_again(request: TutorialRequest) -> None:
    _taken().pop(request.guide, None)
    asked.of("learn").again(user.service().tutorial(request))


def _step_key(guide: str, number: int) -> str:
    return f"learn:{guide}:step_{number}"
