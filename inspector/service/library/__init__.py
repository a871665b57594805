"""The library: named Snapshots and Boards with notes.

Unlike a cache, the library never deletes anything by itself.
"""

from inspector.service.library.entry import LONGEST_NAME, LONGEST_NOTE, LibraryEntry
from inspector.service.library.kept import Library, NameTaken, NameUnknown, Unreadable
