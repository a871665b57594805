"""Write files of rules, StableHLO and zip files that are strange in many ways, each from a random source."""

from __future__ import annotations

import io
import random
import stat
import struct
import zipfile
from collections.abc import Sequence

from tests.hostile.damage import TEXTS, damaged_text

# --- Files of rules -------------------------------------------------------------------------------

_AXES = (
    "data",
    "fsdp",
    "model",
    "replica",
    "stage",
    "None",
    "null",
    "",
    "é",
    "a b",
    "a.b",
    "1",
    "x" * 300,
)
_LOGICAL = ("batch", "embed", "mlp", "heads", "activation_batch", "kv", *_AXES)


def rule_file(draw: random.Random) -> tuple[str, str]:
    """Return the name and the text of a file of rules in YAML."""
    name = draw.choice(("a.yml", "b.YAML", "e.txt"))
    text = _yaml(draw)
    return name, damaged_text(text, draw, _PIECES) if draw.random() < 0.4 else text


_PIECES = (
    "[", "]", "(", ")", "{", "}", "- ", ": ", ", ", "!!", "!x ", "&a ", "*a", "'", '"', "\\", "#", "\n", "\t",
    "  ", "? ", "|", ">", "%", "---", "<<: ", "rules = [", "9" * 5000, "1:1:1", "0x", "2001-01-01", *TEXTS,
)  # fmt: skip


def _yaml(draw: random.Random) -> str:
    return draw.choice(("", "# base\n", "%YAML 1.2\n---\n")) + "\n".join(
        f"{key}: {_value(draw, 0)}"
        for key in draw.choices(
            ("mesh_axes", "logical_axis_rules", "ici_fsdp_parallelism", "trainer", "x", "1"), k=6
        )
    )


_TEXTS_OF_YAML = (
    *_AXES[:7], "~", "!include x", "&a b", "*a", "!!int x", "1e9", "-1", "0x1F", "1:1",
)  # fmt: skip
_KEYS_OF_YAML = (
    "axis_resources", "tensor_parallel_axes", "batch_axis", "model_axis_size", "? [a]", "<<",
)  # fmt: skip


def _value(draw: random.Random, depth: int) -> str:
    """Return a value of YAML in flow style."""
    kind = draw.choice(("list", "map", "text", "text") if depth < 6 else ("text",))
    if kind == "text":
        return draw.choice(_TEXTS_OF_YAML)
    inside = [_value(draw, depth + 1) for _ in range(draw.choice((0, 1, 2, 3)))]
    if kind == "list":
        return f"[{', '.join(inside)}]"
    return "{" + ", ".join(f"{draw.choice(_KEYS_OF_YAML)}: {each}" for each in inside) + "}"


# --- StableHLO ------------------------------------------------------------------------------------

_TYPES = (
    "8x8xf32",
    "8x1024xbf16",
    "0x8xf32",
    "f32",
    "9223372036854775807xf32",
    "?x8xf32",
    "8x8xi1",
)


def stablehlo(draw: random.Random, largest: int) -> str:
    """Return a module of one kind that is large in one way, with at most about `largest` operations."""
    count = draw.randint(1, largest)
    body = draw.choice((_many_arguments, _many_constants, _many_functions, _deep_regions))(draw, count)
    sizes = ", ".join(
        f'"{name}"={draw.choice((1, 2, 3, 8, 4096))}' for name in ("x", "y")[: draw.choice((1, 2))]
    )
    attributes = draw.choice(("", "", " attributes {mhlo.num_partitions = 8 : i32}"))
    head = draw.choice(("module @jit_f", "module")) + attributes
    text = f"{head} {{\nsdy.mesh @mesh = <[{sizes}]>\n{body}\n}}\n"
    return damaged_text(text, draw, _MLIR_PIECES) if draw.random() < 0.3 else text


_MLIR_PIECES = (
    "tensor<", ">", "{", "}", "(", ")", "%0", "@mesh", '"x"', "sdy.sharding", "stablehlo.add", ": ", "->",
    "8", "-1", "9" * 400, "loc(", "dense<", *TEXTS,
)  # fmt: skip


def _sharding(draw: random.Random) -> str:
    first, second = (draw.choice(('{"x"}', '{"y"}', "{}", "{?}", '{"x", "y"}', '{"z"}')) for _ in "ab")
    return f"<@{draw.choice(('mesh', 'mesh', 'mesh', 'absent'))}, [{first}, {second}]>"


def _many_arguments(draw: random.Random, count: int) -> str:
    kind = draw.choice(_TYPES)
    shard = f" {{sdy.sharding = #sdy.sharding{_sharding(draw)}}}" if "x" in kind else ""
    arguments = ", ".join(f"%arg{n}: tensor<{kind}>{shard}" for n in range(count))
    return (
        f"func.func public @main({arguments}) -> tensor<{kind}> {{\n"
        f"  return %arg{draw.randrange(count)} : tensor<{kind}>\n}}"
    )


def _many_constants(draw: random.Random, count: int) -> str:
    lines = ["  %0 = stablehlo.constant dense<1.0> : tensor<8x8xf32>"]
    lines += [
        f"  %{n} = stablehlo.add %{draw.randrange(n)}, %{n - 1} : tensor<8x8xf32>"
        if draw.random() < 0.5
        else f"  %{n} = stablehlo.constant dense<{n}.0> : tensor<8x8xf32>"
        for n in range(1, count)
    ]
    lines.append(f"  return %{count - 1} : tensor<8x8xf32>")
    return "func.func public @main() -> tensor<8x8xf32> {\n" + "\n".join(lines) + "\n}"


def _many_functions(draw: random.Random, count: int) -> str:
    """Return functions that each call the one before it once, or twice for a few."""
    count = min(count, 400)
    twice = draw.random() < 0.3
    count = min(count, 12) if twice else count
    kind = "tensor<8x8xf32>"
    parts = [
        f"func.func private @f0(%a: {kind}) -> {kind} {{\n  %0 = stablehlo.abs %a : {kind}\n"
        f"  return %0 : {kind}\n}}"
    ]
    for n in range(1, count):
        second = f"  %1 = call @f{n - 1}(%0) : ({kind}) -> {kind}\n" if twice else ""
        parts.append(
            f"func.func private @f{n}(%a: {kind}) -> {kind} {{\n"
            f"  %0 = call @f{n - 1}(%a) : ({kind}) -> {kind}\n"
            f"{second}  return %{int(twice)} : {kind}\n}}"
        )
    shard = f" {{sdy.sharding = #sdy.sharding{_sharding(draw)}}}"
    parts.append(
        f"func.func public @main(%a: {kind}{shard}) -> {kind} {{\n"
        f"  %0 = call @f{count - 1}(%a) : ({kind}) -> {kind}\n"
        f"  return %0 : {kind}\n}}"
    )
    return "\n".join(parts)


def _deep_regions(draw: random.Random, count: int) -> str:
    """Return `case` operations inside each other."""
    depth = min(count, draw.choice((3, 30, 150)))
    kind = "tensor<8x8xf32>"
    text = "stablehlo.return %a : " + kind
    for level in range(depth):
        text = (
            f'%r{level} = "stablehlo.case"(%i) ({{\n{text}\n}}) : (tensor<i32>) -> {kind}\n'
            f"stablehlo.return %r{level} : {kind}"
        )
    text = text.rpartition("\n")[0] if depth else ""
    return (
        f"func.func public @main(%i: tensor<i32>, %a: {kind}) -> {kind} {{\n{text}\n  return %r{depth - 1} : "
        f"{kind}\n}}"
    )


# --- Zip files ------------------------------------------------------------------------------------

_NAMES = (
    "a.json", "_sharding", "_METADATA", "d/a", "a/b/c.txt", "a", "a/", "A", "..", "../up", "/abs", "C:x",
    "a\\b", "a//b", "./a", "é", "e\u0301", "x" * 300, "/".join("d" * 40), "\0", "a\0b", "", " ", ".",
    "\u202egnp",
    "__MACOSX/a", ".DS_Store", "manifest.ocdbt", "CON", "a\n", "\udcff",
)  # fmt: skip
_MODES = (
    0, stat.S_IFREG | 0o644, stat.S_IFDIR | 0o755, stat.S_IFLNK | 0o777, stat.S_IFIFO | 0o644, stat.S_IFSOCK,
    stat.S_IFCHR, 0xFFFF,
)  # fmt: skip


def archive(draw: random.Random, contents: Sequence[bytes]) -> bytes:
    """Return a zip file with bad names, duplicates, links, wrong sizes, other archives or a huge ratio."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for _ in range(draw.choice((0, 1, 1, 2, 3, 8))):
            name = draw.choice(_NAMES) if draw.random() < 0.6 else f"file{draw.randrange(4)}.json"
            # Pairs of surrogates cannot be written; the name is changed below where it must be.
            entry = zipfile.ZipInfo("x")
            entry.filename = name.replace("\udcff", "\\udcff")
            entry.orig_filename = entry.filename
            entry.compress_type = draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
            entry.external_attr = draw.choice(_MODES) << 16 if draw.random() < 0.4 else 0
            content = draw.choice((*contents, b"", b"\0" * 3_000_000, buffer.getvalue()[:2000], b"x"))
            try:
                packed.writestr(entry, content)
            except (ValueError, IndexError, UnicodeError):  # zipfile cannot write it
                continue
    raw = bytearray(buffer.getvalue())
    if raw and draw.random() < 0.5:
        _damage_headers(raw, draw)
    if draw.random() < 0.1:
        del raw[draw.randrange(len(raw) + 1) :]
    return bytes(raw)


def _damage_headers(raw: bytearray, draw: random.Random) -> None:
    """Change fields of the headers: flags, method, checksum, sizes, lengths of names, offsets, counts."""
    marks = [b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"]
    for _ in range(draw.choice((1, 1, 2, 4))):
        places = (
            [at for mark in marks for at in range(len(raw)) if raw[at : at + 4] == mark and at < 500_000]
            if len(raw) < 100_000
            else [raw.rfind(marks[0]), raw.find(marks[1])]
        )
        at = draw.choice(places or [0])
        if at < 0:
            continue
        field = at + draw.randrange(4, 46)
        size = draw.choice((1, 2, 4))
        value = draw.choice((0, 1, 2, 8, 0xFF, 0x100, 0xFFFF, 0xFFFFFFFE, 0xFFFFFFFF))
        raw[field : field + size] = struct.pack("<I", value)[:size]
