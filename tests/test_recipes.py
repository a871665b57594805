"""The recipes of CONTRIBUTING.md name every file that a new entry needs.

A new entry is written like an existing entry, so the recipe must have all files that name the existing entry.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import get_args

import pytest

from inspector.audit.checks import CHECKS, SNAPSHOT_CHECKS
from inspector.files.sources import READERS
from inspector.hlo.opcodes import TABLE, Does
from inspector.machines.compiler_options import OPTIONS
from inspector.machines.hardware import CHIPS
from inspector.media.terminal import VERBS
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.records.collectives import BY_OPCODE, OPERATIONS
from tests.paths import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
# Files that are made from tables, by the module that writes them.
GENERATED = {
    "docs/reference/command-line.md": "docs.generate_reference",
    "docs/reference/models.md": "docs.generate_reference",
    "docs/reference/snapshot.md": "docs.generate_reference",
    "inspector/records/snapshot.schema.json": "inspector.records.schema",
}
# Chips, models and options of published runs.
MEASURED = {
    "inspector/compare/measured/option_groups.json",
    "inspector/prediction/accuracy.json",
    "inspector/prediction/efficiencies.json",
    "inspector/compare/measured/published_runs.py",
}
# By recipe: NAME in its paths, and the text by which files name the entry.
ENTRIES = {
    "chip": ("b200", "b200"),
    "option of the compiler": ("", "xla_tpu_rwb_fusion"),
    "collective operation": ("", "collective-reduce"),
    "operation of HLO": ("", "stochastic-convert"),
    "reader": ("maxtext", '"maxtext"'),
    "finding": ("unmoved_weights", "unmoved_weights"),
    "page": ("variants", '"variants"'),
    "model": ("moe", '"moe"'),
    "verb to the command line": ("library", "library_verb"),
}
# By recipe: all entries of its table. Words that opcodes share with kinds of effects are no opcodes.
TABLES: Mapping[str, Collection[str]] = {
    "chip": CHIPS,
    "option of the compiler": OPTIONS,
    "collective operation": OPERATIONS,
    "operation of HLO": TABLE.keys() - set(get_args(Does)) - BY_OPCODE.keys(),
    "reader": READERS,
    "finding": [code for check in (*CHECKS, *SNAPSHOT_CHECKS) for code in check.codes],
    "model": CATALOGUE,
    "verb to the command line": VERBS,
}
# A list of as many entries, or more, is a part of the table.
LISTED = 3
# Lists of operations that compute in one way, to which a new one does not belong.
PARTICULAR = {
    "inspector/hlo/collective_requests.py": "the reductions of JAX by their opcode",
    "inspector/hlo/collective_uses.py": "what commutes with a sum",
    "inspector/hlo/later_passes/gathers.py": "what a pass of XLA lists itself",
    "inspector/hlo/loops.py": "the arithmetic of counters",
    "inspector/hlo/later_passes/reductions.py": "the arithmetic of offsets",
}


def sources() -> Iterator[Path]:
    for folder in ("inspector", "models", "docs"):
        for suffix in ("py", "md", "json", "textproto"):
            yield from (ROOT / folder).rglob(f"*.{suffix}")


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_recipe_names_every_file(entry: str) -> None:
    name, word = ENTRIES[entry]
    _, _, recipe = TEXT.partition(f" {entry}\n\n1.")
    recipe, _, _ = recipe.partition("\n#")
    paths = re.findall(r"`((?:inspector|models|docs)/[\w/-]+\.\w+)`", recipe)
    files = {path.replace("NAME", name) for path in paths}
    assert files
    assert [file for file in files if not (ROOT / file).is_file()] == []
    pattern = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])")
    naming = {
        str(path.relative_to(ROOT)) for path in sources() if pattern.search(path.read_text(encoding="utf-8"))
    }
    assert naming
    assert naming - MEASURED - files <= GENERATED.keys()
    _, _, recipes = TEXT.partition("## Recipes")
    assert {GENERATED[file] for file in naming & GENERATED.keys()} <= set(
        re.findall(r"python -m ([\w.]+)", recipes)
    )


def listed(tree: ast.AST) -> Iterator[set[str]]:
    """Yield the words of each tuple, list, set, mapping and regular expression."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            yield set(re.split(r"[^\w-]+", node.value))
            continue
        elements: list[ast.expr | None] = []
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            elements += node.elts
        elif isinstance(node, ast.Dict):
            elements += node.keys
        yield {str(element.value) for element in elements if isinstance(element, ast.Constant)}


@functools.cache
def lists() -> list[tuple[str, set[str]]]:
    """Return the file and the words of all lists of the package."""
    files = sorted((ROOT / "inspector").rglob("*.py"))
    return [
        (str(file.relative_to(ROOT)), words)
        for file in files
        for words in listed(ast.parse(file.read_text(encoding="utf-8")))
        if len(words) >= LISTED
    ]


@pytest.mark.parametrize("table", TABLES)
def test_no_other_file_repeats_a_part_of_a_table(table: str) -> None:
    """A new entry would be needed in each of them. This tries every entry of the table."""
    entries = set(TABLES[table])
    _, _, recipe = TEXT.partition(f" {table}\n\n1.")
    recipe, _, _ = recipe.partition("\n#")
    repeating: dict[str, set[str]] = {}
    for file, words in lists():
        if len(words & entries) >= LISTED and f"`{file}`" not in recipe and file not in PARTICULAR:
            repeating.setdefault(file, set()).update(words & entries)
    assert repeating == {}
