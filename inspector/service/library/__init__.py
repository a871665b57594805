"""Snapshots kept by name, with a note each, in one SQLite file that nobody has to serve.

Any number of browser tabs, servers and commands use it at once: each use opens the file, does one
transaction and closes it, and waits for another that writes. Unlike the answers of compilers, what is here
cannot be made again, so that nothing is ever thrown away unasked: a file that is damaged, is of a newer form
or belongs to somebody else is refused with a sentence and stays as it is, unless it is moved aside.
"""

from inspector.service.library.entry import LONGEST_NAME, LONGEST_NOTE, Entry
from inspector.service.library.file import FOLDER_VARIABLE, Unreadable
from inspector.service.library.kept import Library, NameTaken

__all__ = [
    "FOLDER_VARIABLE",
    "LONGEST_NAME",
    "LONGEST_NOTE",
    "Entry",
    "Library",
    "NameTaken",
    "Unreadable",
]
