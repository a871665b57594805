"""Tests of the HLO reader: every case is read or refused, and counts equal the published ones."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from inspector.files import strict_json
from inspector.readers import hlo_text
from inspector.records import snapshot
from inspector.records.collectives import OPS
from inspector.records.snapshot import Snapshot
from inspector.text.errors import InvalidInput
from tests.readers import given

FILES = [
    *sorted(path for path in given.OWN_HLO.iterdir()),
    *sorted(path for path in given.HLO.glob("**/*") if path.is_file()),
]
MODULE = """HloModule {name}, num_partitions=8

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY main {{
  p = f32[64] parameter(0)
  ROOT r = f32[64] all-reduce(p), replica_groups={groups}, channel_id=1,
    use_global_device_ids=true, to_apply=add
}}
"""


def module(name: str = "jit_step", groups: str = "[2,4]<=[8]") -> str:
    return MODULE.format(name=name, groups=groups)


def read(path: Path) -> Snapshot:
    result = hlo_text.read(path, path.name)
    assert snapshot.from_json(strict_json.parse(snapshot.dumps(result), "it")) == result
    return result


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_given_file_opens_or_is_refused_by_name(path: Path) -> None:
    if path.suffix in (".json", ".jsonl"):
        with pytest.raises(InvalidInput, match="is JSON"):
            read(path)
    elif path.suffix == ".mlir":
        snapshot = read(path)
        assert snapshot.source.kind == "stablehlo" and snapshot.mesh is not None
        assert {array.spec is None for array in snapshot.arrays} == {False}
    else:
        snapshot = read(path)
        counts = path.parent if path.parent == given.OWN_HLO else given.HLO
        expected = json.loads((counts / "counts.json").read_text())[path.name]
        counted = Counter(collective.op for p in snapshot.programs for collective in p.collectives)
        assert counted == _collectives(expected["counts"])
        if expected["num_partitions"] is not None:
            devices = {program.devices for program in snapshot.programs}
            assert devices == {int(expected["num_partitions"])}
        cut = path.name.startswith(("reference_", "truncated"))
        assert ("file-cut" in [finding.code for finding in snapshot.findings]) == cut
        if cut:  # the caller of a computation may be missing
            assert {collective.executions for p in snapshot.programs for collective in p.collectives} == {
                None
            }


def _collectives(counts: dict[str, int]) -> Counter[str]:
    """Return the instructions that begin a collective, also inside a generic async-start."""
    counter: Counter[str] = Counter()
    for opcode, count in counts.items():
        if (op := opcode.removesuffix("-start")) in OPS:
            counter[op] += count
    return counter


def test_many_modules_are_many_programs(tmp_path: Path) -> None:
    path = tmp_path / "two.hlo"
    path.write_text(module("a") + "\n// -----\n" + module("a") + module("b"))
    snapshot = read(path)
    assert [program.name for program in snapshot.programs] == ["a", "a (2)", "b"]
    assert snapshot.mesh is None
    assert [program.devices for program in snapshot.programs] == [8, 8, 8]
    assert [array.shard_shape for array in snapshot.arrays] == [(64,)] * 6
    assert {(array.shape, array.spec) for array in snapshot.arrays} == {(None, None)}
    assert snapshot.findings[-1].code == "mesh-unknown"


def test_mesh_of_named_replica_groups(tmp_path: Path) -> None:
    path = tmp_path / "named.hlo"
    path.write_text(module(groups="mesh['data'=2,'model'=4] {'model'}"))
    snapshot = read(path)
    assert snapshot.mesh.axis_names == ("data", "model") and snapshot.mesh.shape == (2, 4)
    assert snapshot.programs[0].collectives[0].mesh_axes == ("model",)
    # XLA invents axes that belong to no mesh of the program.
    path.write_text(module(groups="mesh['axis_0'=2,'axis_1'=4] {'axis_1'}"))
    derived = read(path)
    assert derived.mesh.shape == (2, 4)
    assert "mesh-derived" in [finding.code for finding in derived.findings]
    path.write_text(module(groups="mesh['a'=2,'b'=4] {'b'}") + module("other", "mesh['c'=8] {'c'}"))
    assert read(path).mesh.axis_names == ("a", "b")


def test_gzip_and_truncated_texts(tmp_path: Path) -> None:
    text = module() + "// " + "".join(random.Random(7).choices("abcdefghij", k=20_000))
    packed = gzip.compress(text.encode())
    path = tmp_path / "module.hlo.gz"
    path.write_bytes(packed)
    whole = read(path)
    assert whole.programs[0].collectives[0].group_size == 4
    path.write_bytes(packed[:-200])
    cut = read(path)
    assert cut.programs == whole.programs
    assert "ends early" in cut.findings[0].message
    path.write_bytes(gzip.compress(text.encode()[:200]))
    assert read(path).findings[0].code == "file-cut"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"hello", "not HLO text"),
        (b"\x00\x01\x02", "zero byte"),
        (b"\x80\x04]\x94.", "not UTF-8"),
        ("HloModule é".encode("latin-1"), "not UTF-8"),
        ("HloModule a".encode("utf-16"), "UTF-16"),
        (b"\xef\xbb\xbfHloModule a", "byte order mark"),
        (b'{"format": 3}', "is JSON"),
        (b"module @jit_f {\n  func.func public @main() {}\n}", "not a StableHLO module"),
        (b"HloModule a\n\nENTRY m {\n  what is this\n}\nmore", "not HLO text"),
        (b"\x1f\x8bhello", "damaged gzip"),
    ],
)
def test_other_text_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "text.hlo"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=words) as refused:
        read(path)
    assert "text.hlo" in str(refused.value)


def test_a_dump_gives_the_largest_final_text_of_each_program(tmp_path: Path) -> None:
    files = {
        "module_0001.jit_init.before_optimizations.txt": module("jit_init") + module("no"),
        "module_0001.jit_init.cpu_after_optimizations.txt": module("jit_init"),
        "module_0001.jit_init.cpu_after_optimizations-buffer-assignment.txt": "BufferAssignment:",
        "module_0001.jit_init.cpu_after_optimizations-memory-usage-report.txt": "Total bytes: 3",
        "module_0002.jit_step.sm_9.0_gpu_after_optimizations.txt": module("small"),
        "module_0007.jit_step.sm_9.0_gpu_after_optimizations.txt": module("large") + "// " * 99,
        "module_0007.jit_step.thunk_sequence.txt": "000: kCopy",
        "module_0007.jit_step.hlo.pb": "",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    snapshot = read(tmp_path)
    assert [program.name for program in snapshot.programs] == ["jit_init", "large"]
    assert [finding.code for finding in snapshot.findings] == ["sharding-unknown", "mesh-unknown"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        # The last text of a TPU program is after_codegen.
        (["0045.jit_step.before_optimizations", "0045.jit_step.cl_8.after_optimizations",
          "0045.jit_step.after_optimizations_before_buffer_assignment",
          "0045.jit_step.after_optimizations_after_buffer_assignment"], [3]),
        (["0045.jit_step.after_optimizations_after_buffer_assignment",
          "0045.jit_step.cl_8.after_codegen", "0046.jit_init.cl_8.after_codegen"], [1, 2]),
        # XLA of 2020 omitted the program's name.
        (["0001.before_optimizations", "0001.after_optimizations", "0002.after_optimizations"],
         [1, 2]),
        (["0001.jit_f.gfx950_gpu_after_optimizations",
          "0001.jit_f.0003.fusion.after_priority-fusion.before_dce"], [0]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("before", ["module_", "1700000000000.module_"])
def test_the_stages_of_other_compilers(
    tmp_path: Path, names: list[str], expected: list[int], before: str
) -> None:
    for number, name in enumerate(names):
        (tmp_path / f"{before}{name}.txt").write_text(module(f"text_{number}"))
    found = {program.name for program in read(tmp_path).programs}
    assert found == {f"text_{number}" for number in expected}


def test_the_error_for_a_proto_names_the_flag_for_text(tmp_path: Path) -> None:
    (tmp_path / "module_0001.jit_f.cpu_after_optimizations.hlo.pb").write_bytes(b"\x0a\x05jit_f")
    for path in (tmp_path, *tmp_path.iterdir()):
        with pytest.raises(InvalidInput, match="--xla_dump_hlo_as_text"):
            read(path)


def test_a_dump_of_xla_itself(tmp_path: Path) -> None:
    """Dump in a new process, because XLA reads the flag at its start."""
    program = (
        "import jax, jax.numpy as jnp\n"
        "from jax.sharding import *\n"
        "mesh = jax.make_mesh((4,), ('x',))\n"
        "over = NamedSharding(mesh, PartitionSpec('x'))\n"
        "def summed(a): return a.sum()\n"
        "jax.jit(summed, in_shardings=over).lower(jnp.ones(8)).compile()\n"
    )
    flags = f"--xla_dump_to={tmp_path} --xla_force_host_platform_device_count=4"
    subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        check=True,
        capture_output=True,
    )
    snapshot = read(tmp_path)
    (summed,) = [one for one in snapshot.programs if one.name == "jit_summed"]
    assert [collective.op for collective in summed.collectives] == ["all-reduce"]
    assert summed.devices == 4


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "contains no HLO text"),
        ({"a.pb": ""}, "contains no HLO text"),
        ({"a.txt": "hello"}, "no HLO text that can be read"),
        ({"module_0001.jit_a.before_optimizations.txt": "x"}, "after optimizations"),
    ],
)
def test_a_folder_without_programs_is_refused(tmp_path: Path, files: dict[str, str], words: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(InvalidInput, match=words):
        read(tmp_path)


def test_other_files_of_a_folder_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.hlo").write_text(module())
    (tmp_path / "b.txt").write_text("hello")
    (tmp_path / "c.txt").write_text("hello")
    snapshot = read(tmp_path)
    assert snapshot.findings[0].code == "file-refused"
    assert "b.txt" in snapshot.findings[0].message and "1 other file" in snapshot.findings[0].message
