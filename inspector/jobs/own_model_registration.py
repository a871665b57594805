"""Register the user's own models, which a worker imports and describes."""

import sys
from collections.abc import Sequence

from inspector.jobs import start
from inspector.jobs.engine import Environment, Pool
from inspector.model import ModelEntry, own_model
from inspector.model.built_in.catalogue import CATALOGUE, register
from inspector.text.errors import InvalidInput

# Seconds; the user's module may import a lot. MaxText's takes two minutes on a busy machine.
IMPORT_TIMEOUT = 300.0
# The option that names models, after `streamlit run app.py --`.
OPTION = "--model"
# One error for each model of the command line that failed.
PROBLEMS: list[str] = []


def register_own(name: str) -> ModelEntry:
    """Register `package.module:function`, which can be in the working directory.

    Only a worker imports the module, never this process.

    Raises:
      InvalidInput: it cannot be imported, does not build a model, or fails.
    """
    if name in CATALOGUE and CATALOGUE[name].own:
        return CATALOGUE[name]
    start.name_own_model(own_model.parse_name(name)[0])
    with Pool(1) as pool:
        job = pool.submit("describe", {"model": name}, Environment(1), IMPORT_TIMEOUT)
        entry = own_model.from_json(job.wait().answer()["entry"])
    register(entry)
    return entry


def names_in(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the models in the arguments of a server: `--model X`, once or more.

    Raises:
      InvalidInput: there is another option, or a name is missing.
    """
    names = []
    rest = list(arguments)
    while rest:
        option, separator, value = rest.pop(0).partition("=")
        if option != OPTION:
            raise InvalidInput(
                f"{option} is not an option of app.py, which has {OPTION} package.module:function"
            )
        if not separator:
            if not rest:
                raise InvalidInput(f"{OPTION} needs package.module:function after it")
            value = rest.pop(0)
        names.append(value)
    return tuple(names)


def register_all(arguments: Sequence[str]) -> None:
    """Register every model in the arguments of a server. Collect errors in `PROBLEMS`."""
    PROBLEMS.clear()
    try:
        for name in names_in(arguments):
            _register(name)
    except InvalidInput as refused:
        _report(refused)


def _register(name: str) -> None:
    if name in CATALOGUE:
        return
    print(f"reading {name} …", file=sys.stderr, flush=True)
    try:
        register_own(name)
    except InvalidInput as refused:
        _report(refused)


def _report(error: InvalidInput) -> None:
    PROBLEMS.append(str(error))
    print(f"inspector: {error}", file=sys.stderr, flush=True)
