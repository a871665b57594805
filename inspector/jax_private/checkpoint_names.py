"""The names that a traced function gives values with `jax.ad_checkpoint.checkpoint_name`.

A lowered program has no trace of them, so they are read from the function as JAX traces it, with what the
policy of `jax.checkpoint` does with each. JAX marks a value that it saves by a reduction to its own
precision, moves one that it offloads to the memory of the host, and names one again in the part that the
backward pass computes again.

Public replacement: none. `jax.ad_checkpoint.print_saved_residuals` prints shapes of a function that is given
whole, without the names in a scan. Tried on JAX 0.10.2 and 0.12.0.
"""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from jax._src import source_info_util

from inspector.hlo.op_name import parse_op_name, without_layer_numbers
from inspector.records.snapshot import CARRY, CheckpointName, CheckpointPolicy

_NAME, _SAVES, _MOVES = "name", "reduce_precision", "device_put"
_REMAT = frozenset({"remat2", "checkpoint", "remat"})
# They return the same elements, which have the place of the operation that computes them.
_SAME = frozenset({
    _NAME, _SAVES, _MOVES, "sharding_constraint", "reshard", "copy", "reshape", "transpose", "squeeze",
    "expand_dims", "broadcast_in_dim", "optimization_barrier",
})  # fmt: skip
# Their functions have other arguments than the operations.
_LOOPS = frozenset({"scan", "while", "cond"})
# The names around an operation, its primitive, and its line.
_Place = tuple[str, str, str | None]
_CARRIED: _Place = ("", CARRY, None)
_UNKNOWN: _Place = ("", "", None)  # an argument
_MOST = 1000  # names of a program
_MOST_DEPTH = 50


def checkpoint_names(jaxpr: Any) -> tuple[CheckpointName, ...]:
    """Return the distinct names in a traced function, in their order, and values without a name on the host.

    jaxpr: a `ClosedJaxpr`, such as `jitted.trace(...).jaxpr`.
    """
    found: dict[tuple[Any, ...], CheckpointName] = {}
    for again, name in _names(jaxpr.jaxpr, "jit(f)", {}, None, 1, 0):
        if len(found) == _MOST:
            break
        place = name.name, name.module, name.primitive, name.dtype, name.elements, name.source
        before = found.get((*place, again, name.policy))
        whole = name if before is None else replace(before, count=before.count + name.count)
        found[(*place, again, name.policy)] = whole
    # A value can be named twice, in the forward pass and in the part that is computed again, or gets it.
    ranked = sorted(found, key=lambda key: (found[key].policy == "recomputed", not key[6]))
    known = {key[:6]: key for key in ranked}
    return tuple(name for key, name in found.items() if known[key[:6]] == key)


def _names(
    jaxpr: Any, stack: str, outer: dict[Any, _Place], given: set[Any] | None, times: int, depth: int
) -> Iterator[tuple[bool, CheckpointName]]:
    """Yield the named values of a function and of those that it calls, and whether it is computed again.

    Args:
      stack: the names of the calls around it.
      outer: the operation that computes each argument, if it is known.
      given: if the backward pass computes it again, the arguments that it gets and does not compute. None if
        it is another part.
      times: how often one step runs it.
    """
    place: dict[Any, _Place] = dict(outer)
    named: dict[Any, tuple[str, Any]] = {}  # value → its name and the equation that names it
    policies: dict[Any, CheckpointPolicy] = {}
    for equation in jaxpr.eqns:
        own = "/".join(part for part in (stack, str(equation.source_info.name_stack)) if part)
        primitive = equation.primitive.name
        source: Any = next((value for value in equation.invars if not hasattr(value, "val")), None)
        result: Any = equation.outvars[0] if len(equation.outvars) == 1 else None
        pairs = [] if source is None or result is None else [(source, result)]
        if primitive == _MOVES:  # it can move several arrays
            moved = zip(equation.invars, equation.outvars, strict=True)
            pairs = [(value, end) for value, end in moved if not hasattr(value, "val")]
        if primitive in _SAME and pairs and all(end.aval.size == value.aval.size for value, end in pairs):
            for value, end in pairs:
                place[end] = place.get(value, _UNKNOWN)
                if given is not None and value in given:
                    given.add(end)
        else:
            place.update(dict.fromkeys(equation.outvars, (own, primitive, line_of(equation))))
        if primitive == _NAME:
            named[result] = equation.params["name"], equation
            if given is not None and source not in given:
                policies[result] = "recomputed"
        elif primitive == _SAVES and source in named:
            policies[source] = "saved"
        elif primitive == _MOVES:
            for value in (value for value, end in pairs if _on_host(end) and not _on_host(value)):
                named.setdefault(value, ("", equation))
                policies[value] = "offloaded"
        if depth < _MOST_DEPTH:
            label = f"{own}/jit({equation.params['name']})" if primitive in ("jit", "pjit") else own
            again = primitive in _REMAT and bool(equation.params.get("differentiated"))
            repeated = times * equation.params["length"] if primitive == "scan" else times
            for inner in functions_of(equation):
                values = equation.invars[-len(inner.invars) :] if primitive not in _LOOPS else ()
                known = dict.fromkeys(_carried(equation, inner), _CARRIED) | {
                    argument: place[value]
                    for argument, value in zip(inner.invars, values, strict=False)
                    if not hasattr(value, "val") and value in place
                }
                passed: set[Any] | None = set(inner.invars) if again else None
                if given is not None:
                    taken = zip(inner.invars, equation.invars[-len(inner.invars) :], strict=False)
                    passed = {
                        argument for argument, value in taken if not hasattr(value, "val") and value in given
                    }
                yield from _names(inner, label, known, passed, repeated, depth + 1)
    for value, (name, equation) in named.items():
        computed_in, primitive, line = place.get(value, _UNKNOWN)
        module = parse_op_name(f"{computed_in}/{primitive}")[0].module if computed_in else ""
        kind = name, without_layer_numbers(module), primitive, str(value.aval.dtype)
        amount, policy = (math.prod(value.aval.shape), times), policies.get(value)
        yield given is not None, CheckpointName(*kind, *amount, policy, line_of(equation), line)


def _carried(equation: Any, body: Any) -> Sequence[Any]:
    """Return the arguments of the body of a loop that are the results of its previous iteration.

    Only slices and stacked results have other shapes in the body, by which the others are told: the numbers
    are in parameters of the operation that differ between versions of JAX.
    """
    if equation.primitive.name not in ("scan", "while"):
        return ()

    def equal(outer: Sequence[Any], inner: Sequence[Any]) -> int:
        return sum(a.aval.shape == b.aval.shape for a, b in zip(outer, inner, strict=False))

    whole = equal(equation.invars[-len(body.invars) :], body.invars)
    return body.invars[whole - equal(equation.outvars, body.outvars) : whole]


def _on_host(value: Any) -> bool:
    return "host" in str(getattr(value.aval, "memory_space", "")).lower()


def line_of(equation: Any) -> str | None:
    """Return file and line of the code of an equation, such as train.py:31; None if unknown."""
    frame = source_info_util.user_frame(equation.source_info.traceback)
    return None if frame is None else f"{os.path.basename(frame.file_name)}:{frame.start_line}"


def functions_of(equation: Any) -> Iterator[Any]:
    """Yield the functions that an operation of a jaxpr calls, as jaxprs without constants."""
    for value in equation.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if hasattr(item, "eqns"):
                yield item
            elif hasattr(getattr(item, "jaxpr", None), "eqns"):
                yield item.jaxpr
