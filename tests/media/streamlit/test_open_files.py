"""The server raises the limit on open files, which is 256 on macOS."""

from __future__ import annotations

import resource

from inspector.media.streamlit import server


def test_the_limit_on_open_files_is_raised() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        server._allow_open_files()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert soft == (min(server.OPEN_FILES, hard) if hard > 0 else server.OPEN_FILES)
        server._allow_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
