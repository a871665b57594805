"""Write requirements-image.txt: the version and hashes of each package of the Docker image.

    python3.13 lock_image.py

It downloads the wheels for Linux on both architectures, 600 MB together. Run it on Linux with the Python
version of the image, because pip decides by the running Python which other packages a package needs.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent
LOCK = ROOT / "requirements-image.txt"
# setuptools builds the project itself, which the Dockerfile installs last.
WANTED = ("-r", "requirements.txt", "-r", "requirements-team.txt", "setuptools >= 77")
ARCHITECTURES = ("x86_64", "aarch64")
LIBC = ("manylinux2014", "manylinux_2_17", "manylinux_2_27", "manylinux_2_28")
HEADER = """\
# Written by lock_image.py for the Dockerfile. Do not edit.
# Versions and SHA-256 of the wheels for Python {python} on Linux ({architectures}).
"""


def main() -> None:
    """Download the wheels, and write the file."""
    hashes: defaultdict[str, dict[str, str]] = defaultdict(dict)  # by requirement, by wheel
    with tempfile.TemporaryDirectory() as temporary:
        for architecture in ARCHITECTURES:
            folder = Path(temporary, architecture)
            # The versions of the first architecture hold for the other one.
            same = Path(temporary, "same.txt")
            same.write_text("\n".join(hashes))
            _download(architecture, folder, same)
            for wheel in sorted(folder.iterdir()):
                name, version, *_ = wheel.name.split("-")
                requirement = f"{name.lower().replace('_', '-')}=={version}"
                hashes[requirement][wheel.name] = hashlib.sha256(wheel.read_bytes()).hexdigest()
    LOCK.write_text(_text(hashes))


def _download(architecture: str, folder: Path, constraints: Path) -> None:
    platforms = [f"--platform={libc}_{architecture}" for libc in LIBC]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
    command += [*platforms, f"--dest={folder}", f"--constraint={constraints}", *WANTED]
    subprocess.run(command, cwd=ROOT, check=True)


def _text(hashes: dict[str, dict[str, str]]) -> str:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    lines = [HEADER.format(python=version, architectures=" and ".join(ARCHITECTURES))]
    for requirement, wheels in sorted(hashes.items()):
        digests = sorted(set(wheels.values()))
        parts = [requirement, *(f"--hash=sha256:{digest}" for digest in digests)]
        lines.append(" \\\n    ".join(parts) + "\n")
    return "".join(lines)


if __name__ == "__main__":
    main()
