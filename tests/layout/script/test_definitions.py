"""Source without the branches that are not taken does the same as the whole source."""

from __future__ import annotations

import ast
import itertools
import textwrap

import pytest

from inspector.layout.script import Definitions, names_in, simplified
from inspector.model.built_in.catalogue import CATALOGUE

SOURCE = textwrap.dedent(
    '''
    def f(self, c, x):
        """Text with é, · and π."""
        found = []
        # In front of a branch.
        if self.a:
            # Inside the branch.
            found.append("a")
            if c.b:
                found.append("ab")
            else:
                # In the other branch.
                found.append("a-")
        else:
            found.append("-")
        if c.b:
            found.append(x)
        return found
    '''
).strip()


class Options:
    def __init__(self, **values: bool) -> None:
        self.__dict__.update(values)


def outcome(text: str, a: bool, b: bool) -> list:
    names: dict = {}
    exec(text, names)
    return names["f"](Options(a=a), Options(b=b), 7)


@pytest.mark.parametrize(("a", "b"), list(itertools.product([True, False], repeat=2)))
def test_a_known_condition_is_removed_and_the_outcome_stays(a: bool, b: bool) -> None:
    for known in ({"self.a": a}, {"c.b": b}, {"self.a": a, "c.b": b}):
        shorter = simplified(SOURCE, tuple(known.items()))
        assert outcome(shorter, a, b) == outcome(SOURCE, a, b)
        assert not any(condition in shorter for condition in known)
    assert "# In front of a branch." in shorter
    assert ("# Inside the branch." in shorter) is a


def test_unknown_conditions_stay() -> None:
    assert simplified(SOURCE, ()) == SOURCE
    assert simplified(SOURCE, (("self.other", True),)) == SOURCE


def test_hooks_are_removed() -> None:
    text = "def f(x):\n    watch(\n        x\n    )\n    y = x\n    return y"
    assert simplified(text, ()) == "def f(x):\n    y = x\n    return y"


def test_definitions_come_before_those_that_use_them() -> None:
    definitions = Definitions({})
    definitions.add("inspector.model.built_in.moe", "mixture_of_experts")
    text = definitions.text()
    assert "watch" not in names_in(text)
    order = [text.index(f"class {name}(") for name in ("Layer", "Attention", "Block", "Transformer")]
    assert order == sorted(order)
    assert definitions.imports["optax"] == "import optax"


@pytest.mark.parametrize("model", CATALOGUE)
def test_each_name_of_a_model_has_one_definition(model: str) -> None:
    """With all branches of the code. A second definition would replace the first one in a script."""
    definitions = Definitions({})
    definitions.add(*CATALOGUE[model].build.split(":"))
    names = [
        node.name
        for node in ast.parse(definitions.text()).body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef))
    ]
    assert len(names) == len(set(names))


def test_a_function_keeps_its_gradient() -> None:
    definitions = Definitions({})
    definitions.add("inspector.model.built_in.quantized", "quantized_product")
    *others, function, registered = ast.parse(definitions.text()).body
    assert isinstance(function, ast.FunctionDef) and function.name == "quantized_product"
    assert [ast.unparse(decorator) for decorator in function.decorator_list] == [
        "functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2, 3))"
    ]
    assert ast.unparse(registered) == "quantized_product.defvjp(_forward, _backward)"
    assert {"_forward", "_backward"} <= {other.name for other in others if isinstance(other, ast.FunctionDef)}
