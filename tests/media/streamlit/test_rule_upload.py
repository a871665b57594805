"""A file of rules is read once, by a worker."""

from __future__ import annotations

import time
from typing import Any
from unittest import mock

import pytest

from inspector.jobs.inspection import Inspection
from inspector.layout import rule_files
from tests.hostile.small_files import BOMB
from tests.media.streamlit.scripted_page import PATIENCE

pytestmark = pytest.mark.usefixtures("without_programs")

RULES = b"mesh_axes: [data, tensor]\nlogical_axis_rules: [[batch, data], [hidden, tensor]]\n"


def upload(page: Any, name: str, content: bytes) -> None:
    page.open("drawer:Advanced")
    page.test.get("file_uploader")[0].set_value((name, content, "text/plain")).run()
    until = time.monotonic() + PATIENCE
    while page.test.session_state["asked:rule_file"].job is not None and time.monotonic() < until:
        time.sleep(0.05)
        page.test.run()
    page.test.run()
    page._check()


def test_rules_of_a_file_are_applied(page: Any) -> None:
    original = Inspection.rules
    with (
        mock.patch.object(rule_files, "rule_sets", side_effect=AssertionError("in the server")),
        mock.patch.object(Inspection, "rules", autospec=True, side_effect=original) as started,
    ):
        upload(page, "base.yml", RULES)
        page.press("rule_set:0")
        page.type("field:mesh", "4x2")
    assert started.call_count == 1
    assert page.rules() == [("batch", "data"), ("hidden", "tensor")]


@pytest.mark.parametrize(
    ("name", "content"), [("bomb.yaml", BOMB), ("a.yml", b"rules: ["), ("a.yml", b"\xff\xfe")]
)
def test_a_file_that_is_refused_is_explained(page: Any, name: str, content: bytes) -> None:
    upload(page, name, content)
    (error,) = page.errors()
    assert name in error
    upload(page, "base.yml", RULES)
    assert not page.errors()
    assert page.test.button(key="rule_set:0")
