"""A Layout as a Python script that needs nothing but JAX, Flax, Optax and NumPy.

The model's definitions come from the modules in `models`, without the branches that the layout decides
against; mesh, rules and shardings are templates. Whatever a layout says goes in as a literal. A model of
one's own is imported (`own`).
"""

from __future__ import annotations

import ast

from inspector.layout import Layout, print_mesh
from inspector.layout.script import machine, simplified
from inspector.layout.script.assembly import assembled, constants
from inspector.layout.script.definitions import Definitions, read
from inspector.layout.script.literals import assignment, call, literal
from inspector.layout.script.own import own_script
from inspector.layout.script.recipes import RECIPES, known

_DOCSTRING = '''\
"""{title} on mesh {mesh}, built and trained with every array where the layout puts it.

Run this file with Python, or import it and call `trained`.
"""
'''

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


def script(layout: Layout) -> str:
    """The script's text. Its `trained` gives state, batch and losses, its `infer` the output.

    Raises:
      InvalidInput: the model is one's own and has a name that no script can import.
    """
    if layout.entry.own:
        return own_script(layout)
    recipe = RECIPES[layout.model]
    definitions = Definitions(known(layout))
    for module, name in recipe.roots:
        definitions.add(module, name)
    training, returned = definitions.body_of(*recipe.training)
    definitions.add("inspector.models.training", "TrainState")
    # `Batch` is what the models' functions call their input.
    definitions.add("inspector.model", "Batch")
    model = definitions.text()
    build = recipe.build(layout, lambda name: simplified.fields_of(model, name))
    if not isinstance(returned["output_axes"], ast.Name):
        build.append(assignment("output_axes", ast.literal_eval(returned["output_axes"])))
    programs = _PROGRAMS.format(donate=_DONATE if layout.donate else "")
    shardings = (_LOGICAL if layout.entry.has_rules else _DEVICE_AXES) + programs
    made = "\n".join([*build, f"optimizer = {_optimizer(layout)}"])
    placed = machine.mesh(layout) + shardings
    body = "\n\n".join([constants(layout), model, made, training, placed])
    head = _DOCSTRING.format(title=layout.entry.title, mesh=print_mesh(layout.mesh_shape))
    return assembled(head, layout, definitions.imports(), body)


def _optimizer(layout: Layout) -> str:
    """As `models.training.optimizer_named` makes it."""
    name, rate = layout.sizes["optimizer"], literal(layout.sizes["learning_rate"])
    if name == "momentum":
        momentum = ast.parse(read("inspector.models.training").definitions["MOMENTUM"]).body[0]
        return call("optax.sgd", rate, momentum=ast.unparse(momentum.value))
    return call(f"optax.{name}", rate)
