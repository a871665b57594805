"""Options of XLA in workers: compilers accept those of the table; others come from the command line alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from inspector import layout as layouts
from inspector.compiling.compiled_program import CompiledProgram
from inspector.files import strict_json
from inspector.jobs.compile_cache import CompileCache
from inspector.jobs.engine import Environment, Pool
from inspector.machines import compiler_options, targets
from inspector.machines.compiler_options import OPTIONS
from inspector.records import snapshot
from inspector.search import result as results
from inspector.search import tasks
from inspector.text.errors import InvalidInput
from inspector.tracing.model.build import model_and_mesh, signatures, tracing
from tests import xla_options
from tests.media.terminal.command import inspector

SMALL = ("--mesh", "2", "--axes", "data", "--set", "depth=16", "--set", "layers=1", "--steps", "1")
TARGETS = {"cpu": None, "tpu": "tpu:v5e:2x2", "gpu": "gpu:h100:8"}
# The TPU compiler accepts these two only together.
TOGETHER = (
    "xla_tpu_enable_latency_hiding_layer_scheduler",
    "xla_tpu_enable_sparse_core_collective_aggregator",
)
PATIENCE = 300.0

pytestmark = pytest.mark.usefixtures("commands_share_workers")


@pytest.fixture(scope="module", autouse=True)
def _workers_end() -> Iterator[None]:
    yield
    tasks.close()


@pytest.fixture
def pool() -> Iterator[Pool]:
    with Pool(workers=1, jobs="tests.compiling.absent") as pool:
        yield pool


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("compiler", TARGETS)
def test_a_compiler_accepts_its_options(pool: Pool, compiler: str):
    if compiler not in xla_options.installed():
        pytest.skip(f"the compiler for {compiler} is not installed")
    own = [name for name in OPTIONS if name in xla_options.options(compiler)]
    # Each compiler has the options of XLA for all machines, and uses its own ones.
    others = tuple(f"xla_{other}_" for other in TARGETS if other != compiler)
    own = [name for name in own if not name.startswith(others)]
    value = {name: OPTIONS[name].example for name in own}
    sets = [[(name, value[name])] for name in own if name not in TOGETHER]
    sets.append([(name, "true") for name in TOGETHER if name in own])
    # Every word of an option, several options at once.
    for place in range(1, 5):
        words = {name: OPTIONS[name].words[place:] for name in own if OPTIONS[name].words}
        chosen = [(name, left[0]) for name, left in words.items() if left and name not in TOGETHER]
        sets += [chosen[start : start + 20] for start in range(0, len(chosen), 20)]
    target = TARGETS[compiler]
    machine = None if target is None else targets.parse(target)
    environment = Environment(1, targets.environment(machine) if machine else ())
    payload = {"target": target, "sets": sets}
    job = pool.submit("accepted_options", payload, environment, PATIENCE).wait()
    errors = dict(zip(map(str, sets), job.answer()["errors"], strict=True))
    assert {options: error for options, error in errors.items() if error} == {}


def test_an_option_that_no_door_checked_does_not_reach_the_compiler(tmp_path):
    layout = layouts.parse({"mesh": "2", "axes": "data", "depth": "16", "layers": "1"}).unwrap()
    for name, value in {"xla_dump_to": str(tmp_path / "dump"), "xla_cpu_ftz": "true"}.items():
        layout = replace(layout, compiler_options=((name, value),))
        model, mesh = model_and_mesh(layout, lambda *_, **__: None)
        with tracing(layout, mesh):
            program = CompiledProgram("init", lambda *_, **__: None)
            program.lower(signatures(model, layout, mesh)[0])
            with pytest.raises(InvalidInput, match=compiler_options.UNSAFE_FLAG):
                program.compile()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
def test_unsafe_options_of_a_command(tmp_path):
    """They reach the compiler, and no later command, Snapshot or cache entry has them."""
    folder, run, again = tmp_path / "dump", tmp_path / "run.json", tmp_path / "again.json"
    unsafe = (compiler_options.UNSAFE_FLAG, f"xla_dump_to={folder}")
    done = inspector("inspect", *SMALL, *unsafe, "-o", str(run))
    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir())
    result = snapshot.read(run)
    assert result.source.unsafe_compiler_options == f"xla_dump_to={folder}"
    assert compiler_options.UNSAFE in {finding.code for finding in result.findings}
    assert "compiler_options" not in result.layout

    for file in folder.iterdir():
        file.unlink()
    done = inspector("inspect", str(run), "-o", str(again))
    assert done.returncode == 0 and str(folder) in done.stderr
    assert list(folder.iterdir()) == []
    assert snapshot.read(again).source.unsafe_compiler_options is None

    # A Snapshot whose layout was given the option is refused.
    plain = json.loads(run.read_text())
    plain["layout"]["compiler_options"] = {"xla_dump_to": str(folder)}
    run.write_text(json.dumps(plain))
    for command in ("inspect", "search", "code"):
        done = inspector(command, str(run))
        assert done.returncode == 2 and compiler_options.UNSAFE_FLAG in done.stderr
    assert list(folder.iterdir()) == []


@pytest.mark.nightly
@pytest.mark.skipif("tpu" not in xla_options.installed(), reason="the TPU compiler is not installed")
def test_a_compile_with_unsafe_options_is_not_cached(tmp_path):
    machine = (*SMALL, "--target", "tpu:v5e:1x1", "--mesh", "1")
    unsafe = (compiler_options.UNSAFE_FLAG, "xla_tpu_verify_matmul=true")
    path = tmp_path / "a.json"
    before = CompileCache().usage().count
    for options, cached in ((unsafe, 0), ((), 1), (unsafe, 1)):
        done = inspector("inspect", *machine, *options, "-o", str(path))
        assert done.returncode == 0, done.stderr
        assert "cached" not in done.stderr
        source = snapshot.read(path).source
        assert (source.unsafe_compiler_options is None) == (not options)
        assert CompileCache().usage().count == before + cached


@pytest.mark.nightly
def test_a_search_with_unsafe_options(tmp_path):
    folder, path = tmp_path / "dump", tmp_path / "result.json"
    unsafe = (compiler_options.UNSAFE_FLAG, f"xla_dump_to={folder}")
    search = ("search", *SMALL, "--chip", "v5e", "--budget", "1", "-o", str(path))
    before = CompileCache().usage().count
    done = inspector(*search, *unsafe)
    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir()) and CompileCache().usage().count == before
    search_result = results.from_plain(strict_json.read(path), str(path))
    assert search_result.unsafe_compiler_options == f"xla_dump_to={folder}"
    assert f"xla_dump_to={folder}" in done.stdout.replace("\n", "")
    assert all("compiler_options" not in (candidate.layout or {}) for candidate in search_result.candidates)
    for file in folder.iterdir():
        file.unlink()
    assert inspector(*search).returncode == 0
    assert results.from_plain(strict_json.read(path), str(path)).unsafe_compiler_options is None
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        ("inspect", "--target", "plan", compiler_options.UNSAFE_FLAG, "xla_dump_to=/tmp/a"),
        ("inspect", compiler_options.UNSAFE_FLAG, "xla_dump_to"),
        ("inspect", compiler_options.UNSAFE_FLAG, ""),
        ("inspect", compiler_options.UNSAFE_FLAG, "xla_a=1,xla_a=2"),
        ("inspect", "--compiler-options", "xla_gpu_ftz=true", compiler_options.UNSAFE_FLAG, "xla_gpu_ftz=1"),
        ("inspect", "--set", "compiler_options=xla_dump_to=/tmp/a"),
        ("inspect", "--compiler-options", "xla_dump_to=/tmp/a"),
        ("search", "--dask", "tcp://127.0.0.1:1", compiler_options.UNSAFE_FLAG, "xla_dump_to=/tmp/a"),
    ],
)  # fmt: skip
def test_unsafe_options_that_are_refused(options: tuple[str, ...]):
    verb, *rest = options
    done = inspector(verb, *SMALL, *rest)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and not done.stdout


@pytest.mark.skipif("gpu" not in xla_options.installed(), reason="the GPU compiler is not installed")
def test_a_compile_starts_no_program_of_the_current_folder(tmp_path, monkeypatch):
    """XLA looks for ptxas in `cuda_sdk_lib` of the current folder, unless it is given another one."""
    ran = tmp_path / "ran"
    program = tmp_path / "cuda_sdk_lib" / "bin" / "ptxas"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho $0 >> {ran}\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for flags, runs in (("", False), ("--xla_gpu_cuda_data_dir=./cuda_sdk_lib", True)):
        monkeypatch.setenv("XLA_FLAGS", flags)
        machine = targets.parse("gpu:h100:1")
        with Pool(workers=1, jobs="tests.compiling.absent") as pool:
            payload = {"target": machine.text, "sets": [[]]}
            environment = Environment(1, targets.environment(machine))
            pool.submit("accepted_options", payload, environment, PATIENCE).wait()
        assert ran.exists() == runs, flags
