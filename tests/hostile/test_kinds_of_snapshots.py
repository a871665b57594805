"""Every verb that reads a Snapshot, with each of its options, for each kind of Snapshot.

Producers leave out different parts: a plan has no schedule, an imported program has no arrays, a captured
state has no programs. CI takes some commands for each kind; `HOSTILE_EXAMPLES=10000` takes all.
"""

from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from inspector.records import snapshot
from inspector.records.snapshot import Snapshot
from tests.audit.policy.test_policy_file import EVERY_RULE
from tests.hostile import whole
from tests.media.terminal.command import inspector

EXAMPLES = int(os.environ.get("HOSTILE_EXAMPLES", "0"))
USUAL = 9  # commands for each kind

WHOLE = whole.snapshot()
STEP = WHOLE.programs[0]


def kinds() -> dict[str, Snapshot]:
    """Return the whole Snapshot without each of its parts, and without parts of its program."""
    snapshots = {"whole": WHOLE}
    for field in dataclasses.fields(Snapshot):
        value = getattr(WHOLE, field.name)
        if isinstance(value, tuple) and value:
            snapshots[f"without {field.name}"] = replace(WHOLE, **{field.name: ()})
        elif field.default is None or field.name in ("layout", "mesh"):
            snapshots[f"without {field.name}"] = replace(WHOLE, **{field.name: None})
    for field in dataclasses.fields(STEP):
        if field.default is None:
            program = replace(STEP, **{field.name: None})
            snapshots[f"program without {field.name}"] = replace(WHOLE, programs=(program,))
    for stage in ("propagated", "run"):
        program = replace(STEP, stage=stage, schedule=None, memory=None)
        snapshots[f"{stage} program"] = replace(WHOLE, programs=(program,))
    return snapshots


KINDS = kinds()


def commands(path: str, folder: Path) -> Iterator[list[str]]:
    chips = ([], ["--chip", "v5e"], ["--chip", "h100"])
    array, trace = WHOLE.arrays[0].path, ["--trace", str(folder / "trace.json")]
    for chip in chips:
        yield ["show", path, *chip]
        yield ["explain", path, *chip]
        yield ["explain", path, "--agreement", *chip]
        yield ["compare", path, str(folder / "whole.json"), *chip]
        yield ["report", path, "-o", str(folder / "r.md"), *chip]
        for more in ([], trace, ["--program", STEP.name]):
            yield ["predict", path, *chip, *more]
            yield ["predict", path, *chip, *more, "--json"]
    for more in ([], ["--json"]):
        yield ["shards", path, *more]
        yield ["shards", path, "--array", array, *more]
        yield ["device", path, "--device", "0,1", "--all", *more]
        yield ["device", path, "--process", "0", *more]
        yield ["explain", path, "--array", array, *more]
        yield ["explain", path, "--rules", "embed=data", *more]
        yield ["explain", path, "--rule", "embed", *more]
        for collective in (STEP.collectives or ())[:1]:
            yield ["explain", path, "--collective", f"{STEP.name}/{collective.name}", *more]
    yield ["compare", str(folder / "whole.json"), path, "--baseline", "2"]
    yield ["compare", path, path, "-o", str(folder / "c.json")]
    yield ["check", path, "--policy", str(folder / "p.toml")]
    yield ["check", path, "--write-lock", str(folder / "lock.json")]
    yield ["check", path, "--lock", str(folder / "whole.json")]
    yield ["check", str(folder / "whole.json"), "--lock", path]
    yield ["code", path]


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("kind", KINDS)
def test_each_verb_ends_with_an_answer_or_a_sentence(kind: str, tmp_path: Path) -> None:
    (tmp_path / "whole.json").write_text(snapshot.dumps(WHOLE))
    (tmp_path / "p.toml").write_text(EVERY_RULE)
    path = tmp_path / "kind.json"
    path.write_text(snapshot.dumps(KINDS[kind]))
    chosen = list(commands(str(path), tmp_path))
    if not EXAMPLES:
        chosen = random.Random(kind).sample(chosen, USUAL)
    for command in chosen:
        done = inspector(*command)
        assert done.returncode in (0, 1, 2), command
        assert ": unexpected " not in done.stderr, (command, done.stderr)
        if done.returncode == 2:
            assert len(done.stderr.splitlines()) == 1, (command, done.stderr)
