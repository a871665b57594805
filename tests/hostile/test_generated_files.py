"""Files of rules, StableHLO and zip files that are generated, not damaged: each is read or refused."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given

from inspector import layout as layouts
from inspector.jobs.inspection import Inspection
from inspector.layout import rule_files
from inspector.readers import import_file
from inspector.records import snapshot
from inspector.sharding.rules import written
from tests.hostile import generated
from tests.hostile.damage import TEXTS, damaged_text
from tests.hostile.test_damaged_input import EXAMPLES, WHOLE, accepted, examples, randoms

LAYOUT = layouts.parse({"model": "transformer"}).unwrap()
SNAPSHOT = snapshot.dumps(WHOLE).encode()
SHARDING = b'{"cGFyYW1z": "{\\"sharding_type\\": \\"NamedSharding\\"}"}'
# Nightly modules are as large as those of real programs.
LARGEST_MODULE = 3_000 if EXAMPLES else 300


@examples(60)
@given(randoms)
def test_files_of_rules(draw: random.Random) -> None:
    name, text = generated.rule_file(draw)
    for rule_set in accepted(lambda: rule_files.rule_sets(text, name)) or ():
        changed = accepted(lambda rule_set=rule_set: rule_set.applied_to(LAYOUT))
        if changed is not None:
            rule_files.applied_text(rule_set, changed)
            assert layouts.from_json(changed.to_json()) == changed
    accepted(lambda: written.parse(text[: written.MOST_CHARACTERS]))


@examples(60)
@given(randoms)
def test_zip_files(tmp_path_factory: pytest.TempPathFactory, draw: random.Random) -> None:
    top: Path = tmp_path_factory.mktemp("zip")
    folder = top / "unpacked here"
    folder.mkdir()
    path = top / "it.zip"
    contents = (
        SNAPSHOT,
        SHARDING,
        damaged_text(SNAPSHOT.decode(), draw, TEXTS[:20]).encode("utf-8", "replace"),
    )
    path.write_bytes(generated.archive(draw, contents))
    accepted(lambda: import_file.read(path, "it.zip", None, None, folder, lambda *_, **__: None))
    assert {file.name for file in top.iterdir()} == {"unpacked here", "it.zip"}
    for file in folder.rglob("*"):
        assert not file.is_symlink() and (file.is_file() or file.is_dir())


@pytest.mark.nightly
def test_modules(service: Inspection, tmp_path: Path) -> None:
    """A worker reads each, and refuses it itself: it neither fails nor ends."""

    @examples(12)
    @given(randoms)
    def check(draw: random.Random) -> None:
        path = tmp_path / "a.mlir"
        text = generated.stablehlo(draw, LARGEST_MODULE)
        path.write_text(text, encoding="utf-8", errors="replace")
        job = service.file(path, "a.mlir", "stablehlo").start().wait()
        status = job.status()
        assert status.state == "done" or status.details is None, (status.error, status.details)
        accepted(job.answer)

    check()
