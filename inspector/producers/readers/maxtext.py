"""MaxText's sharding goldens: JSON files that its own tests compare a model's shardings with.

https://github.com/AI-Hypercomputer/maxtext: `tests/utils/sharding_info`. `named_shardings.json` has shape,
spec and mesh of every array of the train state, `logical_shardings.json` beside it the logical axes, and
`input_shardings.json` what a train step constrained on its way. No file names types or devices.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import counted
from inspector.core.snapshot import (
    Array,
    Finding,
    Mesh,
    Snapshot,
    Source,
)
from inspector.layout.plan import now
from inspector.producers.readers import content, limits, saved_sharding
from inspector.producers.readers.imported_array import Room, Stored, placed
from inspector.producers.readers.saved_sharding import Meshes, SavedSharding, mesh_axes, spec_of

NAMED = "named_shardings.json"
LOGICAL = "logical_shardings.json"
INPUT = "input_shardings.json"
SHAPES_UNKNOWN = "shapes-unknown"

# `.params/['params']/['decoder']/[0]`: JAX's key paths, in older files without the slashes.
_KEY = re.compile(
    r"/?(?:\.([^/.\[\]'\"]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\[\"((?:[^\"\\]|\\.)*)\"\])"
)
# `attentions/query: bfloat16[192,2048,64,64]`
_VALUE = re.compile(r"(.+?):\s*(\w+)\[((?:\d+(?:,\s*\d+)*)?)\]", re.S)
# `P('fsdp', None)`, `P(('fsdp', 'expert'), None)`, `('activation_batch', None)`
_NAME = r"'([\w\-.]+)'|\"([\w\-.]+)\""
_TOKEN = re.compile(rf"\s*(?:{_NAME}|(None)|([(),]))")
_MOST_SIZE = 2**63


def read(path: str | os.PathLike[str], what: str) -> Snapshot:
    """A golden as a Snapshot: a `named_shardings.json`, or a folder with one, there with its activations.

    Raises:
      InvalidInput: it is no such file, or one beside it contradicts it.
    """
    given = Path(path)
    whole = given.is_dir()
    if whole:
        folder = _folder(given, what)
        given = folder / NAMED
    named = _object(given, NAMED if whole else what)
    meshes = Meshes()
    entries = {
        key: _named(value, f"{what} at {shown(key, 200)}", meshes) for key, value in named.items()
    }
    mesh = saved_sharding.common_mesh(saved.mesh for _, saved in entries.values())
    logical, findings = _logical(given.with_name(LOGICAL), {k: s for k, (s, _) in entries.items()})
    arrays: list[Array] = []
    paths = _paths(entries, what)
    room = Room()
    for key, (stored, saved) in entries.items():
        array, finding = placed(paths[key], stored, saved, mesh, logical.get(key), room=room)
        arrays.append(array)
        findings += [finding] if finding is not None else []
    if whole and given.with_name(INPUT).is_file() and mesh is not None:
        arrays += _activations(given.with_name(INPUT), mesh)
    without = sum(stored.shape is None for stored, _ in entries.values())
    if without:
        note = f"The golden has no shape of {counted(without, 'array')}: how large they are is unknown."
        findings.append(Finding("warning", SHAPES_UNKNOWN, note))
    findings.append(
        Finding(
            "note",
            "types-and-devices-unknown",
            "A golden names no types and no devices: bytes are unknown, and devices are numbered by "
            "their place on the mesh.",
        )
    )
    return Snapshot(
        source=Source("maxtext", None, now(), extra={"file": what}),
        layout=None,
        mesh=mesh,
        arrays=tuple(arrays),
        findings=tuple(findings),
    )


def path_of(key: str) -> str:
    """`.params/['params']/['scale']` as `params/params/scale`; what is no key path stays as it is."""
    parts, at = [], 0
    while found := _KEY.match(key, at):
        parts.append(next(part for part in found.groups() if part is not None))
        at = found.end()
    return "/".join(parts) if parts and at == len(key) else key


def entries_of(text: str, what: str) -> list[Any]:
    """What stands between the brackets of `P('fsdp', None)` or `('a', None)`, as JSON would have it.

    Raises:
      InvalidInput: it is neither.
    """
    at, stack, done = 1 if text.startswith("P") else 0, [], None
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
    """The folder with the golden: the one given, or the only one below it."""
    if (given / NAMED).is_file():
        return given
    found = [path for path in content.files_below(given, what) if path.name == NAMED]
    if not found:
        raise InvalidInput(f"{what} holds no {NAMED}, so it is no MaxText golden")
    if len(found) > 1:
        raise InvalidInput(
            f"{what} holds {len(found)} files {NAMED}: give the folder of one of them"
        )
    return found[0].parent


def _object(path: Path, what: str) -> dict[str, Any]:
    plain = content.read_json(path, what)
    if not isinstance(plain, dict) or not plain:
        raise InvalidInput(
            f"{what} is {shown(plain)}, but must be an object with an entry an array"
        )
    if "Activation Sharding Dump" in plain:
        raise InvalidInput(
            f"{what} holds activations alone: give the {NAMED} beside it, or their folder"
        )
    if isinstance(plain.get("format"), str):
        raise InvalidInput(f"{what} is a {shown(plain['format'])} file, not a MaxText golden")
    if len(plain) > limits.MOST_ARRAYS:
        raise InvalidInput(
            f"{what} has more than {limits.MOST_ARRAYS:,} arrays, which are all it may have"
        )
    return plain


def _named(value: Any, where: str, meshes: Meshes) -> tuple[Stored, SavedSharding]:
    if not isinstance(value, dict) or "partition_spec" not in value:
        raise InvalidInput(
            f"{where} is {shown(value)}, but must have partition_spec, shape and mesh"
        )
    if "mesh" not in value:
        raise InvalidInput(f"{where} has no mesh, as in a {LOGICAL}: give the {NAMED} beside it")
    plain = value["mesh"]
    shape = _shape(value, where)
    if not isinstance(plain, dict) or not isinstance(plain.get("shape"), dict):
        raise InvalidInput(
            f"{where} has the mesh {shown(plain)}, but must have axis_names and shape"
        )
    names, sizes = plain.get("axis_names"), plain["shape"]
    try:
        if not isinstance(names, list) or sorted(map(str, names)) != sorted(sizes):
            raise InvalidInput("axis_names and shape name different axes")
        mesh = meshes.of(mesh_axes(names, [sizes[str(name)] for name in names]))
        return Stored(shape), SavedSharding(mesh, spec_of(value["partition_spec"], mesh))
    except InvalidInput as refused:
        raise InvalidInput(f"{where}: {refused}") from None


def _shape(plain: dict[str, Any], where: str) -> tuple[int, ...] | None:
    """The shape of an entry; None where it has none, as the first goldens had."""
    if "shape" not in plain:
        return None
    value = plain["shape"]
    if not isinstance(value, list) or not all(
        type(size) is int and 0 <= size < _MOST_SIZE for size in value
    ):
        raise InvalidInput(f"{where} has the shape {shown(value)}, but must have a list of sizes")
    return tuple(value)


def _paths(keys: Any, what: str) -> dict[str, str]:
    paths: dict[str, str] = {}
    for key in keys:
        paths[key] = path_of(key)
        if not paths[key] or not paths[key].isprintable():
            raise InvalidInput(f"{what} has the key {shown(key)}, but must have a key path")
    if len(set(paths.values())) != len(paths):
        return {key: key for key in keys}  # two keys that are one path keep what tells them apart
    return paths


def _logical(
    path: Path, named: dict[str, Stored]
) -> tuple[dict[str, tuple[str | None, ...]], list[Finding]]:
    """The logical axes of each key, from the file beside the golden; a finding where it has none of one."""
    if not path.is_file():
        note = f"There is no {LOGICAL} beside the golden, so the logical axes are unknown."
        return {}, [Finding("note", "logical-axes-unknown", note)]
    axes: dict[str, tuple[str | None, ...]] = {}
    for key, value in _object(path, LOGICAL).items():
        where = f"{LOGICAL} at {shown(key, 200)}"
        entries = value.get("partition_spec") if isinstance(value, dict) else None
        if not isinstance(entries, list) or not all(_is_name(entry) for entry in entries):
            raise InvalidInput(f"{where} has no list of logical axes under partition_spec")
        stored = named.get(key)
        if stored is None:
            continue
        shape = _shape(value, where)
        if None not in (shape, stored.shape) and shape != stored.shape:
            raise InvalidInput(
                f"{where} has another shape than the golden: they do not belong together"
            )
        rank = len(entries) if stored.shape is None else len(stored.shape)
        if len(entries) > rank:
            raise InvalidInput(f"{where} has more logical axes than dimensions")
        names = [" + ".join(one) if isinstance(one, list) else one for one in entries]
        axes[key] = (*names, *(None,) * (rank - len(entries)))
    missing = len(named.keys() - axes.keys())
    if missing:
        note = f"{LOGICAL} lacks {counted(missing, 'array')} of the golden; their logical axes are unknown."
        return axes, [Finding("note", "logical-axes-unknown", note)]
    return axes, []


def _is_name(entry: Any) -> bool:
    several = isinstance(entry, list) and all(isinstance(one, str) for one in entry)
    return entry is None or isinstance(entry, str) or several


def _activations(path: Path, mesh: Mesh) -> list[Array]:
    """What the step constrained, in order; one that is there again gets a number."""
    plain = content.read_json(path, INPUT)
    rows = plain.get("Activation Sharding Dump") if isinstance(plain, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidInput(f'{INPUT} must have a list under "Activation Sharding Dump"')
    arrays: list[Array] = []
    seen: dict[str, int] = {}
    for row in rows[: limits.MOST_ARRAYS]:
        for key, value in row.items():
            where = f"{INPUT} at {shown(key, 200)}"
            found = _VALUE.fullmatch(key)
            if found is None or not isinstance(value, dict) or not key.isprintable():
                raise InvalidInput(f"{where} must be a name, a type and a shape, with its sharding")
            shape = tuple(int(size[:19]) for size in re.findall(r"\d+", found[3]))
            names = _logical_of(value.get("logic_axes"), len(shape), where)
            spec = spec_of(entries_of(_text(value, "PartitionSpec", where), where), mesh, where)
            path_here = f"activations/{found[1]}"
            seen[path_here] = seen.get(path_here, 0) + 1
            if seen[path_here] > 1:
                path_here = f"{path_here}#{seen[path_here]}"
            array, _ = placed(
                path_here,
                Stored(shape, found[2]),
                SavedSharding(mesh, spec),
                mesh,
                names,
                "activation",
            )
            arrays.append(array)
    return arrays


def _logical_of(text: Any, rank: int, where: str) -> tuple[str | None, ...] | None:
    if text == "Unknown" or not isinstance(text, str):
        return None
    entries = entries_of(text, where)
    if len(entries) > rank:
        raise InvalidInput(f"{where} has more logical axes than dimensions")
    names = [" + ".join(map(str, one)) if isinstance(one, list) else one for one in entries]
    return (*names, *(None,) * (rank - len(entries)))


def _text(value: dict[str, Any], key: str, where: str) -> str:
    if not isinstance(value.get(key), str):
        raise InvalidInput(f"{where} has no {key}")
    return value[key]
