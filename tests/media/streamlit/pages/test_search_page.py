"""What is searched is in the URL of the page: another session opens it, and nothing runs without a click."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path
from types import SimpleNamespace

import pytest
from streamlit.testing.v1 import AppTest

from inspector.machines import targets
from inspector.media.streamlit.page import page_switch
from inspector.media.streamlit.pages import search_page
from inspector.search import registry, tasks
from tests.media.streamlit.scripted_page import PATIENCE, go_back, widget_of
from tests.search.samples import search_result

SCRIPT = """
from inspector.media.streamlit.pages import search_page
from inspector.media.streamlit.session import current_layout
current_layout.begin(on_layout_page=False)
search_page.show()
"""
SMALL = {"target": "plan", "mesh": "2x2", "depth": "64", "layers": "1", "batch": "16"}
FIELDS = {
    "search-objective": "memory",
    "search-budget": "0",
    "search-locks": "mesh",
    "search-vary": "batch=16,32",
    "search-weights": "train_step=2,apply=1",
    "search-limits": "apply=1s",
    "chip": "v5e",
}


def opened(**query: str) -> AppTest:
    page = AppTest.from_string(SCRIPT, default_timeout=PATIENCE)
    page.query_params.update(query)
    page.run()
    assert not page.exception, [exception.value for exception in page.exception]
    return page


def url(page: AppTest) -> dict[str, str]:
    return {name: "".join(value) for name, value in page.query_params.items() if value}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[registry.SearchRequest]:
    """The searches that are started, and are not run."""
    requests: list[registry.SearchRequest] = []
    monkeypatch.setattr(registry.Searches, "start", lambda _, request, *__: requests.append(request))
    return requests


def test_a_link_opens_the_same_search_and_starts_nothing(service, started) -> None:
    page = opened(**SMALL, **FIELDS)
    assert not page.warning and not page.error and not started
    assert widget_of(page.selectbox, search_page.OBJECTIVE).value == "memory"
    assert widget_of(page.number_input, search_page.BUDGET).value == 0
    assert widget_of(page.text_input, search_page.LOCKS).value == "mesh"
    assert widget_of(page.selectbox, search_page.CHIP).value == "v5e"
    assert widget_of(page.text_input, search_page.WEIGHTS).value == "train_step=2,apply=1"
    assert url(page) == SMALL | FIELDS
    page.button(key="start_search").click().run()
    other = opened(**url(page))
    other.button(key="start_search").click().run()
    first, second = (request.key() for request in started)
    assert first == second
    layout = started[0].space.layout
    assert (layout.mesh_shape, layout.sizes["depth"], layout.target) == ((2, 2), 64, "plan")


def test_wrong_weights_are_named_and_nothing_can_be_started(service) -> None:
    page = opened(**SMALL, **FIELDS | {"search-weights": "decode=1"})
    (error,) = page.error
    assert "decode=1" in error.value
    assert not [button for button in page.button if button.key == "start_search"]


def test_the_url_follows_the_fields_and_back_undoes_them(service) -> None:
    page = opened(**SMALL)
    before = url(page)
    assert before == SMALL | {"search-objective": "time"}
    widget_of(page.text_input, search_page.LOCKS).set_value("rules").run()
    assert url(page) == before | {"search-locks": "rules"}
    page.query_params.clear()
    page.query_params.update(before)
    go_back(page)
    assert widget_of(page.text_input, search_page.LOCKS).value == "" and url(page) == before


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("search-objective", "<b>x</b>"),
        ("search-budget", "201"),
        ("search-budget", "0000000000001"),
        ("search-budget", "-1"),
        ("search-vary", "x" * 3_000),
        ("chip", "v9"),
        ("mesh", "2x"),
        ("model", "__import__('os')"),
        ("unknown", "1"),
    ],
)
def test_a_wrong_value_is_named_and_its_default_is_shown(
    service, user_files: Path, started, name: str, text: str
) -> None:
    page = opened(**(SMALL | {name: text}))
    assert "<b>" not in page.warning[0].value and not started
    assert url(page).get(name) != text


def test_the_best_layout_has_its_actions_once_before_the_pictures(
    service, user_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = SimpleNamespace(running=False, stopped=False, error=None, link=None, result=search_result)
    monkeypatch.setattr(registry.Searches, "get", lambda searches, request: ended)
    page = opened(**SMALL)
    drawn = [getattr(element, "key", None) or element.type for element in page.main]
    assert drawn.index("best_open") < drawn.index("code_button") < drawn.index("search_front")
    assert not [key for key in drawn if key.startswith("row_")]
    page.button(key="code_button").click().run()
    assert not page.exception and len(page.code) == 1


def test_open_leaves_the_page_while_the_search_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    # A click in a fragment reruns the fragment alone.
    opened_pages: list[str] = []
    monkeypatch.setattr(page_switch, "to", opened_pages.append)

    def fragment() -> None:
        from types import SimpleNamespace

        from inspector.media.streamlit.page import page_switch
        from inspector.media.streamlit.pages import search_page

        page_switch.in_next_run(page_switch.LAYOUT)
        search_page._results_so_far(SimpleNamespace(result=lambda: SimpleNamespace(candidates=())))

    page = AppTest.from_function(fragment, default_timeout=PATIENCE).run()
    assert not page.exception and opened_pages == [page_switch.LAYOUT]


@pytest.fixture
def begin(service, no_other_jobs, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The searches of this server evaluate nothing before this is set."""
    event = threading.Event()

    @contextlib.contextmanager
    def executor() -> Iterator[Executor]:
        assert event.wait(PATIENCE)
        with tasks.local() as local:
            yield local

    searches = registry.Searches(executor)
    monkeypatch.setattr(registry, "shared", lambda: searches)
    yield event
    event.set()


def keys(page: AppTest) -> set[str]:
    return {button.key for button in page.button if "other_" in str(button.key)}


def test_a_search_of_another_layout_is_listed_opened_and_cancelled(begin: threading.Event) -> None:
    page = opened(**SMALL, **FIELDS)
    assert not keys(page)
    page.button(key="start_search").click().run()
    assert not keys(page), "it is the one that is shown"
    (watched,) = registry.shared()._queue
    (started_by,) = watched.owners
    link = url(page)
    other = opened(**(SMALL | {"mesh": "4x1"}))  # another tab, or the same one after a change
    assert other.button(key="start_search") and keys(other) == {"other_show:0", "other_cancel:0"}
    other.button(key="other_show:0").click().run()
    assert url(other) == link and not keys(other)
    assert "start_search" not in [button.key for button in other.button]
    page = opened(**(SMALL | {"mesh": "4x1"}))
    page.button(key="other_cancel:0").click().run()
    begin.set()
    assert registry.shared().of(started_by) == [watched]
    assert watched.stopped


def test_without_the_compiler_a_search_partitions_from_the_first_click(service, started, monkeypatch) -> None:
    monkeypatch.setattr(targets, "_COMPILERS", {"tpu": ("no_such_package", "tpu")})
    page = opened(model="logical_mlp", target="tpu:v5e:2x2", mesh="4", axes="data", depth="64", layers="1")
    assert not page.error
    # The field of a search without a compile would have no effect.
    assert search_page.BUDGET not in [field.key for field in page.number_input]
    assert sum("pip install" in caption.value for caption in page.caption) == 1
    page.button(key="start_search").click().run()
    assert [request.budget for request in started] == [0]
