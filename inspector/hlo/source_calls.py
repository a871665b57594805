"""Which collective of JAX an expression in a source file calls.

JAX gives an operation that autodiff adds the line of the operation that is differentiated. So the name stack
alone does not say whether the code has a `psum` in that line: its text does.
"""

import ast
import functools
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from inspector.hlo.module import reach

# Functions of `jax.lax` that run a collective, and the primitives of each.
CALLS = {
    "psum": ("psum", "psum_invariant"),
    "pmean": ("psum", "psum_invariant"),
    "pmax": ("pmax",),
    "pmin": ("pmin",),
    "pargmax": ("pmax", "pmin"),
    "pargmin": ("pmax", "pmin"),
    "all_gather": ("all_gather",),
    "all_gather_invariant": ("all_gather_invariant",),
    "psum_scatter": ("reduce_scatter", "psum_scatter"),
    "all_to_all": ("all_to_all",),
    "pswapaxes": ("all_to_all",),
    "ragged_all_to_all": ("ragged_all_to_all",),
    "ppermute": ("ppermute",),
    "pshuffle": ("ppermute",),
    "pbroadcast": ("pbroadcast",),
}
PRIMITIVES = frozenset(primitive for primitives in CALLS.values() for primitive in primitives)
_LARGEST = 4 * 2**20  # bytes of a source file


def functions_of(primitive: str) -> list[str]:
    """Return the functions of `jax.lax` that run a primitive, such as `psum_scatter` for reduce_scatter."""
    return [function for function, primitives in CALLS.items() if primitive in primitives]


class Written(NamedTuple):
    """The call at a place in the code.

    collective: the function that it calls, such as `pmean`; "" if it calls none.
    own_rule: whether it calls a function that can have a custom derivative rule. JAX gives the
      operations of such a rule the place of the call.
    """

    collective: str
    own_rule: bool


class _Names(NamedTuple):
    """Names of a file: collectives by their other name, functions with `defvjp`, and imports.

    ruled: first and last line of each function with `custom_gradient` or `custom_vjp`.
    """

    renamed: dict[str, str]
    with_rule: frozenset[str]
    imported: frozenset[str]
    ruled: tuple[tuple[int, int], ...]


def written_at(file: str, line: int, column: int | None) -> Written | None:
    """Return the source text at a place; None if the file or the line cannot be read.

    Args:
      file: path of a Python file of this machine.
      column: start of the expression, from 0. None if unknown: then all of the statement counts.
    """
    try:
        status = os.stat(file)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST or not file.endswith(".py"):
        return None
    parsed = _parsed(file, status.st_mtime_ns)
    statement = None if parsed is None else _statement(parsed[0], line)
    if parsed is None or statement is None:
        return None
    names = parsed[1]
    if any(first <= line <= last for first, last in names.ruled):
        return Written("", True)  # JAX gives the calls of the rule the place of the function
    nodes = list(_own_nodes(statement))
    starts = [node for node in nodes if _starts(node, line, column)]
    if not starts:
        calls = [node.func for node in nodes if isinstance(node, ast.Call)]
        mentioned = next(_mentioned(statement, names.renamed, calls=True), "")
    else:
        calls = [node.func for node in starts if isinstance(node, ast.Call)]
        called = (_named(function, names.renamed) for function in calls)
        passed = (name for node in starts for name in _mentioned(node, names.renamed, calls=False))
        mentioned = next(filter(None, (*called, *passed)), "")
    own_rule = any(
        _dotted(function)[-1:] == [name] or _dotted(function)[:1] == [name]
        for function in calls
        for name in (names.with_rule | names.imported)
    )
    return Written(mentioned, own_rule)


@functools.lru_cache(maxsize=64)
def _parsed(file: str, changed: int) -> tuple[ast.Module, _Names] | None:
    """Return the syntax tree of a file, and the names in it. `changed` is its time of modification."""
    try:
        with open(file, encoding="utf-8") as opened:
            tree = ast.parse(opened.read())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    renamed: dict[str, str] = {}
    with_rule, imported, ruled = set(), set(), []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = getattr(node, "module", None)
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                if isinstance(node, ast.ImportFrom) and alias.name in CALLS:
                    renamed[name] = alias.name
                if (module or alias.name).partition(".")[0] != "jax":
                    imported.add(name)
        elif isinstance(node, ast.Attribute) and node.attr == "defvjp":
            with_rule |= {*_dotted(node.value)[-1:]}
        elif isinstance(node, ast.FunctionDef):
            marks = {name for mark in node.decorator_list for name in ast.unparse(mark).split(".")}
            if marks & {"custom_gradient", "custom_vjp"}:
                ruled.append((node.lineno, node.end_lineno or node.lineno))
    return tree, _Names(renamed, frozenset(with_rule), frozenset(imported), tuple(ruled))


def _dotted(node: ast.AST) -> list[str]:
    """Return the names of `module.function`; empty for another expression."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)):
        return [*before, node.attr]
    return []


def _statement(tree: ast.Module, line: int) -> ast.stmt | None:
    """Return the innermost statement that contains a line."""
    innermost: ast.stmt | None = None
    body: list[ast.AST] = [tree]
    while body:
        node = body.pop()
        for child in ast.iter_child_nodes(node):
            first, last = getattr(child, "lineno", None), getattr(child, "end_lineno", None)
            if first is not None and last is not None and not first <= line <= last:
                continue
            if isinstance(child, ast.stmt):
                innermost = child
            body.append(child)
    return innermost


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """Return a statement and its expressions, without the statements inside of it."""

    def expressions(node: ast.AST) -> list[ast.AST]:
        return [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt)]

    return reach([statement], expressions)


def _starts(node: ast.AST, line: int, column: int | None) -> bool:
    if column is None or not isinstance(node, ast.expr):
        return False
    return node.lineno == line and node.col_offset == column


def _mentioned(node: ast.AST, renamed: dict[str, str], calls: bool) -> Iterator[str]:
    """Yield the collectives in the expressions of a node.

    Args:
      calls: whether to include those that it calls, and not only those that it passes on, as
        `jax.tree.map(partial(psum, axis_name="data"), gradients)` does.
    """
    if name := _named(node, renamed):
        yield name
    for child in ast.iter_child_nodes(node):
        skipped = not calls and (
            isinstance(child, ast.Lambda)  # it runs in its own frame
            or (isinstance(node, ast.Call) and child is node.func)
        )
        if not skipped and not isinstance(child, ast.stmt):
            yield from _mentioned(child, renamed, calls)


def _named(node: ast.AST, renamed: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return renamed.get(node.id, node.id if node.id in CALLS else "")
    return node.attr if isinstance(node, ast.Attribute) and node.attr in CALLS else ""
