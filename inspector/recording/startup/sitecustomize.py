"""Start the recorder in a program that `sharding-inspector run` starts, then act as if it were not there.

Python imports this file before the program, because its folder is the first of PYTHONPATH. It restores the
environment and `sys.path`, so that neither the program nor its child processes see a difference. Then it
imports the `sitecustomize` that Python would have imported. It needs the standard library only.
"""

import importlib.util
import json
import os
import sys

VARIABLE = "SHARDING_INSPECTOR_RUN"


def _start(settings):
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != own]
    sys.path_importer_cache.pop(own, None)
    if settings["pythonpath"] is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = settings["pythonpath"]
    package = os.path.dirname(os.path.dirname(own))
    path = os.path.join(package, "jax_private", "compile_hook.py")
    # Not in `sys.modules`, where the program could see it.
    spec = importlib.util.spec_from_file_location("_sharding_inspector_hook", path)
    assert spec is not None and spec.loader is not None
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    hook.wait_for_jax(settings)


def _import_original():
    """Import the `sitecustomize` that this file replaced, or end as Python does without one."""
    sys.modules.pop("sitecustomize", None)
    importlib.invalidate_caches()
    import sitecustomize  # noqa: F401


if VARIABLE in os.environ:
    _start(json.loads(os.environ.pop(VARIABLE)))
    _import_original()
