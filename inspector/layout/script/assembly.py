"""What every script begins with, and its parts put together as one file."""

from __future__ import annotations

from collections.abc import Mapping

from inspector.layout import Layout
from inspector.layout.script import machine
from inspector.layout.script.imports import imports
from inspector.layout.script.literals import assignment, entry
from inspector.layout.script.spacing import spaced
from inspector.model import RulesSemantics

_RULES: Mapping[RulesSemantics, str] = {
    "linen": "# Logical axis → mesh axes: the first rule whose mesh axes are all free decides.",
    "nnx": "# Logical axis → mesh axes: the last rule for a name decides, without one the name itself.",
}


def constants(layout: Layout) -> str:
    """Mesh, rules and number of steps, as the layout has them."""
    lines = [
        assignment("mesh_shape", layout.mesh_shape),
        assignment("axis_names", layout.axis_names),
    ]
    if layout.entry.has_rules:
        rules = tuple((name, entry(axes)) for name, axes in layout.rules)
        lines.append(_RULES[layout.entry.rules_semantics])
        lines.append(assignment("rules", rules))
    lines.append(f"steps = {layout.steps}")
    return "\n".join(lines)


def assembled(docstring: str, layout: Layout, more: Mapping[str, str], body: str) -> str:
    """The whole file; `more` has the statement that imports a name, for names of modules of its own."""
    before = machine.machine(layout)
    first = "import os\n\n" if "os.environ" in before else ""
    statements = imports(more, before + body)
    parts = (docstring, "from __future__ import annotations\n", first + before, statements, body)
    return spaced("\n".join(part for part in parts if part))
