"""Fusions that the compiler for TPUs makes of an all-reduce and slices are read as reduce-scatters."""

from __future__ import annotations

import pytest

from inspector import hlo
from inspector.hlo.moved_arrays import Moved, moved_arrays
from inspector.records.snapshot import Collective, Mesh, MeshAxis

MESH = Mesh((MeshAxis("fsdp", 4),), (0, 1, 2, 3))
NAMED = 'metadata={op_name="jit(step)/transpose(jvp())/dot_general" source_file="t.py" source_line=9}'
ATTRIBUTES = "channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=%sum"
PLACE = """%id = u32[] partition-id()
  %size = u32[] constant(2)
  %start = u32[] multiply(%id, %size)
  %zero = u32[] constant(0)"""
# As libtpu writes one array, several arrays cut along different dimensions, and a padded array.
SINGLE = f"""%fused (a: f32[8,16]) -> f32[2,16] {{
  %a = f32[8,16] parameter(0)
  %reduced = f32[8,16] all-reduce(%a), {ATTRIBUTES}
  {PLACE}
  ROOT %own = f32[2,16] dynamic-slice(%reduced, %start, %zero), dynamic_slice_sizes={{2,16}}
}}"""
SEVERAL = f"""%fused (a: f32[8,16], b: f32[4,8]) -> (f32[2,16], f32[4,2]) {{
  %a = f32[8,16] parameter(0)
  %b = f32[4,8] parameter(1)
  %reduced = (f32[8,16], f32[4,8]) all-reduce(%a, %b), {ATTRIBUTES}
  %second = f32[4,8] get-tuple-element(%reduced), index=1
  {PLACE}
  %part.b = f32[4,2] dynamic-slice(%second, %zero, %start), dynamic_slice_sizes={{4,2}}
  %first = f32[8,16] get-tuple-element(%reduced), index=0
  %part.a = f32[2,16] dynamic-slice(%first, %start, %zero), dynamic_slice_sizes={{2,16}}
  ROOT %parts = (f32[2,16], f32[4,2]) tuple(%part.a, %part.b)
}}"""
PADDED = f"""%fused (a: f32[7,16]) -> f32[2,16] {{
  %a = f32[7,16] parameter(0)
  %nothing = f32[] constant(0)
  %pad = f32[8,16] pad(%a, %nothing), padding=0_1x0_0
  %reduced = f32[8,16] all-reduce(%pad), {ATTRIBUTES}
  {PLACE}
  ROOT %own = f32[2,16] dynamic-slice(%reduced, %start, %zero), dynamic_slice_sizes={{2,16}}
}}"""


def module_of(fused: str, operands: str, results: str, entry: str) -> hlo.module.Module:
    """Return a program that calls a computation in a fusion."""
    (module,) = hlo.parser.parse(f"""HloModule m, num_partitions=4
%sum (x: f32[], y: f32[]) -> f32[] {{
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %added = f32[] add(%x, %y)
}}
{fused}
ENTRY %main {{
  {entry}
  ROOT %fusion = {results} fusion({operands}), kind=kCustom, calls=%fused, {NAMED}
}}
""")
    return module


def collective_of(module: hlo.module.Module) -> Collective:
    (collective,) = hlo.collectives.collectives(module, MESH)
    return collective


ONE_ARGUMENT = "%p = f32[8,16] parameter(0)"


@pytest.mark.parametrize(
    ("module", "elements"),
    [
        (module_of(SINGLE, "%p", "f32[2,16]", ONE_ARGUMENT), 8 * 16),
        (
            module_of(
                SEVERAL,
                "%p, %q",
                "(f32[2,16], f32[4,2])",
                f"{ONE_ARGUMENT}\n  %q = f32[4,8] parameter(1)",
            ),
            8 * 16 + 4 * 8,
        ),
        # The devices send the padding too.
        (module_of(PADDED, "%p", "f32[2,16]", "%p = f32[7,16] parameter(0)"), 8 * 16),
    ],
    ids=["one array", "several arrays", "padded"],
)
def test_it_is_a_reduce_scatter_with_the_name_of_its_fusion(module, elements) -> None:
    collective = collective_of(module)
    assert collective.op == "reduce-scatter"
    assert collective.payload_bytes == 4 * elements
    assert collective.wire_bytes_per_device == 4 * elements * 3 // 4  # half of an all-reduce's
    assert collective.mesh_axes == ("fsdp",)
    assert collective.op_name == "jit(step)/transpose(jvp())/dot_general"
    assert collective.source == "t.py:9"
    # The text has it under these names.
    assert (collective.computation, collective.name) == ("fused", "reduced")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # Every device keeps the sum, or a slice that is no equal part of it.
        ("ROOT %own = f32[2,16] dynamic-slice(", "ROOT %own = f32[8,16] copy("),
        ("f32[2,16] dynamic-slice(", "f32[3,16] dynamic-slice("),
        # Every device keeps the same part.
        ("%id = u32[] partition-id()", "%id = u32[] constant(1)"),
        # The sum is also used as a whole.
        ("ROOT %own", "%more = f32[8,16] negate(%reduced)\n  ROOT %own"),
    ],
)
def test_other_fusions_with_an_all_reduce_stay_all_reduces(before, after) -> None:
    assert before in SINGLE
    fused = SINGLE.replace(before, after)
    assert collective_of(module_of(fused, "%p", "f32[2,16]", ONE_ARGUMENT)).op == "all-reduce"


def test_results_lead_to_it_through_its_slices() -> None:
    module = module_of(
        SEVERAL,
        "%p, %q",
        "(f32[2,16], f32[4,2])",
        f"{ONE_ARGUMENT}\n  %q = f32[4,8] parameter(1)",
    )
    moved = moved_arrays(module, ["batch/x", "batch/y"], ["params/a", "params/b"])
    assert moved == {
        ("fused", "reduced"): (
            Moved(("batch/x",), ("params/a",)),
            Moved(("batch/y",), ("params/b",)),
        )
    }


def test_the_program_keeps_its_other_computations() -> None:
    module = module_of(SINGLE, "%p", "f32[2,16]", ONE_ARGUMENT)
    assert [computation.name for computation in module.computations] == ["sum", "fused", "main"]
    fused = module.by_name["fused"]
    assert fused.root is not None
    assert str(fused.root.shape) == "f32[2,16]"
