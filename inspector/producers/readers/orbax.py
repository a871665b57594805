"""An Orbax checkpoint as a Snapshot, from its metadata alone: no value is read and nothing is restored.

Three things tell of an array, and any may be missing: `_METADATA` has its place in the tree, the array's
own metadata (`.zarray`, `zarr.json`, inside OCDBT or not) its shape and type, `_sharding` where it lay.
What reads an OCDBT is given in, because it needs TensorStore.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from inspector.core import strict_json
from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import counted
from inspector.core.snapshot import Array, Finding, Snapshot, Source
from inspector.layout.plan import now
from inspector.producers.readers import (
    content,
    orbax_folder,
    orbax_leaves,
    saved_sharding,
    sharding_file,
)
from inspector.producers.readers.imported_array import (
    UNKNOWN_DTYPE,
    Room,
    Stored,
    on_host,
    placed,
)
from inspector.producers.readers.orbax_folder import (
    COMMITTED,
    MSGPACK,
    SHARDING,
    STEP,
    TREE,
    Found,
)
from inspector.producers.readers.saved_sharding import SavedSharding

MISSING = "file-missing"
UNREADABLE = "file-unreadable"
UNCOMMITTED = "checkpoint-uncommitted"
NO_SHARDING = "sharding-not-saved"
ON_HOST = "on-host"

# The name of each array → its own metadata as it is stored, and sentences on what could not be read.
StoredArrays = tuple[Mapping[str, bytes], tuple[str, ...]]
# Given the folder, what it is called in sentences, and the names of arrays that are known to be there.
ReadStored = Callable[[Path, str, Collection[str]], StoredArrays]

_ZARR2 = re.compile(r"[<>|=]([biufc])(\d{1,2})")
_KINDS = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}


@dataclass
class _Tree:
    """One tree of arrays, as far as its files tell: dotted name → path, and what else is known of it."""

    paths: dict[str, str]
    stored: dict[str, Stored]
    saved: dict[str, SavedSharding]
    on_host: Set[str] = frozenset()
    findings: list[Finding] = field(default_factory=list)


def read(path: str | Path, what: str, read_stored: ReadStored, step: int | None = None) -> Snapshot:
    """The checkpoint in a folder; of several steps the one asked for, else the latest.

    Raises:
      InvalidInput: there is none, it was not finished, or its metadata is not such.
    """
    found = orbax_folder.find(Path(path), what, step)
    checkpoint = _checkpoint_metadata(found)
    findings = _uncommitted(found, checkpoint, what)
    trees = {name: _tree(folder, what, read_stored) for name, folder in found.trees.items()}
    mesh = saved_sharding.common_mesh(
        saved.mesh for tree in trees.values() for saved in tree.saved.values()
    )
    arrays: list[Array] = []
    room = Room()
    for item, tree in trees.items():
        findings += tree.findings
        without: list[str] = []
        hosted: list[str] = []
        for name, inside in tree.paths.items():
            place = f"{item}/{inside}" if item else inside
            saved = tree.saved.get(name)
            stored = tree.stored.get(name, Stored())
            if saved is None and name in tree.on_host:
                arrays.append(on_host(place, stored))
                hosted.append(place)
                continue
            array, finding = placed(place, stored, saved, mesh, room=room)
            arrays.append(array)
            findings += [finding] if finding is not None else []
            if saved is None and tree.saved:
                without.append(place)
        if without:
            findings.append(_not_saved(without))
        if hosted:
            findings.append(_hosted(hosted))
    if not arrays and any((folder / MSGPACK).is_file() for folder in found.trees.values()):
        raise InvalidInput(
            f"{what} is a checkpoint of one msgpack file, from before Orbax kept metadata: restore it "
            "and save it again"
        )
    if not arrays:
        raise InvalidInput(f"{what} is an Orbax checkpoint without any array")
    if mesh is not None and not all(
        saved.numbered for tree in trees.values() for saved in tree.saved.values()
    ):
        note = "The checkpoint does not name its devices: they are numbered by their place on the mesh."
        findings.append(Finding("note", "devices-unknown", note))
    return Snapshot(
        source=Source(
            "orbax",
            None,
            now(),
            processes=max(map(_processes, found.trees.values())),
            extra={"file": what} | _of_checkpoint(found, checkpoint),
        ),
        layout=None,
        mesh=mesh,
        arrays=tuple(arrays),
        findings=tuple(findings),
    )


def stored_array(metadata: bytes, what: str) -> Stored:
    """Shape and type from an array's own metadata, of either version of Zarr.

    Raises:
      InvalidInput: it is not such metadata.
    """
    plain = strict_json.parse(metadata, what)
    if not isinstance(plain, dict):
        raise InvalidInput(f"{what} is {shown(plain)}, but must be an object")
    shape = plain.get("shape")
    if not isinstance(shape, list) or not all(
        type(size) is int and 0 <= size < 2**63 for size in shape
    ):
        raise InvalidInput(f"{what} has the shape {shown(shape)}, but must have a list of sizes")
    dtype = plain.get("data_type", plain.get("dtype"))
    return Stored(tuple(shape), _dtype(dtype))


def _dtype(written: Any) -> str:
    if not isinstance(written, str):
        return UNKNOWN_DTYPE
    found = _ZARR2.fullmatch(written)
    if found is None:
        return written if re.fullmatch(r"\w{1,40}", written) else UNKNOWN_DTYPE
    return "bool" if found[1] == "b" else f"{_KINDS[found[1]]}{int(found[2]) * 8}"


def _tree(folder: Path, what: str, read_stored: ReadStored) -> _Tree:
    """All that the files of one tree tell; a file that is missing or damaged leaves a finding."""
    tree = _Tree({}, {}, {})
    called = f"{what}/{SHARDING}"
    if (folder / SHARDING).is_file():
        try:
            entries = sharding_file.read_entries(folder / SHARDING, called)
            tree.saved = dict(entries.by_key)
            if entries.cut is not None:
                tree.findings.append(Finding("warning", sharding_file.CUT, entries.cut))
        except InvalidInput as refused:
            tree.findings.append(
                Finding("warning", UNREADABLE, f"{refused}: how arrays were sharded is unknown.")
            )
    has_tree = (folder / TREE).is_file()
    if has_tree:
        _name(tree, orbax_leaves.read(folder / TREE, f"{what}/{TREE}"))
    metadata, problems = read_stored(folder, what, {*tree.paths, *tree.saved})
    for name, one in metadata.items():
        try:
            tree.stored[name] = stored_array(one, f"the metadata of {shown(name, 200)}")
        except InvalidInput as refused:
            problems = (*problems, str(refused))
    tree.findings += [Finding("warning", UNREADABLE, f"{problem}.") for problem in problems]
    if not has_tree:
        tree.findings.append(
            _missing(TREE, "keys that hold a point of their own cannot be told from two keys")
        )
        tree.paths = sharding_file.paths_of(dict.fromkeys([*tree.stored, *tree.saved]))
    if not (folder / SHARDING).is_file() and not tree.on_host.issuperset(tree.paths):
        # Arrays of NumPy and numbers have no sharding that could be missing.
        tree.findings.append(_missing(SHARDING, "how its arrays were sharded is unknown"))
    unknown = [name for name in tree.paths if name not in tree.stored]
    if unknown:
        tree.findings.append(
            Finding(
                "warning",
                sharding_file.SHAPES_UNKNOWN,
                f"The metadata of {counted(len(unknown), 'array')} is missing "
                f"(the first is {shown(unknown[0], 200)}): shape and type are unknown.",
            )
        )
    return tree


def _name(tree: _Tree, leaves: orbax_leaves.Leaves) -> None:
    """Give a tree the names and paths that `_METADATA` has."""
    tree.paths, tree.on_host = leaves.paths, leaves.on_host
    if leaves.left_out:
        verb = "is no array and is" if leaves.left_out == 1 else "are no arrays and are"
        many = counted(leaves.left_out, "leaf", "leaves")
        tree.findings.append(
            Finding("note", "leaves-left-out", f"{many} of {TREE} {verb} left out.")
        )


def _checkpoint_metadata(found: Found) -> dict[str, Any]:
    """The checkpoint's own metadata; nothing where it is missing or is not such."""
    path = found.top / STEP
    if not path.is_file():
        return {}
    try:
        plain = content.read_json(path, STEP)
    except InvalidInput:
        return {}
    return plain if isinstance(plain, dict) else {}


def _uncommitted(found: Found, checkpoint: dict[str, Any], what: str) -> list[Finding]:
    """A finding for each item that Orbax had not come to the end of, and one for the whole.

    That is where it began to write and neither of the two signs says that it ended.
    """
    findings = [
        Finding(
            "error",
            UNCOMMITTED,
            f"{what} has the item {shown(name)}, which was never committed and is left out.",
        )
        for name in found.unfinished
    ]
    began = checkpoint.get("init_timestamp_nsecs")
    ended = checkpoint.get("commit_timestamp_nsecs")
    if began and not ended and not (found.top / COMMITTED).is_file():
        message = (
            f"{what} was never committed: {STEP} has a beginning but no end, and there is no "
            f"{COMMITTED}. Arrays may be missing."
        )
        findings.append(Finding("error", UNCOMMITTED, message))
    return findings


def _of_checkpoint(found: Found, checkpoint: dict[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {} if found.step is None else {"step": found.step}
    ended = checkpoint.get("commit_timestamp_nsecs")
    if type(ended) is int and 0 < ended < 2**63:
        saved = datetime.fromtimestamp(ended // 10**9, UTC)
        said["saved"] = saved.isoformat()
    return said


def _processes(folder: Path) -> int:
    """How many processes wrote the tree, by the files that each leaves; 1 where none is there."""
    written = [folder.glob("array_metadatas/process_*"), folder.glob("ocdbt.process_*")]
    return max(1, *(sum(1 for _ in each) for each in written))


def _missing(name: str, words: str) -> Finding:
    return Finding("warning", MISSING, f"The checkpoint has no {name}: {words}.")


def _not_saved(paths: list[str]) -> Finding:
    more = f" and {counted(len(paths) - 1, 'other')}" if len(paths) > 1 else ""
    return Finding(
        "warning",
        NO_SHARDING,
        f"{SHARDING} has no entry for {shown(paths[0], 200)}{more}: how they were sharded is unknown.",
        array=paths[0],
    )


def _hosted(paths: list[str]) -> Finding:
    words = (
        "was a NumPy array or a number when it was saved: no device held it"
        if len(paths) == 1
        else f"and {counted(len(paths) - 1, 'other')} were NumPy arrays or numbers when they were saved: "
        "no device held them"
    )
    return Finding("note", ON_HOST, f"{shown(paths[0], 200)} {words}.", array=paths[0])
