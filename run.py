"""Sets up what is missing, then runs: `python3 run.py dashboard`, `python3 run.py tests`.

Needs Python 3.11 or later and nothing else: everything is installed into `.venv/`, one folder for each
Python version. The browser tests need Chromium, which is taken from the system's packages.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
ENVIRONMENT = ROOT / ".venv" / f"{sys.version_info.major}.{sys.version_info.minor}"
RUNTIME = ROOT / "requirements.txt"
TESTS = ROOT / "tests" / "requirements.txt"
# The compilers of TPUs and of GPUs, which need not be there: about 1.1 GB on disk together.
COMPILERS = (ROOT / "requirements-tpu.txt", ROOT / "requirements-gpu.txt")
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Tests of one file run in one process, because they share costly fixtures. Browser tests take longest and
# run first; each process has a server and a browser of its own.
SIDE_BY_SIDE = ("--numprocesses=2", "--dist=loadfile", "--no-loadscope-reorder")
# Chromium draws text as boxes where a machine has no font at all.
DEBIAN_PACKAGES = ("chromium", "fonts-dejavu-core")


def main() -> int:
    """Run one command and give its exit status."""
    if sys.version_info < (3, 11):  # noqa: UP036 (this file is what an older Python would start)
        return _refuse(f"Python 3.11 or later is needed, this is {sys.version.split()[0]}")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=sorted(COMMANDS))
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="passed on to what is run")
    options = parser.parse_args()
    arguments = [argument for argument in options.arguments if argument != "--"]
    try:
        return COMMANDS[options.command](arguments)
    except subprocess.CalledProcessError as error:
        return _refuse(f"`{' '.join(map(str, error.cmd))}` failed with status {error.returncode}")


def dashboard(arguments: list[str]) -> int:
    """Start the dashboard at http://127.0.0.1:8501; arguments as for `sharding-inspector dashboard`."""
    _install(RUNTIME)
    # It runs in the user's folder, so that `--model package.module:function` finds modules there.
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), before)))
    return _run("-m", "inspector", "dashboard", *arguments, folder=Path.cwd())


def compilers(arguments: list[str]) -> int:
    """The optional compilers for TPU slices and GPU nodes, for layouts with such a target."""
    _install(RUNTIME)
    installed = [_install_compiler(file) for file in COMPILERS]
    return 0 if all(installed) else 1


def tests(arguments: list[str]) -> int:
    """All tests, the browser ones included; arguments go to pytest.

    Where a compiler cannot be installed, the tests that need it say so and are skipped.
    """
    _install(RUNTIME, TESTS)
    for file in COMPILERS:
        _install_compiler(file)
    _require_chromium()
    return _run("-m", "ruff", "check", ".") or _run("-m", "pytest", *SIDE_BY_SIDE, *arguments)


def benchmarks(arguments: list[str]) -> int:
    """Every benchmark, printing ratios measured in this run."""
    _install(RUNTIME, TESTS)
    _require_chromium()
    return _run("-m", "benchmarks", *arguments)


def pictures(arguments: list[str]) -> int:
    """Make the README's pictures anew from the running app."""
    _install(RUNTIME, TESTS)
    _require_chromium()
    return _run("-m", "tests.browser.pictures", *arguments)


def reference(arguments: list[str]) -> int:
    """Write the generated pages of docs/reference/."""
    _install(RUNTIME)
    return _run("-m", "docs.generate_reference", *arguments)


COMMANDS = {
    command.__name__: command
    for command in (dashboard, compilers, tests, benchmarks, pictures, reference)
}


def _python() -> Path:
    return ENVIRONMENT / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _run(*arguments: str, folder: Path = ROOT) -> int:
    # Who was started with SIGINT ignored would hand that on, and what is run must hear Ctrl-C.
    heard = {} if os.name == "nt" else {"preexec_fn": _hear_interrupts}
    child = subprocess.Popen([_python(), *arguments], cwd=folder, **heard)
    # Ctrl-C reaches the child too, which ends in its own time; a kill is passed on to it.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    try:
        return child.wait()
    finally:
        signal.signal(signal.SIGINT, before)


def _hear_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _install(*files: Path) -> None:
    """Make the environment, and install what the files ask for unless that is done already."""
    if not _python().exists():
        print(f"Making {ENVIRONMENT.relative_to(ROOT)} …", file=sys.stderr)
        _make_environment()
    wanted = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    stamp = ENVIRONMENT / f"installed-{'-'.join(file.stem for file in files)}-{len(files)}"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print("Installing packages, a minute or two the first time …", file=sys.stderr)
    requirements = [argument for file in files for argument in ("-r", file)]
    subprocess.run(
        [
            _python(),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            *requirements,
        ],
        check=True,
    )
    stamp.write_text(wanted)


def _install_compiler(file: Path) -> bool:
    """Install one of the compilers; false and a sentence where there is none for this system."""
    try:
        _install(file)
    except subprocess.CalledProcessError:
        print(f"run.py: {file.name} cannot be installed on this system", file=sys.stderr)
        return False
    return True


def _make_environment() -> None:
    made = subprocess.run([sys.executable, "-m", "venv", ENVIRONMENT])
    if made.returncode == 0:
        return
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    # Debian parts venv from Python; as root it can be added without asking.
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    _apt_install((package,), f"this Python cannot make virtual environments: install {package}")
    subprocess.run([sys.executable, "-m", "venv", ENVIRONMENT], check=True)


def _require_chromium() -> None:
    if not any(shutil.which(name) for name in CHROMIUM_NAMES):
        _apt_install(DEBIAN_PACKAGES, "the browser tests need Chromium: install it and run again")


def _apt_install(packages: tuple[str, ...], otherwise: str) -> None:
    if shutil.which("apt-get") is None or not hasattr(os, "geteuid") or os.geteuid() != 0:
        sys.exit(_refuse(otherwise))
    print(f"Installing {', '.join(packages)} …", file=sys.stderr)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], check=True, env=quiet)
    subprocess.run(
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages],
        check=True,
        env=quiet,
        stdout=subprocess.DEVNULL,
    )


def _refuse(sentence: str) -> int:
    print(f"run.py: {sentence}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
