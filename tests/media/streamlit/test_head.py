"""The head of the Layout page: figures with their changes, a rejected layout, and unknown names."""

from __future__ import annotations

import re
import sys
from collections import Counter

from streamlit.runtime.scriptrunner.script_runner import ScriptRunner

from benchmarks.processes import until
from inspector import audit
from inspector import layout as layouts
from inspector.assessment import assess
from inspector.audit.unused_rules import NEVER_USED
from inspector.jobs import inspection
from inspector.jobs.inspection import Inspection
from inspector.jobs.request import Request
from inspector.layout.plan import plan
from inspector.media.streamlit.panels import improve_panel, snapshot_panels, summary_panel
from inspector.media.streamlit.session import chip_choice, current_layout
from inspector.tracing.model.abstract import abstract_state
from tests.media.streamlit.drawn_figures import figures
from tests.media.streamlit.scripted_page import PATIENCE
from tests.media.streamlit.session.test_page_programs import FakeJob
from tests.paths import ROOT

SMALL = {"depth": "64", "layers": "2", "target": "plan"}


def with_programs(page) -> None:
    """Redraw the page until the programs of its layout are known: a change needs figures of one kind."""

    def known() -> bool:
        page.test.run()
        return not any(map(computing, page.test.metric))

    until(known, "the programs of the layout")


def computing(metric) -> bool:
    """Whether the value of a figure is not that of the layout."""
    return "computing" in metric.delta or ":gray[" in metric.value


def state_line(page) -> str:
    (line,) = [one.value for one in page.test.main.caption if "per device" in one.value]
    return line


def test_figures_show_the_change_since_the_last_edit(open_page):
    page = open_page(**SMALL)
    with_programs(page)
    assert not any(metric.delta for metric in page.test.metric)
    assert "→" not in state_line(page)
    page.type(page.rule_key(1, "axes"), "")
    with_programs(page)
    memory, *_, findings = page.test.metric
    assert "→" in memory.delta and "→" in state_line(page)
    assert not findings.delta, "improvements, and not the findings, are counted"
    page.type("field:mesh", "2x")
    assert "→" in page.test.metric[0].delta, "an invalid field changes no figure"


def test_the_last_figures_stay_until_the_next_are_computed(open_page, monkeypatch):
    page = open_page(**SMALL, chip="v5e")
    with_programs(page)
    shown = [metric.value for metric in page.test.metric]
    assert "unknown" not in shown
    job = FakeJob((), error="No rule for op.")
    with monkeypatch.context() as patch:
        patch.setattr(
            Inspection, "programs", lambda _, layout, *__, **___: Request(layout.key(), lambda: job)
        )
        page.type(page.rule_key(1, "axes"), "data")
        assert [metric.value for metric in page.test.metric] == [f":gray[{one}]" for one in shown]
        assert all(map(computing, page.test.metric))
        page.choose("field:model", "mlp")  # its own figures were never computed
        assert [metric.value for metric in page.test.metric] == [":gray[computing]"] * 4
        job.state = "failed"
        with_programs(page)
        assert page.test.metric[1].value == page.test.metric[2].value == "unknown"


def test_what_needs_no_program_is_not_computed(open_page, monkeypatch):
    monkeypatch.setattr(
        Inspection, "programs", lambda _, layout, *__, **___: Request(layout.key(), lambda: FakeJob(()))
    )
    page = open_page(**SMALL)
    assert [computing(metric) for metric in page.test.metric] == [True, False, True, True]
    assert page.test.metric[1].value == "unknown", "no chip is chosen"
    page.type("field:mesh", "3x2")
    assert not any(map(computing, page.test.metric)), "JAX rejects the layout"


def test_layouts_of_another_model_are_not_compared(open_page):
    page = open_page(**SMALL)
    with_programs(page)
    page.choose("field:model", "mlp")
    with_programs(page)
    assert "→" not in state_line(page) and not any(metric.delta for metric in page.test.metric)


def test_the_interval_of_a_step_leads_to_the_runs_of_its_chip(open_page):
    page = open_page(**SMALL, chip="v5e")
    with_programs(page)
    page.open_panel("Time")
    step = page.test.metric[1]
    assert re.fullmatch(r"Step, predicted, \[.+\]\(accuracy\?chip=v5e \"[^\"]+\"\)", step.label)
    link = next(one for one in page.test.get("page_link") if one.proto.page == "accuracy")
    assert link.proto.query_string == "chip=v5e"


def test_figures_are_compared_with_the_last_pinned_layout(open_page):
    page = open_page(**SMALL)
    with_programs(page)
    first = page.test.metric[0].value
    page.press("pin")
    page.type(page.rule_key(1, "axes"), "")
    with_programs(page)
    second = page.test.metric[0].value
    page.type(page.rule_key(0, "axes"), "")
    with_programs(page)
    pinned = page.test.session_state["board"].pins[-1].name
    assert page.test.metric[0].delta.split(" ")[0] == first.split(" ")[-2]
    assert pinned in state_line(page).replace("\\", "") and first != second


def test_an_unknown_layout_has_no_baseline(open_page):
    page = open_page(**SMALL)
    kept = page.test.session_state[summary_panel._SHOWN]
    assert list(kept) == [page.test.session_state["last_layout"].key()]


def test_a_rejected_layout_has_its_reason_and_a_fix(open_page):
    page = open_page(**SMALL | {"mesh": "3x2"})
    assert any("JAX rejects this layout" in error for error in page.errors())
    assert page.test.button(key="run_button").disabled
    fixes = [one for one in page.test.button if one.key == "fix_rejected"]
    if fixes:
        page.press("fix_rejected")
        assert page.test.session_state["last_layout"] != layouts.parse({**SMALL, "mesh": "3x2"})


def test_a_layout_that_jax_accepts_can_be_built(open_page):
    page = open_page(depth="64", layers="2")
    assert not page.errors() and not page.test.button(key="run_button").disabled


def test_a_rule_with_an_unknown_name_is_on_the_first_screen(open_page):
    page = open_page(**SMALL, rules="batch=data,hiddn=model")
    (fix,) = [one for one in page.test.button if (one.key or "").startswith("fix_name:")]
    assert any("hiddn" in one.value for one in page.test.main.markdown)
    page.press(fix.key)
    assert "hiddn" not in dict(page.test.session_state["last_layout"].rules)
    assert not [one for one in page.test.button if (one.key or "").startswith("fix_name:")]
    layout = page.test.session_state["last_layout"]
    findings = audit.ranked(plan(layout, abstract_state(layout)))
    assert NEVER_USED not in {finding.code for finding in findings}


def counts_on_the_tab(page) -> list[str]:
    styles = [one.proto.body for one in page.test.get("html")]
    return [count for style in styles for count in re.findall(r'content: "(\d+)"', style)]


def test_the_last_tab_has_the_number_of_errors_and_warnings(open_page):
    page = open_page(**SMALL)
    assert counts_on_the_tab(page) == []
    page.type(page.rule_key(1, "axes"), "")
    with_programs(page)
    service, layout = inspection.shared(), page.test.session_state["last_layout"]
    counted = assess(service.with_programs(service.plan(layout), layout)).findings
    assert counts_on_the_tab(page) == [str(counted.error + counted.warning)] != ["0"]


def test_the_tab_is_open_again_on_return_from_another_page(monkeypatch):
    state = SessionState(on_layout_page=False, last_tab="Memory")
    state["last_layout"] = layouts.parse(SMALL).unwrap()
    for module in (current_layout.st, chip_choice.st):
        monkeypatch.setattr(module, "session_state", state)
    current_layout.begin(on_layout_page=True, tabs=snapshot_panels.PANELS)
    assert state[current_layout.TABS_KEY] == "Memory"


class SessionState(dict):
    """A session's state outside of a session."""

    __getattr__ = dict.get
    __setattr__ = dict.__setitem__


def test_the_best_fixes_are_on_the_first_tab(open_page):
    page = open_page(**SMALL, rules="batch=data")
    fixes = [one.key for one in page.test.button if (one.key or "").startswith("improvement:")]
    assert 1 < len(fixes) <= improve_panel.MOST_ON_SUMMARY  # findings of one mistake are one entry
    assert "findings_changes" not in page.test.session_state, "no fix is searched for the page"
    before = page.test.session_state["last_layout"]
    page.press(fixes[0])
    assert page.test.session_state["last_layout"] != before
    assert len(page.test.session_state["board"].pins) == 1


def test_arrays_are_sorted_by_bytes_per_device(open_page):
    page = open_page(**SMALL)
    page.open_panel("Arrays")
    with_programs(page)
    *_, table = [one.value for one in page.test.dataframe]
    sizes = list(table["Bytes per device"])
    assert sizes == sorted(sizes, reverse=True) and list(table).index("Bytes per device") == 1
    assert sorted(chart.key for chart in figures(page.test)) == ["block_map", "mesh_map", "verdict"]


def test_the_menu_share_has_the_link_of_the_page(open_page):
    page = open_page(**SMALL, tab="memory")
    (link,) = [one.value for one in page.test.main.code if "depth=64" in one.value]
    assert "tab=memory" in link and "target=plan" in link


def test_an_edit_to_a_known_layout_calls_few_functions(page, monkeypatch):
    calls: Counter[str] = Counter()

    def count(frame, event, _):
        resumed = frame.f_code.co_flags & 0x20 and frame.f_lasti > 4  # a generator that goes on
        if event == "call" and not resumed and frame.f_code.co_filename.startswith(str(ROOT / "inspector")):
            calls[frame.f_code.co_name] += 1

    def counted(runner, *arguments, original=ScriptRunner._run_script):
        sys.setprofile(count)
        try:
            original(runner, *arguments)
        finally:
            sys.setprofile(None)

    monkeypatch.setattr(improve_panel, "_AFTER_SECONDS", 0.0)
    for axes in ("data,tensor", "data,model"):
        page.type("field:axes", axes)
        with_programs(page)
        until(lambda: not inspection.shared().pool.jobs(), "the effects of changes", PATIENCE)
        page.test.run()
    monkeypatch.setattr(ScriptRunner, "_run_script", counted)
    page.type("field:axes", "data,tensor")
    assert calls["show"], "the page was drawn while its calls were counted"
    assert calls.total() <= 1530, calls.most_common(20)
