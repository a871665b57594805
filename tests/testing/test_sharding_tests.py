"""`inspector.testing` in a project of its own: plain functions without a layout, and pytest's plugin."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import jax
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from inspector import testing
from inspector.audit import lock_file
from inspector.recording.inspected import inspect
from inspector.text.errors import InvalidInput
from inspector.text.formatting import bytes_text
from tests.paths import ROOT

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.close_to_jax

PLUGIN = ("-p", "inspector.testing.plugin", "-p", "no:cacheprovider", "-q")
MESH = jax.make_mesh((4, 2), ("fsdp", "tensor"), axis_types=(AxisType.Auto,) * 2)
ROWS, WIDTH, HIDDEN = 64, 128, 256
PROJECT = """
import jax
from jax import numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from inspector.testing import sharding_lock, assert_policy, no_collective

MESH = jax.make_mesh((4, 2), ("fsdp", "tensor"), axis_types=(AxisType.Auto,) * 2)
RULES = {"embed": "fsdp", "hidden": "tensor", "batch": "fsdp", "vocab": None}

def array(shape, *names):
    spec = P(*(RULES[name] for name in names))
    return jax.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(MESH, spec))

def forward(params, x):
    return jax.nn.relu(x @ params["wi"]) @ params["wo"]

def logits(embedding, x):
    return x @ embedding.T

def test_forward():
    params = {"wi": array((128, 256), "embed", "hidden"), "wo": array((256, 128), "hidden", "embed")}
    sharding_lock(jax.jit(forward), params, array((64, 128), "batch"), lock="locks/forward.sharding.json")

def test_logits():
    snapshot = sharding_lock(logits, array((512, 128), "vocab", "vocab"), array((64, 128), "batch"))
    assert_policy(snapshot, policy=no_collective("all-gather", over="fsdp"))
"""


def array(shape: tuple[int, ...], *axes: str | None) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(MESH, PartitionSpec(*axes)))


def forward(kernel: jax.Array, x: jax.Array) -> jax.Array:
    return x @ kernel


def bytes_gathered(hidden: str | None) -> int:
    """Return what a device sends in all-gathers of the function of the project, from the compiler's text."""

    def layers(wi: jax.Array, wo: jax.Array, x: jax.Array) -> jax.Array:
        return jax.nn.relu(x @ wi) @ wo

    kernels = array((128, 256), "fsdp", hidden), array((256, 128), hidden, "fsdp")
    text = jax.jit(layers).lower(*kernels, array((64, 128), "fsdp")).compile().as_text()
    shapes = re.findall(r"= f32\[(\d+),(\d+)\]\S* all-gather\(", text)
    assert shapes
    return sum(4 * int(rows) * int(columns) for rows, columns in shapes) * 3 // 4  # of 4 devices of a group


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> testing.RunningTest:
    """The state of the plugin, which begins at the folder of the test."""
    state = testing.RunningTest()
    state.folder = tmp_path
    monkeypatch.setattr(testing, "run", state)
    return state


def test_a_changed_rule_fails_one_test_and_names_arrays_and_traffic(
    pytester: pytest.Pytester, run: testing.RunningTest
) -> None:
    file = pytester.makepyfile(PROJECT)
    pytester.runpytest_inprocess(*PLUGIN).assert_outcomes(failed=2)  # no lock file
    pytester.runpytest_inprocess(*PLUGIN, "--update-sharding-locks").assert_outcomes(passed=2)
    pytester.runpytest_inprocess(*PLUGIN).assert_outcomes(passed=2)
    lock = json.loads((file.parent / "locks/forward.sharding.json").read_text())
    specs = {array["path"]: array["spec"] for array in lock["arrays"]}
    assert specs["forward/input/params/wi"] == [["fsdp"], ["tensor"]]

    file.write_text(PROJECT.replace('"hidden": "tensor"', '"hidden": None'))
    result = pytester.runpytest_inprocess(*PLUGIN)
    result.assert_outcomes(passed=1, failed=1)
    sentence = next(line for line in result.outlines if "changes from locks/forward.sharding.json: " in line)
    assert "forward/input/params/wi is P('fsdp', None) instead of P('fsdp', 'tensor')" in sentence
    more = bytes_gathered(None) - bytes_gathered("tensor")
    assert f"all-gather over fsdp +{bytes_text(more)}" in sentence


def test_the_installed_option_is_in_the_help(tmp_path: Path) -> None:
    """An installed package has an entry point; pytest then knows the option without `-p`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (plugin,) = project["project"]["entry-points"]["pytest11"].values()
    program = f"import sys, {plugin}; print({plugin}.pytest_addoption.__name__, 'jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == ["pytest_addoption", "False"]


def test_a_lock_is_not_written_again_for_other_versions(run: testing.RunningTest, tmp_path: Path) -> None:
    run.update = True
    snapshot = testing.sharding_lock(forward, array((128, 256), "fsdp"), array((64, 128), "fsdp"))
    path = tmp_path / "step.sharding.json"
    text = path.read_text()
    assert lock_file.read(path) == lock_file.locked(snapshot)
    older = text.replace(f'"jax": "{jax.__version__}"', '"jax": "0.9.0"')
    path.write_text(older)
    testing.sharding_lock(snapshot)
    assert path.read_text() == older != text
    run.update = False
    testing.sharding_lock(snapshot)  # other versions are no change
    replicated = (array((128, 256)), array((64, 128)))
    with pytest.raises(AssertionError) as failure:
        testing.sharding_lock(forward, *replicated)
    summary, *changes, remedy = str(failure.value).splitlines()
    assert "version of jax: 0.9.0 → " in str(failure.value)
    assert summary.startswith(
        f"{len([line for line in changes if 'version' not in line])} changes from step."
    )
    assert "forward/input/kernel is P(None, None) instead of P('fsdp', None)" in summary
    assert "--update-sharding-locks" in remedy


def test_two_tests_cannot_write_one_lock(run: testing.RunningTest) -> None:
    run.update, run.test = True, "test_a.py::test_first"
    testing.sharding_lock(forward, array((128, 256), "fsdp"), array((64, 128)))
    testing.sharding_lock(forward, array((128, 256), "fsdp"), array((64, 128)))
    with pytest.raises(AssertionError, match=r"of test_a.py::test_first: give this"):
        testing.sharding_lock(forward, array((128, 256), "tensor"), array((64, 128)))


def test_rules_about_collectives_of_a_plain_function(run: testing.RunningTest, tmp_path: Path) -> None:
    kernel, x = array((WIDTH, HIDDEN), "fsdp"), array((ROWS, WIDTH), "fsdp")
    gathered = WIDTH * HIDDEN * 4  # bytes of the result of the all-gather of the kernel
    compiled = jax.jit(forward).lower(kernel, x).compile().as_text()
    assert compiled.count(" all-gather(") == 1 and f"f32[{WIDTH},{HIDDEN}]" in compiled
    rule = testing.no_collective("all-gather", over="fsdp", larger_than=gathered)
    snapshot = testing.assert_policy(forward, kernel, x, policy=rule)
    smaller = testing.no_collective("all-gather", over="fsdp", larger_than=gathered - 1)
    with pytest.raises(AssertionError, match=r"all-gather over fsdp in forward: 1 instruction.*input/kernel"):
        testing.assert_policy(snapshot, policy=[rule, smaller])
    testing.assert_policy(snapshot, policy=testing.no_collective(over="tensor"))
    (tmp_path / "policy.toml").write_text("[collectives]\nop = 'all-gather'\nmost_wire_bytes = 1\n")
    with pytest.raises(AssertionError, match="limit 1 B"):
        testing.assert_policy(snapshot, policy="policy.toml")


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (lambda snapshot: testing.no_collective("all-gathr"), "nearest is 'all-gather'"),
        (lambda snapshot: testing.no_collective(larger_than="64 MB MB"), "larger_than is '64 MB MB'"),
        (lambda snapshot: testing.no_collective(over=""), "axis is ''"),
        (
            lambda snapshot: testing.assert_policy(snapshot, policy=testing.no_collective(over="data")),
            "axis is 'data', but must be one of 'fsdp', 'tensor'",
        ),
        (lambda snapshot: testing.sharding_lock(snapshot, 3), "takes no arguments"),
        (lambda snapshot: testing.sharding_lock(3), "the function is '3'"),
        (
            lambda snapshot: testing.assert_policy(snapshot, policy="absent.toml"),
            "absent.toml cannot be read",
        ),
    ],
)
def test_invalid_arguments_are_one_sentence(run: testing.RunningTest, check: object, words: str) -> None:
    snapshot = testing.assert_policy(forward, *_small(), policy=testing.no_collective("all-to-all"))
    with pytest.raises(InvalidInput) as error:
        check(snapshot)
    assert words in str(error.value) and "\n" not in str(error.value)


def _small() -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    return array((8, 8), "fsdp"), array((8, 8), "fsdp")


def test_one_device_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "test_step.py").write_text(
        "import jax\nfrom jax import numpy as jnp\nfrom inspector.testing import sharding_lock\n"
        "def test_step():\n    sharding_lock(jnp.dot, jnp.ones((8, 8)), jnp.ones((8, 8)))\n"
    )
    command = [sys.executable, "-m", "pytest", *PLUGIN, "--update-sharding-locks", str(tmp_path)]
    variables = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert done.returncode == 1 and "this process has one device" in done.stdout
    assert "jax_num_cpu_devices" in done.stdout and not [*tmp_path.glob("*.sharding.json")]


def test_the_lock_of_a_function_is_that_of_its_snapshot(run: testing.RunningTest) -> None:
    """The check adds nothing to `inspector.inspect`, and the specs are those of JAX's own compiled object."""
    arguments = array((128, 256), "fsdp", "tensor"), array((64, 128), "fsdp")
    run.update = True
    checked = testing.sharding_lock(forward, *arguments)
    own = inspect(forward, *arguments)
    assert lock_file.locked(checked) == lock_file.locked(own)
    compiled = jax.jit(forward).lower(*arguments).compile()
    (output,) = (array for array in lock_file.locked(own).arrays if array.group == "output")
    spec = compiled.output_shardings.spec
    expected = tuple(None if axes is None else (axes,) if isinstance(axes, str) else axes for axes in spec)
    assert output.spec == expected + (None,) * (2 - len(expected))
