"""Have a model of one's own read in a worker, and registered for this process and its workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from inspector.core.errors import InvalidInput
from inspector.model import ModelEntry, own_model
from inspector.models.catalogue import CATALOGUE, register
from inspector.service.engine import Environment, Pool

# Seconds; most of it is what the person's module imports.
DESCRIBE_TIMEOUT = 120.0
# Who starts the server names models with it, after `streamlit run app.py --`.
OPTION = "--model"
# What was wrong with the models that this server was started with, a sentence each.
PROBLEMS: list[str] = []


def register_own(name: str) -> ModelEntry:
    """Read `package.module:function`, importable from where the program was started, and register it.

    The module is imported in a worker that ends then; it is never imported in this process.

    Raises:
      InvalidInput: it cannot be imported, is no function that builds a model, or fails; with its own words.
    """
    if name in CATALOGUE and CATALOGUE[name].own:
        return CATALOGUE[name]
    own_model.parse_name(name)
    if os.getcwd() not in map(os.path.abspath, sys.path):
        sys.path.append(os.getcwd())  # workers can import what this process can
    with Pool(1) as pool:
        job = pool.submit("describe", {"model": name}, Environment(1), DESCRIBE_TIMEOUT)
        entry = own_model.from_json(job.wait().answer()["entry"])
    register(entry)
    return entry


def names_in(arguments: Sequence[str]) -> tuple[str, ...]:
    """The models that a server's command line names: `--model X`, as often as there are models.

    Raises:
      InvalidInput: there is anything else, or a model without its name.
    """
    names = []
    rest = list(arguments)
    while rest:
        option, separator, value = rest.pop(0).partition("=")
        if option != OPTION:
            raise InvalidInput(
                f"{option} is no option of app.py: it knows {OPTION} package.module:function"
            )
        if not separator:
            if not rest:
                raise InvalidInput(f"{OPTION} is there without package.module:function after it")
            value = rest.pop(0)
        names.append(value)
    return tuple(names)


def register_all(arguments: Sequence[str]) -> None:
    """Register every model that a server's command line names; one that cannot be is among `PROBLEMS`."""
    PROBLEMS.clear()
    try:
        for name in names_in(arguments):
            _try(name)
    except InvalidInput as refused:
        _tell(refused)


def _try(name: str) -> None:
    if name in CATALOGUE:
        return
    print(f"reading {name} …", file=sys.stderr, flush=True)
    try:
        register_own(name)
    except InvalidInput as refused:
        _tell(refused)


def _tell(refused: InvalidInput) -> None:
    PROBLEMS.append(str(refused))
    print(f"inspector: {refused}", file=sys.stderr, flush=True)
