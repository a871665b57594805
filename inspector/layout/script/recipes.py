"""How each model of the catalogue is put together from the definitions in its modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from inspector.layout import Layout
from inspector.layout.script.literals import assignment, call, entries, literal

Fields = Callable[[str], tuple[str, ...]]  # the fields that are left of a class


@dataclass(frozen=True)
class Recipe:
    """What a script takes from where.

    roots: (module, name) of the definitions that it uses by name.
    training: (module, function) whose inner functions init, step, apply and batch it has.
    build: lines that make `module` and what the training needs, given the fields left of each class.
    """

    roots: tuple[tuple[str, str], ...]
    training: tuple[str, str]
    build: Callable[[Layout, Fields], list[str]]


def known(layout: Layout) -> dict[str, bool]:
    """The conditions in the models' sources that the layout decides, as Python writes them."""
    decided = {
        f"{owner}.{name}": value
        for name, value in layout.sizes.items()
        if isinstance(value, bool)
        for owner in ("self", "c")
    }
    for choice in ("sum", "mse"):
        decided[f"loss == '{choice}'"] = layout.sizes.get("loss") == choice
    if not layout.unconstrained:
        for owner in ("self", "self.config"):
            decided[f"name in {owner}.unconstrained"] = False
            decided[f"name not in {owner}.unconstrained"] = True
    return decided


def _values(layout: Layout) -> dict[str, str]:
    """Every argument of a model's classes, as Python text."""
    values = {name: literal(value) for name, value in layout.sizes.items()}
    values["dtype"] = "dtype"
    values["unconstrained"] = literal(frozenset(layout.unconstrained))
    values["partitions"] = "partitions"
    return values


def _dtype(layout: Layout) -> str:
    return f"dtype = jnp.dtype({literal(layout.sizes['dtype'])})"


def _mlp(layout: Layout, fields: Fields) -> list[str]:
    values = _values(layout)
    lines = [_dtype(layout)]
    batch_axes = output_axes = '("batch", "embed")'
    if not layout.entry.has_rules:
        lines.append(
            "# Where each array of a block is split: mesh axes for each of its dimensions."
        )
        specs = {place: entries(spec) for place, spec in layout.specs.items()}
        lines.append(assignment("partitions", specs))
        batch_axes, output_axes = 'partitions["x"]', 'partitions["z"]'
    return [
        *lines,
        f"module = {call('MLP', **{name: values[name] for name in fields('MLP')})}",
        f"shape = {literal((layout.sizes['batch'], layout.sizes['depth']))}",
        f"batch_axes = {batch_axes}",
        f"output_axes = {output_axes}",
    ]


def _transformer(layout: Layout, fields: Fields) -> list[str]:
    values = _values(layout)
    experts = []
    arguments = {"config": "config"}
    if "experts" in layout.sizes:
        names = ("experts", "experts_per_token", "capacity_factor")
        sizes = {name: values[name] for name in names}
        experts.append(f"feed_forward = {call('functools.partial', 'MixtureOfExperts', **sizes)}")
        arguments["feed_forward"] = "feed_forward"
    return [
        _dtype(layout),
        f"config = {call('Config', **{name: values[name] for name in fields('Config')})}",
        *experts,
        f"module = {call('Transformer', **arguments)}",
        f"shape = {literal((layout.sizes['batch'], layout.sizes['seq']))}",
        f"vocab = {literal(layout.sizes['vocab'])}",
    ]


_TOKENS = ("inspector.models.token_training", "next_token_model")
_REGRESSION = ("inspector.models.training", "regression")
_CONFIG = ("inspector.models.layer", "Config")
_MOE = "inspector.models.moe"
_TRANSFORMER = ("inspector.models.transformer", "Transformer")

RECIPES: Mapping[str, Recipe] = {
    "logical_mlp": Recipe((("inspector.models.logical_mlp", "MLP"),), _REGRESSION, _mlp),
    "mlp": Recipe((("inspector.models.mlp", "MLP"),), _REGRESSION, _mlp),
    "transformer": Recipe((_CONFIG, _TRANSFORMER), _TOKENS, _transformer),
    "moe": Recipe(
        (
            _CONFIG,
            _TRANSFORMER,
            ("inspector.models.moe", "MixtureOfExperts"),
            ("inspector.models.moe", "functools"),
        ),
        _TOKENS,
        _transformer,
    ),
}
