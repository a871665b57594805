"""The user's own models: their names, and how workers get to know them.

Only the command line that starts the program can name code. A URL, a file or a page can only choose among
registered models.
"""

import dataclasses
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from inspector.model import ModelEntry, PipelineSizes, Size
from inspector.records.snapshot import MeshAxis, Spec
from inspector.sharding.state_specs import Fsdp, SpecRow
from inspector.text.errors import InvalidInput, shown

# Environment variable with the registered models, which workers inherit.
VARIABLE = "SHARDING_INSPECTOR_OWN_MODELS"

# `package.module:function`
FORM = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def parse_name(text: str) -> tuple[str, str]:
    """Return the module and the function of `package.module:function`.

    Raises:
      InvalidInput: the name has another form.
    """
    if not FORM.fullmatch(text):
        raise InvalidInput(
            f"--model is {shown(text)}, but must be the name of a model, or "
            "package.module:function for your own model"
        )
    module, _, function = text.partition(":")
    return module, function


def from_environment(variables: Mapping[str, str] = os.environ) -> tuple[ModelEntry, ...]:
    """Return the models that the parent process had registered."""
    return tuple(from_json(plain) for plain in json.loads(variables.get(VARIABLE, "[]")))


def to_environment(entries: Sequence[ModelEntry]) -> None:
    """Pass these models to workers that start from now on."""
    os.environ[VARIABLE] = json.dumps([to_json(entry) for entry in entries])


def to_json(entry: ModelEntry) -> dict[str, Any]:
    """Return the entry of a user's model as JSON."""
    return dataclasses.asdict(entry)


def from_json(plain: dict[str, Any]) -> ModelEntry:
    """Return the entry from the JSON of `to_json`."""
    sizes = tuple(Size(**(size | {"choices": tuple(size["choices"])})) for size in plain["sizes"])
    rules = tuple((name, tuple(axes)) for name, axes in plain["rules"])
    rows = plain["state_specs"]
    read = {
        "sizes": sizes,
        "rules": rules,
        "constraints": (),
        "presets": (),
        "programs": tuple(plain["programs"]),
        "mesh_axes": tuple(plain["mesh_axes"]),
        "mesh": tuple(MeshAxis(axis["name"], axis["size"], axis["type"]) for axis in plain["mesh"]),
        "pipeline": None
        if plain["pipeline"] is None
        else PipelineSizes(**plain["pipeline"] | {"outside": ()}),
        "state_specs": None
        if rows is None
        else tuple(SpecRow(row["pattern"], _spec_of(row["spec"])) for row in rows),
    }
    return ModelEntry(**(plain | read))


def _spec_of(plain: Any) -> Spec | Fsdp:
    if isinstance(plain, dict):
        return Fsdp(tuple(plain["axes"]), plain["min_bytes"])
    return tuple(None if axes is None else tuple(axes) for axes in plain)
