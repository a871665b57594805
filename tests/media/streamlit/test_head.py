"""The head of the Layout page: figures with their changes, a rejected layout, and unknown names."""

from __future__ import annotations

from inspector import layout as layouts
from inspector.checks.audit.unused_rules import NEVER_USED
from inspector.media.streamlit import last_shown

SMALL = {"depth": "64", "layers": "2", "target": "plan"}


def state_line(page) -> str:
    (line,) = [one.value for one in page.test.main.caption if "Copies" in one.value]
    return line


def test_figures_show_the_change_since_the_last_edit(open_page):
    page = open_page(**SMALL)
    assert not any(metric.delta for metric in page.test.metric)
    assert "→" not in state_line(page)
    page.type(page.rule_key(1, "axes"), "")
    memory, *_, findings = page.test.metric
    assert "→" in memory.delta and "→" in state_line(page)
    assert findings.delta.endswith(findings.value)
    page.type("field:mesh", "2x")
    assert "→" in page.test.metric[0].delta, "an invalid field changes no figure"


def test_figures_are_compared_with_the_last_pinned_layout(open_page):
    page = open_page(**SMALL)
    first = page.test.metric[0].value
    page.press("pin")
    page.type(page.rule_key(1, "axes"), "")
    second = page.test.metric[0].value
    page.type(page.rule_key(0, "axes"), "")
    pinned = page.test.session_state["board"].pins[-1].name
    assert page.test.metric[0].delta.split(" ")[0] == first.split(" ")[-2]
    assert pinned in state_line(page).replace("\\", "") and first != second


def test_an_unknown_layout_has_no_baseline(open_page):
    page = open_page(**SMALL)
    kept = page.test.session_state[last_shown._SHOWN]
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
    assert NEVER_USED
