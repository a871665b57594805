"""Operations outside of any jit that lose the sharding of their operand, against what JAX says."""

from __future__ import annotations

import json
from pathlib import Path

from inspector.jobs.program_run import folder_snapshot
from inspector.records import program_run
from tests.jobs.program_run.test_program_run import RUN, call

# The program prints which lines replicate their result. Nobody asks for that in lines without `asked`.
PROGRAM = """
import json
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(8), ("data",))
x = jax.device_put(np.ones((64, 32), np.float32), NamedSharding(mesh, P("data")))
results = {
    "half": x[:32],
    "stride": x[::2],
    "folded": x.reshape(4, 16, 32),
    "padded": jnp.pad(x, ((0, 1), (0, 0))),
    "doubled": x * 2,
    "joined": jnp.concatenate([x, x]),
    "sum": jnp.sum(x, 0),
    "row": x[3],
    "asked constraint": jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P())),
    "asked put": jax.device_put(x, NamedSharding(mesh, P())),
    "asked of": jax.jit(lambda a, b: a + b, in_shardings=(NamedSharding(mesh, P("data")), None))(x, x),
    "asked inside": jax.jit(lambda c: jax.lax.with_sharding_constraint(c - 1, NamedSharding(mesh, P())))(x),
    "asked jit": jax.jit(lambda x: x + 1, out_shardings=NamedSharding(mesh, P()))(x),
}
held = x.addressable_shards[0].data.nbytes
print(json.dumps({
    name: [value.nbytes, value.is_fully_replicated and value.nbytes > held]
    for name, value in results.items()
}))
"""


def test_each_line_that_loses_a_sharding_is_named(tmp_path: Path) -> None:
    (tmp_path / "eager.py").write_text(PROGRAM)
    ended = call(tmp_path, *RUN, "eager.py")
    assert ended.returncode == 0, ended.stderr
    lines = PROGRAM.splitlines()
    expected = {}
    for name, (size, lost) in json.loads(ended.stdout).items():
        if lost and not name.startswith("asked"):
            (line,) = (n for n, text in enumerate(lines, start=1) if f'"{name}":' in text)
            expected[f"eager.py:{line}"] = size
    assert len(expected) >= 3
    run = program_run.read(tmp_path / "recorded")
    assert run.problems == ()
    assert {lost_sharding.line: lost_sharding.bytes for lost_sharding in run.lost_shardings} == expected
    assert {(lost_sharding.operand_bytes, lost_sharding.parts) for lost_sharding in run.lost_shardings} == {
        (64 * 32 * 4 // 8, 8)
    }
    snapshot = folder_snapshot.read(tmp_path / "recorded")
    asked = {
        (argument.path.rpartition("/")[2], argument.role, argument.requested)
        for program in snapshot.programs
        for argument in program.shardings
        if argument.requested is not None
    }
    assert ("a", "input", (("data",), None)) in asked and not any(name == "b" for name, *_ in asked)
    (constrained,) = (n for n, text in enumerate(lines, start=1) if '"asked inside":' in text)
    known = {argument.constraint for program in snapshot.programs for argument in program.shardings}
    assert known == {None, f"eager.py:{constrained}"}
    warned = {
        finding.source: finding.bytes for finding in snapshot.findings if finding.code == "sharding-lost"
    }
    assert warned == {line: size - size // 8 for line, size in expected.items()}
