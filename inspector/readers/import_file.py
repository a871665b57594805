"""Import files of a real job. A worker reads them because a hostile file can exhaust memory or time."""

import contextlib
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inspector import audit
from inspector.compare import board as boards
from inspector.files import input_file, temporary_folder
from inspector.files.sources import READERS, SNAPSHOT
from inspector.hlo.shardings import NamedMesh
from inspector.jobs import host_memory
from inspector.jobs.engine import environment
from inspector.layout import rule_files
from inspector.readers import archive, content, limits
from inspector.readers.content import Sample
from inspector.records import typed_json
from inspector.records.job_report import JobReport
from inspector.records.snapshot import Snapshot, dumps
from inspector.text.errors import InvalidInput, require_one_of, shown
from inspector.text.formatting import bytes_text

UNPACKED = "unpacked"


def import_job(payload: dict[str, Any], report: JobReport) -> dict[str, Any]:
    """Worker job: read and audit a file or folder. Return the JSON text of its Snapshot under `snapshot`.

    As text, because the server decodes it later, and plain JSON takes several times as much memory.

    Keys of the payload: `path`; `name`, used in messages; `kind`, None to detect it; `step` of a
    checkpoint, None for the latest; `mesh` of a file without one, as [name, size] of each axis, or None;
    `folder` for unpacking zip files, None to refuse them.
    """
    try:
        with contextlib.ExitStack() as stack:
            folder = payload["folder"]
            if folder is not None:
                folder = stack.enter_context(temporary_folder.held(folder))
            path, name = Path(payload["path"]), payload["name"]
            mesh = payload["mesh"] and NamedMesh(tuple(map(tuple, payload["mesh"])))
            snapshot = read(
                path,
                name,
                kind=payload["kind"],
                step=payload["step"],
                folder=folder,
                report=report,
                mesh=mesh,
            )
            return {"snapshot": _bounded_text(audit.audited(snapshot), name)}
    except MemoryError:
        raise _out_of_memory(payload["name"]) from None
    finally:
        host_memory.give_back()  # the worker may stay idle for long


def board_job(payload: dict[str, Any], report: JobReport) -> dict[str, Any]:
    """Worker job: read a Board file, or a Snapshot file as a Board. Return its JSON text under `board`.

    Keys of the payload: `path`; `name`, used in messages.
    """
    name = payload["name"]
    report("read")
    try:
        raw = content.read_bytes(payload["path"], boards.MOST_BYTES, name)
        return {"board": boards.dumps(boards.parse(raw, name))}
    except MemoryError:
        raise _out_of_memory(name) from None
    finally:
        host_memory.give_back()  # the worker may stay idle for long


def rules_job(payload: dict[str, Any], report: JobReport) -> dict[str, Any]:
    """Worker job: return the lists of rules in the text of a file as JSON.

    Keys of the payload: `text`; `name` of the file.
    """
    report("read")
    try:
        rule_sets = rule_files.rule_sets(payload["text"], payload["name"])
        return typed_json.encode(rule_files.RuleFile(rule_sets))  # type: ignore[no-any-return]
    finally:
        host_memory.give_back()


def read(
    path: Path,
    name: str,
    kind: str | None,
    step: int | None,
    folder: Path | None,
    report: JobReport,
    mesh: NamedMesh | None = None,
) -> Snapshot:
    """Return the Snapshot of one file or folder. Arguments and InvalidInput are those of `import_job`."""

    def progress(phase: str) -> Callable[[int, int], None]:
        return lambda done, of: report(phase, done=done, of=of)

    report("read")
    if not path.exists():
        raise InvalidInput(f"{name} does not exist")
    if path.is_file() and input_file.head(path, 4, name) in input_file.ZIP:
        if folder is None:
            raise InvalidInput(f"{name} is a zip file: unpack it first")
        target = folder / UNPACKED
        target.mkdir()
        archive.unpack(path, target, name, progress("unpack"))
        inside = list(target.iterdir())
        path = inside[0] if len(inside) == 1 and inside[0].is_file() else target
        report("read")
    if path.is_file() and archive.is_tar(path):
        raise InvalidInput(f"{name} is a tar archive: give the folder in it, or a zip file of it")
    if kind is None:
        kind = detect(path, name)
    require_one_of("kind", kind, READERS)
    module = importlib.import_module(READERS[kind].module)
    options = {"mesh": mesh} if READERS[kind].takes_mesh else {}
    snapshot: Snapshot = module.read(path, name, step, progress("read"), **options)
    return snapshot


def _bounded_text(snapshot: Snapshot, name: str) -> str:
    """Return the JSON text of a Snapshot.

    Raises:
      InvalidInput: it has too many collectives, or too many bytes.
    """
    collectives = sum(len(program.collectives or ()) for program in snapshot.programs)
    if collectives > limits.MOST_COLLECTIVES:
        raise InvalidInput(
            f"{name} has {collectives:,} collectives, but at most {limits.MOST_COLLECTIVES:,} are read"
        )
    text = dumps(snapshot)
    if len(text) > limits.MOST_SNAPSHOT_BYTES:
        raise InvalidInput(
            f"{name} makes a Snapshot of {bytes_text(len(text))}, but at most "
            f"{bytes_text(limits.MOST_SNAPSHOT_BYTES)} can be opened"
        )
    return text


def _out_of_memory(name: str) -> InvalidInput:
    return InvalidInput(
        f"{name} needs more than {bytes_text(environment.of_parsing())} of memory to read, the most allowed"
    )


def detect(path: Path, name: str) -> str:
    """Return the kind of a file or folder, a key of `READERS`; raise InvalidInput if no reader knows it."""
    sample = content.sample(path, name)
    # A folder of `run` can contain files of other kinds, such as its profile.
    for kind in dict.fromkeys((SNAPSHOT, *READERS)) if sample.path.is_dir() else READERS:
        if importlib.import_module(READERS[kind].module).recognizes(sample):
            return kind
    raise InvalidInput(_unrecognized(sample))


def _unrecognized(sample: Sample) -> str:
    kinds = ", ".join(reader.name for reader in READERS.values())
    if sample.head is None:
        names = ", ".join(shown(name, 40) for name in sorted(sample.names or ())[:4]) or "no file"
        return f"{sample.what} contains {names}, but must be or contain one of: {kinds}"
    written = sample.json_format()
    if written == boards.FORMAT:
        return f"{sample.what} is a board of several layouts: open it on the Board page"
    has = f"JSON with the format {shown(written)}" if written else "a file without a format"
    return f"{sample.what} is {has}, but must be one of: {kinds}"
