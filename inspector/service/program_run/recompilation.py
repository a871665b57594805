"""Find out why a function was compiled again: compare the arguments of two compiles."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from inspector.core.program_run import Reason, ReasonKind

# The fields of an input and the names of their differences.
_FIELDS: dict[str, ReasonKind] = {
    "shape": "shape",
    "dtype": "dtype",
    "weak": "weak type",
    "sharding": "sharding",
}


def reasons(metas: Sequence[Mapping[str, Any]]) -> tuple[Reason, ...]:
    """Return why the last compile of a function was needed. Compared with the most similar earlier one.

    Args:
      metas: all compiles of one function, in order, as the recorder writes them.
    """
    *earlier, last = metas
    if not earlier:
        return ()
    reasons = min((tuple(_differences(one, last)) for one in reversed(earlier)), key=len)
    # JAX compiles another object even for equal arguments.
    return ((Reason("function"),) if last["new_function"] else ()) + reasons or (Reason("unknown"),)


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Reason]:
    inputs, now = ({one["name"]: one for one in meta["inputs"]} for meta in (before, after))
    for name in inputs.keys() | now.keys():
        if name not in now:
            yield Reason("argument", name, before=_type(inputs[name]))
        elif name not in inputs:
            yield Reason("argument", name, after=_type(now[name]))
    for name in now:
        if name in inputs:
            for field, kind in _FIELDS.items():
                old, new = inputs[name][field], now[name][field]
                if old != new:
                    yield Reason(kind, name, _text(old), _text(new))
    if before.get("devices") != after.get("devices"):
        yield Reason("devices", None, *(_text(meta["devices"]) for meta in (before, after)))
    trees, now_trees = before.get("structures", {}), after.get("structures", {})
    for name in trees.keys() & now_trees.keys() if inputs.keys() == now.keys() else ():
        if trees[name] != now_trees[name]:
            yield Reason("structure", name)
    static, current = before["static"], after["static"]
    for name in static.keys() | current.keys():
        old, new = static.get(name), current.get(name)
        if old != new:
            yield Reason("static", name, None if old is None else old[0], None if new is None else new[0])


def _type(value: Mapping[str, Any]) -> str:
    return f"{value['dtype']}{_text(value['shape'])}"


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "weakly typed" if value else "not weakly typed"
    return f"[{', '.join(map(str, value))}]"
