"""A Layout as a Python script that needs only JAX, Flax, Optax and NumPy.

The script is the source of the model and a template. Values of the layout are written as literals. The
user's own model is imported instead.
"""

import functools
import keyword
import unicodedata
from typing import Any

import jinja2

from inspector.core.errors import InvalidInput
from inspector.core.formatting import counted
from inspector.core.sharding import jax_entry
from inspector.layout import Layout, print_mesh
from inspector.layout.script.definitions import Definitions, names_in
from inspector.layout.script.python_text import assignment, by_regex, call, import_lines
from inspector.model import own_model

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
    "given_specs": "from inspector.producers.model.state_specs import given_specs",
    "shardings_by_path": "from inspector.producers.model.state_specs import shardings_by_path",
    "returns_state": "from inspector.producers.model.traceable import returns_state",
    "traceable": "from inspector.producers.model.traceable import traceable",
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
        where = "inspector.producers.model.state_specs"
        imports["with_optimizer_axes"] = f"from {where} import with_optimizer_axes"
    else:
        definitions = Definitions(_known(layout))
        definitions.add(module, function)
        if set(layout.programs) - {"train_step", "apply"}:
            del imports["returns_state"]
            definitions.add("inspector.producers.model.traceable", "returns_state")
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
        texts["compiler_options"] = assignment("compiler_options", layout.compiler_arguments)
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
