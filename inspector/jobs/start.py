"""Start Python without the current folder: `python -P start.py MODULE ARGS…` calls `main` of the module.

Python imports from the current folder first, for `-m` and for an empty entry of PYTHONPATH. A file such as
`numpy.py` or `sitecustomize.py` would then run when a Snapshot in its folder is shown. So this file starts
every interpreter of the package, which gets no relative entry of PYTHONPATH.

Only the user's own model can be in the current folder, and only if it is found there. The folder comes last,
so no file in it replaces an installed package. This file needs the standard library only.
"""

import contextlib
import importlib
import io
import json
import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec, spec_from_file_location

_FILE = os.path.realpath(__file__)
_PACKAGE = os.path.dirname(os.path.dirname(_FILE))
# Environment variable with the folders and modules of the user's own models, which child processes inherit.
OWN_MODELS = "SHARDING_INSPECTOR_MODEL_FOLDERS"


def command(target: str, *arguments: str) -> list[str]:
    """Return the command that calls `main` of a module, or runs a script, whose name ends in `.py`."""
    return [sys.executable, "-P", _FILE, target, *arguments]


def variables() -> dict[str, str]:
    """Return the environment variables for `command`: those of this process, without the current folder."""
    return with_path(os.environ, _absolute(os.environ.get("PYTHONPATH", "")))


def with_path(environment: Mapping[str, str], folders: Sequence[str]) -> dict[str, str]:
    """Return the environment variables with PYTHONPATH set to these folders."""
    changed = {**environment, "PYTHONPATH": os.pathsep.join(folders)}
    if not folders:
        del changed["PYTHONPATH"]
    return changed


def leave_out_current_folder(first: bool) -> None:
    """Remove the current folder and relative entries of PYTHONPATH from the path of this process.

    Args:
      first: whether Python was started with `-m`, which puts the current folder in front.
    """
    if first and not sys.flags.safe_path:
        del sys.path[0]
    path = os.environ.get("PYTHONPATH", "")
    if relative := {*map(os.path.abspath, _relative(path))}:
        kept = {*map(os.path.abspath, _absolute(path)), *sysconfig.get_paths().values()}
        sys.path[:] = [entry for entry in sys.path if entry not in relative - kept]


def name_own_model(module: str) -> None:
    """Let child processes import a module that the user named, if it is in the user's folder.

    The folders are the current one, and relative entries of PYTHONPATH. An installed module needs none.
    """
    folders = [os.getcwd(), *map(os.path.abspath, _relative(os.environ.get("PYTHONPATH", "")))]
    name = module.partition(".")[0]
    spec = PathFinder.find_spec(name, folders)
    if spec is None:
        return
    if spec.loader is None:  # a folder without __init__.py, which counts if there is no package
        installed = PathFinder.find_spec(name, sys.path)
        if installed is not None and installed.loader is not None:
            return
    known = _own_models()
    names = [name] if spec.loader is not None else []
    known = {
        "folders": [*dict.fromkeys([*known["folders"], *folders])],
        "names": [*dict.fromkeys([*known["names"], *names])],
    }
    os.environ[OWN_MODELS] = json.dumps(known)


def find_own_models() -> None:
    """Make this process find the user's own models, after the installed packages.

    Workers and scripts of layouts need it. A server does not: its workers start with its path.
    """
    known = _own_models()
    sys.path += [folder for folder in known["folders"] if folder not in sys.path]
    if known["names"]:
        sys.meta_path.insert(0, _OwnModels(known["names"], known["folders"]))


class _OwnModels:
    """Finds the modules that the user named, also if an installed package has the same name."""

    def __init__(self, names: Sequence[str], folders: Sequence[str]) -> None:
        self.names, self.folders = names, folders

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, self.folders) if name in self.names else None


def _own_models() -> dict[str, list[str]]:
    known: dict[str, list[str]] = json.loads(os.environ.get(OWN_MODELS, '{"folders": [], "names": []}'))
    return known


def _absolute(path: str) -> list[str]:
    return [entry for entry in path.split(os.pathsep) if os.path.isabs(entry)]


def _relative(path: str) -> list[str]:
    """Return the relative entries; an empty one is the current folder. An empty PYTHONPATH has no entry."""
    return [entry for entry in path.split(os.pathsep) if not os.path.isabs(entry)] if path else []


def _load_package() -> None:
    """Import this package from its own folder, which need not be in the path."""
    place = os.path.join(_PACKAGE, "__init__.py")
    spec = spec_from_file_location("inspector", place, submodule_search_locations=[_PACKAGE])
    assert spec is not None and spec.loader is not None
    sys.modules["inspector"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["inspector"])


def _obey_environment() -> None:
    """Do what Python does with PYTHONPATH and PYTHONIOENCODING, if it was started with `-I` for safety."""
    sys.path[:0] = _absolute(os.environ.get("PYTHONPATH", ""))
    encoding = os.environ.get("PYTHONIOENCODING", "").partition(":")[0]
    for stream in (sys.stdout, sys.stderr):
        if encoding and isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(LookupError):  # Python refuses to start
                stream.reconfigure(encoding=encoding)


def _main() -> None:
    target, *arguments = sys.argv[1:]
    sys.argv = [target, *arguments]
    if sys.flags.ignore_environment:
        _obey_environment()
    _load_package()
    if target.endswith(".py"):
        import runpy

        find_own_models()
        runpy.run_path(target, run_name="__main__")
    else:
        sys.exit(importlib.import_module(target).main())


if __name__ == "__main__":
    _main()
