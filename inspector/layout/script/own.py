"""The script of a model of one's own: it imports the person's function by its name, and builds it.

Nothing of the person's code is imported or read here. What its state is made of is therefore not known: the
script itself asks every leaf for its names, be it an array, a Linen box or an nnx variable.
"""

from __future__ import annotations

import keyword
import unicodedata
from collections.abc import Mapping

from inspector.core.errors import InvalidInput
from inspector.layout import Layout, print_mesh
from inspector.layout.script import machine
from inspector.layout.script.assembly import assembled, constants
from inspector.layout.script.definitions import names_in
from inspector.layout.script.literals import call, literal
from inspector.model import RulesSemantics, own_model

_DOCSTRING = '''\
"""{name} on mesh {mesh}, built and trained with every array where the layout puts it.

Run this file with Python, or import it and call `trained`. `{module}` must be importable, and
with it `inspector.model`, from which it has its `Model`.
"""
'''

_LOGICAL = """\
# Models of Linen and of nnx find the mesh and the rules here when they are traced.
jax.set_mesh(mesh)
nn.set_logical_axis_rules(rules)
spmd.set_logical_axis_rules(rules)
# Where a variable of nnx goes, the rules say, and not its creation.
nnx.use_eager_sharding(False)


def sharding(names: Names | None) -> NamedSharding:
    \"\"\"Where an array goes whose dimensions have these logical axes; whole where nothing names them.\"\"\"
    spec = {spec}
    return NamedSharding(mesh, spec)
"""

_SPEC: Mapping[RulesSemantics, str] = {
    "linen": "nn.logical_to_mesh_axes(tuple(names or ()), rules)",
    "nnx": "PartitionSpec(*spmd.from_sharding_rules(tuple(names or ()), rules))",
}

_DEVICE_AXES = """\
# Models find the mesh here when they are traced.
jax.set_mesh(mesh)
# Where a variable of nnx goes, its sharding below says, and not its creation.
nnx.use_eager_sharding(False)


def sharding(names: Names | None) -> NamedSharding:
    \"\"\"Where an array goes whose dimensions are split over these mesh axes; whole without any.\"\"\"
    return NamedSharding(mesh, PartitionSpec(*(names or ())))
"""

_PROGRAMS = """\
def is_named(leaf: Any) -> bool:
    \"\"\"Whether it is a box of Linen or a variable of nnx, with an array in it.\"\"\"
    return isinstance(leaf, (meta.AxisMetadata, nnx.Variable))


def names_of(leaf: Any) -> Names | None:
    \"\"\"What a box or a variable calls the dimensions of its array; None where nothing names them.\"\"\"
    if isinstance(leaf, nnx.Variable):
        return leaf.get_metadata().get("out_sharding")
    return getattr(leaf, "names", None) if is_named(leaf) else None


key = jax.random.key(0)
abstract_batch = jax.eval_shape(model.batch, key)
abstract_state = jax.eval_shape(model.init, key, abstract_batch)
state_sharding = jax.tree.map(
    lambda leaf: sharding(names_of(leaf)), abstract_state, is_leaf=is_named
)
batch_sharding = {{name: sharding(model.batch_axes.get(name)) for name in abstract_batch}}

new_state = jax.jit(
    model.init, in_shardings=(sharding(None), batch_sharding), out_shardings=state_sharding
)
train_step = jax.jit(
    model.step,
    in_shardings=(state_sharding, batch_sharding),
    out_shardings=(state_sharding, None),
{donate})
infer = model.apply and jax.jit(
    model.apply,
    in_shardings=(state_sharding, batch_sharding),
    out_shardings=sharding(model.output_axes),
)


def trained(steps: int = steps) -> tuple[Any, dict[str, jax.Array], list[float]]:
    \"\"\"The train state after so many steps, the batch, and the loss of each step.\"\"\"
    data = jax.device_put(model.batch(key), batch_sharding)
    state, losses = new_state(key, data), []
    for _ in range(steps):
        state, loss = train_step(state, data)
        losses.append(float(loss))
    return state, data, losses


if __name__ == "__main__":
    state, data, losses = trained()
    for path, array in jax.tree_util.tree_leaves_with_path(nn.unbox(nnx.as_pure(state))):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        print(name, array.shape, array.sharding.spec)
    if infer is not None:
        for output in jax.tree.leaves(infer(state, data)):
            print("output", output.shape, output.sharding.spec)
    for number, loss in enumerate(losses, 1):
        print(f"step {{number}}: loss {{loss:.6g}}")
"""

_DONATE = "    donate_argnums=0,  # the new state may take the place of the old one\n"

_NAMES = "Names = tuple[Any, ...]  # of each dimension one name, several or None\n"

_IMPORTS = {
    "meta": "from flax.core import meta",
    "nnx": "from flax import nnx",
    "spmd": "from flax.core import spmd",
}


def own_script(layout: Layout) -> str:
    """The script's text for a model that is `package.module:function`.

    Raises:
      InvalidInput: Python has no statement that imports a function of this name.
    """
    module, function = own_model.parse_name(layout.model)
    for part in (*module.split("."), function):
        if (
            keyword.iskeyword(part)
            or not part.isidentifier()
            or unicodedata.normalize("NFKC", part) != part  # which is how Python reads a name
        ):
            raise InvalidInput(
                f"model is {layout.model}, but a script can import only what Python has a name for, and "
                f"{part!r} is none"
            )
    programs = _PROGRAMS.format(donate=_DONATE if layout.donate else "")
    body = "\n\n".join([_NAMES, machine.mesh(layout) + _shardings(layout), programs])
    before = constants(layout)
    # A function of a name that the script needs itself gets another one there.
    taken = names_in("\n".join([machine.machine(layout), before, body])) | {"model", *_IMPORTS}
    bound = f"own_{function}" if function in taken else function
    renamed = function if bound == function else f"{function} as {bound}"
    sizes = {name: literal(value) for name, value in layout.sizes.items()}
    made = f"model = {call(bound, **sizes)}\n"
    docstring = _DOCSTRING.format(
        name=layout.model, mesh=print_mesh(layout.mesh_shape), module=module
    )
    more = _IMPORTS | {bound: f"from {module} import {renamed}"}
    return assembled(docstring, layout, more, "\n\n".join([before, made, body]))


def _shardings(layout: Layout) -> str:
    if not layout.entry.has_rules:
        return _DEVICE_AXES
    return _LOGICAL.format(spec=_SPEC[layout.entry.rules_semantics])
