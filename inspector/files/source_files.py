"""Whose a source file is: of the program, or of a library that it calls."""

import functools
import re

# Folders of installed packages and of Python itself. A program may have been recorded on Windows.
_LIBRARY = re.compile(r"[\\/](site-packages|dist-packages|lib[\\/]python\d+\.\d+)[\\/]|\A<frozen", re.I)


@functools.lru_cache(maxsize=4096)
def is_library(file: str) -> bool:
    """Return whether a file is of an installed package or of Python.

    >>> is_library("/venv/lib/python3.11/site-packages/keras/src/ops/numpy.py"), is_library("/me/train.py")
    (True, False)
    """
    return _LIBRARY.search(file) is not None
