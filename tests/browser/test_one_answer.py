"""One layout has the same figures in the head of its page, in its tabs, on the board and in its report."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from inspector import layout as layouts
from inspector.machines import targets
from tests.browser.dashboard import PATIENCE_MS, Dashboard

pytestmark = pytest.mark.nightly

MLP = "depth=64&layers=2&steps=2"
TRANSFORMER = (
    "model=transformer&layers=2&embed=64&mlp=128&heads=4&kv_heads=4&head_dim=16&vocab=128&seq=32&scan=true"
    "&mesh=2x4&axes=fsdp,tensor&rules=batch=fsdp,embed=fsdp,heads=tensor,mlp=tensor"
)
CASES = {
    "emulated": MLP,
    "plan on a chosen chip": f"{TRANSFORMER}&target=plan&chip=v5e",
    "v5e": f"{MLP}&target=tpu:v5e:2x4",
}


@pytest.fixture(params=CASES)
def layout_page(request: pytest.FixtureRequest, open_dashboard) -> Dashboard:
    query = CASES[request.param]
    target = dict(part.partition("=")[::2] for part in query.split("&")).get("target", "cpu")
    machine = layouts.parse({"target": target}).unwrap().machine
    if machine is not None and (missing := targets.missing_compiler(machine)):
        pytest.skip(missing)
    dashboard = open_dashboard(f"?{query}")
    if target == "plan":
        dashboard.expect_badge("Planned, not compiled")
    elif target == "cpu":
        dashboard.run()
    else:
        dashboard.start_run()
        dashboard.expect_badge("Compiled, not run")
    return dashboard


def head(dashboard: Dashboard) -> dict[str, str]:
    """Return the figures of the head by what they are, such as `4.5 MiB` and `1.3 ms`."""
    # The programs of a plan are partitioned in the background.
    dashboard.page.wait_for_function(
        "[...document.querySelectorAll('[data-testid=stMetric]')].slice(0, 3)"
        ".every(metric => !/unknown|computing/i.test(metric.innerText))"
    )
    dashboard.settle()
    shown = dashboard.main().get_by_test_id("stMetric").all()[:3]
    lines = [[line for line in locator.inner_text().splitlines() if line.strip()] for locator in shown]
    needed, step, sent = (line[-1] for line in lines)
    return {
        "memory": needed.partition(" of ")[0].strip(),
        "step": step.strip().removeprefix("about "),
        "traffic": sent.strip().removeprefix("up to "),
    }


def test_every_place_has_the_same_figures(layout_page: Dashboard, tmp_path: Path) -> None:
    figures = head(layout_page)
    assert all(re.fullmatch(r"[\d.,]+ ?(B|[KMG]iB|µs|ms|s)", text) for text in figures.values()), figures
    for tab, figure in (("Memory", "memory"), ("Time", "step"), ("Communication", "traffic")):
        layout_page.open_tab(tab)
        layout_page.settle()
        assert figures[figure] in layout_page.main().inner_text(), (tab, figure)
    layout_page.pin("A")
    layout_page.choose_preset("FSDP")
    layout_page.pin("B")
    layout_page.open_board()
    table = layout_page.keyed("board_table").inner_text()
    picture = str(layout_page.wait_for_figure("glance"))
    for name, text in figures.items():
        assert text in table, (name, text)
        assert text in picture, (name, text)
    layout_page.open_share()
    with layout_page.page.expect_download(timeout=PATIENCE_MS) as download:
        layout_page.page.get_by_role("button", name="HTML").click()
    path = tmp_path / "report"
    download.value.save_as(path)
    report = html.unescape(path.read_text())
    for name, text in figures.items():
        assert text in report, (name, text)
