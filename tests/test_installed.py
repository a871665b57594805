"""The wheel in an environment of its own, outside the checkout, and a checkout with `requirements.txt`."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import pytest

from tests.paths import ROOT

PROJECT_FILES = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "app.py",
    "requirements.txt",
)
PROJECT_FOLDERS = ("inspector", "models", ".streamlit")
QUIET = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-index")


def run(*command: object, **options: object) -> str:
    """Return the standard output of a command, which must succeed."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the checkout, because setuptools writes into the folder that it builds."""
    source = tmp_path_factory.mktemp("source")
    for name in PROJECT_FILES:
        shutil.copy(ROOT / name, source)
    for name in PROJECT_FOLDERS:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignore)
    return source


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "wheel", *QUIET, "--no-build-isolation")
    run(*pip, "--wheel-dir", target, source)
    (built,) = target.glob("sharding_inspector-*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the `bin` folder of an environment with the wheel and the packages of this one."""
    python = new_environment(tmp_path_factory.mktemp("environment"))
    run(sys.executable, "-m", "pip", "--python", python, "install", *QUIET, wheel)
    return python.parent


def new_environment(folder: Path) -> Path:
    """Make an environment with the packages of this one, and return its Python."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "test_environment.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return folder / "bin" / "python"


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, object]:
    """Return options for `run`: a folder outside the checkout, and no path to it."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {"cwd": tmp_path, "env": variables}


@pytest.mark.nightly
def test_the_wheel_has_one_package_and_all_data_files(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    packages = {name.split("/")[0] for name in names}
    assert {name for name in packages if ".dist-info" not in name} == {"inspector"}
    data = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "inspector").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert data <= names
    assert {f"inspector/model/built_in/{path.name}" for path in (ROOT / "models").glob("*.py")} <= names
    assert "inspector/media/streamlit/server/.streamlit/config.toml" in names


@pytest.mark.nightly
def test_the_command_line_lists_its_verbs(environment: Path, elsewhere: dict[str, object]) -> None:
    text = run(environment / "sharding-inspector", "--help", **elsewhere)
    assert {"inspect", "check", "dashboard"} <= set(text.split())


@pytest.mark.nightly
def test_pytest_has_the_plugin(environment: Path, elsewhere: dict[str, object]) -> None:
    text = run(environment / "python", "-m", "pytest", "--help", **elsewhere)
    assert "--update-sharding-locks" in text


@pytest.mark.nightly
def test_a_plan_is_written(environment: Path, elsewhere: dict[str, object]) -> None:
    text = run(environment / "sharding-inspector", "inspect", "--target", "plan", **elsewhere)
    assert json.loads(text)["format"] == "sharding-snapshot"


@pytest.mark.nightly
def test_capture_imports_jax_only_when_used(environment: Path, elsewhere: dict[str, object]) -> None:
    program = (
        "import sys, inspector; assert 'jax' not in sys.modules\n"
        "print(inspector.__version__, inspector.__file__)\n"
        "from inspector import capture; assert 'jax' in sys.modules and callable(capture)"
    )
    version, file = run(environment / "python", "-c", program, **elsewhere).split()
    assert version[0].isdigit()
    assert Path(file).is_relative_to(environment.parent)


@pytest.mark.nightly
@pytest.mark.parametrize("checkout", [False, True])
def test_a_model_in_the_users_models_module_is_used(
    environment: Path, elsewhere: dict[str, object], tmp_path: Path, checkout: bool
) -> None:
    shutil.copy(ROOT / "examples" / "linen_mlp.py", tmp_path / "models.py")
    command: tuple[object, ...] = (environment / "sharding-inspector",)
    if checkout:
        elsewhere["env"] = os.environ | {"PYTHONPATH": str(ROOT)}
        command = (sys.executable, "-m", "inspector")
    text = run(*command, "inspect", "--target", "plan", "--model", "models:build", **elsewhere)
    assert json.loads(text)["layout"]["model"] == "models:build"


@pytest.mark.nightly
def test_the_dashboard_starts(environment: Path, elsewhere: dict[str, object], tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "linen_mlp.py", tmp_path / "models.py")
    command = (environment / "sharding-inspector", "dashboard", "--model", "models:build")
    assert "reading models:build" in _log_of_a_start(tmp_path, *command, **elsewhere)


@pytest.mark.nightly
def test_the_requirements_serve_the_dashboard_from_the_checkout(
    source: Path, elsewhere: dict[str, object], tmp_path: Path
) -> None:
    python = new_environment(tmp_path / "environment")
    pip = (sys.executable, "-m", "pip", "--python", python, "install", *QUIET, "--no-build-isolation")
    run(*pip, "-r", "requirements.txt", cwd=source)
    place = run(python, "-c", "import inspector; print(inspector.__file__)", **elsewhere)
    assert Path(place.strip()) == source / "inspector" / "__init__.py"
    _log_of_a_start(tmp_path, python, "-m", "streamlit", "run", "app.py", **elsewhere | {"cwd": source})


def _log_of_a_start(folder: Path, *command: object, **options: object) -> str:
    """Start a server on a free port, wait until it is healthy, and return what it has logged."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    log = folder / "log.txt"
    with log.open("w", encoding="utf-8") as file:
        arguments = [*map(str, command), "--server.headless=true", f"--server.port={port}"]
        server = subprocess.Popen(arguments, stdout=file, stderr=file, **options)
    try:
        assert _health(port, server) == "ok", log.read_text(encoding="utf-8")
        return log.read_text(encoding="utf-8")
    finally:
        server.terminate()
        server.wait(timeout=60)


def _health(port: int, server: subprocess.Popen[bytes]) -> str | None:
    end = time.monotonic() + 120
    while server.poll() is None and time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=5) as answer:
                return answer.read().decode()
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    return None
