"""What the verbs print about a corpus of programs, sentence by sentence.

`forms.toml` is the table of all sentences. A sentence that no form matches fails, and so does one whose check
finds that its claim is false. The checks in `claims` read the dumps of JAX and XLA, and nothing of ours.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from inspector.media.terminal import main
from tests.paths import ROOT
from tests.sentences import claims
from tests.sentences.evidence import Evidence, Module
from tests.sentences.sentences import FIELDS, pattern, sentences
from tests.xla_flags import FAST_COMPILES

pytestmark = pytest.mark.first_jax_is_enough

HERE = Path(__file__).parent
PROGRAMS = sorted(path.stem for path in (HERE / "programs").glob("*.py"))
# They have a gradient, calls, a loop without a count, and no mesh.
FIRST = ("attention_heads", "called_reduce_scatter", "conjugate_gradient", "one_device")
FORMS = tomllib.loads((HERE / "forms.toml").read_text())
FIELDS["label"] = "|".join(map(re.escape, FORMS.pop("labels")["says"]))
PREDICT = "predict", "--chip", "v5e"
VERBS = tuple(
    (*verb, *rest) for verb in (("show",), ("audit",), ("explain",), PREDICT) for rest in (("--all",), ())
)
MOST_FORMS = 300


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("corpus")


@cache
def recorded(program: str, corpus: Path) -> Evidence:
    """Run a program of the corpus under `run`, with dumps of JAX and XLA."""
    folder = corpus / program
    dumps = f"--xla_dump_to={folder}/dump --xla_dump_hlo_as_text"
    environment = {
        **os.environ,
        "XLA_FLAGS": f"{FAST_COMPILES} {dumps}",
        "JAX_DUMP_IR_TO": f"{folder}/ir",
        "PYTHONPATH": str(ROOT),
    }
    script = HERE / "programs" / f"{program}.py"
    command = (sys.executable, "-m", "inspector", "run", "--devices", "8", "-o", folder / "run", script)
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    status = re.search(r"ended with exit (\d+)", ended.stderr)
    return Evidence(program, folder, script.read_text(), int(status[1]) if status else 0)


@cache
def said(program: str, corpus: Path) -> tuple[tuple[str, str], ...]:
    """Return each sentence that the verbs print about a program, with its verb."""
    evidence = recorded(program, corpus)
    found: dict[tuple[str, str], None] = {}
    for verb, *options in VERBS:
        out, error = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            status = main([verb, str(evidence.folder / "run"), *options])
        printed = f"[exit 2] {error.getvalue()}" if status == 2 else out.getvalue()
        found |= dict.fromkeys((verb, sentence) for sentence in sentences(printed))
    return tuple(found)


def form_of(sentence: str) -> tuple[str, dict[str, str]] | None:
    """Return the first form that a sentence has, with its fields."""
    for name, form in FORMS.items():
        if (found := pattern(form["says"]).fullmatch(sentence)) is not None:
            return name, {field: text for field, text in found.groupdict().items() if text is not None}
    return None


def _faults(program: str, corpus: Path) -> list[str]:
    evidence = recorded(program, corpus)
    faults = []
    for verb, sentence in said(program, corpus):
        known = form_of(sentence)
        if known is None:
            faults.append(f"{verb}: no form of the table has: {sentence}")
            continue
        name, fields = known
        if not getattr(claims, FORMS[name].get("check", "always"))(evidence, **fields):
            faults.append(f"{verb}: false by the check of {name}: {sentence}")
    return faults


@pytest.mark.parametrize("program", FIRST)
def test_sentences_are_in_the_table_and_true(program: str, corpus: Path) -> None:
    assert _faults(program, corpus) == []


@pytest.mark.nightly
@pytest.mark.parametrize("program", [program for program in PROGRAMS if program not in FIRST])
def test_sentences_of_all_programs_are_in_the_table_and_true(program: str, corpus: Path) -> None:
    assert _faults(program, corpus) == []


@pytest.mark.nightly
def test_each_form_is_printed_on_its_side_of_the_condition(corpus: Path) -> None:
    names = {
        program: {known[0] for _, sentence in said(program, corpus) if (known := form_of(sentence))}
        for program in PROGRAMS
    }
    wrong = {name: form["on"] for name, form in FORMS.items() if name not in names[form["on"]]}
    wrong |= {name: form["off"] for name, form in FORMS.items() if name in names.get(form.get("off", ""), ())}
    assert wrong == {}


def test_the_table_is_complete_and_small() -> None:
    assert len(FORMS) <= MOST_FORMS and len(PROGRAMS) >= 60
    for name, form in FORMS.items():
        assert form["if"] and form["on"] in PROGRAMS, name
        assert form.get("off", PROGRAMS[0]) in PROGRAMS, name
        assert callable(getattr(claims, form.get("check", "always"))), name
        pattern(form["says"])


def test_checks_find_what_is_false(corpus: Path) -> None:
    evidence = recorded(FIRST[0], corpus)
    true = {"op": "dot_general", "axes": "model", "collective": "all-reduce"}
    assert claims.sums(evidence, **true)
    assert not claims.sums(evidence, **{**true, "axes": "data, model"})
    assert not claims.sums(evidence, **{**true, "op": "neg"})
    assert not claims.calls(evidence, call="psum", axes="model")
    # A cast to bfloat16 that is not next to the collective.
    rounded = "ENTRY %main () -> f32[4] {\n  %x = bf16[4] convert(%y)\n  %w = bf16[4] convert(%a)\n"
    reduced = "  %a = f32[4] all-reduce(%b), replica_groups={{0,1}}, to_apply=%add\n"
    for text, wider in ((rounded + reduced, True), (rounded.replace("(%a)", "(%c)") + reduced, False)):
        assert claims.sends_wider(SimpleNamespace(modules=(Module("m", text),))) == wider
