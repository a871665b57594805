"""The library: named Snapshots and Boards with notes, in one SQLite file.

Browser tabs, servers and commands can use it at the same time. Each use is one transaction and waits for
another that writes. Unlike a cache, the library never deletes anything by itself. A file that is damaged,
newer, or of another program is refused and left unchanged, unless the user moves it aside.
"""

from inspector.service.library.entry import BOARD, LONGEST_NAME, LONGEST_NOTE, Entry
from inspector.service.library.file import Unreadable
from inspector.service.library.kept import Library, NameTaken
