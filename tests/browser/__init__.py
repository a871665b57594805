"""Tests that drive the real app in a real browser."""

import pytest

# Failures in the methods of a page show the values that it had.
pytest.register_assert_rewrite("tests.browser.dashboard")
