"""Parse HLO text, without JAX, and derive collectives, FLOPs and bytes from it."""

import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inspector.hlo import collectives, module, parser, replica_groups, work
else:

    def __getattr__(name: str) -> Any:
        # Imported when it is used (PEP 562): most readers of a record need no parser.
        if importlib.util.find_spec(f"{__name__}.{name}") is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return importlib.import_module(f"{__name__}.{name}")
