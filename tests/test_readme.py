"""What the README tells a person to type is what the command line takes, and its policies are policies."""

from __future__ import annotations

import argparse
import re
import shlex
import tomllib
from pathlib import Path

from inspector.checks import lock_file, policy
from inspector.media.terminal import VERBS
from inspector.media.terminal.check_verb import NAME as CHECK
from tests.figures import samples
from tests.paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(*languages: str) -> list[str]:
    return [text for language, text in BLOCK.findall(README) if language in languages]


def commands() -> list[list[str]]:
    """The arguments of every `python -m inspector` in a code block, a workflow's steps among them."""
    text = "\n".join(blocks("sh", "bash", "yaml")).replace("\\\n", " ")
    found = re.findall(r"python\S* -m inspector (.*)", text)
    return [shlex.split(arguments, comments=True) for arguments in found]


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(prog="inspector")
    verbs = whole.add_subparsers(dest="verb", required=True)
    for verb in VERBS:
        verb.add_arguments(verbs.add_parser(verb.NAME))
    return whole


def test_every_command_is_one_that_the_command_line_takes() -> None:
    found = commands()
    assert {"inspect", "show", CHECK} <= {arguments[0] for arguments in found}
    for arguments in found:
        parser().parse_args(arguments)


def test_every_policy_is_read(tmp_path: Path) -> None:
    found = blocks("toml")
    assert found
    for text in found:
        same_as = tomllib.loads(text).get("specs", {}).get("same_as")
        if same_as is not None:
            lock_file.write(lock_file.locked(samples.snapshot()), tmp_path / same_as)
        assert policy.parse(text, folder=tmp_path).rules
