"""A Layout as a Python script that needs only JAX, Flax, Optax and NumPy.

The script is the source of the model and a template. Values of the layout are written as literals. The
user's own model is imported instead.
"""

import ast
import functools
import importlib.util
import keyword
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from inspector.layout import Layout, print_mesh
from inspector.layout.fields import NAME
from inspector.machines.compiler_options import arguments
from inspector.model import own_model
from inspector.sharding.placement import jax_entry
from inspector.sharding.state_specs import Fsdp, SpecRow
from inspector.text.errors import InvalidInput
from inspector.text.formatting import counted

# The source of a model: its definition and all definitions of this project that it refers to.
#
# Modules are read as text and never imported, because they import JAX.


_HOOKS = ("watch", "watch_gradients")  # calls that a script does not need
_INDENT = 4


@dataclass(frozen=True)
class ScriptModule:
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
def read(module_name: str) -> ScriptModule:
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
    return ScriptModule(definitions, ours, imports)


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


WIDTH = 100  # columns


def literal(value: Any) -> str:
    """Return a number, a text, None, or a tuple or mapping of them, on one line."""
    if isinstance(value, str):
        return f'"{value}"' if NAME.fullmatch(value) else repr(value)
    if isinstance(value, tuple):
        parts = ", ".join(map(literal, value))
        return f"({parts},)" if len(value) == 1 else f"({parts})"
    if isinstance(value, Mapping):
        entries = (f"{literal(key)}: {literal(entry)}" for key, entry in value.items())
        return "{" + ", ".join(entries) + "}"
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    raise TypeError(f"a {type(value).__name__} has no literal")


def assignment(name: str, value: Any) -> str:
    """Return `name = value`, with one entry per line if one line is too short."""
    line = f"{name} = {literal(value)}"
    if len(line) <= WIDTH or not value or not isinstance(value, tuple | dict):
        return line
    if isinstance(value, dict):
        entries = (f"{literal(key)}: {literal(entry)}" for key, entry in value.items())
        return _listed(f"{name} = {{", entries, "}")
    return _listed(f"{name} = (", map(literal, value), ")")


def call(function: str, arguments: Mapping[str, Any]) -> str:
    """Return a call with these keyword arguments."""
    parts = [f"{name}={literal(value)}" for name, value in arguments.items()]
    line = f"{function}({', '.join(parts)})"
    return line if len(line) <= WIDTH - 20 else _listed(f"{function}(", parts, ")")


def by_regex(rows: Iterable[SpecRow]) -> str:
    """Return `state_specs = by_regex([...])` with one row per line."""
    parts = []
    for row in rows:
        if isinstance(row.spec, Fsdp):
            spec = call("fsdp", {"axis": jax_entry(row.spec.axes), "min_bytes": row.spec.min_bytes})
        else:
            spec = literal(tuple(map(jax_entry, row.spec)))
        parts.append(f"({row.pattern!r}, {spec})")
    return _listed("state_specs = by_regex([", parts, "])")


def import_lines(statements: Mapping[str, str], body: str) -> str:
    """Return the imports of all names in `body`, sorted. `statements` are single imports by name."""
    used = names_in(body)
    needed = sorted({statement for name, statement in statements.items() if name in used})
    from_modules: dict[str, list[str]] = {}
    lines = []
    for statement in needed:
        module, _, name = statement.removeprefix("from ").partition(" import ")
        if not name or " as " in name:
            lines.append(statement)
        else:
            from_modules.setdefault(module, []).append(name)
    lines += [f"from {module} import {', '.join(names)}" for module, names in from_modules.items()]
    # `import X` comes before `from X import Y`, and each group is sorted by module.
    lines.sort(key=lambda line: (line.startswith("from"), line))
    standard = [line for line in lines if line.split()[1].partition(".")[0] in sys.stdlib_module_names]
    others = [line for line in lines if line not in standard]
    return "\n\n".join("\n".join(group) for group in (standard, others) if group)


def _listed(head: str, parts: Iterable[str], tail: str) -> str:
    return "\n".join([head, *(f"    {part}," for part in parts), tail])


# Names that the template can use, and the statements that import them.
_IMPORTS = {
    "Any": "from typing import Any",
    "Callable": "from collections.abc import Callable",
    "jax": "import jax",
    "np": "import numpy as np",
    "nn": "from flax import linen as nn",
    "nnx": "from flax import nnx",
    "meta": "from flax.core import meta",
    "spmd": "from flax.core import spmd",
    "mesh_utils": "from jax.experimental import mesh_utils",
    "AxisType": "from jax.sharding import AxisType",
    "Mesh": "from jax.sharding import Mesh",
    "NamedSharding": "from jax.sharding import NamedSharding",
    "PartitionSpec": "from jax.sharding import PartitionSpec",
    "by_regex": "from inspector.model import by_regex",
    "fsdp": "from inspector.model import fsdp",
    "given_specs": "from inspector.tracing.model.state_specs import given_specs",
    "shardings_by_path": "from inspector.tracing.model.state_specs import shardings_by_path",
    "returns_state": "from inspector.tracing.model.traceable import returns_state",
    "traceable": "from inspector.tracing.model.traceable import traceable",
}


def script(layout: Layout) -> str:
    """Return the text of the script.

    Raises:
      InvalidInput: the user's model has a name that Python cannot import.
    """
    entry = layout.entry
    module, function = own_model.parse_name(layout.model if entry.own else entry.build)
    arguments: dict[str, Any] = dict(layout.sizes)
    values: dict[str, Any] = {
        "layout": layout,
        "mesh": print_mesh(layout.mesh_shape),
        "device_count": counted(layout.devices, "device"),
        "emulated_count": counted(layout.devices, "emulated device"),
        "share": counted(layout.devices // layout.processes, "device"),
        "module": module,
        "constants": _constants(layout),
    }
    imports = dict(_IMPORTS)
    name = function
    if entry.own:
        _refuse_unimportable(layout.model, module, function)
        without_model = _template().render(values)
        if function in names_in(without_model) | _IMPORTS.keys() | {"model"}:
            name = f"own_{function}"
        renamed = function if name == function else f"{function} as {name}"
        imports[name] = f"from {module} import {renamed}"
        where = "inspector.tracing.model.state_specs"
        imports["with_optimizer_axes"] = f"from {where} import with_optimizer_axes"
    else:
        definitions = Definitions(_known(layout))
        definitions.add(module, function)
        if set(layout.programs) - {"train_step", "apply"}:
            del imports["returns_state"]
            definitions.add("inspector.tracing.model.traceable", "returns_state")
        values["definitions"] = definitions.text()
        imports |= definitions.imports
        if layout.unconstrained:
            arguments["unconstrained"] = layout.unconstrained
        if not entry.has_rules:
            arguments["partitions"] = {
                place: tuple(map(jax_entry, spec)) for place, spec in layout.specs.items()
            }
    values["model"] = call(name, arguments)
    body = _template().render(values)
    return _template().render(values, imports=import_lines(imports, body))


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("inspector.layout", "script"),
        undefined=jinja2.ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("script.py.jinja")


def _constants(layout: Layout) -> dict[str, str]:
    rules = tuple((name, jax_entry(axes)) for name, axes in layout.rules)
    values = {"mesh_shape": layout.mesh_shape, "axis_names": layout.axis_names, "rules": rules}
    texts = {name: assignment(name, value) for name, value in values.items()}
    if layout.compiler_options:
        texts["compiler_options"] = assignment("compiler_options", arguments(layout.compiler_options))
    if layout.optimizer_axes:
        texts["optimizer_axes"] = assignment("optimizer_axes", layout.optimizer_axes)
    if layout.state_specs:
        texts["state_specs"] = by_regex(layout.state_specs)
    return texts


def _known(layout: Layout) -> dict[str, bool]:
    """Return the conditions in the source of the models that the layout decides."""
    known = {
        f"{owner}.{name}": value
        for name, value in layout.sizes.items()
        if isinstance(value, bool)
        for owner in ("self", "c")
    }
    known |= {
        f"{owner}{name} == {choice!r}": value == choice
        for name, value in layout.sizes.items()
        for choice in _choices(layout, name)
        for owner in ("c.", "")
    }
    known["has_explicit_axes()"] = bool(layout.explicit_axes)
    known["c.stages == 1"] = layout.sizes.get("stages", 1) == 1
    if not layout.unconstrained:
        known |= {f"name in {owner}.unconstrained": False for owner in ("self", "self.config")}
    return known


def _choices(layout: Layout, name: str) -> tuple[str, ...]:
    size = layout.entry.size(name)
    return () if size is None else size.choices


def _refuse_unimportable(model: str, module: str, function: str) -> None:
    for part in (*module.split("."), function):
        # Python normalizes names when it reads them.
        normalized = unicodedata.normalize("NFKC", part)
        if keyword.iskeyword(part) or not part.isidentifier() or normalized != part:
            raise InvalidInput(
                f"model is {model}, but a script can import only Python names, and {part!r} is not one"
            )
