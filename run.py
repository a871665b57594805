"""Install missing packages, then run a command: `python3 run.py dashboard`, `python3 run.py tests`.

Needs Python 3.11 or later and nothing else. Packages are installed into `.venv/`, one folder for each Python
version. The browser tests need Chromium, which comes from the system's packages.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parent
ENVIRONMENT = ROOT / ".venv" / f"{sys.version_info.major}.{sys.version_info.minor}"
# Starts a module of the package without importing from the current folder.
START = ROOT / "inspector" / "jobs" / "start.py"
COMMAND_LINE = "inspector.__main__"
# Extras and groups of pyproject.toml.
TESTS = ("dask", "mcp", "tests", "docs")
LONGEST_FIRST_LINE = 127  # characters, with the interpreter of a script, that every Linux reads
# Optional compilers for TPUs and GPUs: about 1.1 GB on disk together.
COMPILERS = ("tpu", "gpu")
# The one without windows needs a sixth less processor time for the tests, and fewer packages.
CHROMIUM_NAMES = (
    *("chromium-headless-shell", "chromium", "chromium-browser"),
    *("google-chrome", "google-chrome-stable"),
)
TESTS_FAILED = 1  # the exit status of pytest if all tests ran; others end the command
# Tests of one file run in one process, because they share costly fixtures. tests/conftest.py orders them.
# Each process of browser tests has its own server, workers and browser, so two of them keep two cores busy: a
# part of these tests took 140 s with two processes, 167 s with three and 201 s with four. Two are enough for
# the others, too: they use 95% of two cores, and took 437 s with two processes, 451 s with three.
TWO_PROCESSES = ("--numprocesses=2", "--dist=loadfile", "--no-loadscope-reorder")
# Without a font, Chromium draws text as boxes.
DEBIAN_PACKAGES = ("chromium-headless-shell", "fonts-dejavu-core")
# Installs packages with a tenth of the processor time of pip, and downloads them once for all environments.
UV = "uv >= 0.9, < 1"
# The arguments of Python for each check.
CHECKS = {
    "style": ("-m", "ruff", "check", "."),
    "format": ("-m", "ruff", "format", "--check", "."),
    "types": ("-m", "mypy"),
    "imports": ("-c", "from importlinter import cli; cli.lint_imports_command()"),
    "docs": ("-m", "sphinx", "-W", "--keep-going", "-q", "docs", "build/site"),
}


def main() -> int:
    """Run one command and return its exit status."""
    if sys.version_info < (3, 11):  # noqa: UP036 (an older Python can start this file)
        return _fail(f"Python 3.11 or later is needed, this is {sys.version.split()[0]}")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=sorted(COMMANDS))
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the command")
    options = parser.parse_args()
    arguments = [argument for argument in options.arguments if argument != "--"]
    try:
        return COMMANDS[options.command](arguments)
    except subprocess.CalledProcessError as error:
        return _fail(f"`{' '.join(map(str, error.cmd))}` failed with status {error.returncode}")


def dashboard(arguments: list[str]) -> int:
    """Start the dashboard at http://127.0.0.1:8501; arguments as for `sharding-inspector dashboard`."""
    _install()
    # It runs in the user's folder, so that `--model package.module:function` finds modules there.
    return _run("-I", str(START), COMMAND_LINE, "dashboard", *arguments, folder=Path.cwd())


def install(arguments: list[str]) -> int:
    """Install everything that checks and tests need, except Chromium."""
    _install(*TESTS)
    for extra in COMPILERS:
        _install_compiler(extra)
    return 0


def compilers(arguments: list[str]) -> int:
    """Install the optional compilers for TPU slices and GPU nodes."""
    _install()
    installed = [_install_compiler(extra) for extra in COMPILERS]
    return 0 if all(installed) else 1


def checks(arguments: list[str]) -> int:
    """Run all checks, or those that are named, such as `style` and `docs`."""
    if unknown := [name for name in arguments if name not in CHECKS]:
        return _fail(f"no check {unknown[0]}, only {', '.join(CHECKS)}")
    _install(*TESTS)
    return max(_run(*CHECKS[name]) for name in arguments or CHECKS)


def docs(arguments: list[str]) -> int:
    """Build the documentation in build/site. A warning, such as a broken link, is an error."""
    return checks(["docs"])


def tests(arguments: list[str]) -> int:
    """Run the tests and checks of every change, with `--all` the slow tests too. Arguments go to pytest.

    With arguments, only the tests that they name run. `--all` also installs the compilers. Without it, tests
    of a compiler that is not installed are skipped.
    """
    everything = "--all" in arguments
    arguments = [argument for argument in arguments if argument != "--all"]
    if everything:
        install([])
    else:
        _install(*TESTS)
    _require_chromium()
    if shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None:
        _apt_install(("nginx-light",), "the tests of a team server need nginx: install it and run again")
    if arguments:
        return _run("-m", "pytest", *TWO_PROCESSES, *arguments)
    return _run_test_set(everything)


def _run_test_set(everything: bool) -> int:
    """Run checks and tests. The browser tests come first, because each of their processes has a browser.

    everything: run those marked `nightly` too, with other examples of each property each time.
    """
    marked = () if everything else ("-m", "not nightly")
    # It represents few and equal examples.
    ci = {"CI": "true"}
    parts: tuple[tuple[str, tuple[str, ...], dict[str, str]], ...] = (
        ("Browser tests", ("tests/browser",), ci),
        ("Other tests", ("--ignore=tests/browser",), {} if everything else ci),
    )
    with tempfile.TemporaryFile("w+") as log:
        checks = _start_checks(log)
        statuses = []
        try:
            for title, chosen, variables in parts:
                print(f"=== {title}, Python {sys.version.split()[0]}", flush=True)
                options = (*TWO_PROCESSES, "--durations=25", *marked, *chosen)
                statuses.append(_run("-m", "pytest", *options, variables=variables))
                if statuses[-1] not in (0, TESTS_FAILED):
                    return statuses[-1]
            statuses.append(checks.wait())
        finally:
            checks.terminate()
        log.seek(0)
        print(f"=== Checks\n{log.read()}", flush=True)
    return max(statuses)


def _start_checks(log: TextIO) -> subprocess.Popen[bytes]:
    """Start all checks next to the tests. `log` gets their output."""
    command = (sys.executable, "-P", str(ROOT / "run.py"), "checks")
    return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)


def benchmarks(arguments: list[str]) -> int:
    """Run every benchmark and print ratios."""
    _install(*TESTS)
    _require_chromium()
    return _run("-m", "benchmarks", *arguments)


def pictures(arguments: list[str]) -> int:
    """Make the pictures of the documentation from the running dashboard."""
    _install(*TESTS)
    _require_chromium()
    return _run("-m", "tests.browser.pictures", *arguments)


COMMANDS = {
    command.__name__: command
    for command in (dashboard, install, compilers, checks, docs, tests, benchmarks, pictures)
}


def _python() -> Path:
    return ENVIRONMENT / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _run(*arguments: str, folder: Path = ROOT, variables: dict[str, str] | None = None) -> int:
    # Pip compiles nothing (see `_install`), so each process would compile JAX again, which takes 2 s.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # A parent that ignores SIGINT passes that on, but the child must react to Ctrl-C.
    accept = None if os.name == "nt" else _accept_interrupts
    command, environment = [str(_python()), *arguments], os.environ | (variables or {})
    child = subprocess.Popen(command, cwd=folder, env=environment, preexec_fn=accept)
    # Ctrl-C reaches the child too, which ends in its own time. SIGTERM is passed on.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    try:
        return child.wait()
    finally:
        signal.signal(signal.SIGINT, before)


def _accept_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _requirements(*names: str) -> list[str]:
    """Return the packages that pyproject.toml lists: for the project, and for extras and groups."""
    import tomllib  # Python 3.11 has it; an older one must be able to start this file

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = settings["project"]
    listed = project["optional-dependencies"] | settings["dependency-groups"]
    return [*project["dependencies"], *(package for name in names for package in listed[name])]


def _install(*names: str) -> None:
    """Create the environment and install the project's requirements, with those of extras and groups."""
    if not _python().exists():
        print(f"Creating {ENVIRONMENT.relative_to(ROOT)} …", file=sys.stderr)
        _create_environment()
    requirements = _requirements(*names)
    digest = hashlib.sha256("\n".join(requirements).encode()).hexdigest()
    stamp = ENVIRONMENT / "-".join(("installed", *names))
    if stamp.exists() and stamp.read_text() == digest:
        _write_command()  # an older one can be less safe
        return
    print("Installing packages. This takes up to a minute the first time.", file=sys.stderr)
    # Python compiles a module when it is first imported. To compile all of them takes longer than the rest.
    options = ("--quiet", "--disable-pip-version-check", "--no-compile")
    pip = (_python(), "-P", "-m", "pip", "install", *options)
    # An index of the user's own is a setting of pip, which uv does not read.
    list_settings = (_python(), "-P", "-m", "pip", "config", "list")
    settings = subprocess.run(list_settings, cwd=ROOT, capture_output=True)
    uv = None if b".index-url=" in settings.stdout else _uv() or _install_uv(pip)
    fast = ("pip", "install", "--quiet", "--python", str(_python()), *requirements)
    # In another folder, uv would take settings such as an index from there.
    if not uv or subprocess.run([uv, *fast], cwd=ROOT).returncode:
        subprocess.run([*pip, *requirements], cwd=ROOT, check=True)
    _write_command()
    stamp.write_text(digest)


def _install_uv(pip: tuple[str | Path, ...]) -> str | None:
    subprocess.run([*pip, UV], cwd=ROOT)
    return _uv()


def _uv() -> str | None:
    return shutil.which("uv", path=_python().parent)


def _write_command() -> None:
    """Write `sharding-inspector` into the environment, which runs this checkout."""
    command, text = ENVIRONMENT / "bin" / "sharding-inspector", command_text(_python())
    if os.name != "nt" and not (command.exists() and command.read_text() == text):
        command.write_text(text)
        command.chmod(0o755)


def command_text(python: Path) -> str:
    """Return the file of the command. It is a Python script, because a shell would add variables."""
    interpreter = f"#!{python} -I"
    if " " in str(python) or len(interpreter) > LONGEST_FIRST_LINE:
        # A shell runs the second line, which is a part of a string for Python.
        rest = f"{shlex.quote(str(python))} -I"
        interpreter = f"""#!/bin/sh\n'''exec' {rest} "$0" "$@"\n' '''"""
    return (
        f"{interpreter}\nimport runpy, sys\nsys.argv.insert(1, {COMMAND_LINE!r})\n"
        f"runpy.run_path({str(START)!r}, run_name='__main__')\n"
    )


def _install_compiler(extra: str) -> bool:
    """Install one of the compilers. Return False after a message if this system lacks it."""
    try:
        _install(extra)
    except subprocess.CalledProcessError:
        print(f"run.py: the extra {extra} cannot be installed on this system", file=sys.stderr)
        return False
    return True


def _create_environment() -> None:
    command = [sys.executable, "-P", "-m", "venv", str(ENVIRONMENT)]
    if subprocess.run(command, cwd=ROOT).returncode == 0:
        return
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    # Debian packages venv separately.
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    _apt_install((package,), f"this Python cannot create virtual environments: install {package}")
    subprocess.run(command, cwd=ROOT, check=True)


def _require_chromium() -> None:
    if not any(shutil.which(name) for name in CHROMIUM_NAMES):
        _apt_install(DEBIAN_PACKAGES, "the browser tests need Chromium: install it and run again")


def _apt_install(packages: tuple[str, ...], error: str) -> None:
    if shutil.which("apt-get") is None or not hasattr(os, "geteuid") or os.geteuid() != 0:
        sys.exit(_fail(error))
    import fcntl  # not on Windows

    variables = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    # Two of these commands can run at the same time, but apt-get cannot.
    ENVIRONMENT.parent.mkdir(exist_ok=True)
    with open(ENVIRONMENT.parent / "apt.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        print(f"Installing {', '.join(packages)} …", file=sys.stderr)
        subprocess.run(["apt-get", "update", "-qq"], check=True, env=variables)
        subprocess.run(install, stdout=subprocess.DEVNULL, check=True, env=variables)


def _fail(message: str) -> int:
    print(f"run.py: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
