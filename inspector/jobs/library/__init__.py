"""The library: named Snapshots and Boards with notes.

Unlike a cache, the library never deletes anything by itself.
"""

from inspector.jobs.library.entry import LONGEST_NAME, LONGEST_NOTE, LibraryEntry
from inspector.jobs.library.kept import Library, NameTaken, NameUnknown, Unreadable
