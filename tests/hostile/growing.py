# ruff: noqa: E501
"""Files and folders of every kind that grow in one way: each is written with any number of parts."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Make = Callable[[int], bytes]


def varint(number: int) -> bytes:
    written = bytearray()
    while True:
        byte, number = number & 127, number >> 7
        written.append(byte | (128 if number else 0))
        if not number:
            return bytes(written)


def part(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def entry(field: int, key: int, content: bytes) -> bytes:
    return part(field, number(1, key) + part(2, content))


def plane(name: str, *parts: bytes) -> bytes:
    return part(1, part(2, name.encode()) + b"".join(parts))


def line(name: str, events: Iterable[bytes], start: int = 0) -> bytes:
    return part(3, part(2, name.encode()) + number(3, start) + b"".join(part(4, event) for event in events))


def event(metadata: int, start: int, length: int, *stats: bytes) -> bytes:
    return number(1, metadata) + number(2, start) + number(3, length) + b"".join(stats)


def names(field: int, texts: Iterable[str]) -> bytes:
    """Return the metadata of events (4) or of statistics (5), whose keys are 1, 2 and so on."""
    return b"".join(entry(field, key, part(2, text.encode())) for key, text in enumerate(texts, 1))


def of_cpu(*stats: tuple[int, int]) -> bytes:
    return b"".join(part(4, number(1, key) + number(3, value)) for key, value in stats)


def tpu(count: int, **of: Callable[[int], int]) -> bytes:
    """Return runs of programs on a TPU, each with one event of an instruction."""
    program, instruction = (of.get(name, lambda n: 0) for name in ("program", "instruction"))
    programs = sorted({program(n) for n in range(count)})
    begins = {of.get("runs", int)(n): n for n in reversed(range(count))}.values()
    modules = line("XLA Modules", [event(program(n) + 1, 10 * n, 10) for n in begins])
    first = len(programs) + 1
    operations = line("XLA Ops", [event(first + instruction(n), 10 * n, 1) for n in range(count)])
    texts = [f"m({n})" for n in programs]
    texts += [f"x{n}" for n in range(max(map(instruction, range(count))) + 1)]
    return plane("/device:TPU:0", modules, operations, names(4, texts))


_CPU_STATS = ("hlo_op", "hlo_module", "program_id", "run_id", "device_ordinal", "_p", "_c")


def cpu(count: int, lines: int = 1, **of: Callable[[int], int]) -> bytes:
    """Return events of instructions on CPU devices, each of which ends in another thread."""
    instruction, device = (of.get(name, lambda n: 0) for name in ("instruction", "device"))
    program = of.get("program", lambda n: 7)
    most = max(map(instruction, range(count))) + 1
    operations = [f"x{n}" for n in range(most)]
    stats = names(5, (*_CPU_STATS, *operations))
    events = []
    for n in range(count):
        own = instruction(n)
        facts = of_cpu((3, program(n)), (4, n * 10 // count), (5, device(n)), (6, n))
        texts = part(4, number(1, 1) + number(7, len(_CPU_STATS) + 1 + own))
        events.append(event(1 + own, 10_000 * n, 10, facts, texts))
        events.append(event(1 + most + own, 10_000 * n + 50, 1, of_cpu((7, n))))
    size = -(-len(events) // lines)
    threads = [line("tf_XLA", events[at : at + size]) for at in range(0, len(events), size)]
    metadata = names(4, [*operations, *(f"end: {name}" for name in operations)])
    return plane("/host:CPU", *threads, metadata, stats)


def programs_with_hlo(count: int) -> bytes:
    hlo = part(5, number(1, 9) + part(6, b"\n\0"))
    named = (entry(4, n, part(2, f"p{n}({n})".encode()) + hlo) for n in range(count))
    return plane("/host:metadata", *named, entry(5, 9, part(2, b"hlo_proto")))


PROFILES: dict[str, Make] = {
    "programs": programs_with_hlo,
    "runs": tpu,
    "programs that ran": lambda count: tpu(count, program=lambda n: n),
    "programs that ran, up to the limit": lambda count: tpu(count, program=lambda n: n % 900),
    "instructions": lambda count: tpu(count, runs=lambda n: n * 10 // count, instruction=lambda n: n),
    "instructions of several programs": lambda count: tpu(
        count, program=lambda n: n % 90, instruction=lambda n: n // 3
    ),
    "events of CPUs": cpu,
    "instructions of CPUs": lambda count: cpu(count, instruction=lambda n: n),
    "devices": lambda count: cpu(count, device=lambda n: n),
    "threads": lambda count: cpu(count, lines=count, instruction=lambda n: n),
    "programs of CPUs": lambda count: cpu(count, program=lambda n: n % 900, instruction=lambda n: n // 9),
    "planes": lambda count: b"".join(
        plane(f"/device:TPU:{n}", line("XLA Ops", [event(1, n, 1)]), names(4, "x")) for n in range(count)
    ),
    "lines": lambda count: plane(
        "/device:TPU:0",
        line("XLA Modules", [event(2, 10 * n, 9) for n in range(count)]),
        *(line("XLA Ops", [event(1, 10 * n, 1)]) for n in range(count)),
        names(4, ("x", "m(1)")),
    ),
    "statistics of one name": lambda count: plane(
        "/device:GPU:0",
        line(
            "Stream 1", [event(1, 10 * n, 1, part(4, number(1, n + 1) + number(7, 1))) for n in range(count)]
        ),
        names(4, "k"),
        names(5, ["hlo_op"] * count),
    ),
}

_ADD = "ar { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b)\n}\n"


def hlo(count: int, head: str, lines: Callable[[int], str], last: str, before: str = "") -> bytes:
    body = "\n".join(map(lines, range(count)))
    return f"HloModule m, num_partitions=8{head}\n{_ADD}{before}ENTRY e {{\n{body}\n{last}\n}}\n".encode()


_P = "p = f32[8,8] parameter(0), sharding={devices=[8,1]<=[8]}"
_REDUCE = "ROOT r = f32[8,8] all-reduce({}), replica_groups={{}}, to_apply=ar"
_NAME = 'metadata={{op_name="jit(f)/transpose(jvp(m))/l{0}/dot" source_file="m.py" source_line={0}}}'


def _loops(count: int) -> bytes:
    parts = []
    for n in range(count):
        parts.append(
            f"b{n} {{\n s{n} = (s32[], f32[8,8]) parameter(0)\n i{n} = s32[] get-tuple-element(s{n}), index=0\n"
            f" o{n} = s32[] constant(1)\n n{n} = s32[] add(i{n}, o{n})\n"
            f" x{n} = f32[8,8] get-tuple-element(s{n}), index=1\n"
            f" r{n} = f32[8,8] all-reduce(x{n}), replica_groups={{}}, to_apply=ar\n"
            f" ROOT t{n} = (s32[], f32[8,8]) tuple(n{n}, r{n})\n}}\n"
            f"c{n} {{\n q{n} = (s32[], f32[8,8]) parameter(0)\n j{n} = s32[] get-tuple-element(q{n}), index=0\n"
            f" k{n} = s32[] constant(4)\n ROOT l{n} = pred[] compare(j{n}, k{n}), direction=LT\n}}\n"
        )
    lines = [_P, "z = s32[] constant(0)", "w = (s32[], f32[8,8]) tuple(z, p)"]
    previous = "w"
    for n in range(count):
        lines.append(f"w{n} = (s32[], f32[8,8]) while({previous}), condition=c{n}, body=b{n}")
        previous = f"w{n}"
    lines.append(f"ROOT g = f32[8,8] get-tuple-element({previous}), index=1")
    return hlo(len(lines), "", lines.__getitem__, "", "".join(parts))


def _calls(count: int) -> bytes:
    before = "".join(
        f"f{n} {{\n v{n} = f32[8,8] parameter(0)\n"
        + (
            f" ROOT u{n} = f32[8,8] call(v{n}), to_apply=f{n - 1}\n}}\n"
            if n
            else " ROOT u0 = f32[8,8] negate(v0)\n}\n"
        )
        for n in range(count)
    )
    return hlo(1, "", lambda n: _P, f"ROOT r = f32[8,8] call(p), to_apply=f{count - 1}", before)


TEXTS: dict[str, Make] = {
    "parameters": lambda count: hlo(
        count,
        "",
        lambda n: f"p{n} = f32[8,8] parameter({n}), sharding={{devices=[8,1]<=[8]}}",
        _REDUCE.format("p0"),
    ),
    "named parameters": lambda count: hlo(
        count,
        "",
        lambda n: (
            f"p{n} = f32[8,{8 + n % 7}] parameter({n}), sharding={{devices=[8,1]<=[8]}}, "
            f"metadata={{op_name=\"state['params']['l{n}']['kernel']\"}}"
        ),
        _REDUCE.format("p0"),
    ),
    "results": lambda count: hlo(
        count + 1,
        "",
        lambda n: _P if not n else f"r{n} = f32[8,8] negate(p)",
        f"ROOT t = ({', '.join(['f32[8,8]'] * count)}) tuple({', '.join(f'r{n + 1}' for n in range(count))})",
    ),
    "collectives": lambda count: hlo(
        count + 1,
        "",
        lambda n: (
            _P
            if not n
            else f"r{n} = f32[8,8] all-reduce({'p' if n == 1 else f'r{n - 1}'}), replica_groups={{}}, "
            f"to_apply=ar, {_NAME.format(n)}"
        ),
        f"ROOT x = f32[8,8] negate(r{count})",
    ),
    "gathers of one operand": lambda count: hlo(
        count + 1,
        "",
        lambda n: (
            _P
            if not n
            else f"r{n} = f32[64,8] all-gather(p), replica_groups=[1,8]<=[8], dimensions={{0}}, {_NAME.format(n)}"
        ),
        "ROOT x = f32[8,8] negate(p)",
    ),
    "products": lambda count: hlo(
        count + 1,
        "",
        lambda n: (
            _P
            if not n
            else f"d{n} = f32[8,8] dot({'p' if n == 1 else f'd{n - 1}'}, p), lhs_contracting_dims={{1}}, "
            f"rhs_contracting_dims={{0}}, {_NAME.format(n)}"
        ),
        _REDUCE.format(f"d{count}"),
    ),
    "loops": _loops,
    "calls": _calls,
    "fusions": lambda count: hlo(
        count + 1,
        "",
        lambda n: (
            _P
            if not n
            else f"f{n} = f32[8,8] fusion({'p' if n == 1 else f'f{n - 1}'}), kind=kLoop, calls=g{n}"
        ),
        _REDUCE.format(f"f{count}"),
        "".join(
            f"g{n} {{\n h{n} = f32[8,8] parameter(0)\n ROOT k{n} = f32[8,8] negate(h{n})\n}}\n"
            for n in range(1, count + 1)
        ),
    ),
    "shardings": lambda count: hlo(
        count,
        "",
        lambda n: (
            f"p{n} = f32[8,8] parameter({n}), sharding={{devices=[8,1]{','.join(map(str, range(n % 8, 8)))}}}"
        ),
        _REDUCE.format("p0"),
    ),
    "groups": lambda count: hlo(
        1,
        f", replica_count={8 * count}",
        lambda n: "p = f32[8,8] parameter(0)",
        "ROOT r = f32[8,8] all-reduce(p), to_apply=ar, replica_groups={"
        + ",".join(f"{{{8 * n},{8 * n + 1}}}" for n in range(count))
        + "}",
    ),
}


def stablehlo(count: int, argument: str, lines: Callable[[int], str], last: str) -> bytes:
    kind = "tensor<8x8xf32>"
    arguments = ", ".join(argument.format(n, kind) for n in range(count if "{0}" in argument else 1))
    body = "\n".join(map(lines, range(count)))
    return (
        'module @jit_f attributes {mhlo.num_partitions = 8 : i32} {\nsdy.mesh @mesh = <["x"=4, "y"=2]>\n'
        f"func.func public @main({arguments}) -> {kind} {{\n{body}\n  return {last} : {kind}\n}}\n}}\n"
    ).encode()


_SHARDED = '{{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}, {{}}]>}}'
MODULES: dict[str, Make] = {
    "arguments": lambda count: stablehlo(count, "%arg{0}: {1} " + _SHARDED, lambda n: "", "%arg0"),
    "operations": lambda count: stablehlo(
        count,
        "%arg0: {1} " + _SHARDED,
        lambda n: f"%{n} = stablehlo.add %{'arg0' if not n else n - 1}, %arg0 : tensor<8x8xf32>",
        f"%{count - 1}",
    ),
    "products of StableHLO": lambda count: stablehlo(
        count,
        "%arg0: {1} " + _SHARDED,
        lambda n: (
            f"%{n} = stablehlo.dot_general %{'arg0' if not n else n - 1}, %arg0, contracting_dims = [1] x [0] : "
            "(tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>"
        ),
        f"%{count - 1}",
    ),
}

_MESH = {"axis_names": ["data", "model"], "shape": {"data": 2, "model": 4}}


def _saved(count: int) -> dict[str, str]:
    value = {
        "sharding_type": "NamedSharding",
        "shape": [2, 4],
        "axis_names": ["data", "model"],
        "partition_spec": ["data", None],
        "device_mesh": {"mesh": [[{"id": 4 * i + j} for j in range(4)] for i in range(2)]},
    }
    keys = (base64.urlsafe_b64encode(f"params.l{n}.kernel".encode()).decode() for n in range(count))
    return dict.fromkeys(keys, json.dumps(value))


def _named_shardings(count: int, meshes: int = 1) -> dict[str, Any]:
    return {
        f".params/['params']/['l{n}']/['kernel']": {
            "partition_spec": [["data"], None],
            "shape": [8, 8],
            "mesh": {"axis_names": ["data", f"m{n % meshes}"], "shape": {"data": 2, f"m{n % meshes}": 4}},
        }
        for n in range(count)
    }


def _orbax_tree(count: int) -> dict[str, Any]:
    return {
        "tree_metadata": {
            f"('params', 'l{n}', 'kernel')": {
                "key_metadata": [{"key": key, "key_type": 2} for key in ("params", f"l{n}", "kernel")],
                "value_metadata": {"value_type": "jax.Array", "skip_deserialize": False},
            }
            for n in range(count)
        },
        "use_ocdbt": False,
        "use_zarr3": False,
    }


def array(path: str, group: str = "params", shape: tuple[int, ...] = (8, 8), **fields: Any) -> dict[str, Any]:
    known = {
        "path": path,
        "group": group,
        "shape": [*shape],
        "dtype": "float32",
        "memory_kind": "device",
        "logical_axes": None,
        "spec": [None] * len(shape),
        "shard_shape": [*shape],
        "bytes": 4 * 64,
        "bytes_per_device": 4 * 64,
        "replicas": 8,
        "shards": None,
    }
    return known | fields


def snapshot(
    arrays: Iterable[dict[str, Any]], programs: Iterable[dict[str, Any]] = (), axes: int = 1, **fields: Any
) -> bytes:
    names = [{"name": "data", "size": 8, "type": "auto"}]
    names += [{"name": f"a{n}", "size": 1, "type": "auto"} for n in range(axes - 1)]
    plain = {
        "format": "sharding-snapshot",
        "version": 1,
        "source": {"kind": "capture", "target": None, "created": "2026-01-01T00:00:00+00:00", "versions": {}, "processes": 1},
        "layout": None,
        "mesh": {"axes": names, "devices": [*range(8)], "processes": [0] * 8, "device_kind": "cpu"},
        "arrays": [*arrays],
        "programs": [*programs],
        "findings": [],
    }  # fmt: skip
    return json.dumps(plain | fields).encode()


def program(name: str, collectives: Iterable[dict[str, Any]] = (), **fields: Any) -> dict[str, Any]:
    return {"name": name, "stage": "compiled", "collectives": [*collectives], "seconds": None} | fields


def collective(number: int, **fields: Any) -> dict[str, Any]:
    known = {
        "op": "all-reduce", "asynchronous": False, "name": f"all-reduce.{number}", "computation": "main",
        "executions": 1, "conditional": False, "mesh_axes": ["data"], "group_size": 8, "groups": 1,
        "payload_bytes": 256, "wire_bytes_per_device": 448, "source": f"m.py:{number}", "origins": None,
        "op_name": f"jit(f)/transpose(jvp(m))/l{number}/dot_general",
    }  # fmt: skip
    return known | fields


def sharding(path: str, role: str = "input") -> dict[str, Any]:
    return {
        "path": path,
        "role": role,
        "shape": [8, 8],
        "dtype": "float32",
        "requested": [None, None],
        "compiled": [None, None],
        "used": True,
        "same": True,
    }


def _params(
    count: int, name: str = "l{}/kernel", group: str = "params", **fields: Any
) -> list[dict[str, Any]]:
    return [array(f"{group}/{name.format(n)}", group, **fields) for n in range(count)]


SNAPSHOTS: dict[str, Make] = {
    "arrays": lambda count: snapshot(_params(count)),
    "arrays of many shapes": lambda count: snapshot(
        [array(f"params/l{n}/k", shape=(8, n + 1)) for n in range(count)]
    ),
    "arrays with odd names": lambda count: snapshot(
        [array(f"params/{chr(97 + n % 26)}{n}x/k{n}") for n in range(count)]
    ),
    "sharded arrays": lambda count: snapshot(
        _params(count, spec=[["data"], None], shard_shape=[1, 8], replicas=1)
    ),
    "moments": lambda count: snapshot([*_params(count), *_params(count, group="opt_state")]),
    "moments without a parameter": lambda count: snapshot(
        [*_params(count), *_params(count, "m{}", "opt_state")]
    ),
    "moments with names of parameters": lambda count: snapshot(
        [*_params(count), *_params(count, "params_l{}_kernel_momentum", "opt_state")]
    ),
    "inputs and outputs": lambda count: snapshot(
        _params(count, spec=[["data"], None]),
        [
            program(
                "step",
                [collective(0)],
                shardings=[
                    *(sharding(f"params/l{n}/kernel") for n in range(count)),
                    *(sharding(f"out/l{n}/kernel", "output") for n in range(count)),
                ],
            )
        ],
    ),
    "collectives of a Snapshot": lambda count: snapshot(
        _params(8), [program("step", [collective(n) for n in range(count)])]
    ),
    "collectives of arrays": lambda count: snapshot(
        _params(count),
        [program("step", [collective(n, arrays=[f"params/l{n}/kernel"]) for n in range(count)])],
    ),
    "gathers": lambda count: snapshot(
        _params(count, spec=[["data"], None]),
        [
            program(
                "step",
                [
                    collective(n, op="all-gather", name=f"all-gather.{n}", arrays=[f"params/l{n}/kernel"])
                    for n in range(count)
                ],
            )
        ],
    ),
    "programs of a Snapshot": lambda count: snapshot(
        _params(count), [program(f"f{n}", [collective(n)]) for n in range(count)]
    ),
    "logical axes": lambda count: snapshot(
        [array(f"params/l{n}/k", logical_axes=[f"a{n}", None]) for n in range(count)]
    ),
    "one path in many keys": lambda count: snapshot([array("/".join("k" * count))]),
    "outputs": lambda count: snapshot(_params(count, group="output")),
    "batches": lambda count: snapshot(_params(count, group="batch")),
    "activations": lambda count: snapshot(_params(count, group="activation")),
    "other arrays": lambda count: snapshot(_params(count, group="other")),
    "shards": lambda count: snapshot(
        _params(
            count,
            spec=None,
            shards=[
                {"device": n, "index": [[n, n + 1], [0, 8]], "replica": 0, "process": 0} for n in range(8)
            ],
        )
    ),
    "axes": lambda count: snapshot(_params(64), axes=count),
    "trees on two meshes": lambda count: snapshot(
        [array(f"t{n}/k{k}", **({"mesh": 0} if k else {})) for n in range(count) for k in range(3)],
        other_meshes=[
            {
                "axes": [{"name": "data", "size": 8, "type": "auto"}],
                "devices": [*range(8, 16)],
                "processes": [0] * 8,
                "device_kind": "cpu",
            }
        ],
    ),
    "findings": lambda count: snapshot(
        [],
        findings=[
            {"level": "note", "code": f"c{n}", "array": None, "message": "m", "bytes": None}
            for n in range(count)
        ],
    ),
}


def raw_records(count: int, folder: Path, one_function: bool) -> None:
    """Write what the recorder of `run` writes of so many compiled programs, and of as many live arrays.

    one_function: whether they are all compiles of one function, with other shapes.
    """
    for n in range(count):
        name = "f" if one_function else f"f{n}"
        meta = {
            "name": name, "source": f"{name} at /me/train.py:{1 if one_function else n}", "called": None,
            "constants": {}, "at": float(n), "seconds": {"trace": 0.1, "lower": 0.1, "compile": 0.1},
            "static": {}, "structures": {}, "new_function": False, "ahead_of_time": False,
            "inputs": [
                {"name": f"x{k}", "shape": [8, 8 + n], "dtype": "float32", "weak": False, "sharding": None}
                for k in range(4)
            ],
            "devices": [*range(8)],
        }  # fmt: skip
        shardings = [sharding(f"{name}/input/x"), sharding(f"{name}/output/y", "output")]
        of_program = snapshot([array(f"{name}/input/x", "other")], [program(name, shardings=shardings)])
        written(f"raw/{n:05d}.json", {"meta": meta, "snapshot": json.loads(of_program)}, folder)
        written(f"raw/{n:05d}.hlo", hlo(1, "", lambda k: _P, "ROOT r = f32[8,8] negate(p)"), folder)
    live = {
        "devices": 8, "alive": 1, "when": "at the end", "at": 1.0, "bytes": 1,
        "names": {"own": {}, "outputs": {}, "counts": {}},
    }  # fmt: skip
    arrays = snapshot(_params(count, spec=[["data"], None]))
    written("raw/arrays.json", {"meta": live, "snapshot": json.loads(arrays)}, folder)


def written(name: str, content: bytes | dict[str, Any], folder: Path) -> Path:
    """Write a file below a folder, and return its path."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def _files(ending: str, makes: dict[str, Make]) -> dict[str, Callable[[int, Path], Path]]:
    return {
        name: lambda count, folder, make=make: written(f"file{ending}", make(count), folder)
        for name, make in makes.items()
    }


GROWING: dict[str, Callable[[int, Path], Path]] = {
    **_files(".xplane.pb", PROFILES),
    **_files(".hlo", TEXTS),
    **_files(".mlir", MODULES),
    **_files(".json", SNAPSHOTS),
    "_sharding": lambda count, folder: written("_sharding", _saved(count), folder),
    "golden": lambda count, folder: written("named_shardings.json", _named_shardings(count), folder),
    "golden of many meshes": lambda count, folder: written(
        "named_shardings.json", _named_shardings(count, count), folder
    ),
    "golden with logical axes": lambda count, folder: (
        written(
            "g/logical_shardings.json",
            {key: {"partition_spec": ["embed", None], "shape": [8, 8]} for key in _named_shardings(count)},
            folder,
        )
        and written("g/named_shardings.json", _named_shardings(count), folder).parent
    ),
    "checkpoint": lambda count, folder: (
        written("c/_sharding", _saved(count), folder)
        and written("c/_METADATA", _orbax_tree(count), folder).parent
    ),
}
