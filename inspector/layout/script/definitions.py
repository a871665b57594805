"""What a model is made of, taken from the source of its modules: each definition with all that it refers to.

Modules are read as text and never imported, because they import JAX.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from inspector.layout.script import simplified

OURS = ("inspector",)  # packages that a script must do without


@dataclass(frozen=True)
class Module:
    """A module's top level by name.

    definitions: classes, functions and constants, with the comments above them.
    ours: name → (module, name there), of what is imported from this project.
    imports: name → the statement that imports just it, of what is imported from elsewhere.
    """

    text: str
    definitions: Mapping[str, str]
    ours: Mapping[str, tuple[str, str]]
    imports: Mapping[str, str]


class Definitions:
    """Definitions in an order in which Python can run them, without the branches that `known` excludes."""

    def __init__(self, known: Mapping[str, bool]) -> None:
        self._known = known
        self._texts: dict[tuple[str, str], str] = {}
        self._imports: dict[str, str] = {}

    def add(self, module_name: str, name: str) -> None:
        """Add a definition and all that it refers to, unless it is there."""
        module = read(module_name)
        if name in module.imports:
            self._imports[name] = module.imports[name]
        elif name in module.ours:
            self.add(*module.ours[name])
        elif name in module.definitions and (module_name, name) not in self._texts:
            text = simplified.without_branches(module.definitions[name], self._known)
            self.add_all(module_name, names_in(text) - {name})
            self._texts[module_name, name] = text

    def add_all(self, module_name: str, names: Iterable[str]) -> None:
        """Add those of the names that mean something in the module."""
        module = read(module_name)
        wanted = set(names)
        for name in (*module.imports, *module.ours, *module.definitions):
            if name in wanted:
                self.add(module_name, name)

    def body_of(self, module_name: str, name: str) -> tuple[str, Mapping[str, ast.expr]]:
        """What a function does before it returns, as if it stood at the top of a module.

        With it come the arguments by name of the call that it returns. What it refers to is added.
        """
        function = _parsed(read(module_name).definitions[name])
        assert isinstance(function, ast.FunctionDef)
        *statements, returned = function.body[1:]  # without its docstring
        assert isinstance(returned, ast.Return) and isinstance(returned.value, ast.Call)
        lines = read(module_name).definitions[name].split("\n")
        inner = lines[statements[0].lineno - 1 : statements[-1].end_lineno]
        text = simplified.without_branches(textwrap.dedent("\n".join(inner)), self._known)
        own = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
        self.add_all(module_name, names_in(text) - own)
        return text, {one.arg: one.value for one in returned.value.keywords if one.arg}

    def text(self) -> str:
        """All definitions, without the fields of classes that nobody reads."""
        return simplified.without_unread_fields("\n\n".join(self._texts.values()))

    def imports(self) -> Mapping[str, str]:
        """The statements that import what is referred to, by the name that each binds."""
        return self._imports


@functools.cache
def read(module_name: str) -> Module:
    """The top level of a module of this project."""
    spec = importlib.util.find_spec(module_name)
    assert spec is not None and spec.origin is not None
    text = Path(spec.origin).read_text(encoding="utf-8")
    definitions: dict[str, str] = {}
    ours: dict[str, tuple[str, str]] = {}
    imports: dict[str, str] = {}
    lines = text.split("\n")
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            for alias in node.names:
                bound = alias.asname or alias.name
                if node.module.split(".")[0] in OURS:
                    ours[bound] = (node.module, alias.name)
                else:
                    imports[bound] = f"from {node.module} import {ast.unparse(alias)}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                imports[alias.asname or alias.name] = f"import {ast.unparse(alias)}"
        elif (name := _defined(node)) is not None:
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
            while lines[first - 2].startswith("#"):
                first -= 1
            definitions[name] = "\n".join(lines[first - 1 : node.end_lineno])
    return Module(text, definitions, ours, imports)


def names_in(text: str) -> set[str]:
    """Every name that a source refers to, in annotations too."""
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def _defined(node: ast.stmt) -> str | None:
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        return node.name
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return None


def _parsed(text: str) -> ast.stmt:
    (node,) = ast.parse(text).body
    return node
