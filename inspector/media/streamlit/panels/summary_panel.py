"""The head of the Layout and the Open page: name, source, actions, size, and the script of a layout."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Literal

import streamlit as st
from cachetools import LRUCache

from inspector import layout as layouts
from inspector.answers import assessed, improvements, sharding_errors, subject, summary, unknown, verdict_bars
from inspector.answers.section import Block, Facts, Folded, Picture, more_text, with_code
from inspector.assessment import assess
from inspector.audit import CODES
from inspector.layout import Layout, layout_of, presets
from inspector.layout.script import script
from inspector.media.streamlit.page import buttons, page_width
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.panels import improve_panel
from inspector.media.streamlit.parts import downloads, keep_buttons, render
from inspector.media.streamlit.session import chip_choice, pins, screenshot_mode, selection
from inspector.media.streamlit.streamlit_internals import DeltaGenerator
from inspector.records.assessment import Assessment
from inspector.records.snapshot import Snapshot
from inspector.sharding.meshes import devices_of
from inspector.text.errors import InvalidInput
from inspector.text.formatting import counted

HEIGHT_PX = 520


def draw_button(layout: Layout, dialog: str = "code") -> None:
    """Draw the button, and the dialog if it is open.

    dialog: identifies the dialog on a page with the code of several layouts.
    """
    content, key = lambda: show_code(layout), f"{dialog}_button"
    buttons.draw_with_dialog("Code", "code", "Code", content, dialog, key=key, width="large")


def show_code(layout: Layout) -> None:
    """Draw the script with its download, or why there is none."""
    try:
        text = script(layout)
    except InvalidInput as error:
        st.info(plain(f"{error}."), icon=":material/code_off:")
        return
    name, needs = layout.entry.name, "JAX, Flax, Optax and NumPy"
    file_name = f"{name}.py"
    if layout.entry.own:
        needs = f"JAX, Flax, NumPy and {name.partition(':')[0]}"
        file_name = f"train_{name.replace('.', '_').replace(':', '_')}.py"  # unlike its module
    with st.container(horizontal=True, vertical_alignment="center"):
        caption = (
            "A Flax script that trains the model in this layout, and prints the sharding of every array and "
            f"the losses. It needs {needs}."
        )
        st.caption(plain(caption), width="stretch")
        settings = {"mime": "text/x-python", "type": "secondary"}
        downloads.draw_file("Download", text, file_name, "code_download", **settings)
    # The container scrolls by keyboard, because it has the copy button, which takes the focus.
    with st.container(height=HEIGHT_PX, border=False):
        st.code(text, language="python", wrap_lines=True)


# The assessments that the head of the Layout page showed.
#
# It compares the layout with one of them, and shows the last one while the next is computed.


_SHOWN, _NOW, _BEFORE = "assessments_shown", "assessed_layout", "assessed_layout_before"
_COMPLETE = "answers_complete"  # the model, and the last answers for it of which nothing more is computed
_MOST = 100


def keep_complete(model: str, answers: Sequence[str]) -> None:
    """Keep the four answers for a layout of this model, of which nothing more is computed."""
    st.session_state[_COMPLETE] = model, answers


def complete(model: str) -> Sequence[str] | None:
    """Return the last complete answers if they are for a layout of this model, else None."""
    of_model, answers = st.session_state.get(_COMPLETE, (None, None))
    return answers if of_model == model else None


def baseline(layout: Layout, assessment: Assessment) -> tuple[str, Assessment] | None:
    """Keep the assessment of a layout. Return the one to compare it with, and the name of its layout.

    That is the last pinned layout of the same model, else the one before the last edit, without a name.
    Return None if the page did not show that layout: nothing is computed for a comparison.
    """
    state = st.session_state
    shown: LRUCache[str, Assessment] = state.setdefault(_SHOWN, LRUCache(_MOST))
    key = layout.key()
    if state.get(_NOW) != (layout.model, key):
        model, before = state.get(_NOW, (None, None))
        state[_BEFORE] = before if model == layout.model else None
        state[_NOW] = layout.model, key
    shown[key] = assessment
    for pin in pins.board().pins[-1:]:
        pinned = layout_of(pin.snapshot)
        if (
            pinned is not None
            and (pinned.model, pinned != layout) == (layout.model, True)
            and pinned.key() in shown
        ):
            return plain(pin.name), shown[pinned.key()]
    before = state[_BEFORE]
    return ("", shown[before]) if before in shown else None


_MAX_FINDINGS = 50
_CLICKS = {"Findings": lambda _: selection.open_tab("Improve")}

BadgeColor = Literal["blue", "green", "violet", "orange"]
SOURCE_BADGES: dict[str, tuple[str, str, BadgeColor]] = {
    "plan": (":material/architecture:", "Planned, not compiled", "blue"),
    "cpu": (":material/memory:", "Run on emulated devices", "green"),
    "local": (":material/memory:", "Run on this machine's devices", "green"),
    "tpu": (":material/developer_board:", "Compiled, not run", "violet"),
    "gpu": (":material/developer_board:", "Compiled, not run", "violet"),
}


def show(
    snapshot: Snapshot,
    layout: Layout,
    draw_run: Callable[[], None],
    computing: bool,
    without_totals: Snapshot | None = None,
) -> Callable[[], None]:
    """Draw the heading and the run controls, then the actions, then four facts.

    Return what draws the link of the page, once its URL is written.

    Args:
      computing: whether the programs of a plan are being partitioned.
      without_totals: the plan that is pinned and kept until more than the totals of its programs is known.
        None if no totals are known, or more.
    """
    screenshot_mode.hide_controls()
    assessment = assess(snapshot, chip_choice.chosen_chip())
    known = baseline(layout, assessment)
    before = None if known is None else known[1]
    if computing:
        last, totals = complete(layout.model), without_totals is not None
        facts = assessed.while_computing(assessment, last, before, totals)
    else:
        facts = improve_panel.counted(snapshot, assessed.of_assessment(assessment, before))
        keep_complete(layout.model, [fact.value for fact in facts.facts])
    refused = any(program.sharding_error for program in snapshot.programs)  # they are shown above
    improve_panel.show_urgent(snapshot, layout, None if refused else assessment.rejected)
    state = assessed.state_change(assessment, before)
    changed = any(fact.change and not fact.computing for fact in facts.facts) or "→" in state
    compared = f" · → from {known[0]}" if known is not None and known[0] and changed else ""
    left, controls = page_width.beside([2, 1], align="top")
    with left.container(gap="xsmall"):
        row = _draw_title(snapshot, state, compared)
    with controls, screenshot_mode.controls("run"):
        draw_run()
    with row, screenshot_mode.controls("actions", horizontal=True, gap="small"):
        kept = without_totals or snapshot
        keep_buttons.show_pin(kept, presets.title(layout), key="pin")
        keep_buttons.show_save(kept, presets.title(layout), key="keep")
        draw_link = downloads.show_menu(
            subject.model_name(layout),
            kept,
            f"{layout.model}-{layouts.print_mesh(layout.mesh_shape)}.json",
            chip_choice.chosen_chip(),
        )
        draw_button(layout)
        _explain(facts, summary.totals(snapshot))
    silent = tuple(fact if fact.runs_of else replace(fact, help=None) for fact in facts.facts)
    render.show([replace(facts, facts=silent)], _CLICKS)
    if not computing and assessment.rejected is None:  # else the reason is above the title
        render.show(_bars(assessment))
        improve_panel.show_worst(snapshot, layout)
    screenshot_mode.write_provenance([("", snapshot)])
    return draw_link


def _draw_title(snapshot: Snapshot, state: str, compared: str) -> DeltaGenerator:
    """Draw the title, the source and a line about the state. Return the row of the source, for actions."""
    title = subject.title([("", snapshot)], chip_choice.chosen_chip(), with_mesh=True)
    icon, label, color = SOURCE_BADGES[snapshot.source.kind]
    model = f"{plain(subject.of_model(snapshot))} · " if subject.of_model(snapshot) else ""
    st.markdown(f"### {plain(title)}")
    one_row = page_width.content_px() >= page_width.NARROW_PX
    if not one_row:  # the sizes are in the fields
        model = f":{color}-badge[{icon} {label}] {model.partition(' · ')[0]} · "
    line = render.markdown(summary.line(snapshot, state).parts)
    if devices_of(snapshot) in title:
        line = line.removeprefix(f"{devices_of(snapshot)} · ")
    st.caption(model + line + compared)
    row = st.container(horizontal=one_row, vertical_alignment="center", gap="small")
    if one_row:
        row.badge(label, icon=icon, color=color)
    return row


def _explain(*rows: Facts) -> None:
    """Draw the menu with the meaning of each figure. A button at each of them would fill the page."""
    with st.popover("Help", icon=":material/help:", type="tertiary"):
        facts = [fact for row in rows for fact in row.facts if fact.help]
        st.markdown("\n\n".join(f"**{plain(fact.label)}**: {plain(fact.help or '')}" for fact in facts))


def show_opened(name: str, snapshot: Snapshot) -> None:
    """Draw the heading of an opened Snapshot with its buttons, four facts, and the findings."""
    st.markdown(f"### {plain(name)}")
    st.markdown(plain(summary.mesh_text(snapshot)))
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        icon, label, color = _badge(snapshot)
        st.badge(label, icon=icon, color=color)
        downloads.draw_snapshot(
            snapshot,
            f"{snapshot.source.kind}.json",
            "download_opened",
            "Everything that was read as Snapshot JSON, the same as `import` writes.",
        )
        keep_buttons.show_pin(snapshot, name, key="opened_pin_button")
        keep_buttons.show_save(snapshot, name, key="opened_keep_button")
    show_answers(snapshot)
    render.show([summary.line(snapshot), *sharding_errors.refusals(snapshot.programs)])
    _show_findings(snapshot)


def show_title(snapshot: Snapshot, line: str) -> None:
    """Draw the title of a recorded program, and a line about it."""
    title = subject.title([("", snapshot)], chip_choice.chosen_chip(), with_mesh=True)
    st.markdown(f"### {plain(title)}")
    st.caption(plain(" · ".join(filter(None, (subject.of_model(snapshot), line)))))


def show_answers(snapshot: Snapshot) -> None:
    """Draw the four facts of a Snapshot on the chosen chip, with their bars and the dominant reason."""
    assessment = assess(snapshot, chip_choice.chosen_chip())
    facts = improve_panel.counted(snapshot, assessed.of_assessment(assessment))
    render.show([facts, *_bars(assessment)], _CLICKS)
    improve_panel.show_worst(snapshot, None)


def _bars(assessment: Assessment) -> tuple[Block, ...]:
    narrow = page_width.content_px() < page_width.NARROW_PX

    def make() -> Iterable[Block]:
        blocks = verdict_bars.blocks(assessment, "verdict", values=False)
        if not narrow:
            return blocks
        # The answers have the figures, and the picture of the model needs the first screen.
        bars = tuple(block for block in blocks if isinstance(block, Picture))
        others = [block for block in blocks if block not in bars]
        return [*others, Folded("Parts of memory and step", bars)] if bars else others

    return render.kept(("verdict", narrow), (assessment,), make)


def _badge(snapshot: Snapshot) -> tuple[str, str, BadgeColor]:
    """Return icon, label and color of the source."""
    source = unknown.imported_from(snapshot)
    if source is not None:
        words = source.split(" ", 1)[1] if source.startswith(("a ", "an ")) else source
        label = "Captured from a job" if snapshot.source.kind == "capture" else f"Imported: {words}"
        return ":material/file_open:", plain(label), "orange"
    return ":material/description:", plain(f"Snapshot of {snapshot.source.kind}"), "blue"


def _show_findings(snapshot: Snapshot) -> None:
    """Draw errors, and notes of the reader. Findings of the audit are ranked, with their sum, in the tabs."""
    ranked = sorted(
        (finding for finding in snapshot.findings if finding.level == "error" or finding.code not in CODES),
        key=lambda finding: improvements.LEVELS.index(finding.level),
    )
    errors = [finding for finding in ranked if finding.level == "error"]
    others = ranked[len(errors) :]
    for finding in errors[:_MAX_FINDINGS]:
        st.error(render.markdown(with_code(finding.message)), icon=render.ICONS["error"])
    lines = [
        f"{render.ICONS[improvements.KINDS[remark.level]]} {render.markdown(with_code(remark.message))}"
        for remark in others[:_MAX_FINDINGS]
    ]
    if len(lines) == 1:
        st.caption(lines[0])
    elif lines:
        with st.expander(f"{counted(len(others), 'remark')} about the file"):
            for line in lines:
                st.markdown(line)
            if len(others) > _MAX_FINDINGS:
                st.caption(more_text(len(others) - _MAX_FINDINGS, "remark"))
