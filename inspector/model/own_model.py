"""Models of whoever starts the inspector: how they are named, and how workers come to know them.

The code is named on the command line of the one who starts the program, and nowhere else: a URL, a file and
a page can only choose among the models that are registered.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from inspector.core.errors import InvalidInput, shown
from inspector.model import ModelEntry, Size

# Holds the registered models, so that workers, which inherit it, have them. Set by `to_environment` alone.
VARIABLE = "SHARDING_INSPECTOR_OWN_MODELS"

# `package.module:function`
FORM = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")

# Fields of every layout, beside which a size of the same name would be read twice.
NOT_SIZES = (
    *("model", "sizes", "mesh", "axes", "rules", "specs", "target", "steps"),
    *("unconstrained", "timeit", "processes", "donate", "trace", "device_order"),
)


def parse_name(text: str) -> tuple[str, str]:
    """The module and the function of `package.module:function`.

    Raises:
      InvalidInput: it is not of that form.
    """
    if not FORM.fullmatch(text):
        raise InvalidInput(
            f"--model is {shown(text)}, but must be the name of a model, or "
            "package.module:function for one of your own"
        )
    module, _, function = text.partition(":")
    return module, function


def from_environment(variables: Mapping[str, str] = os.environ) -> tuple[ModelEntry, ...]:
    """The models that the process which started this one had registered."""
    return tuple(from_json(plain) for plain in json.loads(variables.get(VARIABLE, "[]")))


def to_environment(entries: Sequence[ModelEntry]) -> None:
    """Have the workers that are started from now on know these models."""
    os.environ[VARIABLE] = json.dumps([to_json(entry) for entry in entries])


def to_json(entry: ModelEntry) -> dict[str, Any]:
    """An own model's entry as JSON."""
    return dataclasses.asdict(entry)


def from_json(plain: dict[str, Any]) -> ModelEntry:
    """An own model's entry from what `to_json` made of it."""
    sizes = tuple(Size(**(size | {"choices": tuple(size["choices"])})) for size in plain["sizes"])
    rules = tuple((name, tuple(axes)) for name, axes in plain["rules"])
    return ModelEntry(
        **(plain | {"sizes": sizes, "rules": rules, "constraints": (), "presets": ()})
    )
