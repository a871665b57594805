"""Free the memory of an upload when a page has copied it.

Streamlit keeps it until the session ends, or until the browser says that the user removed the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streamlit import runtime
from streamlit.runtime.uploaded_file_manager import UploadedFile

from inspector.media.streamlit.session import user


def manager() -> Any:
    """Return where Streamlit keeps uploads. The type that it declares lacks what its server has."""
    return runtime.get_instance().uploaded_file_mgr


def release(uploads: Iterable[UploadedFile]) -> None:
    """Have Streamlit forget uploads of this session. A later run of the page no longer has them."""
    if runtime.exists():
        for upload in uploads:
            manager().remove_file(user.session_id(), upload.file_id)
