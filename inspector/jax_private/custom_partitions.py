"""Operations with partitioning functions (`custom_partitioning`) of a program that is compiled elsewhere.

XLA calls a Python function of the program when it partitions such an operation. A target's compiler runs in
another process, which has no such function. So the calls that the compiler for CPUs makes are recorded in the
program: for each, the shardings that the function chose and the lowered code of one device, for the platform
of the target. The other process answers with them. Shardings are propagated before, in the same way for all
platforms, so the compiler of the target asks for the same ones.

Public replacement: none. `jax.experimental.custom_partitioning` keeps the functions in a private table.
Tried on JAX 0.10.2 and 0.12.0.
"""

from __future__ import annotations

import base64
import functools
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import jax
    from jax._src.lib import xla_client as xc
    from jax.sharding import Sharding

NAME = "CustomSPMDPartitioning"  # of the custom call
ATTRIBUTE = "_sharding_inspector_partitions"  # of a computation lowered for the target


def known() -> dict[str, Any]:
    """Return JAX's callback records of all lowered operations with partitioning functions, by name."""
    module = sys.modules.get("jax._src.custom_partitioning")
    records = {} if module is None else module._sharding_callbacks
    return {key.decode(): info for key, info in records.items()}


def since(before: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the operations that were lowered since then, in their order."""
    return {key: info for key, info in known().items() if key not in before}


def watch(infos: Sequence[Any], keys: Sequence[str], platform: str) -> list[dict[str, Any]]:
    """Return a list to which each later call of a partitioning function adds a record.

    Args:
      infos: JAX's callback records of the computation for CPUs, in the order of lowering.
      keys: the names of the same operations in the computation for the target.
    """
    calls: list[dict[str, Any]] = []
    if len(infos) != len(keys):
        return calls  # the function has other operations on another platform
    for info, key in zip(infos, keys, strict=True):
        info.partition = _recording(info, info.partition, key, platform, calls)
    return calls


def _recording(info: Any, partition: Any, key: str, platform: str, calls: list[dict[str, Any]]) -> Any:
    @functools.wraps(partition)
    def recording(*arguments: Any) -> Any:
        chosen = partition(*arguments)
        try:
            calls.append(_record(info, key, platform, arguments[-2:], chosen))
        except Exception as error:  # such as code that the platform cannot run
            calls.append({"key": key, "error": f"{type(error).__name__}: {error}"})
        return chosen

    return recording


def _record(
    info: Any, key: str, platform: str, asked: Sequence[Any], chosen: Sequence[Any]
) -> dict[str, Any]:
    from jax._src import api, core, sharding_impls
    from jax._src.interpreters import mlir

    arguments, results = (
        tree.flatten_up_to(shapes) for tree, shapes in zip((info.in_tree, info.out_tree), asked, strict=True)
    )
    mesh, lower, of_results, of_arguments = chosen
    shardings = [
        _hlo(sharding, len(shape.shape))
        for tree, given, shapes in (
            (info.in_tree, of_arguments, arguments),
            (info.out_tree, of_results, results),
        )
        for sharding, shape in zip(tree.flatten_up_to(given), shapes, strict=True)
    ]
    parts = [
        core.ShapedArray(_tile(shape, sharding), shape.dtype)
        for shape, sharding in zip(arguments, shardings, strict=False)
    ]
    jaxpr = api.make_jaxpr(lower, axis_env=list(mesh.shape.items()))(*info.in_tree.unflatten(parts))
    context = sharding_impls.SPMDAxisContext(mesh, frozenset(mesh.axis_names))
    with core.extend_axis_env_nd(mesh.shape.items()):
        module = mlir.build_mlir_module_helper(
            jaxpr,
            name="tmp_xla_computation",
            platforms=(platform,),
            backend=None,
            axis_context=context,
        )
    return {
        "key": key,
        "asked": [_asked(argument, argument.sharding) for argument in (*arguments, *results)],
        "arguments": len(arguments),
        "shardings": [_text(sharding) for sharding in shardings],
        "module": base64.b64encode(mlir.module_to_bytecode(module)).decode(),
    }


def _hlo(sharding: Sharding, rank: int) -> xc.HloSharding:
    return sharding._to_xla_hlo_sharding(rank)


def _tile(shape: jax.ShapeDtypeStruct, sharding: xc.HloSharding) -> tuple[int, ...]:
    """Return the shape on one device."""
    from jax._src.lib import xla_client as xc

    whole = xc.Shape.array_shape(np.dtype(shape.dtype), tuple(shape.shape))
    return tuple(sharding.tile(whole).dimensions())


def _asked(shape: jax.ShapeDtypeStruct, sharding: Sharding | None) -> list[Any]:
    text = None if sharding is None else _text(_hlo(sharding, len(shape.shape)))
    return [list(shape.shape), np.dtype(shape.dtype).name, text]


def _text(sharding: xc.HloSharding) -> str:
    return base64.b64encode(sharding.to_proto().SerializeToString()).decode()


# --- In the process of the compiler ----------------------------------------------------------------------


class Answers:
    """Answers calls of the target's compiler with those that were recorded."""

    def __init__(self) -> None:
        self._calls: dict[bytes, list[dict[str, Any]]] = {}
        self._registered = False

    def use(self, calls: Sequence[dict[str, Any]]) -> None:
        """Answer with these calls from now on, and with no others."""
        self._calls = {}
        for call in calls:
            self._calls.setdefault(call["key"].encode(), []).append(call)

    def register(self) -> None:
        """Take the place of JAX's own functions. The first ones count that a compiler gets."""
        if self._registered:
            return
        self._registered = True
        from jax._src import custom_partitioning, xla_bridge
        from jax._src.lib import xla_client as xc

        del custom_partitioning  # imported, so that its own registration is in the list
        callbacks = xla_bridge._plugin_callbacks
        callbacks[:] = [
            callback for callback in callbacks if getattr(callback, "keywords", {}).get("name") != NAME
        ]
        register = functools.partial(
            xc.register_custom_call_partitioner,
            name=NAME,
            prop_user_sharding=self._unchanged,
            partition=self._partition,
            infer_sharding_from_operands=self._infer,
            can_side_effecting_have_replicated_sharding=True,
        )
        xla_bridge.register_plugin_callbacks(register)

    def _unchanged(self, sharding: xc.HloSharding, shape: xc.Shape, key: bytes) -> xc.HloSharding:
        return sharding

    def _infer(
        self, shapes: Sequence[Any], shardings: Sequence[Any], result: xc.Shape, key: bytes
    ) -> xc.HloSharding:
        return _results(result, self._call(key, None))

    def _partition(
        self,
        shapes: Sequence[Any],
        shardings: Sequence[Any],
        result: xc.Shape,
        of_result: xc.HloSharding,
        key: bytes,
    ) -> tuple[bytes, list[Any], Any]:
        results = [of_result] if not result.is_tuple() else of_result.tuple_elements()
        given = [_text(sharding) if sharding is not None else None for sharding in (*shardings, *results)]
        call = self._call(key, given)
        count = call["arguments"]
        chosen = [_parsed(text) for text in call["shardings"][:count]]
        return base64.b64decode(call["module"]), chosen, _results(result, call)

    def _call(self, key: bytes, given: list[str | None] | None) -> dict[str, Any]:
        calls = self._calls.get(key, [])
        for call in calls:
            if "error" in call:
                raise ValueError(call["error"])
            if given is None or [asked[2] for asked in call["asked"]] == given:
                return call
        # Devices of a sharding are written in several ways. With one call, there is no choice.
        if len(calls) == 1:
            return calls[0]
        if not calls:
            raise ValueError("the function that partitions it is in another process")
        raise ValueError("it was partitioned for other shardings on the CPU")


ANSWERS = Answers()  # of this process


def _parsed(text: str) -> xc.HloSharding:
    from jax._src.lib import xla_client as xc

    proto = xc.OpSharding()
    proto.ParseFromString(base64.b64decode(text))
    return xc.HloSharding.from_proto(proto)


def _results(result: xc.Shape, call: dict[str, Any]) -> xc.HloSharding:
    from jax._src.lib import xla_client as xc

    shardings = [_parsed(text) for text in call["shardings"][call["arguments"] :]]
    return xc.HloSharding.tuple_sharding(result, shardings) if result.is_tuple() else shardings[0]
