"""Free the memory of an upload when a page has copied it.

Streamlit keeps it until the session ends, or until the browser says that the user removed the file.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamlit import runtime
from streamlit.runtime.uploaded_file_manager import UploadedFile

from inspector.media.streamlit.session import user


def release(uploads: Iterable[UploadedFile]) -> None:
    """Have Streamlit forget uploads of this session. A later run of the page no longer has them."""
    if runtime.exists():
        for upload in uploads:
            runtime.get_instance().uploaded_file_mgr.remove_file(user.session_id(), upload.file_id)
