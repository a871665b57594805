"""The panels of findings, rules and devices on plans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inspector import audit
from inspector import layout as layouts
from inspector.jobs.inspection import Inspection
from inspector.jobs.request import Request
from inspector.layout.plan import plan
from inspector.records.snapshot import Effects, LayoutCost, Snapshot
from inspector.sharding import device_holdings
from inspector.tracing.model.abstract import abstract_state
from tests.media.streamlit.drawn_figures import figures
from tests.media.streamlit.scripted_page import widget_of

SCRIPT = """
import streamlit as st
from inspector import layout as layouts
from inspector.records import snapshot
from inspector.media.streamlit.panels import arrays_panels, improve_panel
from inspector.media.streamlit.session import selection, current_layout
from inspector.jobs.request import Request
found = snapshot.read(st.session_state["path"])
layout = None if found.layout is None else layouts.from_json(found.layout)
if layout is not None and "last_layout" not in st.session_state:
    current_layout.put(layout)
SHOW = {
    "findings": improve_panel.show, "rules": arrays_panels.show_rules, "devices": arrays_panels.show_devices,
}
SHOW[st.session_state["of"]](found, layout)
"""

FAULTY = {"rules": "batch=data,embed=model,hidden=model", "depth": "64", "target": "plan"}


def planned(fields: dict[str, str]) -> Snapshot:
    layout = layouts.parse({"layers": "2", **fields}).unwrap()
    return plan(layout, abstract_state(layout))


@pytest.fixture(autouse=True)
def known_effects(monkeypatch) -> None:
    """Let the effects be known, so that no worker starts."""
    effects = Effects("train_step", None, LayoutCost(None, {}, None), ())
    request = Request("effects", lambda: pytest.fail("they are known"), lambda: effects)
    monkeypatch.setattr(Inspection, "effects", lambda *_: request)


@pytest.fixture(scope="module")
def faulty() -> Snapshot:
    return planned(FAULTY)


def said(elements) -> str:
    return " ".join(element.value.replace("\\", "") for element in elements)


def test_findings_have_level_array_and_message(shown, faulty: Snapshot) -> None:
    page = shown(faulty, of="findings")
    text = said(page.markdown) + said(page.caption)
    for finding in audit.audited(faulty).findings:
        assert finding.message.replace("_", " ")[:40] in text.replace("_", " ")
    assert "1 warning, 2 notes" in text
    page.session_state["panel"] = "Improve"
    page.button(key="improve:0:array").click().run()
    assert page.session_state["selected_array"] == audit.audit(faulty)[0].array
    assert page.session_state["panel"] == "Arrays"


def test_a_fix_is_applied_and_the_old_layout_pinned(shown, faulty: Snapshot) -> None:
    page = shown(faulty, of="findings")
    finding = audit.audit(faulty)[0]
    change = audit.smallest_change(faulty, finding, layouts.from_json(faulty.layout))
    assert change.words in said(page.caption)
    page.button(key="improve:0:apply").click().run()
    assert not page.exception
    assert page.session_state["last_layout"] == layouts.from_json(change.layout)
    (pin,) = page.session_state["board"].pins
    assert pin.snapshot.layout == faulty.layout
    # Once it is on the board, it is not pinned again.
    page.button(key="improve:0:apply").click().run()
    assert len(page.session_state["board"].pins) == 1


def test_notes_are_no_success_and_the_checks_are_listed(shown) -> None:
    page = shown(planned({"depth": "64", "target": "plan"}), of="findings")
    assert not page.success
    assert all(question in said(page.markdown) for question in audit.questions())


def test_without_a_layout_there_is_no_fix_and_without_a_mesh_no_check(shown, faulty) -> None:
    page = shown(replace(faulty, layout=None), of="findings")
    assert not [button for button in page.button if button.key.endswith((":apply", ":compare"))]
    assert shown(replace(faulty, mesh=None, layout=None, arrays=()), of="findings").info


def test_the_ledger_of_one_array(shown, faulty: Snapshot) -> None:
    page = shown(faulty, of="rules", selected_array="params/DotReluDot_0/W2")
    text = said(page.markdown)
    assert "| 2, embed → model | 1 embed | **taken** | **taken** |" in text
    assert "mesh axis model is taken by embed (dimension 1) through rule 2" in text
    assert "mesh axis model would split two dimensions, which JAX refuses" in said(page.info)
    assert page.success and not page.warning
    (table,) = [one.value for one in page.dataframe if "Follows" in one.value]
    assert set(table["Follows"]) == {"yes"}


def test_rules_can_be_entered_for_a_snapshot_without_rules(shown, faulty: Snapshot) -> None:
    page = shown(replace(faulty, layout=None), of="rules")
    assert "no rules" in said(page.info)
    page.text_area(key="ledger_rules").set_value("batch=data,embed=model").run()
    assert page.success and not page.warning
    page.text_area(key="ledger_rules").set_value("batch=model").run()
    assert not page.success and page.warning
    page.text_area(key="ledger_rules").set_value("batch").run()
    assert "a rule is a logical axis" in said(page.error)
    nameless = replace(
        faulty, layout=None, arrays=tuple(replace(array, logical_axes=None) for array in faulty.arrays)
    )
    assert "neither logical axes nor rules" in said(shown(nameless, of="rules").info)


def test_contents_of_one_device(shown, faulty: Snapshot) -> None:
    page = shown(faulty, of="devices")
    held = device_holdings.holdings(faulty, [0], ("params", "opt_state", "other"))
    (table,) = [one.value for one in page.dataframe if "Also on" in one.value]
    assert table["Bytes"].sum() == held.bytes
    assert [chart.key for chart in figures(page)] == ["copies_map"]


def test_several_devices(shown, faulty: Snapshot) -> None:
    page = shown(faulty, of="devices", device_which="Several devices", device_devices=[0, 4])
    held = device_holdings.holdings(faulty, [0, 4], ("params", "opt_state", "other"))
    (table,) = [one.value for one in page.dataframe if "Also on" in one.value]
    assert table["Bytes"].sum() == held.bytes
    widget_of(page.multiselect, "device_devices").set_value([]).run()
    assert not page.exception


def test_a_process_can_be_chosen_if_there_are_several(shown, faulty: Snapshot) -> None:
    two = replace(faulty, mesh=replace(faulty.mesh, processes=(0,) * 4 + (1,) * 4))
    page = shown(two, of="devices", device_which="One process", device_process=1)
    (table,) = [one.value for one in page.dataframe if "Also on" in one.value]
    held = device_holdings.holdings(two, [4, 5, 6, 7], ("params", "opt_state", "other"))
    assert table["Bytes"].sum() == held.bytes


def test_a_fix_of_device_axes(shown) -> None:
    snapshot = planned({"model": "mlp", "specs": "W1=None.None", "depth": "64", "target": "plan"})
    page = shown(snapshot, of="findings")
    change = audit.smallest_change(snapshot, audit.audit(snapshot)[0], layouts.from_json(snapshot.layout))
    assert change.words in said(page.caption)
    # Improvements are ordered by what they save, so that of the first finding can be another one.
    for key in [button.key for button in page.button if str(button.key).endswith(":apply")]:
        page = shown(snapshot, of="findings")
        page.button(key=key).click().run()
        assert not page.exception
        if page.session_state["last_layout"] == layouts.from_json(change.layout):
            break
    assert page.session_state["last_layout"] == layouts.from_json(change.layout)
    assert page.session_state["board"].pins[0].snapshot.layout == snapshot.layout
