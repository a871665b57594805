"""The table of safe options of XLA, against all options that the installed compilers have."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from hypothesis import given
from hypothesis import strategies as st

from inspector import layout as layouts
from inspector.compare import board
from inspector.compare.measured import published_runs
from inspector.compiling.compiled_program import CompiledProgram
from inspector.jobs.engine import Environment
from inspector.layout import Layout
from inspector.layout.script import script
from inspector.machines import compiler_options
from inspector.machines.compiler_options import NO_OPTIONS, OPTIONS
from inspector.search import result as results
from inspector.search import tasks
from inspector.text.errors import InvalidInput
from inspector.tracing.model.build import Signature
from tests import xla_options
from tests.compare.measured.test_published_runs import ROW

VERSION = ".".join(__import__("jax").__version__.split(".")[:2])

# Options that take a path, a command, an address, a regular expression or other text, by their type: text,
# lists, maps and messages. A message of the TPU compiler can have text in it.
TEXT_TYPES = (
    FieldDescriptorProto.TYPE_STRING,
    FieldDescriptorProto.TYPE_BYTES,
    FieldDescriptorProto.TYPE_GROUP,
)
# The same by a word of the name.
TEXT_NAMES = re.compile(
    r"(?:^|_)(?:paths?|dirs?|directory|folder|files?|filename|prefix|url|address|port|service|upload|database|"
    r"re|regex|filter|flags|cmd|ptxas?|cuda_data|dump|dumps|logs?|log_to|cache|profile_file|recipe|module_re|"
    r"extra_options|allowlist|denylist|visualization|snapshots?)(?:_|$)|_to$|_from$"
)
VALUES = ("/tmp/folder", "true", "http://127.0.0.1:1")


def every_option() -> dict[str, FieldDescriptorProto]:
    found: dict[str, FieldDescriptorProto] = {}
    for compiler in xla_options.installed():
        found |= xla_options.options(compiler)
    return found


def takes_text(name: str, field: FieldDescriptorProto) -> bool:
    repeated = field.label == FieldDescriptorProto.LABEL_REPEATED
    return field.type in TEXT_TYPES or repeated or bool(TEXT_NAMES.search(name))


@pytest.mark.nightly
def test_the_compilers_have_the_options_of_the_attack():
    found = {name for name, field in every_option().items() if takes_text(name, field)}
    assert len(found) > 60
    assert {"xla_gpu_cuda_data_dir", "xla_dump_to", "xla_gpu_kernel_cache_file"} <= found
    # A second way to list them: the help of the library itself.
    printed = subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices()"],
        env=os.environ | {"XLA_FLAGS": "--help", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    ).stderr
    listed = dict(re.findall(r"^\s*--(xla_\w+)=.*?\s(bool|string|int32|int64|float)\s", printed, re.M))
    assert len(listed) > 60 and listed["xla_gpu_cuda_data_dir"] == "string"
    assert not {name for name, kind in listed.items() if kind == "string"} & {
        name for name, option in OPTIONS.items() if not option.words
    }


@pytest.mark.nightly
def test_no_option_of_the_table_takes_text():
    known = every_option()
    takes = [name for name in OPTIONS if name in known and takes_text(name, known[name])]
    assert all(OPTIONS[name].words for name in takes)  # a closed set
    assert [name for name in OPTIONS if TEXT_NAMES.search(name)] == []
    for option in OPTIONS.values():
        assert option.words or option.least < option.most <= 2**40
        assert all(re.fullmatch(r"\w+|enabled:(true|false)", word) for word in option.words)


def test_the_compilers_know_the_options_of_the_table():
    if set(xla_options.installed()) != set(xla_options.LIBRARIES):
        pytest.skip("the compilers for TPUs and GPUs are not installed")
    known = every_option()
    for name, option in OPTIONS.items():
        assert (name in known) == (VERSION not in option.unknown_to), name


def test_values_of_an_option():
    allowed = {
        "xla_cpu_enable_fast_math": (["true", "False", "TRUE"], ["", "yes", "1", "true "]),
        "xla_enable_async_all_gather": (["ENABLED", "AUTO", "True"], ["enabled", "on"]),
        "xla_backend_optimization_level": (
            ["0", "3"],
            ["4", "-1", "1.0", "٣", "1_0", "0x1", "1e0"],
        ),
        "xla_gpu_operand_bytes_threshold_for_windowed_einsum": (["-1", "1099511627776"], ["-2"]),
        "xla_tpu_pcie_bandwidth_multiplier": (
            ["0.03", "1", "1e2"],
            ["nan", "inf", "-1", "1e9", "."],
        ),
    }
    for name, (right, wrong) in allowed.items():
        compiler_options.check([(name, value) for value in right])
        for value in wrong:
            with pytest.raises(InvalidInput, match=re.escape(compiler_options.UNSAFE_FLAG)):
                compiler_options.check([(name, value)])


RECIPES = json.loads((Path(__file__).parent / "recipe_options.json").read_text())


def test_the_options_of_published_recipes_are_known():
    """Each flag of the recipes is allowed with each of its values, or it is no option of a layout."""
    flags = [
        (name, value)
        for source in RECIPES["sources"]
        for name, values in source["flags"].items()
        for value in values
    ]
    assert len(dict(flags)) > 170
    for name, value in flags:
        if name.startswith(tuple(NO_OPTIONS)):
            with pytest.raises(InvalidInput, match="leave it out"):
                compiler_options.check([(name, value)])
        else:
            assert OPTIONS[name].allows(value), (name, value)


# --- Every door -------------------------------------------------------------------------------------

LAYOUT = layouts.parse({"layers": "1", "depth": "16", "mesh": "2", "axes": "data"}).unwrap()


def _fields(name: str, value: str) -> Layout:
    """The sidebar, the address of a page, and `--compiler-options`."""
    return layouts.parse({"compiler_options": f"{name}={value}"}).unwrap()


def _address(name: str, value: str) -> Layout | None:
    parsed = layouts.parse_leniently({"compiler_options": f"{name}.{value}"})
    assert parsed.problems
    assert parsed.value is not None and parsed.value.compiler_options == ()
    return None


def _file(name: str, value: Any) -> Layout:
    """A layout file, a Snapshot, the library, and a worker's request."""
    return layouts.from_json(LAYOUT.to_json() | {"compiler_options": {name: value}})


def _file_with_text(name: str, value: str) -> Layout:
    return layouts.from_json(LAYOUT.to_json() | {"compiler_options": f"{name}={value}"})


def _board(name: str, value: str) -> Layout | None:
    text = f"a{board._BETWEEN}mesh.2 compiler_options.{board._quoted(f'{name}.{value}')}"
    linked = board.parse_link({"pin": [text]})
    assert linked.problems
    return linked.pins[0].layout if linked.pins else None


def _search_result(name: str, value: str) -> Layout:
    plain = LAYOUT.to_json() | {"compiler_options": {name: value}}
    return results.layout_of(results.Candidate("propagated", layout=plain))


def _published(name: str, value: str) -> Layout | None:
    run = published_runs._run(ROW | {"xla_flags": [f"--{name}={value}"]}, "the row")
    assert run.layout is not None or run.reason
    # An option that does not change the compiled program is left out of the layout.
    return run.layout if run.layout is None or run.layout.compiler_options else None


def _task(name: str, value: str) -> None:
    tasks.run("compile", [LAYOUT.to_json() | {"compiler_options": {name: value}}], None)


def _jobs(name: str, value: str) -> None:
    """The requests of a worker that compile."""
    from inspector.compiling import compile_layout, run_layout
    from inspector.learn import time_together

    plain = LAYOUT.to_json() | {"compiler_options": {name: value}}
    jobs: list[Callable[[], Any]] = [
        lambda: compile_layout.compile_job({"layout": plain | {"target": "tpu:v5e:1x2"}}, _report),
        lambda: run_layout.run_job({"layout": plain}, _report),
        lambda: time_together.time_together({"layouts": [[0, plain]], "untimed": [], "rounds": 6}, _report),
    ]  # fmt: skip
    for job in jobs:
        with pytest.raises(InvalidInput, match=re.escape(compiler_options.UNSAFE_FLAG)):
            job()


def _producer(name: str, value: str) -> None:
    """A layout that no door has checked."""
    layout = replace(LAYOUT, compiler_options=((name, value),))
    program = CompiledProgram("p", _report)
    program._signature = Signature("p", abs, {}, {}, compiler_options=layout.compiler_options)
    program._compiled()  # the program is not lowered, so only the check can raise InvalidInput


def _report(*_: object, **__: object) -> None:
    raise AssertionError("the job began")


DOORS = (_fields, _address, _file, _file_with_text, _board, _search_result, _published)  # fmt: skip
LAYOUTLESS = (_task, _jobs, _producer)


def refused_everywhere(name: str, value: str, doors: tuple[Callable[..., Any], ...]) -> None:
    for door in doors:
        try:
            result = door(name, value)
        except InvalidInput as error:
            assert "\n" not in str(error) and len(str(error)) < 1000
            continue
        assert result is None, (door.__name__, name, value)


@pytest.mark.nightly
def test_no_option_that_takes_text_passes_a_door():
    """Also no option that only its name reveals, and none of a kind that the table does not have."""
    tried = 0
    for name, field in every_option().items():
        if name in OPTIONS:
            continue
        tried += 1
        text = takes_text(name, field)
        for value in VALUES if text else VALUES[1:2]:
            refused_everywhere(name, value, DOORS if text else DOORS[:3])
        if text:
            refused_everywhere(name, VALUES[0], LAYOUTLESS[:1] + LAYOUTLESS[2:])
    assert tried > 200
    for name in ("xla_gpu_cuda_data_dir", "xla_dump_to", "xla_gpu_kernel_cache_file"):
        _jobs(name, VALUES[0])


names = st.one_of(
    st.from_regex(r"(--)?(xla_)?[a-z0-9_]{0,30}", fullmatch=True),
    st.sampled_from(sorted(OPTIONS)).flatmap(
        lambda name: st.sampled_from([name[:-1], name.upper(), f"{name}_dir", f" {name}x", name])
    ),
    st.text(max_size=12),
)
values = st.one_of(
    st.text(max_size=12),
    st.sampled_from([*VALUES, "true", "4", "AUTO", "1=xla_dump_to=/tmp/a", "1,xla_dump_to=/tmp/a"]),
)


@given(names, values)
def test_a_layout_has_only_allowed_options(name: str, value: str):
    """Whatever text a door reads, the options of the layout that it returns are in the table."""
    for door in DOORS:
        try:
            layout = door(name, value)
        except (InvalidInput, AssertionError) as refused:
            # A door asserts that it reports a problem; here the option can be allowed.
            assert isinstance(refused, InvalidInput) or door in (_address, _board)
            continue
        for known, text in layout.compiler_options if layout is not None else ():
            assert OPTIONS[known].allows(text)
            assert text in OPTIONS[known].words or not re.search(r"[/\\:;\s]|\.\.", text)


@given(st.dictionaries(names, st.one_of(values, st.integers(), st.floats(), st.booleans(), st.none())))
def test_a_file_has_only_allowed_options(options: dict[str, Any]):
    try:
        layout = layouts.from_json(LAYOUT.to_json() | {"compiler_options": options})
    except InvalidInput:
        return
    assert all(OPTIONS[name].allows(value) for name, value in layout.compiler_options)


def test_allowed_options_pass_every_door():
    option = ("xla_tpu_scoped_vmem_limit_kib", "65536")
    for door in (_fields, _file, _file_with_text, _search_result, _published):
        assert door(*option).compiler_options[-1] == option
    assert _file(option[0], 65536).compiler_options == (option,)
    text = board.pin_text("a", replace(LAYOUT, compiler_options=(option,)), "plan")
    assert board.parse_link({"pin": [text]}).pins[0].layout.compiler_options == (option,)
    assert "xla_tpu_scoped_vmem_limit_kib" in script(replace(LAYOUT, compiler_options=(option,)))


def test_unsafe_options_reach_only_their_worker(monkeypatch):
    options = (("xla_dump_to", "/tmp/a,b"),)
    variables = compiler_options.unsafe_variables(options)
    assert compiler_options.unsafe_options(dict(variables)) == options
    assert compiler_options.unsafe_options() == () == compiler_options.unsafe_variables(())
    # A server with the variable does not pass it on.
    monkeypatch.setenv(*variables[0])
    assert compiler_options.unsafe_options(Environment(1).for_child()) == ()
    assert compiler_options.unsafe_options(Environment(1, variables).for_child()) == options
