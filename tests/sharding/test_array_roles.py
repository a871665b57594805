"""Roles of the live arrays of a job: what no program takes or returns has none."""

from __future__ import annotations

from dataclasses import replace

from inspector.records.snapshot import Array, Mesh, MeshAxis, Program, ProgramArray, Snapshot, Source
from inspector.sharding.array_groups import with_roles


def job(alive: int | None) -> Snapshot:
    """A step that takes `state/params/w`, and a copy of the first parameters that the job kept."""
    arrays = tuple(
        Array(path, "params", (8,), "float32", bytes=32, bytes_per_device=32)
        for path in ("state/params/w", "first/params/w")
    )
    step = Program("step", shardings=(ProgramArray("input", "state/params/w", None, ((),), None),))
    mesh = Mesh((MeshAxis("data", 2),), (0, 1))
    source = Source("capture", None, "2026-01-01T00:00:00+00:00", {})
    return Snapshot(source, None, mesh, arrays, (step,), most_alive_bytes=alive)


def test_a_kept_copy_of_parameters_is_no_parameter() -> None:
    groups = {array.path: array.group for array in with_roles(job(alive=64)).arrays}
    assert groups == {"state/params/w": "params", "first/params/w": "other"}


def test_names_alone_give_the_arrays_of_a_job_no_role() -> None:
    before_a_compile = replace(job(alive=64), programs=())
    assert {array.group for array in with_roles(before_a_compile).arrays} == {"other"}


def test_a_state_that_the_user_names_keeps_its_roles() -> None:
    assert {array.group for array in with_roles(job(alive=None)).arrays} == {"params"}
