"""Read an Orbax checkpoint from its metadata: no value is read and nothing is restored.

Three files describe an array, and each may be missing: `_METADATA` has its path in the tree, its Zarr
metadata the shape and dtype, and `_sharding` its sharding.
"""

import contextlib
import itertools
import os
import re
import stat
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from inspector.files import strict_json
from inspector.readers import content, limits, orbax_folder, sharding_file
from inspector.readers.content import Report, Sample, no_report
from inspector.readers.imported_array import UNKNOWN_DTYPE, ImportedArrays, SavedSharding, Stored
from inspector.readers.orbax_folder import (
    ARRAY_FILES,
    COMMITTED,
    MSGPACK,
    OCDBT,
    SHARDING,
    STEP,
    TREE,
    CheckpointFolders,
)
from inspector.records.snapshot import Finding, Snapshot
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import bytes_text, counted

# Read the Zarr metadata of each array of a checkpoint: from its OCDBT database, or from its own file.
#
# Values are not read. From a database only the keys are listed, and one small entry per array is read.


# Metadata by the name of the array, and a sentence for each part that could not be read.
StoredMetadata = tuple[Mapping[str, bytes], tuple[str, ...]]

_PROCESSES = "ocdbt.process_*"
_AT_ONCE = 256  # entries that are read concurrently


def stored_metadata(folder: Path, what: str, names: Collection[str] = ()) -> StoredMetadata:
    """Return the metadata of every array below a folder, by the array's name.

    Args:
      names: array names from other files. Without a database they locate arrays in nested folders, which
        a key with a slash creates.
    """
    if (folder / OCDBT).is_file():
        metadata, problem = _read_database(folder, what)
        return metadata, () if problem is None else (f"{what}/{OCDBT} {problem}",)
    parts = [path for path in sorted(folder.glob(_PROCESSES)) if (path / OCDBT).is_file()]
    if parts:
        # Each process writes a database. Orbax merges them when the checkpoint is complete.
        merged: dict[str, bytes] = {}
        problems = [f"{what} has no merged {OCDBT}, so the databases of {len(parts)} processes were read"]
        for part in parts:
            metadata, problem = _read_database(part, what)
            merged |= metadata
            problems += [] if problem is None else [f"{what}/{part.name}/{OCDBT} {problem}"]
        return merged, tuple(problems)
    return _read_files(folder, what, names)


def _read_database(folder: Path, what: str) -> tuple[dict[str, bytes], str | None]:
    """Return the metadata in an OCDBT database, and what could not be read."""
    import tensorstore  # imports slowly, and only checkpoints need it

    _refuse_pipes(folder, what)
    spec = {"driver": "ocdbt", "base": {"driver": "file", "path": f"{folder}/"}}
    try:
        store = tensorstore.KvStore.open(spec).result()
        keys = [
            (name, key)
            for key in store.list().result()
            for name, _, last in [key.decode("utf-8", "replace").rpartition("/")]
            if last in ARRAY_FILES
        ]
        if len(keys) > limits.MOST_ARRAYS:
            raise InvalidInput(f"{what} has more than {limits.MOST_ARRAYS:,} arrays")
        metadata: dict[str, bytes] = {}
        large: list[str] = []
        for start in range(0, len(keys), _AT_ONCE):
            reads = [(name, store.read(key)) for name, key in keys[start : start + _AT_ONCE]]
            for name, read in reads:
                value = read.result().value
                if len(value) > limits.MOST_ARRAY_METADATA_BYTES:
                    large.append(name)
                else:
                    metadata[name] = value
            _refuse_much(metadata, what)
        if large:
            most = bytes_text(limits.MOST_ARRAY_METADATA_BYTES)
            return metadata, f"has metadata of more than {most}, the first of {shown(large[0])}"
        return metadata, None
    except InvalidInput:
        raise  # it is a ValueError too
    except (ValueError, RuntimeError, OSError) as error:
        # Messages of TensorStore are long and contain paths of the server.
        kind = str(error).partition(":")[0][:60] or type(error).__name__
        return {}, f"cannot be read ({kind}): shapes and types are unknown"


def _refuse_pipes(folder: Path, what: str) -> None:
    """Refuse a database with a pipe, a socket or a device: TensorStore would wait for its content for ever.

    Raises:
      InvalidInput: it contains such a file.
    """
    entries = (os.path.join(where, name) for where, _, names in os.walk(folder) for name in names)
    for path in itertools.islice(entries, limits.MOST_FILES):
        with contextlib.suppress(OSError):  # a link to nothing
            if not stat.S_ISREG(os.stat(path).st_mode):
                name = os.path.relpath(path, folder)
                raise InvalidInput(
                    f"{what} has {shown(name)}, which is a pipe or a device, but must be a file"
                )


def _read_files(folder: Path, what: str, names: Collection[str]) -> StoredMetadata:
    metadata: dict[str, bytes] = {}
    problems = []
    # An array that was saved without a tree has an empty name, and its folder is the tree's.
    below = {name for name in names if not name or ("/" in name and _is_inside(folder, name))}
    for name in sorted({path.name for path in folder.iterdir() if not path.is_symlink()} | below):
        own = [path for file in ARRAY_FILES if (path := folder / name / file).is_file()]
        if not own:
            continue
        if len(metadata) >= limits.MOST_ARRAYS:
            raise InvalidInput(f"{what} has more than {limits.MOST_ARRAYS:,} arrays")
        try:
            metadata[name] = content.read_bytes(
                own[0], limits.MOST_ARRAY_METADATA_BYTES, f"{what}/{name}/{own[0].name}"
            )
        except InvalidInput as refused:
            problems.append(str(refused))
        if not len(metadata) % _AT_ONCE:
            _refuse_much(metadata, what)
    _refuse_much(metadata, what)
    return metadata, tuple(problems)


def _refuse_much(metadata: Mapping[str, bytes], what: str) -> None:
    if sum(map(len, metadata.values())) > limits.MOST_JSON_BYTES:
        raise InvalidInput(
            f"{what} has more than {bytes_text(limits.MOST_JSON_BYTES)} of array metadata, the "
            "most that is read"
        )


def _is_inside(folder: Path, name: str) -> bool:
    """Return whether a name from a file leads to a folder below this one without following a link."""
    parts = name.split("/")
    if "\0" in name or any(part in ("", ".", "..") for part in parts):
        return False
    try:
        here = folder
        for part in parts:
            here = here / part
            if here.is_symlink() or not here.is_dir():
                return False
    except OSError:  # the key is longer than a file name can be
        return False
    return True


MISSING = "file-missing"
UNREADABLE = "file-unreadable"
UNCOMMITTED = "checkpoint-uncommitted"
NO_SHARDING = "sharding-not-saved"
ON_HOST = "on-host"

_FILES = frozenset({TREE, OCDBT, STEP, SHARDING, *ARRAY_FILES})
_ZARR2 = re.compile(r"[<>|=]([biufc])(\d{1,2})")
_KINDS = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}


@dataclass
class _Tree:
    """The contents of the files of one tree, by dotted name: paths, shapes and dtypes, shardings."""

    paths: dict[str, str]
    stored: dict[str, Stored]
    saved: dict[str, SavedSharding]
    on_host: Set[str] = frozenset()
    findings: list[Finding] = field(default_factory=list)


def recognizes(sample: Sample) -> bool:
    """Return whether a folder contains metadata files of Orbax or Zarr, not only a `_sharding` file."""
    return sample.names is not None and bool(sample.names & _FILES) and sample.names != {SHARDING}


def read(path: Path, what: str, step: int | None = None, report: Report = no_report) -> Snapshot:
    """Return the Snapshot of a checkpoint. If it has several steps, read `step`, or the latest if None.

    Raise InvalidInput if it is damaged, or has no arrays.
    """
    folders = orbax_folder.find(path, what, step)
    checkpoint = _checkpoint_metadata(folders)
    trees = {name: _tree(folder, what) for name, folder in folders.trees.items()}
    shardings = [saved for tree in trees.values() for saved in tree.saved.values()]
    arrays = ImportedArrays(shardings)
    findings = arrays.findings
    findings += _uncommitted(folders, checkpoint, what)
    for item, tree in trees.items():
        findings += tree.findings
        without: list[str] = []
        hosted: list[str] = []
        for name, inside in tree.paths.items():
            place = f"{item}/{inside}" if item else inside
            saved = tree.saved.get(name)
            stored = tree.stored.get(name, Stored())
            if saved is None and name in tree.on_host:
                arrays.add_host_array(place, stored)
                hosted.append(place)
                continue
            arrays.add(place, stored, saved)
            if saved is None and tree.saved:
                without.append(place)
        if without:
            words = f"{SHARDING} has no entry for {_some(without)}: their sharding is unknown."
            findings.append(Finding("warning", NO_SHARDING, words, array=without[0]))
        if hosted:
            words = f"On the host when saved, as NumPy arrays or numbers: {_some(hosted)}."
            findings.append(Finding("note", ON_HOST, words, array=hosted[0]))
    if not arrays.arrays and any((folder / MSGPACK).is_file() for folder in folders.trees.values()):
        raise InvalidInput(
            f"{what} is an old checkpoint of one msgpack file without metadata: restore it and save it again"
        )
    if not arrays.arrays:
        raise InvalidInput(f"{what} is an Orbax checkpoint without arrays")
    if arrays.mesh is not None and not all(saved.numbered for saved in shardings):
        note = "The checkpoint has no device ids, so devices are numbered in mesh order."
        findings.append(Finding("note", "devices-unknown", note))
    processes = max(map(_processes, folders.trees.values()))
    return arrays.snapshot("orbax", what, processes, folders.step, _saved(checkpoint))


def stored_array(metadata: bytes, what: str) -> Stored:
    """Return shape and dtype from Zarr metadata, version 2 or 3; raise InvalidInput for other content."""
    plain = strict_json.parse(metadata, what)
    if not isinstance(plain, dict):
        raise InvalidInput(f"{what} is {shown(plain)}, but must be an object")
    shape = content.size_list(plain.get("shape"), what)
    return Stored(shape, _dtype(plain.get("data_type", plain.get("dtype"))))


def _dtype(written: object) -> str:
    if not isinstance(written, str):
        return UNKNOWN_DTYPE
    match = _ZARR2.fullmatch(written)
    if match is None:
        return written if re.fullmatch(r"\w{1,40}", written) else UNKNOWN_DTYPE
    return "bool" if match[1] == "b" else f"{_KINDS[match[1]]}{int(match[2]) * 8}"


def _tree(folder: Path, what: str) -> _Tree:
    """Read the files of one tree. A missing or damaged file adds a finding."""
    tree = _Tree({}, {}, {})
    has_tree, has_sharding = (folder / TREE).is_file(), (folder / SHARDING).is_file()
    if has_sharding:
        try:
            entries = sharding_file.read_entries(folder / SHARDING, f"{what}/{SHARDING}")
            tree.saved = dict(entries.by_key)
            if entries.cut is not None:
                tree.findings.append(Finding("warning", sharding_file.CUT, entries.cut))
        except InvalidInput as refused:
            tree.findings.append(Finding("warning", UNREADABLE, f"{refused}: shardings are unknown."))
    if has_tree:
        leaves = orbax_folder.read(folder / TREE, f"{what}/{TREE}")
        tree.paths, tree.on_host = leaves.paths, leaves.on_host
        if leaves.left_out:
            words = f"Skipped {counted(leaves.left_out, 'leaf', 'leaves')} of {TREE}: not an array."
            tree.findings.append(Finding("note", "leaves-left-out", words))
    metadata, problems = stored_metadata(folder, what, {*tree.paths, *tree.saved})
    for name, raw in metadata.items():
        try:
            tree.stored[name] = stored_array(raw, f"the metadata of {shown(name, 200)}")
        except InvalidInput as refused:
            problems = (*problems, str(refused))
    tree.findings += [Finding("warning", UNREADABLE, f"{problem}.") for problem in problems]
    if not has_tree:
        tree.findings.append(_missing(TREE, "a dot inside of a key is read as a separator"))
        tree.paths = sharding_file.paths_of(dict.fromkeys([*tree.stored, *tree.saved]))
    if not has_sharding and not tree.on_host >= tree.paths.keys():
        tree.findings.append(_missing(SHARDING, "shardings are unknown"))
    unknown = [name for name in tree.paths if name not in tree.stored]
    if unknown:
        words = f"The shape and type of {_some(unknown)} are unknown: there is no Zarr metadata."
        tree.findings.append(Finding("warning", sharding_file.SHAPES_UNKNOWN, words))
    return tree


def _checkpoint_metadata(folders: CheckpointFolders) -> dict[str, Any]:
    """Return the metadata of the checkpoint, empty if it is missing or damaged."""
    path = folders.top / STEP
    if not path.is_file():
        return {}
    try:
        plain = content.read_json(path, STEP)
    except InvalidInput:
        return {}
    return plain if isinstance(plain, dict) else {}


def _uncommitted(folders: CheckpointFolders, checkpoint: dict[str, Any], what: str) -> list[Finding]:
    """Return a finding for each unfinished item, and one if the checkpoint began but never ended."""
    messages = [
        f"{what} has the item {shown(name)}, which was never committed." for name in folders.unfinished
    ]
    began = checkpoint.get("init_timestamp_nsecs")
    ended = checkpoint.get("commit_timestamp_nsecs")
    if began and not ended and not (folders.top / COMMITTED).is_file():
        messages.append(
            f"{what} was never committed: {STEP} has no commit time, and {COMMITTED} is missing. "
            "Arrays may be missing."
        )
    return [Finding("error", UNCOMMITTED, message) for message in messages]


def _saved(checkpoint: dict[str, Any]) -> str | None:
    """Return the time when the checkpoint was complete, in ISO 8601; None if unknown."""
    ended = checkpoint.get("commit_timestamp_nsecs")
    if type(ended) is not int or not 0 < ended < 2**63:
        return None
    return datetime.fromtimestamp(ended // 10**9, UTC).isoformat()


def _processes(folder: Path) -> int:
    """Return the number of processes that wrote a tree, counted by their files; 1 if there are none."""
    written = [folder.glob("array_metadatas/process_*"), folder.glob("ocdbt.process_*")]
    return max(1, *(sum(1 for _ in files) for files in written))


def _missing(name: str, words: str) -> Finding:
    return Finding("warning", MISSING, f"The checkpoint has no {name}: {words}.")


def _some(names: list[str]) -> str:
    more = f" and {counted(len(names) - 1, 'other array')}" if len(names) > 1 else ""
    return f"{shown(names[0], 200)}{more}"
