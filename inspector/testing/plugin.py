"""The plugin for pytest, which an installed package registers as an entry point."""

from collections.abc import Iterator

import pytest

from inspector import testing


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes lock files."""
    group = parser.getgroup("sharding-inspector")
    group.addoption(
        testing.UPDATE,
        action="store_true",
        default=False,
        help="write the lock files of inspector.testing.sharding_lock instead of comparing with them",
    )


def pytest_sessionstart() -> None:
    """Forget what another run of pytest in this process has written."""
    testing.run.written.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let paths of a test begin at its folder."""
    run = testing.run
    before = run.folder, run.test, run.update
    run.folder, run.test, run.update = item.path.parent, item.nodeid, item.config.getoption(testing.UPDATE)
    try:
        return (yield)
    finally:
        run.folder, run.test, run.update = before
