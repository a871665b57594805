"""The tab *Improve*: findings and the effects of changes as one ranked list, each with its buttons."""

from collections.abc import Callable
from dataclasses import replace

import streamlit as st

from inspector import audit
from inspector import layout as layouts
from inspector.answers import assessed, improvements
from inspector.answers import effects as effects_section
from inspector.answers import improvements as section
from inspector.answers.improvements import Improvement
from inspector.answers.section import Facts, more_text, with_code
from inspector.assessment import assess
from inspector.audit import Fix
from inspector.compare import board
from inspector.jobs.engine import Status
from inspector.jobs.inspection import Inspection
from inspector.jobs.request import Progress, Request
from inspector.layout import Layout, from_json, layout_of
from inspector.machines.hardware import Chip
from inspector.media.streamlit.page import buttons, page_width
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import keep_buttons, render, table
from inspector.media.streamlit.session import (
    asked,
    chip_choice,
    current_layout,
    pins,
    planning,
    selection,
    user,
)
from inspector.media.streamlit.streamlit_internals import uninterrupted
from inspector.records import typed_json
from inspector.records.snapshot import Change, Effects, Finding, Snapshot
from inspector.sharding.once import NewestResults
from inspector.text import formatting
from inspector.text.errors import InvalidInput
from inspector.text.formatting import left_text

MOST_ON_SUMMARY = 3
_MAX_SHOWN = 30
_JOB = "effects"
# Effects begin once the layout has been on the page for so long: they occupy all cores.
_AFTER_SECONDS = 1.0
# Each rerun of a page ranks the same improvements, up to three times.
_RANKINGS: NewestResults[list[Improvement]] = NewestResults(32)
_FIXES: NewestResults[tuple[Fix | None]] = NewestResults(200)


def show(snapshot: Snapshot, layout: Layout | None) -> None:
    """Draw the ranked list, its program and chip, and the effects of all changes in a part that opens."""
    if snapshot.mesh is None:
        st.info(audit.gaps(snapshot)[0], icon=":material/help:")
        return
    changeable = layout or layout_of(snapshot)
    chip = None
    choices, listed = st.container(), st.container()
    if page_width.content_px() < page_width.NARROW_PX:
        choices, listed = listed, choices  # below each other, they would fill the first screen
    if changeable is None:
        snapshot = replace(snapshot, effects=None)
        choices.caption(effects_section.NO_LAYOUT)
    else:
        with choices:
            snapshot, chip = _draw_effects(snapshot, changeable)
    rows = _ranked(snapshot, chip)
    with listed:
        computing = changeable is not None and snapshot.effects is None
        said = section.summary(rows, snapshot, chip, computing)
        render.show([said, *improvements.not_checked(snapshot)])
        footnotes = [row.message for row in rows if row.is_remark and row.finding and not row.finding.remedy]
        cards = [row for row in rows if row.message not in footnotes]
        for number, improvement in enumerate(cards[:_MAX_SHOWN]):
            _draw(f"improve:{number}", improvement, snapshot, layout, in_full=True)
        if len(cards) > _MAX_SHOWN:
            st.caption(more_text(len(cards) - _MAX_SHOWN, "improvement"))
        for message in footnotes[:_MAX_SHOWN]:
            st.caption(render.markdown(with_code(message)))
    if changeable is not None and snapshot.effects is not None and snapshot.effects.changes:
        heading = effects_section.all_heading(snapshot.effects, assess(snapshot, chip))
        drawer = st.expander(heading, key="effects_drawer", on_change="rerun")
        if drawer.open:  # a hidden figure would cost the browser as much as a visible one
            with drawer:
                _draw_all(snapshot, snapshot.effects, changeable, chip)
    render.show([improvements.checked()])


def show_best(snapshot: Snapshot, layout: Layout | None) -> None:
    """Draw the first improvements of the list.

    A fix is searched when its button is clicked, so that the page stays as fast as a planned layout.
    """
    chip = chip_choice.chosen_chip()
    rows = [] if snapshot.mesh is None else _ranked(snapshot, chip)
    best = [improvement for improvement in rows if not improvement.is_remark]
    rejected = layout is not None and assess(snapshot, chip).rejected is not None
    if rejected and best and best[0].label == "error":
        del best[0]  # it is above the title
    best = best[:MOST_ON_SUMMARY]
    awaited = (
        None if layout is None or not _can_change(snapshot, layout) else _request(user.service(), layout)
    )
    if snapshot.effects is not None or (awaited and asked.of(_JOB).failure(awaited.key) is not None):
        awaited = None
    if best or awaited:
        st.markdown("##### Improvements")
    for number, improvement in enumerate(best):
        _draw(f"improvement:{number}", replace(improvement, message=""), snapshot, layout)
    if layout is not None and awaited is not None:
        asked.show_progress(_JOB, awaited, begins=lambda: planning.rests(layout, _AFTER_SECONDS))


def counted(snapshot: Snapshot, facts: Facts) -> Facts:
    """Return the facts of a head whose last one counts what can be done, not what is only noted."""
    rows = [] if snapshot.mesh is None else _ranked(snapshot, chip_choice.chosen_chip())
    number = sum(not improvement.is_remark for improvement in rows)
    *others, last = facts.facts
    if number:  # the change since the last edit is that of the findings
        last = replace(last, value=formatting.counted(number, "improvement"), change=None)
    computing = snapshot.effects is None and asked.of(_JOB).job is not None
    return replace(facts, facts=(*others, replace(last, computing=computing)))


def show_worst(snapshot: Snapshot, layout: Layout | None) -> None:
    """Draw the first improvement in a line if it is an error or a warning. The list has its sentences."""
    rows = [] if snapshot.mesh is None else _ranked(snapshot, chip_choice.chosen_chip())
    if rows and rows[0].label in ("error", "warning"):
        worst = rows[0]
        gain = f" · {plain(worst.gain)}" if worst.gain else ""
        color, icon = render.COLORS[worst.kind], render.ICONS[worst.kind]
        more = f"  \n{render.markdown(with_code(worst.message))}" if worst.label == "error" else ""
        st.markdown(f":{color}[{icon} {worst.label.capitalize()}] **{plain(worst.title)}**{gain}{more}")


def show_urgent(snapshot: Snapshot, layout: Layout, rejected: str | None) -> None:
    """Draw why JAX rejects the layout, and the rules with a name that the model does not have."""
    findings = audit.ranked(snapshot)
    errors = [finding for finding in findings if finding.level == "error"]
    fixable = [finding for finding in errors if audit.may_fix(finding, layout)]
    if rejected is not None:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            fix = _fix(snapshot, fixable[0], layout) if fixable else None
            words = "" if fix is None else f"  \n{render.markdown(improvements.fix_text(fix))}"
            st.error(f"{plain(assessed.rejection(rejected))}{words}", icon=render.ICONS["error"])
            if fix is not None:
                _draw_apply("fix_rejected", section.of_finding(fixable[0]), snapshot, layout)
    for number, finding in enumerate(findings):
        if finding.unknown_name is not None:
            _draw(f"fix_name:{number}", section.of_finding(finding), snapshot, layout)


def with_known(service: Inspection, snapshot: Snapshot, layout: Layout) -> Snapshot:
    """Return the Snapshot with the effects on the program that the tab shows, if they are known.

    They are computed in the background once the programs of the layout are known, and the user is not typing.
    """
    start = planning.rests(layout, _AFTER_SECONDS) and _can_change(snapshot, layout)
    known = asked.of(_JOB).ask(_request(service, layout), start=start).result
    if known is None:
        return snapshot
    return planning.snapshots.of("effects", (snapshot, known), lambda: replace(snapshot, effects=known))


def _request(service: Inspection, layout: Layout) -> Request[Effects]:
    """Return the request of the effects on the program that the tab shows."""
    chip = _chip(layout)
    request = service.effects(layout, _program(layout), None if chip is None else chip.name)
    return replace(request, describe=_progress)


def _program(layout: Layout) -> str:
    return chip_choice.chosen("Improve") or layout.step_program


def _chip(layout: Layout) -> Chip | None:
    return layout.machine.chip if layout.machine else chip_choice.chosen_chip()


def _can_change(snapshot: Snapshot, layout: Layout) -> bool:
    """Return whether the program of the effects is known, and JAX accepts it."""
    known = snapshot.program(_program(layout)) is not None
    return known and assess(snapshot, _chip(layout)).rejected is None


def make_way(layout: Layout) -> None:
    """Cancel the job if it is for another layout."""
    running = asked.of(_JOB).running()
    if running is not None and running.layout != layout:
        asked.of(_JOB).cancel()


def _ranked(snapshot: Snapshot, chip: Chip | None) -> list[Improvement]:
    return _RANKINGS.of(
        chip and chip.name,
        (snapshot,),
        lambda: section.ranked(snapshot, audit.ranked(snapshot, chip), chip),
    )


def _draw(
    key: str,
    improvement: Improvement,
    snapshot: Snapshot,
    layout: Layout | None,
    *,
    in_full: bool = False,
) -> None:
    """Draw an improvement and its buttons. `in_full` adds the rest of its message, the fix,
    the comparison, and the array."""
    finding, current = improvement.finding, layout or layout_of(snapshot)
    fix = _fix(snapshot, finding, layout) if in_full and finding and layout else None
    effect = improvement.effect
    expressible = fix is not None if effect is None else effect.layout is not None
    with st.container(key=f"row:{key}", border=in_full):
        left, right = page_width.beside([3, 1], align="top")
        gain = f" · {plain(improvement.gain)}" if improvement.gain else ""
        remedy = (finding.remedy or "") if in_full and finding and fix is None else ""
        message = improvement.message if in_full else improvement.message.partition(". ")[0]
        left.markdown(
            f":{render.COLORS[improvement.kind]}[{render.ICONS[improvement.kind]} "
            f"{improvement.label.capitalize()}] **{plain(improvement.title)}**{gain}  \n"
            f"{render.markdown(with_code(message))} {render.markdown(with_code(remedy))}"
        )
        if fix is not None:
            left.caption(render.markdown(improvements.fix_text(fix, improvement.findings)))
        with right, st.container(horizontal=True, gap="small", horizontal_alignment="right"):
            may_fix = finding and layout and not in_full and audit.may_fix(finding, layout)
            if layout is not None and (expressible or may_fix):
                _draw_apply(f"{key}:apply", improvement, snapshot, layout)
            if in_full and expressible and current is not None:
                name = fix.words if fix else improvement.title
                _draw_compare(f"{key}:compare", current, name, lambda: _layout_after(improvement, fix))
            if in_full and finding and finding.array in {array.path for array in snapshot.arrays}:
                st.button(
                    "Array",
                    key=f"{key}:array",
                    type="tertiary",
                    help=plain(f"Open the shard map of {finding.array}."),
                    on_click=selection.open_map,
                    args=(finding.array,),
                )


def _draw_apply(key: str, improvement: Improvement, snapshot: Snapshot, layout: Layout) -> None:
    buttons.draw("Apply", key, "build", _apply, improvement, snapshot, layout)


def _draw_compare(key: str, current: Layout, name: str, other: Callable[[], Layout | None]) -> None:
    # Only a click needs the other layout, whose parsing takes as many calls as the rest of the row.
    if st.button("Compare", key=key, icon=":material/view_column:") and (changed := other()) is not None:
        keep_buttons.compare(user.service(), current, name, changed)


def _layout_after(improvement: Improvement, fix: Fix | None) -> Layout | None:
    """Return the layout with the improvement. None if a layout cannot express it, or no fix is known."""
    change = improvement.effect or fix
    return None if change is None or change.layout is None else from_json(change.layout)


def _fix(snapshot: Snapshot, finding: Finding, layout: Layout) -> Fix | None:
    """Return the smallest change, searched once per layout, finding and set of shapes."""
    key = layout.key(), str(typed_json.encode(finding))
    return _FIXES.of(key, (snapshot,), lambda: (audit.smallest_change(snapshot, finding, layout),))[0]


@uninterrupted()
def _apply(improvement: Improvement, snapshot: Snapshot, layout: Layout) -> None:
    """Open the changed layout, and pin the current one unless it is on the board already."""
    finding = improvement.finding
    fix = None if finding is None else _fix(snapshot, finding, layout)
    goal = _layout_after(improvement, fix)
    if goal is None:
        st.toast("No change of one rule fixes this finding.", icon=":material/info:")
        return
    current_layout.put(goal)  # first, because the next run can begin at a toast
    on_board = pins.board()
    name = f"{layout.entry.title}, {layouts.print_mesh(layout.mesh_shape)}"
    if not any(pin.snapshot.layout == snapshot.layout for pin in on_board.pins):
        free = board.free_name(name, on_board.names)
        if not keep_buttons.pin(free, snapshot, "The layout before *Apply* is pinned as **{}**"):
            st.toast(plain(pins.take_problem() or ""), icon=":material/error:")


def _draw_effects(snapshot: Snapshot, layout: Layout) -> tuple[Snapshot, Chip | None]:
    """Draw the choice of program and chip, and one line: the number of changes that improve, or the progress.

    Return the Snapshot with the effects if they are known, else without, and the chip.
    """
    choices, status = page_width.beside([1, 1], align="center")
    with choices, st.container(horizontal=True, vertical_alignment="center", gap="small"):
        names = [program.name for program in snapshot.programs] or [*layout.programs, "init"]
        program = chip_choice.choose(names, chip_choice.KEYS["Improve"])
        if layout.machine is None:
            chip = chip_choice.draw(snapshot, label_visibility="collapsed", width=190)
        else:
            chip = layout.machine.chip
            st.markdown(f"Predicted for **{plain(chip.title)}**")
    name = None if chip is None else chip.name
    request = replace(user.service().effects(layout, program, name), describe=_progress)
    known = snapshot.effects
    if known is None or (known.program, known.chip) != (program, name):
        known = asked.of(_JOB).ask(request).result
    with status:
        if known is not None:
            st.caption(render.markdown(effects_section.tried(known)))
        elif not asked.show_failure(_JOB, request.key, request, "Compute the effects"):
            asked.show_progress(_JOB)
    # A value computed once for a Snapshot is not computed again for an equal one.
    same = snapshot.effects == known
    return snapshot if same else replace(snapshot, effects=known), chip


def _progress(status: Status) -> Progress:
    """Return one line, so that the list does not move: the change that is computed, and what improves."""
    if "done" not in status.progress:
        label = "tracing the model" if status.phase == "lower" else "starting a worker"
        return Progress(f"Effects of changes: {label}", 0.0)
    done, of = status.progress["done"], status.progress["of"]
    label = f"Effects of changes: {min(done + 1, of)} of {of}"
    if (effects := status.progress.get("found")) is not None:
        improving = effects_section.improving(typed_json.decode(Effects, effects))
        label += f", {len(improving)} improve the layout so far" if improving else ""
    if done:
        label += f", {left_text(status.elapsed * (of - done) / done)}"
    return Progress(label, done / of)


def _draw_all(snapshot: Snapshot, effects: Effects, layout: Layout, chip: Chip | None) -> None:
    pick = table.picker(
        f"{table.SELECT_A_ROW} to compare the changed layout.",
        lambda row: _show_effect(layout, effects.changes[row]),
    )
    blocks = effects_section.details(effects, assess(snapshot, chip))
    render.show(blocks, {effects_section.TABLE: pick})


def _show_effect(layout: Layout, effect: Change) -> None:
    with st.container(border=True):
        st.markdown(f"**{plain(effect.label)}**")
        if effect.cost is None:
            st.warning(plain(effect.reason or ""), icon=":material/warning:")
        if effect.layout is None:
            st.caption("A layout cannot express this change: edit the line in the code.")
        elif effect.cost is not None:
            try:
                changed = from_json(effect.layout, "the changed layout")
            except InvalidInput as error:  # of a damaged file
                st.warning(plain(str(error)), icon=":material/warning:")
            else:
                _draw_compare("effects_pin", layout, effect.label, lambda: changed)
