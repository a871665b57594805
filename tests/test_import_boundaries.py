"""JAX stays in the workers and Streamlit in the pages: proved by importing each side by itself.

`lint-imports` checks each import by itself (pyproject.toml). These tests find what another package imports in
turn. Every proof runs in a fresh process, because the tests' own has imported both.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from inspector.records.snapshot import dumps
from tests.answers.test_collectives import SNAPSHOT
from tests.paths import ROOT

# Imports modules one by one and says which one brought something in that must stay out.
PROBE = """
import importlib, sys
forbidden, modules = sys.argv[1].split(","), sys.argv[2:]
for module in modules:
    importlib.import_module(module)
    found = [name for name in forbidden if name in sys.modules]
    if found:
        sys.exit(f"importing {module} imports {', '.join(found)}")
print(len(modules))
"""

JAX = ("jax", "jaxlib", "flax", "optax")
STREAMLIT = ("streamlit",)


def modules_of(folder: Path, root: Path = ROOT) -> list[str]:
    """The name of every module below a folder, found in the files and not by importing them."""
    names = []
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return names


def is_below(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


INSPECTOR = modules_of(ROOT / "inspector")
MODELS = [module.replace("models", "inspector.model.built_in", 1) for module in modules_of(ROOT / "models")]
# The server reads the catalogue of models; the other modules in `models` build models with JAX.
WITH_JAX = tuple(
    f"inspector.{room}" for room in ("compiling", "jax_private", "learn", "partition", "recording", "tracing")
)
SERVER_SIDE = [
    "inspector.model.built_in.catalogue",
    *(m for m in INSPECTOR if not any(is_below(m, room) for room in WITH_JAX)),
]
WITHOUT_PAGES = [
    *MODELS,
    *(m for m in INSPECTOR if not is_below(m, "inspector.media.streamlit")),
]


ENTRY = ("inspector.media.streamlit.pages.entry", "inspector.__main__")


def imports_of(source: str) -> list[str]:
    """Every module that a source imports, at its top or inside a function."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.append(node.module)
    return found


def probe(
    forbidden: tuple[str, ...], modules: list[str], path: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROBE, ",".join(forbidden), *modules],
        cwd=path,
        env=os.environ | {"PYTHONPATH": f"{path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
    )


def test_the_server_side_does_not_import_jax() -> None:
    # Two are scripts, which would start a server or draw a page; what they import is what counts.
    scripts = ("app.py", "inspector/media/streamlit/pages/entry.py")
    modules = [module for module in SERVER_SIDE if module not in ENTRY]
    for script in scripts:
        modules += imports_of((ROOT / script).read_text(encoding="utf-8"))
    done = probe(JAX, modules)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == str(len(modules))


def test_all_but_the_pages_does_not_import_streamlit() -> None:
    done = probe(STREAMLIT, WITHOUT_PAGES)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == str(len(WITHOUT_PAGES))


def test_every_module_is_on_one_side_at_least() -> None:
    assert {"inspector.layout", "inspector.records.snapshot", "inspector.sharding.placement"} < set(
        SERVER_SIDE
    )
    assert set(INSPECTOR) <= {*SERVER_SIDE, *WITHOUT_PAGES}
    producers = set(INSPECTOR) - set(SERVER_SIDE)
    pages = set(INSPECTOR) - set(WITHOUT_PAGES)
    assert producers and pages and not producers & pages


# --- What is imported before the first answer -----------------------------------------------------


def modules_after(source: str) -> set[str]:
    """The modules of the project that a fresh process has imported after it ran a script."""
    printed = "\nimport sys\nprint(*(name for name in sys.modules if name.split('.')[0] == 'inspector'))"
    command = [sys.executable, "-c", source + printed]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_show_imports_what_it_prints(tmp_path: Path) -> None:
    """A terminal draws nothing and parses no HLO, so neither is imported."""
    path = tmp_path / "snapshot.json"
    path.write_text(dumps(SNAPSHOT), encoding="utf-8")
    modules = modules_after(
        f"from inspector.media.terminal import main\nassert main(['show', {str(path)!r}]) == 0"
    )
    assert {"inspector.answers.collectives", "inspector.media.terminal.show_verb"} <= modules
    assert not {"inspector.figures.frame", "inspector.hlo.parser", "inspector.jobs"} & modules
    assert len(modules) <= 162


def test_the_first_page_imports_what_it_shows() -> None:
    """The modules of other pages, of reports and of most figures are imported when they are opened."""
    tree = ast.parse((ROOT / "inspector/media/streamlit/pages/entry.py").read_text(encoding="utf-8"))
    imports = [ast.unparse(node) for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    modules = modules_after("\n".join(imports))
    assert "inspector.media.streamlit.pages.layout_page" in modules
    assert (
        not {"inspector.figures.timeline", "inspector.hlo.parser", "inspector.answers.comparison"} & modules
    )
    assert len(modules) <= 266


# --- The proofs can fail --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("forbidden", "module"),
    [(JAX, "inspector.compiling.run_layout"), (STREAMLIT, "inspector.media.streamlit")],
)
def test_the_probe_finds_what_is_there(forbidden: tuple[str, ...], module: str) -> None:
    inside = [name for name in INSPECTOR if is_below(name, module)]
    done = probe(forbidden, inside)
    assert done.returncode == 1
    assert f" imports {forbidden[0]}" in done.stderr


def test_the_probe_finds_what_is_imported_by_way_of_another_module(tmp_path: Path) -> None:
    forbidden = ("wave",)  # a module that nothing else imports, and that takes no second to import
    package = tmp_path / "offender"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "innocent.py").write_text("import json\n", encoding="utf-8")
    (package / "near.py").write_text("from offender import source\n", encoding="utf-8")
    (package / "source.py").write_text("import wave\n", encoding="utf-8")
    modules = modules_of(package, tmp_path)
    assert modules == ["offender", "offender.innocent", "offender.near", "offender.source"]
    done = probe(forbidden, modules, tmp_path)
    assert done.returncode == 1
    assert "importing offender.near imports wave" in done.stderr
    assert probe(forbidden, modules[:2], tmp_path).returncode == 0


def test_no_page_has_the_name_of_a_module_of_python() -> None:
    """Streamlit puts the folder of its script first in `sys.path`, so the server would import the page."""
    folder = ROOT / "inspector" / "media" / "streamlit" / "pages"
    assert {path.stem for path in folder.iterdir()} & sys.stdlib_module_names <= {"__init__"}
