"""One array: its shard map, the reasons for its sharding, its JAX attributes, and its shards."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from inspector import figures
from inspector.answers import unknown
from inspector.answers.programs import named
from inspector.answers.section import (
    Block,
    Code,
    Columns,
    Inline,
    Listing,
    Picture,
    Section,
    Strong,
    Table,
    text,
)
from inspector.layout import Layout
from inspector.model import RulesSemantics
from inspector.records.snapshot import Array, Mesh, Snapshot
from inspector.sharding import memory_kinds, sharding_text
from inspector.sharding import placement as sharding
from inspector.sharding.memory_kinds import in_host_memory, memory_kind
from inspector.sharding.rules import Rule, ledger, nnx
from inspector.sharding.rules.rule import Trial, of_the_mesh, outcome
from inspector.sharding.sharding_text import array_spec_text
from inspector.text.formatting import and_text, bytes_text, counted, ranges_text
from inspector.text.program_names import noun, subject


def maps(array: Array, snapshot: Snapshot) -> tuple[Block, ...]:
    """Return the array cut into its blocks, and the mesh colored by them."""
    mesh = snapshot.mesh_of(array)
    if mesh is None:
        return tuple(filter(None, (unknown.no_mesh(snapshot),)))
    reason = figures.block_map.why_no_map(array, mesh)
    if reason is not None:
        return (unknown.unknown(reason),)
    path = array.path
    blocks = Picture(
        f"blocks-{path}",
        f"Blocks of {path}",
        lambda width_px: figures.block_map.block_map(array, mesh, width_px=width_px),
    )
    # The block map names the array, the mesh map does not.
    devices = Picture(
        f"mesh-{path}",
        f"Mesh by block of {path}",
        lambda width_px: figures.mesh_map.mesh_map(array, mesh, width_px=width_px),
        stamp=(path,),
    )
    return (Columns(((blocks,), (devices,))), *notes(array))


def notes(array: Array) -> tuple[Block, ...]:
    """Return the facts that the shard map of an array omits, such as partial sums; empty if it shows all."""
    return tuple(text(note) for note in sharding_text.notes(array))


def why(array: Array, snapshot: Snapshot, layout: Layout | None) -> tuple[Block, ...]:
    """Return the reason for the sharding of each dimension, with every rule that was tried on it."""
    mesh = snapshot.mesh_of(array)
    if layout is None or mesh is None:
        source = unknown.source_text(snapshot)
        return (text(f"The reasons are unknown: {source} contains no rules.", quiet=True),)
    rules = layout.rules if layout.entry.has_rules else None
    given = reasons(array, mesh, rules, layout.entry.rules_semantics)
    if not given:
        return ()
    items: list[tuple[Inline, ...]] = []
    for reason in given:
        name = f" {reason.logical_axis}" if reason.logical_axis else ""
        axes = " + ".join(reason.axes) or "not sharded"
        said = " ".join(reason.sentences)
        items.append((f"dimension {reason.dimension}{name} → ", Strong(axes), f". {said}"))
    return (text(Strong("Reasons for the sharding")), Listing(tuple(items)))


def placed(array: Array, snapshot: Snapshot) -> Section:
    """Return the place of an array without a rule, and which programs take or return it."""
    uses = [
        (program.name, sharding)
        for program in snapshot.programs
        for sharding in program.shardings
        if sharding.path == array.path
    ]
    returns = [(name, sharding) for name, sharding in uses if sharding.role == "output"]
    copies = "" if array.replicas is None else f", {counted(array.replicas, 'copy', 'copies')}"
    size = bytes_text(array.bytes_per_device)
    kind = f"{array.dtype}{list(array.shape or ())}"
    devices = array.facts.devices if array.facts is not None else None
    where = "there" if devices == 1 else "on each of its devices"
    where = f"in the {memory_kind(array)} memory of each device" if in_host_memory(array) else where
    verb = "on" if devices == 1 else "sharded as"
    said = f"{kind} is {verb} {array_spec_text(array)}: {size} {where}{copies}."
    verb, of = ("return", "out") if returns else ("take", "in")
    if names := [*dict.fromkeys(name for name, _ in returns or uses)]:
        fixed = all(sharding.requested is not None for _, sharding in returns or uses)
        given = f"the sharding that {of}_shardings of jit give it" if fixed else "this sharding"
        if lines := [*dict.fromkeys(sharding.constraint for _, sharding in returns if sharding.constraint)]:
            given += f", by the constraint at {and_text(lines)}"
        # Each call of a recorded program can pass another object.
        live = verb == "take" and array.facts is not None
        what = "an argument of its path and type" if live else "it"
        who = and_text([subject(names[0]), *map(noun, names[1:])])
        said += f" {who} {verb}{'s' * (len(names) == 1)} {what} with {given}."
    return Section(f"placed-{array.path}", array.path, (text(said),))


def attributes(array: Array, snapshot: Snapshot) -> Block:
    """Return the attributes of the live JAX array, or why there are none."""
    facts = array.facts
    packed = _packed_text(array)
    if facts is not None:
        said = (
            "committed" if facts.committed else "not committed: JAX may move it",
            f"{'' if facts.fully_addressable else 'not '}fully addressable",
            f"{'' if facts.fully_replicated else 'not '}fully replicated",
            f"on {counted(facts.devices, 'device')}, {facts.placement}",
            f"{facts.addressable_shards} addressable of {facts.global_shards} global shards",
        )
        return text(" · ".join(said), " · memory kind ", Code(facts.memory_kind or "unknown"), packed)
    if array.program is not None:
        return text("A value of ", named(array.program), ", with its sharding in this program.", quiet=True)
    source = unknown.imported_from(snapshot)
    if source is not None:
        return text(f"The attributes of a live array are not in {source}.", quiet=True)
    return text("Planned. Build and run to see the attributes of the live array.", quiet=True)


def _packed_text(array: Array) -> str:
    """Return the bytes per device as JAX and as compilers count them, if they differ."""
    if not memory_kinds.is_packed(array) or array.bytes_per_device is None:
        return ""
    counted_by_jax, packed = (
        bytes_text(size) for size in (array.bytes_per_device, memory_kinds.packed_per_device(array))
    )
    return f" · {counted_by_jax} per device in JAX, {packed} in a compiled program, which packs {array.dtype}"


def shards(array: Array, snapshot: Snapshot) -> Block:
    """Return a table with the index range, replica and process of each shard."""
    rows = shard_rows(array, snapshot)
    if rows is None and (reason := sharding_text.inside_shard_map(array)):
        return unknown.unknown(reason)
    if rows is None:
        return unknown.unknown(f"The shards of {array.path} are unknown.")
    return Table.of(
        "shard_table",
        rows,
        {
            "device:count": lambda row: row["device"],
            "bytes:bytes": lambda row: row["bytes"],
            "index": lambda row: ranges_text(row["index"]),
            "replica:count": lambda row: row["replica"],
            "process:count": lambda row: row["process"],
        },
    )


def shard_rows(array: Array, snapshot: Snapshot) -> list[dict[str, Any]] | None:
    """Return one record per shard as `shards --json` prints it, or None if the placement is unknown."""
    mesh = snapshot.mesh_of(array)
    found = array.shards if mesh is None else sharding.shards(array, mesh)
    if found is None:
        return None
    return [
        {
            "device": shard.device,
            "index": [list(part) for part in shard.index],
            "replica": shard.replica,
            "process": shard.process,
            "bytes": figures.block_map.bytes_of(array, [stop - start for start, stop in shard.index]),
        }
        for shard in found
    ]


@dataclass(frozen=True)
class Reason:
    """A dimension, its logical axis, the mesh axes that shard it, and sentences that explain why."""

    dimension: int
    logical_axis: str | None
    axes: tuple[str, ...]
    sentences: tuple[str, ...]


def reasons(
    array: Array,
    mesh: Mesh,
    rules: Sequence[Rule] | None,
    semantics: RulesSemantics = "linen",
) -> tuple[Reason, ...] | None:
    """Return the reason for each dimension; None if the array has no known spec.

    `rules` is None for a model that names mesh axes itself. `semantics` says how they are applied.
    """
    if array.spec is None:
        return None
    names = array.logical_axes or (None,) * len(array.spec)
    trials: tuple[Trial, ...] = ()
    refused = ""
    if array.logical_axes and rules is not None and array.pattern is None:
        try:
            trials = (ledger if semantics == "linen" else nnx.ledger)(names, rules)
        except ValueError as error:
            refused = f"Linen rejects it: {error}."

    def sentences(dimension: int, axes: tuple[str, ...], name: str | None) -> tuple[str, ...]:
        if refused:
            return (refused,)
        if array.group in ("activation", "gradient") and array.logical_axes is None:
            return ("The compiler chose it: the model has no constraint on it.",)
        if array.pattern is not None:
            texts = [f"The pattern {array.pattern} of state_specs is found in its path."]
        elif array.logical_axes is None:
            texts = [_unruled(array, axes, rules)]
        elif name is None:
            texts = ["It has no logical axis, and unspecified means unsharded."]
        elif rules is None:
            texts = ["The rules are unknown."]
        else:
            tried = [trial for trial in trials if trial.dimension == dimension]
            texts = [outcome(trial, names, rules) for trial in tried] or [_unmatched(name, semantics)]
        size = None if array.shape is None else array.shape[dimension]
        return (*texts, *of_the_mesh(axes, size, mesh))

    return tuple(
        Reason(dimension, name, axes or (), sentences(dimension, axes or (), name))
        for dimension, (axes, name) in enumerate(zip(array.spec, names, strict=True))
    )


def _unmatched(name: str, semantics: RulesSemantics) -> str:
    if semantics == "linen":
        return f"No rule names {name}, and unspecified means unsharded."
    return f"No rule names {name}, so nnx takes it for the mesh axis of that name."


def _unruled(array: Array, axes: tuple[str, ...] | None, rules: Sequence[Rule] | None) -> str:
    if rules is None and (axes or array.box is not None):
        return "The model itself names the mesh axes of this array."
    return "It has no logical axes, and unspecified means unsharded."
