"""Tests that exported scripts place arrays as the inspector does, with the same losses."""

from __future__ import annotations

import ast
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inspector import layout as layouts
from inspector.compiling.run_layout import run_layout
from inspector.layout import Layout
from inspector.layout.plan import plan
from inspector.layout.script import script
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.model.built_in.moe import BALANCE_WEIGHT
from inspector.text.errors import InvalidInput
from inspector.tracing.model.abstract import abstract_state
from tests.layout.script import run_scripts
from tests.layout.script.comparison import made_by_scripts, refuse_other_arrays, without_jax_settings

pytestmark = pytest.mark.close_to_jax

SMALL = {"batch": "8", "layers": "2", "steps": "3"}
MLP = SMALL | {"depth": "32"}
TRANSFORMER = SMALL | {
    "layers": "1", "model": "transformer", "seq": "8", "embed": "16", "mlp": "32", "heads": "4",
    "kv_heads": "2", "head_dim": "4", "vocab": "32", "optimizer": "sgd",
}  # fmt: skip

EXPERTS = "mixture of experts, fewer devices"

LAYOUTS = {
    "logical axes, FSDP, bfloat16, the compiler free to choose": MLP | {
        "mesh": "8", "axes": "fsdp", "rules": "batch=fsdp,embed=fsdp", "dtype": "bfloat16",
        "unconstrained": "z", "optimizer": "lion",
    },
    "logical axes, scan, the layer axis split": MLP | {
        "scan": "true", "mesh": "2x2x2", "axes": "pipe,data,model", "donate": "true",
        "rules": "layer=pipe,batch=data,hidden=model", "loss": "mse", "optimizer": "momentum",
        "optimizer_axes": "data",
    },
    "explicit axes": MLP | {"axes": "data:explicit,model:explicit"},
    "device axes, one of them explicit": MLP | {"model": "mlp", "axes": "data,model:explicit"},
    "device axes": MLP | {
        "model": "mlp", "mesh": "4x2", "loss": "mse", "optimizer": "adamw",
        "learning_rate": "0.01", "specs": "W1=data.model,W2=model+data.None,y=data.model",
        "compiler_options": "xla_llvm_disable_expensive_passes=true,xla_backend_optimization_level=1",
    },
    "device axes, scan": MLP | {
        "model": "mlp", "scan": "true", "specs": "layer=data", "unconstrained": "y",
        "optimizer": "sgd",
    },
    "transformer, scan, remat, tied": TRANSFORMER | {
        "mesh": "2x2x2", "scan": "true", "remat": "true", "tied": "true",
        "unconstrained": "table,key",
        "rules": "batch=data+fsdp,embed=fsdp,mlp=model,heads=model,kv_heads=model",
    },
    "transformer as GPT-2, parallel as GPT-J": TRANSFORMER | {
        "mesh": "4x2", "activation": "gelu", "gated": "false", "positions": "learned",
        "parallel": "true",
    },
    "transformer, a ring, kept fp8 operands": TRANSFORMER | {
        "mesh": "2x2", "axes": "data,context", "rules": "batch=data,seq=context",
        "attention": "ring", "quantization": "fp8", "remat": "save:quantization",
    },
    "experts without a capacity in a ring": TRANSFORMER | {
        "model": "moe", "mesh": "2x2", "axes": "expert,context", "experts": "4", "routing": "dropless",
        "rules": "expert=expert,batch=expert,seq=context", "attention": "ring",
    },
    EXPERTS: TRANSFORMER | {
        "model": "moe", "mesh": "2x2", "axes": "data,expert", "experts": "4",
        "capacity_factor": "1.5",
    },
}  # fmt: skip
# A sum in another order rounds differently; bfloat16 keeps 8 bits.
TOLERANCE = {"float32": 1e-4, "bfloat16": 2e-2}


def parsed(name: str) -> Layout:
    return layouts.parse(LAYOUTS[name]).unwrap()


class Scripts:
    """Scripts that run one after the other in one process, which knows nothing of this project."""

    def __init__(self, folder: Path) -> None:
        self._names = iter(LAYOUTS)
        self._made: dict[str, dict[str, Any]] = {}
        self._folder, self._errors = folder, folder / "errors.txt"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, run_scripts.__file__], text=True, cwd=folder,
                env=without_jax_settings(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip

    def made(self, name: str) -> dict[str, Any]:
        """Run the script of this name, and before it the scripts above it in LAYOUTS."""
        while name not in self._made:
            following = next(self._names)
            path = self._folder / f"script_{len(self._made)}.py"
            path.write_text(script(parsed(following)), encoding="utf-8")
            print(path, file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
            assert line, self._errors.read_text(encoding="utf-8")
            self._made[following] = json.loads(line)
        return self._made[name]

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripts]:
    running = Scripts(tmp_path_factory.mktemp("scripts"))
    yield running
    running.end()


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("name", [name for name in LAYOUTS if name != EXPERTS])
def test_a_script_gives_exactly_the_layout(name: str, scripts: Scripts) -> None:
    layout = parsed(name)
    snapshot = run_layout(layout, lambda *_, **__: None)
    theirs = scripts.made(name)
    refuse_other_arrays(theirs["arrays"], snapshot)
    losses = snapshot.program("train_step").losses[: layout.steps]
    assert np.allclose(theirs["losses"], losses, rtol=TOLERANCE[layout.sizes["dtype"]], atol=1e-6)


@pytest.mark.nightly
def test_a_mixture_of_experts_is_where_it_is_planned(scripts: Scripts) -> None:
    # Running it here as well would take as long as all the others together.
    layout = parsed(EXPERTS)
    theirs = scripts.made(EXPERTS)
    refuse_other_arrays(theirs["arrays"], plan(layout, abstract_state(layout)))
    # Who knows nothing yet loses ln(vocabulary), and experts that are equally busy add their weight.
    untrained = math.log(layout.sizes["vocab"]) + BALANCE_WEIGHT
    assert all(abs(loss - untrained) < 1 for loss in theirs["losses"])
    assert "capacity_factor=1.5" in script(layout)


@pytest.mark.nightly
def test_branches_that_are_not_taken_are_left_out() -> None:
    loop, scanned = script(parsed("device axes")), script(parsed("device axes, scan"))
    assert "nn.scan" in scanned and "nn.scan" not in loop
    assert "donate_argnums" not in loop and "if name in self.unconstrained" not in loop
    assert 'unconstrained=("y",)' in scanned and "if name in self.unconstrained" in scanned
    assert "donate_argnums=0" in script(parsed("logical axes, scan, the layer axis split"))
    for name in LAYOUTS:
        text = script(parsed(name))
        assert "watch" not in text
        modules = {
            node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
            for node in ast.walk(ast.parse(text))
            if isinstance(node, (ast.Import, ast.ImportFrom))
        }
        packages = {module.partition(".")[0] for module in modules}
        assert packages - set(sys.stdlib_module_names) <= {"jax", "flax", "optax", "numpy"}


@pytest.mark.parametrize("fields", [{"cache": "16", "prefill_batch": "4"}, {"weight_dtype": "int8"}])
def test_a_script_for_inference_places_its_arrays(fields: dict[str, str], tmp_path: Path) -> None:
    """It needs nothing of this project, and its decode step writes over the caches."""
    layout = layouts.parse(TRANSFORMER | {"mesh": "2x2", "optimizer": "adam"} | fields).unwrap()
    text = script(layout)
    assert "from inspector" not in text.replace(">>> from inspector", "")
    path = tmp_path / "served.py"
    path.write_text(text, encoding="utf-8")
    (made,) = made_by_scripts([path])
    refuse_other_arrays(made["arrays"], plan(layout, abstract_state(layout)))
    assert not made["losses"]


def test_every_model_that_ships_has_a_script() -> None:
    shipped = [entry for entry in CATALOGUE.values() if entry.build.startswith("inspector.model.built_in.")]
    for entry in shipped:
        for preset in entry.presets:
            sizes = {key: layouts.print_size(v) for key, v in entry.sizes_of(preset).items()}
            text = script(layouts.parse({"model": entry.name} | sizes).unwrap())
            compile(text, entry.name, "exec")


def test_a_machine_is_a_comment_and_its_real_devices_are_used() -> None:
    layout = layouts.parse({"target": "tpu:v5p:4x4x4", "device_order": "torus"}).unwrap()
    text = script(layout)
    assert "# Made for tpu:v5p:4x4x4: the real devices of that machine, 64 devices." in text
    assert "os.environ" not in text and "mesh_utils.create_device_mesh(" in text
    assert "mesh_utils" not in script(replace(layout, device_order="row-major"))


def test_several_processes_are_spoken_of() -> None:
    text = script(layouts.parse(MLP | {"processes": "2"}).unwrap())
    assert "2 processes with 4 devices each" in text and "jax.distributed.initialize" in text


@pytest.mark.parametrize(
    "name",
    [
        'x"\nimport os\nos.abort()\n"',
        "'); raise SystemExit #",
        "{0}",
        "\\",
        "\u2028",
        "None",
        "😀",
        "%s",
    ],
)
def test_names_are_data(name: str) -> None:
    with pytest.raises(InvalidInput):
        layouts.from_json({"rules": [[name, ["data"]]]})
    # Even if a layout had such a name, it would be a literal.
    layout = layouts.parse(MLP).unwrap()
    text = script(replace(layout, rules=((name, ("data",)),), axis_names=("data", name)))
    assigned = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in ("rules", "axis_names")
    }
    assert assigned == {"rules": ((name, "data"),), "axis_names": ("data", name)}
    plain = script(replace(layout, rules=(("a", ("data",)),), axis_names=("data", "a")))
    assert shape_of(text) == shape_of(plain)
    device_axes = layouts.parse(MLP | {"model": "mlp"}).unwrap()
    specs = dict(device_axes.specs) | {"W1": ((name,), None)}
    assert shape_of(script(replace(device_axes, specs=specs))) == shape_of(
        script(replace(device_axes, specs=dict(device_axes.specs) | {"W1": (("a",), None)}))
    )


def shape_of(text: str) -> str:
    """The syntax tree without the values of its constants."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            node.value = None
    return ast.dump(tree)
