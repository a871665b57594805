"""The recipes of CONTRIBUTING.md name every file that a new entry needs.

A new entry is written like an existing entry, so the recipe must have all files that name the existing entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
# Files that are made from tables, by the module that writes them.
GENERATED = {
    "docs/reference/command-line.md": "docs.generate_reference",
    "docs/reference/models.md": "docs.generate_reference",
    "docs/reference/snapshot.md": "docs.generate_reference",
    "inspector/core/snapshot.schema.json": "inspector.core.schema",
}
MEASURED = {"inspector/machines/prediction/accuracy.json"}  # chips of published runs
# By recipe: NAME in its paths, and the text by which files name the entry.
ENTRIES = {
    "chip": ("b200", "b200"),
    "option of the compiler": ("", "xla_tpu_rwb_fusion"),
    "collective operation": ("", "collective-reduce"),
    "operation of HLO": ("", "stochastic-convert"),
    "reader": ("maxtext", '"maxtext"'),
    "finding": ("dropped_axis", "dropped_axis"),
    "page": ("variants", '"variants"'),
    "model": ("moe", '"moe"'),
    "verb to the command line": ("history", "history_verb"),
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
