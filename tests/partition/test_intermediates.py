"""Activations and gradients of a model that reports none: its products, against the compiled program."""

from __future__ import annotations

import re
from collections.abc import Iterator

import jax
import pytest

from inspector import layout as layouts
from inspector.layout import Layout
from inspector.model.built_in import catalogue
from inspector.partition.partition_layout import partitioned_programs
from inspector.records.snapshot import Array
from inspector.tracing.model.build import build_model, make_mesh, signatures, tracing
from inspector.tracing.model.describe import entry_of

MODEL = "examples.linen_mlp:build"

DOT = re.compile(r"= f32\[([\d,]*)\]\S* dot\(")


@pytest.fixture(scope="module")
def layout() -> Iterator[Layout]:
    catalogue.CATALOGUE[MODEL] = entry_of(MODEL)
    yield layouts.parse({"model": MODEL, "mesh": "2x4", "axes": "data,model"}).unwrap()
    del catalogue.CATALOGUE[MODEL]


@pytest.fixture(scope="module")
def arrays(layout: Layout) -> tuple[Array, ...]:
    return partitioned_programs(layout).arrays


def test_products_have_the_shapes_of_the_compiled_program(layout: Layout, arrays: tuple[Array, ...]) -> None:
    """XLA may transpose a product, so the sizes are compared in any order."""
    mesh = make_mesh(layout)
    with tracing(layout, mesh):
        signature = next(
            each for each in signatures(build_model(layout), layout, mesh) if each.name == "train_step"
        )
        jitted = jax.jit(
            signature.function,
            in_shardings=tuple(sharding for _, sharding in signature.inputs.values()),
            out_shardings=tuple(signature.outputs.values()),
        )
        text = jitted.lower(*signature.arguments).compile().as_text()
    compiled = sorted(sorted(map(int, found.split(","))) for found in DOT.findall(text))
    products = [array for array in arrays if "dot_general" in array.path]
    assert sorted(sorted(array.shard_shape or ()) for array in products) == compiled


def test_values_are_grouped_by_phase_and_named_by_module(arrays: tuple[Array, ...]) -> None:
    groups = {array.path.partition("/")[0]: array.group for array in arrays}
    assert groups == {"activation": "activation", "gradient": "gradient"}
    assert {"activation/up/dot_general", "activation/down/dot_general"} <= {array.path for array in arrays}
    assert all(array.program == "train_step" and array.origins is not None for array in arrays)


def test_constraints_of_parameters_are_not_listed(arrays: tuple[Array, ...]) -> None:
    assert "activation/up/sharding_constraint" not in {array.path for array in arrays}
