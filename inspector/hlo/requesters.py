"""Who asks for a collective: the code, autodiff, or the partitioner."""

from collections.abc import Mapping
from typing import NamedTuple

from inspector.hlo.module import Module
from inspector.hlo.op_name import FUNCTIONS, parse_op_name
from inspector.hlo.source_calls import CALLS, PRIMITIVES, written_at
from inspector.records.snapshot import Requester


class RequestFields(NamedTuple):
    """The fields of a `Collective` that say who asks for it, and from where."""

    source: str | None
    library_source: str | None
    requested_by: Requester | None
    call: str | None


def request_of(module: Module, metadata: Mapping[str, str]) -> RequestFields:
    """Return who asks for an instruction with this metadata.

    In a backward pass, JAX adds a `psum` for each use in the forward pass of a value that is equal on
    several devices, with the line of this use. A custom derivative rule can call one itself.
    """
    frame, inside = module.frames(metadata)
    source = None if frame is None else frame.place
    library = None if inside is None else inside.place
    name = metadata.get("op_name", "")
    operation = parse_op_name(name)[0]
    if operation.primitive not in PRIMITIVES:
        # A collective inside of the rule of a `custom_partitioning` can have the name of the call.
        of_program = operation.primitive not in ("", "custom_partitioning") and name.startswith(FUNCTIONS)
        return RequestFields(source, library, "partitioner" if of_program else None, None)
    runs = inside or frame
    written = None
    if module.local and runs is not None and runs.line is not None:
        written = written_at(runs.file, runs.line, runs.column)
    call = None if written is None else written.collective
    if "/" not in name:  # of any phase
        called = operation.primitive in CALLS.get(call or "", ())
        return RequestFields(source, library, "code" if called else None, call)
    if operation.phase != "backward":
        return RequestFields(source, library, "code", call)
    if written is None or (written.own_rule and not call):
        return RequestFields(source, library, None, call)
    if operation.primitive in CALLS.get(written.collective, ()):
        return RequestFields(source, library, "code", call)
    # Autodiff alone adds sums of cotangents, and transposes the calls of the code.
    added = call or operation.primitive in CALLS["psum"]
    return RequestFields(source, library, "autodiff" if added else None, call)
