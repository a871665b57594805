"""A Layout as a Python script that needs nothing but JAX, Flax, Optax and NumPy.

The model's definitions come from the modules in `models`, without the branches that the layout decides
against; mesh, rules and shardings are templates. Whatever a layout says goes in as a literal.
"""

from __future__ import annotations

import ast

from inspector.errors import Refused
from inspector.layout import Layout, print_mesh
from inspector.layout_script import simplified
from inspector.layout_script.definitions import Definitions, names_in, read
from inspector.layout_script.literals import assignment, call, entry, literal
from inspector.layout_script.recipes import RECIPES, known
from inspector.layout_script.spacing import spaced
from inspector.wording import counted

_DOCSTRING = '''\
"""{title} on mesh {mesh}, built and trained with every array where the layout puts it.

Run this file with Python, or import it and call `trained`.
"""
'''

_EMULATED = """\
# {count}. Leave these two lines out where there are real ones.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_NUM_CPU_DEVICES"] = "{devices}"
"""

_REAL = "# Made for {target}: the real devices of that machine, {count}.\n"

_PROCESSES = """\
# The layout has {processes} processes with {share} each. Started as one process, as here, the shardings are
# the same. In each of several: `jax.distributed.initialize` first, its share of devices above, and
# `jax.make_array_from_process_local_data` for the batch.
"""

_ON_TORUS = """\
# Mesh axes along axes of the torus, which must be those of the machine.
devices = mesh_utils.create_device_mesh(
    mesh_shape, jax.devices()[:{devices}], allow_split_physical_axes=True
)
"""

_ROW_BY_ROW = "devices = np.array(jax.devices()[:{devices}]).reshape(mesh_shape)\n"

_LOGICAL = """\
# Models find the mesh and the rules here when they are traced.
jax.set_mesh(mesh)
nn.set_logical_axis_rules(rules)


def sharding(names: tuple[Any, ...]) -> NamedSharding:
    \"\"\"Where an array goes whose dimensions have these logical axes.\"\"\"
    return NamedSharding(mesh, nn.logical_to_mesh_axes(names, rules))


key = jax.random.key(0)
abstract_state = jax.eval_shape(init, key, jax.eval_shape(batch, key))
logical_specs = nn.get_partition_spec(abstract_state)
state_sharding = nn.logical_to_mesh_sharding(logical_specs, mesh, rules)
"""

_DEVICE_AXES = """\
# Models find the mesh here when they are traced.
jax.set_mesh(mesh)


def sharding(names: tuple[Any, ...]) -> NamedSharding:
    \"\"\"Where an array goes whose dimensions are split over these mesh axes.\"\"\"
    return NamedSharding(mesh, PartitionSpec(*names))


key = jax.random.key(0)
abstract_state = jax.eval_shape(init, key, jax.eval_shape(batch, key))
state_sharding = nn.get_sharding(abstract_state, mesh)
"""

_PROGRAMS = """\
batch_sharding = {{name: sharding(names) for name, names in axes.items()}}
whole = NamedSharding(mesh, PartitionSpec())

new_state = jax.jit(init, in_shardings=(whole, batch_sharding), out_shardings=state_sharding)
train_step = jax.jit(
    step,
    in_shardings=(state_sharding, batch_sharding),
    out_shardings=(state_sharding, None),
{donate})
infer = jax.jit(
    apply,
    in_shardings=(state_sharding, batch_sharding),
    out_shardings=sharding(output_axes),
)


def trained(steps: int = steps) -> tuple[TrainState, Batch, list[float]]:
    \"\"\"The train state after so many steps, the batch, and the loss of each step.\"\"\"
    data = jax.device_put(batch(key), batch_sharding)
    state, losses = new_state(key, data), []
    for _ in range(steps):
        state, loss = train_step(state, data)
        losses.append(float(loss))
    return state, data, losses


if __name__ == "__main__":
    state, data, losses = trained()
    for path, array in jax.tree_util.tree_leaves_with_path(nn.unbox(state)):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        print(name, array.shape, array.sharding.spec)
    print("output", infer(state, data).sharding.spec)
    for number, loss in enumerate(losses, 1):
        print(f"step {{number}}: loss {{loss:.6g}}")
"""

_DONATE = "    donate_argnums=0,  # the new state may take the place of the old one\n"

_TEMPLATE_IMPORTS = {
    "os": "import os",
    "Any": "from typing import Any",
    "jax": "import jax",
    "np": "import numpy as np",
    "optax": "import optax",
    "nn": "from flax import linen as nn",
    "jnp": "from jax import numpy as jnp",
    "mesh_utils": "from jax.experimental import mesh_utils",
    "Mesh": "from jax.sharding import Mesh",
    "NamedSharding": "from jax.sharding import NamedSharding",
    "PartitionSpec": "from jax.sharding import PartitionSpec",
}
_STANDARD = ("functools", "math", "os", "collections", "dataclasses", "typing")


def script(layout: Layout) -> str:
    """The script's text. Its `trained` gives state, batch and losses, its `infer` the output.

    Raises:
      Refused: the model is not one of those that the inspector ships, or its source is not there.
    """
    recipe = RECIPES.get(layout.model)
    if recipe is None:
        raise Refused(
            f"model is {layout.model}, but scripts can be written only for {', '.join(RECIPES)}"
        )
    definitions = Definitions(known(layout))
    for module, name in recipe.roots:
        definitions.add(module, name)
    training, returned = definitions.body_of(*recipe.training)
    definitions.add("models.training", "TrainState")
    # `Batch` is what the models' functions call their input.
    definitions.add("inspector.model", "Batch")
    model = definitions.text()
    build = recipe.build(layout, lambda name: simplified.fields_of(model, name))
    if not isinstance(returned["output_axes"], ast.Name):
        build.append(assignment("output_axes", ast.literal_eval(returned["output_axes"])))
    programs = _PROGRAMS.format(donate=_DONATE if layout.donate else "")
    shardings = (_LOGICAL if layout.entry.has_rules else _DEVICE_AXES) + programs
    machine = _machine(layout)
    made = "\n".join([*build, f"optimizer = {_optimizer(layout)}"])
    body = "\n\n".join([_constants(layout), model, made, training, _mesh(layout) + shardings])
    head = _DOCSTRING.format(title=layout.entry.title, mesh=print_mesh(layout.mesh_shape))
    imports = _imports(dict(definitions.imports()), machine + body)
    first = "import os\n\n" if "os.environ" in machine else ""
    parts = (head, "from __future__ import annotations\n", first + machine, imports, body)
    return spaced("\n".join(part for part in parts if part))


def _machine(layout: Layout) -> str:
    """What must be set before JAX starts, and what a reader has to know of the machine."""
    count = counted(layout.devices, "device")
    target = layout.machine
    if target is not None:
        return _REAL.format(target=target.text, count=count)
    emulated = counted(layout.devices, "emulated device")
    text = _EMULATED.format(count=emulated, devices=layout.devices)
    if layout.processes > 1:
        share = counted(layout.devices // layout.processes, "device")
        text += _PROCESSES.format(processes=layout.processes, share=share)
    return text


def _constants(layout: Layout) -> str:
    lines = [
        assignment("mesh_shape", layout.mesh_shape),
        assignment("axis_names", layout.axis_names),
    ]
    if layout.entry.has_rules:
        rules = tuple((name, entry(axes)) for name, axes in layout.rules)
        lines.append(
            "# Logical axis → mesh axes: the first rule whose mesh axes are all free decides."
        )
        lines.append(assignment("rules", rules))
    lines.append(f"steps = {layout.steps}")
    return "\n".join(lines)


def _mesh(layout: Layout) -> str:
    on_torus = layout.machine is not None and layout.device_order == "torus"
    text = _ON_TORUS if on_torus else _ROW_BY_ROW
    return text.format(devices=layout.devices) + "mesh = Mesh(devices, axis_names)\n\n"


def _optimizer(layout: Layout) -> str:
    """As `models.training.optimizer_named` makes it."""
    name, rate = layout.sizes["optimizer"], literal(layout.sizes["learning_rate"])
    if name == "momentum":
        momentum = ast.parse(read("models.training").definitions["MOMENTUM"]).body[0]
        return call("optax.sgd", rate, momentum=ast.unparse(momentum.value))
    return call(f"optax.{name}", rate)


def _imports(of_models: dict[str, str], body: str) -> str:
    """The statements for all names that the body refers to, in the order that import sorters want."""
    used = names_in(body)
    known_imports = _TEMPLATE_IMPORTS | of_models
    wanted = {known_imports[name] for name in used & known_imports.keys()} - {"import os"}
    groups: list[list[str]] = [[], []]
    for statement in _merged(wanted):
        package = statement.split()[1].split(".")[0]
        groups[package not in _STANDARD].append(statement)
    return "\n\n".join("\n".join(group) for group in groups if group) + "\n"


def _merged(statements: set[str]) -> list[str]:
    """The statements sorted, with one line for all names that come from one module."""
    plain = sorted(one for one in statements if one.startswith("import"))
    names: dict[str, list[str]] = {}
    for one in statements - set(plain):
        module, _, name = one.removeprefix("from ").partition(" import ")
        names.setdefault(module, []).append(name)
    return [
        *plain,
        *(f"from {module} import {', '.join(sorted(names[module]))}" for module in sorted(names)),
    ]
