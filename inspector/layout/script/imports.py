"""The import statements of a script: one for each name that it refers to, sorted."""

from __future__ import annotations

from collections.abc import Mapping

from inspector.layout.script.definitions import names_in

_TEMPLATE_IMPORTS = {
    "os": "import os",
    "Any": "from typing import Any",
    "jax": "import jax",
    "np": "import numpy as np",
    "optax": "import optax",
    "nn": "from flax import linen as nn",
    "jnp": "from jax import numpy as jnp",
    "mesh_utils": "from jax.experimental import mesh_utils",
    "Mesh": "from jax.sharding import Mesh",
    "NamedSharding": "from jax.sharding import NamedSharding",
    "PartitionSpec": "from jax.sharding import PartitionSpec",
}
_STANDARD = ("functools", "math", "os", "collections", "dataclasses", "typing")


def imports(more: Mapping[str, str], body: str) -> str:
    """The statements for all names that the body refers to, in the order that import sorters want."""
    used = names_in(body)
    known_imports = _TEMPLATE_IMPORTS | dict(more)
    wanted = {known_imports[name] for name in used & known_imports.keys()} - {"import os"}
    groups: list[list[str]] = [[], []]
    for statement in _merged(wanted):
        package = statement.split()[1].split(".")[0]
        groups[package not in _STANDARD].append(statement)
    return "\n\n".join("\n".join(group) for group in groups if group) + "\n"


def _merged(statements: set[str]) -> list[str]:
    """The statements sorted, with one line for all names that come from one module as they are."""
    plain = sorted(one for one in statements if one.startswith("import"))
    names: dict[tuple[str, str], list[str]] = {}
    for one in statements - set(plain):
        module, _, name = one.removeprefix("from ").partition(" import ")
        names.setdefault((module, name if " as " in name else ""), []).append(name)
    together = {key: ", ".join(sorted(names[key])) for key in names}
    return [
        *plain,
        *(f"from {key[0]} import {together[key]}" for key in sorted(names)),
    ]
