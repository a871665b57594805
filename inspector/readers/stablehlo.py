"""Recognize StableHLO text and bytecode. Reading it needs MLIR, which comes with JAX."""

import importlib
import re
from pathlib import Path

from inspector.files import input_file
from inspector.hlo.shardings import NamedMesh
from inspector.readers.content import MLIR_BYTECODE, Report, Sample, no_report
from inspector.records.snapshot import Snapshot

# Beginnings of MLIR text.
TEXT = re.compile(r"^\s*(?:#loc\b|module\s+(?:@|attributes\b|\{)|func\.func\b)|\bstablehlo\.", re.M)
_HLO = re.compile(r"^\s*HloModule\s", re.M)
_PRODUCER = "inspector.recording.imported_module"


def recognizes(sample: Sample) -> bool:
    """Return whether a file is MLIR bytecode, or text that begins as an MLIR module does."""
    if sample.path.is_dir():
        return False
    if input_file.head(sample.path, len(MLIR_BYTECODE), sample.what) == MLIR_BYTECODE:
        return True
    head = sample.head
    if head is None or sample.is_json or _HLO.search(head):
        return False
    return TEXT.search(head) is not None


def read(
    path: Path,
    what: str,
    step: int | None = None,
    report: Report = no_report,
    mesh: NamedMesh | None = None,
) -> Snapshot:
    """Return a Snapshot of a program that JAX lowered, after sharding propagation.

    mesh: that of the program, if its shardings name none.

    Raises:
      InvalidInput: the file is not a StableHLO module, or its program runs on another number of devices.
    """
    snapshot: Snapshot = importlib.import_module(_PRODUCER).read(path, what, mesh)
    return snapshot
