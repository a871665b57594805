"""Turn a serialized HLO module into text, as a profile or a dump contains it.

Public replacement: none. `jax.stages.Compiled.as_text` has the text of a program that was compiled here.
Tried on JAX 0.10.2 and 0.12.0.
"""

from jax._src.lib import hlo


def text_of(module: bytes) -> str:
    """Return the text of a serialized `HloModuleProto`.

    Raises:
      RuntimeError, ValueError: it is not a module.
    """
    return hlo.HloModule.from_serialized_hlo_module_proto(module).to_string()  # type: ignore[no-any-return]
