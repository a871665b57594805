"""The source of a model: its definition and all definitions of this project that it refers to.

Modules are read as text and never imported, because they import JAX.
"""

import ast
import functools
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_HOOKS = ("watch", "watch_gradients")  # calls that a script does not need
_INDENT = 4


@dataclass(frozen=True)
class Module:
    """The top level of a module, by name.

    definitions: source of classes, functions and constants, with the comments and decorators above them, and
      with calls of their methods, such as `function.defvjp(...)`.
    ours: module and name of each import from this project.
    imports: one statement for each other import.
    """

    definitions: Mapping[str, str]
    ours: Mapping[str, tuple[str, str]]
    imports: Mapping[str, str]


class Definitions:
    """Definitions in an order in which Python can run them, without the branches that are not taken.

    `known` maps conditions, as `ast.unparse` writes them, to their truth.
    """

    def __init__(self, known: Mapping[str, bool]) -> None:
        self.imports: dict[str, str] = {}
        self._known = tuple(known.items())
        self._texts: dict[tuple[str, str], str] = {}

    def add(self, module_name: str, name: str) -> None:
        """Add the definition of a name, and all definitions that it refers to."""
        module = read(module_name)
        if name in module.imports:
            self.imports[name] = module.imports[name]
        elif name in module.ours:
            self.add(*module.ours[name])
        elif name in module.definitions and (module_name, name) not in self._texts:
            text = simplified(module.definitions[name], self._known)
            used = names_in(text) - {name}
            for other in (*module.imports, *module.ours, *module.definitions):
                if other in used:
                    self.add(module_name, other)
            assert all(name != other for _, other in self._texts), f"two definitions of {name}"
            self._texts[module_name, name] = text

    def text(self) -> str:
        return "\n\n\n".join(self._texts.values())


@functools.cache
def read(module_name: str) -> Module:
    """Return the top level of a module of this project."""
    spec = importlib.util.find_spec(module_name)
    assert spec is not None and spec.origin is not None
    text = Path(spec.origin).read_text(encoding="utf-8")
    definitions: dict[str, str] = {}
    ours: dict[str, tuple[str, str]] = {}
    imports: dict[str, str] = {}
    lines = text.split("\n")
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module != "__future__":
            for alias in node.names:
                name = alias.asname or alias.name
                if node.module.startswith("inspector."):
                    assert alias.asname is None, f"{module_name} imports {alias.name} by another name"
                    ours[name] = (node.module, alias.name)
                else:
                    imports[name] = f"from {node.module} import {ast.unparse(alias)}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                imports[alias.asname or alias.name] = f"import {ast.unparse(alias)}"
        elif (defined := _defined_name(node)) is not None:
            decorators = node.decorator_list if isinstance(node, (ast.ClassDef, ast.FunctionDef)) else []
            first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
            while lines[first - 2].startswith("#"):
                first -= 1
            definitions[defined] = "\n".join(lines[first - 1 : node.end_lineno])
        elif (owner := _owner_of_call(node)) in definitions:
            definitions[owner] += "\n\n\n" + "\n".join(lines[node.lineno - 1 : node.end_lineno])
    return Module(definitions, ours, imports)


def names_in(text: str) -> set[str]:
    """Return every name that a source refers to, also in annotations."""
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


@functools.lru_cache(maxsize=512)  # about 30 definitions for each model and choice of branches
def simplified(text: str, known: tuple[tuple[str, bool], ...]) -> str:
    """Return the source without hooks and without the branches that `known` excludes.

    The text is edited line by line, so that comments and line breaks stay.
    """
    truths = dict(known)
    while True:
        for node in ast.walk(ast.parse(text)):
            lines = text.split("\n")
            if isinstance(node, ast.Expr) and _is_hook(node.value):
                kept = []
            elif isinstance(node, ast.If) and (truth := truths.get(ast.unparse(node.test))) is not None:
                kept = [line[_INDENT:] for line in _branch(lines, node, truth)]
            else:
                continue
            text = "\n".join([*lines[: node.lineno - 1], *kept, *lines[node.end_lineno :]])
            break
        else:
            return text


def _branch(lines: list[str], node: ast.If, truth: bool) -> list[str]:
    """Return the lines of one branch, with its comments."""
    else_line = node.body[-1].end_lineno or 0  # index of the line after the body
    if truth:
        return lines[node.test.end_lineno : else_line]
    if not node.orelse:
        return []
    while lines[else_line].strip() != "else:":
        else_line += 1
    return lines[else_line + 1 : node.end_lineno]


def _is_hook(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _HOOKS


def _owner_of_call(node: ast.stmt) -> str:
    """Return `NAME` of a statement `NAME.method(...)`, and otherwise ""."""
    call = node.value if isinstance(node, ast.Expr) else None
    method = call.func if isinstance(call, ast.Call) else None
    owner = method.value if isinstance(method, ast.Attribute) else None
    return owner.id if isinstance(owner, ast.Name) else ""


def _defined_name(node: ast.stmt) -> str | None:
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        return node.name
    if isinstance(node, ast.Assign):
        target = node.targets[0]
    elif isinstance(node, ast.AnnAssign):
        target = node.target
    else:
        return None
    return target.id if isinstance(target, ast.Name) else None
