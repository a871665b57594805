"""Blank lines between the parts of a Python file, as PEP 8 has them."""

from __future__ import annotations

import ast


def spaced(text: str) -> str:
    """The source with two blank lines around top-level classes and functions, elsewhere at most one."""
    lines = text.split("\n")
    written, last = "", 0
    after_definition = False
    for node in ast.parse(text).body:
        chunk = lines[last : node.end_lineno]
        blank = 0
        while not chunk[blank].strip():
            blank += 1
        is_definition = isinstance(node, (ast.ClassDef, ast.FunctionDef))
        gap = 2 if is_definition or after_definition else min(blank, 1)
        written += "\n" * (gap if written else 0) + "\n".join(chunk[blank:]) + "\n"
        last, after_definition = node.end_lineno, is_definition
    return written
