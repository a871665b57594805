"""Read MaxText's sharding goldens: JSON files that MaxText's tests compare with a model's shardings.

https://github.com/AI-Hypercomputer/maxtext: `tests/utils/sharding_info`. `named_shardings.json` has shape,
spec and mesh of every array of the train state, `logical_shardings.json` the logical axes, and
`input_shardings.json` the constrained activations of a train step. They have no dtypes and no devices.
"""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from inspector.readers import content, limits
from inspector.readers.content import Report, Sample, no_report
from inspector.readers.imported_array import ImportedArrays, Meshes, SavedSharding, Stored, mesh_axes, spec_of
from inspector.records.snapshot import Finding, Snapshot
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import counted

NAMED = "named_shardings.json"
LOGICAL = "logical_shardings.json"
INPUT = "input_shardings.json"
SHAPES_UNKNOWN = "shapes-unknown"

_ACTIVATIONS = "Activation Sharding Dump"
# `.params/['params']/['decoder']/[0]`: JAX's key paths, in older files without slashes.
_KEY = re.compile(r"/?(?:\.([^/.\[\]'\"]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\[\"((?:[^\"\\]|\\.)*)\"\])")
# `attentions/query: bfloat16[192,2048,64,64]`
_VALUE = re.compile(r"(.+?):\s*(\w+)\[((?:\d+(?:,\s*\d+)*)?)\]", re.S)
# `P('fsdp', None)`, `P(('fsdp', 'expert'), None)`, `('activation_batch', None)`
_NAME = r"'([\w\-.]+)'|\"([\w\-.]+)\""
_TOKEN = re.compile(rf"\s*(?:{_NAME}|(None)|([(),]))")


def recognizes(sample: Sample) -> bool:
    """Return whether a folder contains a golden, or a JSON file begins with a key path of JAX."""
    if NAMED in (sample.names or ()):
        return True
    key, _ = sample.first_key()
    return key.startswith((".", "[")) or key == _ACTIVATIONS


def read(path: Path, what: str, step: int | None = None, report: Report = no_report) -> Snapshot:
    """Return the Snapshot of a `named_shardings.json`, or of the folder with one and its activations."""
    is_folder = path.is_dir()
    file = _folder(path, what) / NAMED if is_folder else path
    meshes = Meshes()
    entries = {
        key: _named(value, f"{what} at {shown(key, 200)}", meshes)
        for key, value in _object(file, NAMED if is_folder else what).items()
    }
    arrays = ImportedArrays(saved for _, saved in entries.values())
    findings = arrays.findings
    stored_arrays = {key: stored for key, (stored, _) in entries.items()}
    logical = _logical(file.with_name(LOGICAL), stored_arrays, findings)
    paths = _paths(entries, what)
    for key, (stored, saved) in entries.items():
        arrays.add(paths[key], stored, saved, logical.get(key))
    if is_folder and file.with_name(INPUT).is_file():
        _add_activations(file.with_name(INPUT), arrays)
    without = sum(stored.shape is None for stored in stored_arrays.values())
    if without:
        note = f"The golden lacks the shape of {counted(without, 'array')}, so their size is unknown."
        findings.append(Finding("warning", SHAPES_UNKNOWN, note))
    note = "A golden has no types and no devices: bytes are unknown, devices are numbered in mesh order."
    findings.append(Finding("note", "types-and-devices-unknown", note))
    return arrays.snapshot("maxtext", what)


def path_of(key: str) -> str:
    """Return the path of a key path: `.params/['params']/['scale']` is `params/params/scale`."""
    parts, at = [], 0
    while match := _KEY.match(key, at):
        parts.append(next(part for part in match.groups() if part is not None))
        at = match.end()
    return "/".join(parts) if parts and at == len(key) else key


def entries_of(text: str, what: str) -> list[Any]:
    """Return the entries of `P('fsdp', None)` or `('a', None)` as JSON values.

    Raise InvalidInput for another text.
    """
    at, done = 1 if text.startswith("P") else 0, None
    stack: list[list[Any]] = []
    if text.startswith("PartitionSpec"):
        at = len("PartitionSpec")
    while at < len(text.rstrip()) and done is None:
        token = _TOKEN.match(text, at)
        if token is None:
            break
        at = token.end()
        name = token[1] or token[2]
        if token[4] == "(":
            stack.append([])
        elif not stack:
            break
        elif token[4] == ")":
            inner = stack.pop()
            if stack:
                stack[-1].append(inner)
            else:
                done = inner
        elif name or token[3]:
            stack[-1].append(name or None)
        if len(stack) > 2:
            break
    if done is None or at != len(text.rstrip()):
        raise InvalidInput(f"{what} is {shown(text)}, but must be like P('fsdp', None)")
    return done


def _folder(given: Path, what: str) -> Path:
    """Return the folder with the golden: the given one, or the only one below it."""
    if (given / NAMED).is_file():
        return given
    paths = [path for path in content.files_below(given, what) if path.name == NAMED]
    if not paths:
        raise InvalidInput(f"{what} contains no {NAMED}, so it is not a MaxText golden")
    if len(paths) > 1:
        raise InvalidInput(f"{what} contains {len(paths)} files {NAMED}: give the folder of one of them")
    return paths[0].parent


def _object(path: Path, what: str) -> dict[str, Any]:
    plain = content.read_json(path, what)
    if isinstance(plain, dict) and _ACTIVATIONS in plain:
        raise InvalidInput(f"{what} contains only activations: give the {NAMED} next to it, or the folder")
    return content.array_entries(plain, what, "a MaxText golden")


def _named(value: object, where: str, meshes: Meshes) -> tuple[Stored, SavedSharding]:
    if not isinstance(value, dict) or "partition_spec" not in value:
        raise InvalidInput(f"{where} is {shown(value)}, but must have partition_spec, shape and mesh")
    if "mesh" not in value:
        raise InvalidInput(f"{where} has no mesh, as in a {LOGICAL}: give the {NAMED} next to it")
    plain = value["mesh"]
    shape = _shape(value, where)
    if not isinstance(plain, dict) or not isinstance(plain.get("shape"), dict):
        raise InvalidInput(f"{where} has the mesh {shown(plain)}, but must have axis_names and shape")
    names, sizes = plain.get("axis_names"), plain["shape"]
    try:
        if not isinstance(names, list) or sorted(map(str, names)) != sorted(sizes):
            raise InvalidInput("axis_names and shape must have the same axes")
        mesh = meshes.of(mesh_axes(names, [sizes[str(name)] for name in names]))
        return Stored(shape), SavedSharding(mesh, spec_of(value["partition_spec"], mesh))
    except InvalidInput as refused:
        raise InvalidInput(f"{where}: {refused}") from None


def _shape(plain: dict[str, Any], where: str) -> tuple[int, ...] | None:
    """Return the shape of an entry, None without one, as in the first goldens."""
    return content.size_list(plain["shape"], where) if "shape" in plain else None


def _paths(keys: Iterable[str], what: str) -> dict[str, str]:
    paths: dict[str, str] = {}
    for key in keys:
        paths[key] = path_of(key)
        if not paths[key] or not paths[key].isprintable():
            raise InvalidInput(f"{what} has the key {shown(key)}, but must have a key path")
    if len(set(paths.values())) != len(paths):
        return {key: key for key in paths}  # two keys give the same path
    return paths


def _logical(
    path: Path, named: dict[str, Stored], findings: list[Finding]
) -> dict[str, tuple[str | None, ...]]:
    """Return the logical axes of each key from the file next to the golden. Add a finding if some lack."""
    if not path.is_file():
        note = f"There is no {LOGICAL} next to the golden, so logical axes are unknown."
        findings.append(Finding("note", "logical-axes-unknown", note))
        return {}
    axes: dict[str, tuple[str | None, ...]] = {}
    for key, value in _object(path, LOGICAL).items():
        where = f"{LOGICAL} at {shown(key, 200)}"
        entries = value.get("partition_spec") if isinstance(value, dict) else None
        if not isinstance(entries, list) or not all(_is_name(entry) for entry in entries):
            raise InvalidInput(f"{where} must have a list of logical axes under partition_spec")
        stored = named.get(key)
        if stored is None:
            continue
        shape = _shape(value, where)
        if None not in (shape, stored.shape) and shape != stored.shape:
            raise InvalidInput(f"{where} has the shape {shape}, but the golden has {stored.shape}")
        rank = len(entries) if stored.shape is None else len(stored.shape)
        axes[key] = _padded(entries, rank, where)
    missing = len(named.keys() - axes.keys())
    if missing:
        note = f"{LOGICAL} lacks {counted(missing, 'array')}, so their logical axes are unknown."
        findings.append(Finding("note", "logical-axes-unknown", note))
    return axes


def _is_name(entry: object) -> bool:
    several = isinstance(entry, list) and all(isinstance(name, str) for name in entry)
    return entry is None or isinstance(entry, str) or several


def _add_activations(path: Path, arrays: ImportedArrays) -> None:
    """Add the constrained activations in order. Repeated names get a number."""
    plain = content.read_json(path, INPUT)
    rows = plain.get(_ACTIVATIONS) if isinstance(plain, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidInput(f"{INPUT} must have a list of objects under {_ACTIVATIONS}")
    seen: Counter[str] = Counter()
    mesh = arrays.mesh
    assert mesh is not None  # every entry of a golden has a mesh
    for row in rows[: limits.MOST_ARRAYS]:
        for key, value in row.items():
            where = f"{INPUT} at {shown(key, 200)}"
            match = _VALUE.fullmatch(key)
            if match is None or not isinstance(value, dict) or not key.isprintable():
                raise InvalidInput(f"{where} must be a name, a type and a shape, with its sharding")
            shape = tuple(int(size[:19]) for size in re.findall(r"\d+", match[3]))
            names = _logical_of(value.get("logic_axes"), len(shape), where)
            spec = spec_of(entries_of(_text(value, "PartitionSpec", where), where), mesh, where)
            name = f"activations/{match[1]}"
            seen[name] += 1
            name = f"{name}#{seen[name]}" if seen[name] > 1 else name
            stored, saved = Stored(shape, match[2]), SavedSharding(mesh, spec)
            arrays.add(name, stored, saved, names, "activation")


def _padded(entries: list[Any], rank: int, where: str) -> tuple[str | None, ...]:
    """Return one name per dimension, None for a missing entry. Several logical axes are joined by ` + `.

    Raises:
      InvalidInput: there are more entries than dimensions.
    """
    if len(entries) > rank:
        raise InvalidInput(f"{where} has {len(entries)} logical axes, but {rank} dimensions")
    names = [" + ".join(map(str, entry)) if isinstance(entry, list) else entry for entry in entries]
    return (*names, *(None,) * (rank - len(entries)))


def _logical_of(text: object, rank: int, where: str) -> tuple[str | None, ...] | None:
    if text == "Unknown" or not isinstance(text, str):
        return None
    return _padded(entries_of(text, where), rank, where)


def _text(value: dict[str, Any], key: str, where: str) -> str:
    if not isinstance(value.get(key), str):
        raise InvalidInput(f"{where} must have a string under {key}")
    return value[key]
