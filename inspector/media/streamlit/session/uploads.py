"""Free the memory of an upload when a page has copied it.

Streamlit keeps it until the session ends, or until the browser says that the user removed the file.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamlit import runtime
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.uploaded_file_manager import UploadedFile

from inspector.media.streamlit.session import user


def manager() -> MemoryUploadedFileManager:
    """Return where Streamlit keeps uploads."""
    kept = runtime.get_instance().uploaded_file_mgr
    assert isinstance(kept, MemoryUploadedFileManager)  # its server has no other
    return kept


def release(uploads: Iterable[UploadedFile]) -> None:
    """Have Streamlit forget uploads of this session. A later run of the page no longer has them."""
    if runtime.exists():
        for upload in uploads:
            manager().remove_file(user.session_id(), upload.file_id)
