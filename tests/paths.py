"""Folders that tests read."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CASES = ROOT.parent / "shared" / "cases"
# Small cases of our own, named as those of third parties in CASES are. Every clone has them.
OWN_CASES = ROOT / "tests" / "cases"
