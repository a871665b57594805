"""The layout editor in the sidebar: fields, each with its problem."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from inspector import audit
from inspector import layout as layouts
from inspector.jobs.compile_cache import CompileCache
from inspector.jobs.engine import Job
from inspector.jobs.request import Outcome, Progress, Request
from inspector.layout import Layout, presets, rule_files
from inspector.layout.fields import TRAINING_SIZES
from inspector.layout.plan import UNMATCHED
from inspector.layout.rule_files import RuleFile, RuleSet
from inspector.machines import targets
from inspector.media.streamlit.editor import target_picker
from inspector.media.streamlit.page import buttons, page_files
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.session import asked, current_layout, kept_field, user
from inspector.media.streamlit.streamlit_internals import DeltaGenerator, UploadedFile
from inspector.model import ModelEntry, Size, SizePreset
from inspector.model.built_in import published
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.records.snapshot import Finding, Snapshot
from inspector.sharding.rules import Rule, RulesSemantics
from inspector.text.errors import InvalidInput
from inspector.text.field_parser import Parsed
from inspector.text.formatting import capitalized, counted


def draw(
    entry: ModelEntry,
    axes: Sequence[str],
    most: int,
    devices: int | None,
    specs: Mapping[str, Sequence[str]],
    new: str | None,
) -> None:
    """Draw the invisible component.

    Args:
      axes: the names of the mesh axes.
      most: the largest number of devices of a mesh.
      devices: the number of devices of the target, all of which a mesh has; None if it has no such number.
      specs: the dimensions of each field with a PartitionSpec, by its key.
      new: the key of the field that gets the focus, or None.
    """
    data = {
        "names": [*entry.logical_axes],
        "axes": [*axes],
        "mostAxes": layouts.MOST_AXES,
        "mostDevices": most,
        "devices": devices,
        "dimensions": {_class(key): len(dimensions) for key, dimensions in specs.items()},
        "focus": None if new is None else _class(new),
    }
    page_files.component("typed_fields")(data=data, key="typed_fields", width=1, height=1)


def _class(key: str) -> str:
    """Return the key of a field as it is in the class of the element."""
    return re.sub(r"[^\w-]", "-", key, flags=re.ASCII)


MAIN_SIZES = ("batch", "seq", "layers", "depth", "embed", "bias", "scan")
# How each library applies rules.
_RULES: Mapping[RulesSemantics, str] = {
    "linen": "Rules are tried in order. A rule applies if its mesh axes are still free in the array. A "
    "logical axis without a rule is not sharded.",
    "nnx": "The last rule of a logical axis applies. A logical axis without a rule is read as a mesh axis.",
}
# Switches of a run: label and explanation.
_SWITCHES = {
    "donate": (
        "Donate train state",
        "Donate the train state (`donate_argnums`): the new state reuses the memory of the old one.",
    ),
    "trace": (
        "Profile train steps",
        "Run three more train steps under JAX's profiler. *Time* shows the operations.",
    ),
    "timeit": (
        "Time with %%timeit loops",
        "Seven loops of the same step, mean ± deviation, as in the Flax guide.",
    ),
}
_RULE_FILE = "rule_file"
_MOST_RULE_FILE_MEBIBYTES = 1
_MOST_PATHS = 5  # without a match, below the patterns
_MOST_PILLS = 5  # more presets are a list
_LEAST_FIELD_PX = 70  # seven digits and the buttons


class Editor:
    """Draws the sidebar, and reserves places for problems that the plan finds."""

    def __init__(self, parsed: Parsed[Layout], kept: CompileCache) -> None:
        self._kept = kept
        self._problems: Mapping[str, str] = parsed.problems
        self._rule_slots: list[tuple[Rule, Callable[[str], None]]] = []
        self._below_mesh: Callable[[str], None] = lambda text: None
        self._pattern_slots: dict[str, DeltaGenerator] = {}
        self._below_patterns: DeltaGenerator | None = None
        self._fitting: tuple[presets.Preset, ...] = ()

    def draw(self) -> None:
        entry = current_layout.model_entry()
        self._fitting = presets.fitting(entry)
        current_layout.forget_absent_axes()
        kept_field.draw(
            st.selectbox,
            "Model",
            list(CATALOGUE),
            format_func=lambda name: CATALOGUE[name].title,
            key="field:model",
            on_change=current_layout.change_model,
        )
        if entry.presets:
            self._draw_size_presets(entry)
        target_picker.draw()
        _show_problem(self._problems.get("target"))
        self._draw_presets()
        self._draw_mesh()
        if entry.has_rules:
            self._draw_rules(entry)
        elif entry.state_specs is None:
            self._draw_specs(entry)
        if entry.state_specs is not None:
            self._draw_state_specs(entry)
        self._draw_sizes(entry)
        self._draw_advanced(entry)
        target = target_picker.chosen()
        draw(
            entry,
            self._mesh_axis_names(),
            layouts.most_devices(st.session_state["field:target"]),
            None if target is None else target.devices,
            {current_layout.spec_key(place): axes for place, axes in entry.partitions.items()},
            current_layout.new_field(),
        )

    def show_plan_problems(self, planned: Snapshot) -> None:
        """Show next to each rule which arrays its mesh axes do not divide, and what each pattern matches."""
        self._show_matches(planned)
        findings = [finding for finding in planned.findings if finding.level == "error"]
        by_rule: dict[tuple[str | None, tuple[str, ...]], list[Finding]] = {}
        for finding in findings:
            taken = finding.logical_axis, _split_over(finding, planned)
            by_rule.setdefault(taken, []).append(finding)
        for (logical_axis, axes), ruled in by_rule.items():
            text = ruled[0].message + (f", and {len(ruled) - 1} more" if len(ruled) > 1 else "")
            named = {over: show for (name, over), show in self._rule_slots if name == logical_axis}
            shows = [named[axes]] if axes in named else named.values()
            for show in shows or [self._below_mesh]:
                show(text)

    def _draw_presets(self) -> None:
        fitting = self._fitting
        if not fitting:
            return
        current = presets.matching(current_layout.last_layout())
        kept_field.draw_presets(
            "Preset",
            "preset",
            fitting,
            current.name if current else None,
            lambda preset: current_layout.put(preset.applied_to(current_layout.last_layout())),
            in_list=len(fitting) > _MOST_PILLS,
        )

    def _draw_advanced(self, entry: ModelEntry) -> None:
        """Draw the fields that few layouts need."""
        fields = ("processes", "axis_types", "optimizer_axes")
        with self._drawer("Advanced", [], *fields) as drawer:
            if drawer.open:
                self._draw_open_advanced(entry)

    def _draw_open_advanced(self, entry: ModelEntry) -> None:
        if entry.has_rules:
            self._draw_rule_file()
        if entry.constraints:
            kept_field.draw(
                st.pills,
                "Activation constraints",
                entry.constraints,
                selection_mode="multi",
                key="field:constraints",
            )
        if not targets.is_target(st.session_state["field:target"]):
            kept_field.draw(
                st.selectbox,
                "Processes",
                layouts.PROCESS_COUNTS,
                key="field:processes",
                help="Processes that share the devices equally, connected by jax.distributed.",
            )
        _show_problem(self._problems.get("processes"))
        self._draw_axes(
            "explicit",
            "Explicit axes",
            "On an explicit axis, JAX checks shardings when it traces the model (`AxisType.Explicit`). "
            "On the other axes, the compiler chooses them.",
        )
        _show_problem(self._problems.get("axis_types"))
        self._draw_axes(
            "optimizer_axes",
            "Optimizer state also over",
            "Shard the optimizer state over more mesh axes than its parameters, as ZeRO-1 does. It takes "
            "less memory, and the updated parameters are gathered in each step.",
        )
        target_picker.draw_more(self._kept)

    def _draw_rule_file(self) -> None:
        """Draw the upload of a file with rules, and a button for each list of rules in it."""
        with st.popover("Rules from a file", icon=":material/upload_file:", type="tertiary"):
            st.caption("YAML of MaxText or Levanter.")
            uploaded = st.file_uploader(
                "File of rules",
                type=list(rule_files.SUFFIXES),
                key="rule_file",
                max_upload_size=_MOST_RULE_FILE_MEBIBYTES,
                label_visibility="collapsed",
            )
            if uploaded is None:
                asked.of(_RULE_FILE).cancel()
                return
            for number, rule_set in enumerate(_rule_sets(uploaded)):
                changed = rule_set.applied_to(current_layout.last_layout())
                st.button(
                    f"Use {plain(rule_set.name)}",
                    key=f"rule_set:{number}",
                    on_click=current_layout.put,
                    args=(changed,),
                    disabled=changed == current_layout.last_layout(),
                )
                meaning = rule_files.meaning(rule_set)
                applied = rule_files.applied_text(rule_set, changed)
                st.caption(plain(f"{meaning}. In this layout: {applied}"))

    def _draw_mesh(self) -> None:
        row = st.container(horizontal=True)
        for name, label, change, example in (
            ("mesh", "Mesh", current_layout.change_mesh, "2x4"),
            ("axes", "Axis names", current_layout.change_axes, "data, model"),
        ):
            kept_field.draw(row.text_input, label, key=f"field:{name}", on_change=change, placeholder=example)
        for name in ("mesh", "axes"):
            _show_problem(self._problems.get(name))
        slot = st.empty()
        self._below_mesh = lambda text: _show_problem(text, slot)

    def _draw_axes(self, name: str, label: str, meaning: str) -> None:
        """Draw a choice of mesh axes, and its problem."""
        axes = [*dict.fromkeys(filter(None, current_layout.typed_axes()))]
        settings = {"selection_mode": "multi", "format_func": plain, "help": meaning}
        self._draw_checked(st.pills, name, label, axes, **settings)

    def _draw_rules(self, entry: ModelEntry) -> None:
        meanings = "".join(f"\n- **{axis}**: {text}" for axis, text in entry.logical_axes.items())
        known = "".join(f"\n- **{p.name}**: {p.meaning}" for p in self._fitting)
        st.markdown(
            "**Rules** &ensp; :small[logical axis → mesh axes]",
            help=f"{_RULES[entry.rules_semantics]} An empty rule leaves the dimension unsharded. Join "
            f"several mesh axes with + or a comma.\n\nLogical axes of this model:\n{meanings}\n\n"
            f"Presets:\n{known}",
        )
        names = self._mesh_axis_names()
        rows = current_layout.rule_rows()
        for position, row in enumerate(rows):
            self._draw_rule(row, position, names)
        ruled = tuple((st.session_state.get(row.name_key, ""), ()) for row in rows)
        left = layouts.left_out_rules(entry, ruled, names)
        if left:
            st.warning(plain(audit.left_out_text(left, names)), icon=":material/rule:")
        _add_button("Add rule", current_layout.add_rule)

    def _draw_rule(self, row: current_layout.RuleRow, position: int, names: tuple[str, ...]) -> None:
        self._draw_row(row, position, ("Logical axis", "Mesh axes", "rule", "logical axis"))
        try:
            rule = layouts.parse_rule(row.text(), names)
        except InvalidInput as error:
            _show_problem(str(error))
        else:
            slot = st.empty()
            self._rule_slots.append((rule, lambda text: _show_problem(text, slot)))

    def _draw_row(self, row: current_layout.RuleRow, position: int, words: tuple[str, str, str, str]) -> None:
        """Draw the two fields of a row and its menu. `words` are the labels, the row and a placeholder."""
        left, right, noun, placeholder = words
        key = f"{row.table}_menu:{row.number}"
        with st.container(horizontal=True, gap="xxsmall", vertical_alignment="center"):
            of_row = f"of {noun} {position + 1}"
            for label, field, empty in (
                (left, row.name_key, placeholder),
                (right, row.axes_key, "none"),
            ):
                kept_field.draw(
                    st.text_input,
                    f"{label} {of_row}",
                    key=field,
                    placeholder=empty,
                    label_visibility="collapsed",
                )
            st.menu_button(
                f"Actions {of_row}",
                current_layout.rule_actions(position, row.table),
                icon=":material/more_vert:",
                type="tertiary",
                key=key,
                on_click=lambda: current_layout.act_on_rule(position, st.session_state[key], row.table),
            )

    def _draw_state_specs(self, entry: ModelEntry) -> None:
        st.markdown(
            "**State specs** &ensp; :small[path → PartitionSpec]",
            help="The first regular expression that is found in the path of an array decides. For each "
            "dimension a mesh axis, several joined by +, or None. `fsdp(data)` shards the largest dimension "
            "of arrays above 4 MiB, `fsdp(data, 0)` that of all arrays.",
        )
        names = self._mesh_axis_names()
        for position, row in enumerate(current_layout.rule_rows("pattern")):
            self._draw_row(row, position, ("Pattern", "PartitionSpec", "row", "regular expression"))
            slot = st.empty()
            self._pattern_slots[st.session_state[row.name_key] or ""] = slot
            try:
                layouts.parse_spec_row(row.text(), names)
            except InvalidInput as error:
                _show_problem(str(error), slot)
        if entry.other_specs:
            st.caption("The code of the model decides for other paths.")
        self._below_patterns = st.container()
        _add_button("Add pattern", current_layout.add_pattern)

    def _show_matches(self, planned: Snapshot) -> None:
        """Show below each row the number of arrays that it decides, and the paths that match no row."""
        counts = Counter(array.pattern for array in planned.arrays)
        if self._problems.get("state_specs") is None:
            for pattern, slot in self._pattern_slots.items():
                slot.caption(counted(counts[pattern], "array"))
        paths = [finding.array for finding in planned.findings if finding.code == UNMATCHED]
        if paths and self._below_patterns is not None:
            more = f", and {len(paths) - _MOST_PATHS} more" if len(paths) > _MOST_PATHS else ""
            listed = ", ".join(path or "" for path in paths[:_MOST_PATHS])
            self._below_patterns.warning(
                plain(f"{counted(len(paths), 'array')} without a match: {listed}{more}"),
                icon=":material/rule:",
            )

    def _draw_specs(self, entry: ModelEntry) -> None:
        if not entry.partitions:
            st.caption("The code of the model gives the PartitionSpecs.")
            return
        st.markdown(
            "**PartitionSpecs** &ensp; :small[one entry per dimension]",
            help="For each dimension a mesh axis, several axes joined by +, or None.",
        )
        names = self._mesh_axis_names()
        for place, dimensions in entry.partitions.items():
            key = current_layout.spec_key(place)
            kept_field.draw(st.text_input, f"{place} ({', '.join(dimensions)})", key=key)
            try:
                layouts.parse_spec(st.session_state[key], place, entry, names)
            except InvalidInput as error:
                _show_problem(str(error))

    def _draw_sizes(self, entry: ModelEntry) -> None:
        others = [size for size in entry.sizes if size.name in TRAINING_SIZES]
        of_model = [size for size in entry.sizes if size not in others]
        shown = [size for size in of_model if size.name in MAIN_SIZES or entry.own]
        inner = [size for size in of_model if size not in shown]
        st.markdown("**Sizes**")
        self._draw_side_by_side(shown, explained=False)
        _draw_following(entry)
        if inner:
            with self._drawer("More model sizes", inner) as drawer:
                if drawer.open:
                    self._draw_side_by_side(inner)
        fields = ("steps", "compiler_options")
        with self._drawer("Training and measurement", others, *fields) as drawer:
            if drawer.open:
                self._draw_training(others)

    def _draw_training(self, sizes: list[Size]) -> None:
        for size in sizes:
            _draw_field(size)
            _show_problem(self._problems.get(size.name))
        self._draw_checked(
            st.number_input,
            "steps",
            "Measured steps",
            step=1,
            help="Number of timed train steps and inferences.",
        )
        self._draw_checked(
            st.text_input,
            "compiler_options",
            "Compiler options",
            placeholder="xla_tpu_scoped_vmem_limit_kib=98304",
            help="Options of XLA, `name=value` with commas between them. A plan does not use them.",
        )
        for name, (label, meaning) in _SWITCHES.items():
            kept_field.draw(st.toggle, label, key=f"field:{name}", help=meaning)

    def _draw_checked(
        self, widget: Callable[..., Any], name: str, label: str, *arguments: Any, **settings: Any
    ) -> None:
        """Draw a field, and its problem below it."""
        kept_field.draw(widget, label, *arguments, key=f"field:{name}", **settings)
        _show_problem(self._problems.get(name))

    def _drawer(self, title: str, sizes: list[Size], *more: str) -> Any:
        """Return an expander for these sizes and `more` fields. It opens if one of them has a problem."""
        key = f"drawer:{title}"
        if any(name in self._problems for name in (*(size.name for size in sizes), *more)):
            st.session_state[key] = True
        return st.expander(title, key=key, on_change="rerun")

    def _draw_side_by_side(self, sizes: list[Size], explained: bool = True) -> None:
        """Draw the numbers in rows, and the switches below. `explained`: each with its meaning."""
        numbers = [size for size in sizes if not isinstance(size.default, bool)]
        # The longer names of further sizes have a mark for their meaning.
        with st.grid(2 if explained else 3, min_column_width=_LEAST_FIELD_PX):
            for size in numbers:
                _draw_field(size, explained)
        for size in numbers:
            _show_problem(self._problems.get(size.name))
        for size in sizes:
            if isinstance(size.default, bool):
                _draw_field(size, explained)

    def _draw_size_presets(self, entry: ModelEntry) -> None:
        """Draw the sizes of published models as presets, if there are several."""
        if len(entry.presets) < 2:
            return
        sizes = current_layout.last_layout().sizes
        names = [size.name for size in entry.presets if entry.sizes_of(size) == dict(sizes)]
        current = names[0] if names else None

        def apply(preset: SizePreset) -> None:
            current_layout.put(replace(current_layout.last_layout(), sizes=entry.sizes_of(preset)))

        kept_field.draw_presets("Size", "size_preset", entry.presets, current, apply, in_list=True)

    def _mesh_axis_names(self) -> tuple[str, ...]:
        """Return the mesh axes for rules: the typed names if they are valid, else the last valid ones."""
        state = st.session_state
        try:
            most = layouts.most_devices(state["field:target"])
            return layouts.parse_axes(state["field:axes"], layouts.parse_mesh(state["field:mesh"], most))
        except InvalidInput:
            return current_layout.last_layout().axis_names


def _rule_sets(uploaded: UploadedFile) -> tuple[RuleSet, ...]:
    """Return the lists of rules in an upload. A worker reads it once; until then, draw its progress.

    Return no list before, and none if the file has no rules, with the reason on the page.
    """
    name = uploaded.name

    def start() -> Job[RuleFile]:
        text = uploaded.getvalue().decode("utf-8", errors="replace")
        return user.service().rules(text, name).start()

    request = Request(uploaded.file_id, start, describe=lambda status: Progress(f"Reading {name}"))
    rules: Outcome[RuleFile] = asked.of(_RULE_FILE).ask(request)
    if not asked.show_failure(_RULE_FILE, request.key):
        asked.show_progress(_RULE_FILE)
    return () if rules.result is None else rules.result.sets


def _draw_following(entry: ModelEntry) -> None:
    """Offer the sizes inside a block that follow from the width of the model, if they do not."""
    layout = current_layout.last_layout()
    found = None if entry.own else published.following(layout.sizes, entry.presets)
    if found is None or layout.model != entry.name:
        return
    sizes, preset = found
    before = ", ".join(f"{name} {layout.sizes[name]}" for name in sizes)
    text = ", ".join(f"{name} {value}" for name, value in sizes.items())
    st.markdown(plain(f"embed {layout.sizes['embed']} has {before}."))
    changed = replace(layout, sizes={**layout.sizes, **sizes})
    help = f"The proportions of {preset.name}."
    buttons.draw(f"Use {text}", "following", "straighten", current_layout.put, changed, help=help)


def _draw_field(size: Size, explained: bool = True) -> None:
    key, label = current_layout.size_key(size.name), size.name.replace("_", " ").capitalize()
    st.session_state.setdefault(key, size.default)
    meaning = f"{capitalized(size.meaning)}."
    common: dict[str, Any] = {"key": key, "help": meaning if explained else None}
    if isinstance(size.default, bool):
        kept_field.draw(st.toggle, label, **common)
    elif isinstance(size.default, str) and not size.choices:
        kept_field.draw(st.text_input, label, **common)
    elif isinstance(size.default, str):
        more = size.normalize is not None
        kept_field.draw(st.selectbox, label, size.choices, accept_new_options=more, **common)
    elif isinstance(size.default, int):
        kept_field.draw(st.number_input, label, step=1, **common)
    else:
        kept_field.draw(st.number_input, label, format="%g", step=size.default, **common)


def _add_button(label: str, add: Callable[[], None]) -> None:
    key = label.lower().replace(" ", "_")
    st.button(label, key=key, icon=":material/add:", type="tertiary", on_click=add)


def _show_problem(text: str | None, place: DeltaGenerator | None = None) -> None:
    if text:
        (place or st).markdown(f":red[:material/error: :small[{plain(text)}]]")


def _split_over(finding: Finding, planned: Snapshot) -> tuple[str, ...]:
    """Return the mesh axes over which the plan shards the dimension of a finding."""
    spec = planned.array(finding.array).spec if finding.array is not None else None
    dimension = finding.dimension
    return (spec[dimension] or ()) if spec is not None and dimension is not None else ()
