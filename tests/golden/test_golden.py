"""The answers of the verbs are those of the files in `answers`."""

from pathlib import Path

import pytest

from tests.golden import answers

pytestmark = pytest.mark.first_jax_is_enough

NIGHTLY = pytest.mark.nightly


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == answers.FIRST else NIGHTLY) for name in answers.INPUTS]
)
def test_answers_are_those_of_the_files(name: str, tmp_path: Path) -> None:
    now = dict(answers.answers(name, tmp_path))
    folder = answers.HERE / name
    assert {path.name for path in folder.iterdir()} == set(now)
    for file, text in now.items():
        assert text.splitlines() == (folder / file).read_text().splitlines(), file
