"""Python source with what a layout has decided left out: branches never taken, fields never read.

Edits are made to the text, one after the other, so that comments and line breaks stay as they were written.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
from collections.abc import Iterable, Mapping

# Let the inspector see into a model; a script has nobody who looks.
_HOOKS = ("watch", "watch_gradients")
# An argument whose comment speaks of hooks. It stays, because random numbers depend on it.
_FOR_HOOKS = "check_constancy_invariants"

_INDENT = 4


def without_branches(text: str, known: Mapping[str, bool]) -> str:
    """The source without hooks, and without the branches that `known` decides against.

    known: a condition as `ast.unparse` writes it → whether it holds.
    """
    return _without_branches(text, tuple(known.items()))


@functools.lru_cache(maxsize=512)  # some 30 definitions a model, and a choice of branches each
def _without_branches(text: str, known: tuple[tuple[str, bool], ...]) -> str:
    while (shorter := _one_edit(text, dict(known))) is not None:
        text = shorter
    return text


def without_unread_fields(text: str) -> str:
    """The source without fields of its classes that nobody reads, and without handing them on.

    A field handed on is an element `self.FIELD` of a tuple. Fields with a default stay.
    """
    for name in _unread(text):
        text = _without_field(text, name)
    return text


def fields_of(text: str, class_name: str) -> tuple[str, ...]:
    """The annotated names of a class, in order."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            return tuple(field.target.id for field in _fields(node))
    raise ValueError(f"the source has no class {class_name}")


def _one_edit(text: str, known: Mapping[str, bool]) -> str | None:
    """The source after the first edit that there is to make; None if there is none."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and _calls(node.value, _HOOKS):
            return _without_lines(text, node.lineno, node.end_lineno)
        if isinstance(node, ast.keyword) and node.arg == _FOR_HOOKS:
            first = _with_comment(text, node.lineno)
            if first < node.lineno:
                return _without_lines(text, first, node.lineno - 1)
        if isinstance(node, ast.If) and (holds := _truth(node.test, known)) is not None:
            return _with_branch(text, node, holds)
        if isinstance(node, ast.IfExp) and (holds := _truth(node.test, known)) is not None:
            kept = node.body if holds else node.orelse
            return _replaced(text, node, ast.get_source_segment(text, kept))
        if isinstance(node, ast.UnaryOp) and (holds := _truth(node, known)) is not None:
            return _replaced(text, node, str(holds))
        statements = getattr(node, "body", ())
        if not isinstance(statements, list):
            continue  # a lambda has an expression there
        for before, after in itertools.pairwise(statements):
            if _is_overwritten(before, after):
                return _without_lines(text, before.lineno, before.end_lineno)
    return None


def _truth(test: ast.expr, known: Mapping[str, bool]) -> bool | None:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _truth(test.operand, known)
        return None if inner is None else not inner
    return known.get(ast.unparse(test))


def _calls(node: ast.expr, names: Iterable[str]) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def _is_overwritten(before: ast.stmt, after: ast.stmt) -> bool:
    """Whether a name gets a value and then at once another one, made without the first."""
    one, other = _assigned(before), _assigned(after)
    if one is None or one != other:
        return False
    return all(not isinstance(n, ast.Name) or n.id != one for n in ast.walk(after.value))


def _assigned(node: ast.stmt) -> str | None:
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        target = node.target
    else:
        return None
    return target.id if isinstance(target, ast.Name) else None


def _with_branch(text: str, node: ast.If, holds: bool) -> str:
    """The source with one branch of `node` in its place, the comments in the branch included."""
    lines = text.split("\n")
    start, end = node.lineno, node.end_lineno
    if holds:
        kept = lines[node.test.end_lineno : node.body[-1].end_lineno]
    elif node.orelse:
        marker = node.body[-1].end_lineno
        while lines[marker].strip() != "else:":
            marker += 1
        kept = lines[marker + 1 : node.orelse[-1].end_lineno]
    else:
        kept = []
    dedented = [line[_INDENT:] if line.startswith(" " * _INDENT) else line for line in kept]
    return "\n".join([*lines[: start - 1], *dedented, *lines[end:]])


def _unread(text: str) -> list[str]:
    tree = ast.parse(text)
    handed_on = {id(element) for element in _handed_on(tree)}
    read = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and id(node) not in handed_on
    }
    declared = [
        field.target.id
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for field in _fields(node)
        if field.value is None
    ]
    return [name for name in dict.fromkeys(declared) if name not in read]


def _handed_on(tree: ast.AST) -> list[ast.Attribute]:
    return [
        element
        for node in ast.walk(tree)
        if isinstance(node, ast.Tuple)
        for element in node.elts
        if isinstance(element, ast.Attribute) and ast.unparse(element.value) == "self"
    ]


def _without_field(text: str, name: str) -> str:
    while True:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                found = next((one for one in _fields(node) if one.target.id == name), None)
                if found is not None:
                    text = _without_lines(text, found.lineno, found.end_lineno)
                    break
            if isinstance(node, ast.Tuple):
                kept = [one for one in node.elts if ast.unparse(one) != f"self.{name}"]
                if len(kept) < len(node.elts):
                    parts = ", ".join(ast.get_source_segment(text, one) or "" for one in kept)
                    text = _replaced(text, node, f"({parts}{',' * (len(kept) == 1)})")
                    break
        else:
            # What a docstring says of the field, as a paragraph of its own.
            return re.sub(rf'\n\n    {re.escape(name)}: [^\n]*\n    """', '"""', text)


def _fields(node: ast.ClassDef) -> list[ast.AnnAssign]:
    return [
        one
        for one in node.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    ]


def _with_comment(text: str, line: int) -> int:
    """The number of the first line of the comment above a line, or of the line itself."""
    lines = text.split("\n")
    while lines[line - 2].strip().startswith("#"):
        line -= 1
    return line


def _without_lines(text: str, first: int, last: int | None) -> str:
    lines = text.split("\n")
    return "\n".join([*lines[: first - 1], *lines[last:]])


def _replaced(text: str, node: ast.expr, by: str | None) -> str:
    """The source with other text in place of an expression; `ast` counts columns in bytes."""
    lines = text.encode().split(b"\n")
    before = lines[node.lineno - 1][: node.col_offset]
    after = lines[node.end_lineno - 1][node.end_col_offset :]
    middle = before + (by or "").encode() + after
    return b"\n".join([*lines[: node.lineno - 1], middle, *lines[node.end_lineno :]]).decode()
