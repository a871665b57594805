"""Parsed HLO text agrees with XLA's parser, and with the counts of the cases."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from inspector import hlo
from inspector.hlo import shapes
from inspector.hlo.module import Module
from inspector.text.errors import InvalidInput
from tests.hlo import given

COUNTS = given.answers("counts.json")
XLA_MODULES = given.modules_of_xla()

# Placeholders that XLA's tests fill in before parsing, and texts of comments only.
TEMPLATE = re.compile(r"<<\w+>>|OTHER_ATTRIBUTES|(?:\s*//[^\n]*)*\s*\Z")


def opcodes(modules: tuple[Module, ...]) -> Counter[str]:
    return Counter(
        instruction.opcode
        for module in modules
        for computation in module.computations
        for instruction in computation.instructions
    )


@pytest.mark.parametrize("name", COUNTS)
def test_instruction_counts_of_whole_programs(name: str) -> None:
    expected = COUNTS[name]
    modules = hlo.parser.parse(given.text(name))
    result = opcodes(modules)
    assert {opcode: result[opcode] for opcode in expected["counts"]} == expected["counts"]
    partitions = {module.partitions for module in modules}
    assert partitions == {int(expected["num_partitions"]) if expected["num_partitions"] else None}
    groups = Counter(
        f"{instruction.opcode} {instruction.attributes['replica_groups']}"
        for module in modules
        for computation in module.computations
        for instruction in computation.instructions
        if "replica_groups" in instruction.attributes
    )
    # The answers list the groups on the instruction's line without spaces.
    for group, count in expected["replica_groups"].items():
        bare = group.replace("-start ", " ")
        assert sum(n for g, n in groups.items() if g.replace("-start ", " ") == bare) == count


@pytest.mark.parametrize("name", given.TRUNCATED)
def test_truncated_dump(name: str) -> None:
    text = given.text(name)
    (module,) = hlo.parser.parse(text)
    assert module.entry is None and module.truncated.startswith("the text ends inside")
    lines = len(re.findall(r"^  (?:ROOT )?%", text, re.M))
    assert sum(opcodes((module,)).values()) == lines
    assert {c.executions for c in hlo.collectives.collectives(module)} == {None}


@given.each_source
def test_modules_agree_with_the_parser_of_xla(source: str) -> None:
    """If XLA's parser accepts a module, both parsers find the same opcodes."""
    hlo_of_jaxlib = pytest.importorskip("jaxlib._hlo")
    modules, compared = given.MODULES[source](), 0
    for case in modules:
        try:
            theirs = hlo_of_jaxlib.hlo_module_from_text(case["module"])
        except Exception:  # XLA raises its own error type
            continue
        expected = Counter(
            re.sub("(?<!^)(?=[A-Z])", "-", str(instruction.opcode).removeprefix("HloOpcode.k")).lower()
            for computation in theirs.computations()
            for instruction in computation.instructions()
        )
        result = opcodes(hlo.parser.parse(case["module"]))
        # XLA parses an unknown `X-start` as an async-start around X.
        assert sum(result.values()) == sum(expected.values()), case["id"]
        for op in ("all-reduce", "all-gather", "reduce-scatter", "while", "conditional", "fusion"):
            assert result[op] == expected[op], case["id"]
        compared += 1
    assert compared == len(modules) if source == "own" else compared > 250


@pytest.mark.parametrize("case", XLA_MODULES, ids=lambda case: case["id"])
def test_xla_test_module(case: dict[str, Any]) -> None:
    try:
        modules = hlo.parser.parse(case["module"])
    except InvalidInput as refused:
        assert TEMPLATE.search(case["module"]), refused
        assert "\n" not in str(refused)
        return
    assert set(case["collectives"]) <= set(opcodes(modules))
    assert all(module.truncated is None for module in modules)
    if "Verifier" in case["id"]:  # intentionally invalid
        return
    for module in modules:
        hlo.collectives.collectives(module)


def test_literal_in_attributes() -> None:
    text = """HloModule m
ENTRY e {
  a = f32[8]{0} parameter(0)
  ROOT c = f32[8]{0} custom-call(a), custom_call_target="x", literal=s32[2,2]{1,0} { {1, 2}, {3, 4} }
}
"""
    hlo_of_jaxlib = pytest.importorskip("jaxlib._hlo")
    for written in (text, hlo_of_jaxlib.hlo_module_from_text(text).to_string()):
        (module,) = hlo.parser.parse(written)
        assert module.by_name["e"].root.attributes["literal"].startswith("s32[2,2]{1,0} {")


RECOVERED = """HloModule whole, entry_computation_layout={()->s32[1,3]{1,0}}, origin_recovery_table={
  {"a"} : {"b"},
  "
    HloModule how_a_was, entry_computation_layout={(s32[2,3]{1,0})->s32[2,3]{1,0}}

    ENTRY %how (p: s32[2,3]) -> s32[2,3] {
      ROOT %p = s32[2,3]{1,0} parameter(0)
    }

  "
}

ENTRY %e () -> s32[1,3] {
  ROOT %c = s32[1,3]{1,0} constant({ { 1, 1, 1 } }), origin={{"b"}}
}
"""


def test_origin_recovery_table_is_skipped() -> None:
    (result,) = hlo.parser.parse(RECOVERED)
    assert result.name == "whole" and result.entry == "e" and result.truncated is None
    hlo_of_jaxlib = pytest.importorskip("jaxlib._hlo")
    printed = hlo_of_jaxlib.hlo_module_from_text(RECOVERED).to_string()
    assert [module.name for module in hlo.parser.parse(printed + printed)] == ["whole", "whole"]
    # A dump truncated after a quotation mark does not hide the next dump.
    cut = 'HloModule m\n\nENTRY e {\n  a = f32[] parameter(0), metadata={op_name="x"\n'
    assert [module.name for module in hlo.parser.parse(cut + printed)] == ["m", "whole"]


@pytest.mark.parametrize(
    ("counts", "programs", "names"),
    [
        (
            {"asynchronous.hlo": 6, "sub_byte.hlo": 3},
            ("own scan", "own cond"),
            ("jit__lambda", "jit_function"),
        ),
        given.shared(
            {"import_async_collectives.hlo": 6, "sub_byte_collectives.hlo": 5},
            ("scan_12_layers.compiled.hlo", "fsdp_tp_mlp.compiled.hlo"),
            ("jit_scanf", "jit_fsdp"),
        ),
    ],
    ids=["own", "shared"],
)
def test_several_modules(counts: dict[str, int], programs: tuple[str, str], names: tuple[str, str]) -> None:
    assert {name: len(hlo.parser.parse(given.text(name))) for name in counts} == counts
    text, other = map(given.text, programs)
    both = hlo.parser.parse(text + other + text)
    assert [module.name for module in both] == [*names, names[0]]
    # A truncated dump does not hide the next dump.
    cut = hlo.parser.parse(text[: len(text) // 2] + "\n" + text)
    assert [module.truncated is None for module in cut] == [False, True]
    assert hlo.collectives.collectives(cut[1]) == hlo.collectives.collectives(both[0])


WHOLE = """HloModule small, num_partitions=4, replica_count=2

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add.1 = f32[] add(%a, %b)
}

ENTRY %main (p: (f32[8,16], /*index=1*/s4[3])) -> f32[8,16] {
  %p = (f32[8,16]{1,0:T(8,128)(2,1)S(1)}, /*index=1*/s4[3]{0:E(4)}) parameter(0)
  %gte = f32[8,16]{1,0} get-tuple-element((f32[8,16]{1,0}, s4[3]{0:E(4)}) %p), index=0
  ROOT %sum.of-all = f32[8,16]{1,0} all-reduce(%gte), channel_id=1,
    replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=%add,
    metadata={op_name="a \\"b\\" {,} // c" stack_frame_id=2}, backend_config={"x":[{"y":"}"}]}
}
"""
TABLES = """
FileNames
1 "/src/one.py"
2 "C:\\\\src\\\\two.py"
3 "/env/lib/python3.11/site-packages/flax/linen/linear.py"
FunctionNames
1 "f"
FileLocations
1 {file_name_id=1 function_name_id=1 line=5 end_line=5 column=0 end_column=0}
2 {file_name_id=2 function_name_id=1 line=7 end_line=7 column=0 end_column=0}
3 {file_name_id=3 function_name_id=1 line=9 end_line=9 column=0 end_column=0}
StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}
3 {file_location_id=3 parent_frame_id=3}
4 {file_location_id=3 parent_frame_id=4}
5 {file_location_id=3 parent_frame_id=1}
6 {file_location_id=8 parent_frame_id=3}
7 {file_location_id=1 parent_frame_id=99}
"""


def test_fields_of_an_instruction() -> None:
    (module,) = hlo.parser.parse(WHOLE)
    assert (module.name, module.entry, module.partitions, module.replicas) == (
        "small",
        "main",
        4,
        2,
    )
    main = module.by_name["main"]
    reduce = main.root
    assert (reduce.name, reduce.opcode, reduce.shape.bytes) == ("sum.of-all", "all-reduce", 512)
    assert reduce.attributes["replica_groups"] == "{{0,1,2,3}}"
    assert reduce.metadata == {"op_name": 'a "b" {,} // c', "stack_frame_id": "2"}
    assert [called.computation for called in reduce.called] == ["add"]
    (operand,) = main.by_name["gte"].operands
    assert operand.name == "p" and operand.shape.bytes == 512 + 2
    assert module.source(reduce.metadata) is None


@pytest.mark.parametrize("where", ["before", "after"])
def test_stack_frames(where: str) -> None:
    header, body = WHOLE.split("\n", 1)
    text = f"{header}\n{TABLES}{body}" if where == "before" else WHOLE + TABLES
    (module,) = hlo.parser.parse(text)
    assert module.source(module.by_name["main"].root.metadata) == "two.py:7"
    assert module.source({"source_file": "/a/b.py", "source_line": "3"}) == "b.py:3"
    assert module.source({"stack_frame_id": "9"}) is None


def test_source_outside_of_packages_is_preferred() -> None:
    (module,) = hlo.parser.parse(WHOLE + TABLES)

    def source(frame: int) -> str | None:
        return module.source({"stack_frame_id": str(frame)})

    assert [source(3), source(4)] == ["two.py:7", "two.py:7"]
    # Frame 4 is of a package, and its caller is the program.
    frame, library = module.frames({"stack_frame_id": "4"})
    assert frame is not None and library is not None
    assert (frame.place, library.place) == ("two.py:7", "linear.py:9")
    # Frame 5 has no parent, frame 6 has no location, and the location of frame 7 is missing.
    assert [source(5), source(6), source(7)] == ["linear.py:9", None, "one.py:5"]


def test_elements_of_tuples_as_operands() -> None:
    """XLA's dumps for JAX 0.12 write no get-tuple-element, but the element behind the name."""
    lines = (
        "HloModule m",
        "ENTRY e {",
        "  state = (s32[], (f32[4]{0}, f32[8,2]{1,0})) parameter(0)",
        "  pair = (f32[4]{0}, f32[8,2]{1,0}) tuple(%state#1)",
        "  ROOT n = s32[] negate(%state#0)",
        "}",
    )
    (module,) = hlo.parser.parse("\n".join(lines))
    (computation,) = module.computations
    assert [i.opcode for i in computation.instructions] == [
        "parameter",
        "get-tuple-element",
        "tuple",
        "get-tuple-element",
        "negate",
    ]
    element = computation.operand(computation.instructions[-1])
    assert element is not None
    assert (element.tuple_index, str(element.shape)) == (0, "s32[]")


def test_inline_operands() -> None:
    (module,) = hlo.parser.parse(
        "ENTRY e {\n ROOT a = f32[4] add(f32[4] all-reduce(f32[4] parameter(0)), f32[4] parameter(1))\n}"
    )
    assert opcodes((module,)) == {"add": 1, "all-reduce": 1, "parameter": 2}
    (collective,) = hlo.collectives.collectives(module)
    assert (collective.op, collective.payload_bytes) == ("all-reduce", 16)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not HLO"),
        ("// only a comment\n", "is not HLO"),
        ("hello world", "line 1 of the text is 'hello world'"),
        ("module @jit_f {\n  func.func @main() {\n  }\n}\n", "line 1 of the text"),
        ('{"format": "sharding-snapshot"}', "line 1 of the text"),
        ("body {\n color: red;\n}\n", "line 2 of the text is 'color: red;'"),
        (
            "HloModule m\nENTRY e {\n  p = f32[] parameter(0)\n  what is this\n}\n",
            "line 4 of the text",
        ),
        ("HloModule m\n\x00\x01\nENTRY e {}\n", "line 2 of the text"),
    ],
)
def test_invalid_text_names_the_line(text: str, says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        hlo.parser.parse(text)
    assert says in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("end", range(len("HloModule s"), len(WHOLE) - 4, 7))
def test_truncated_text(end: int) -> None:
    (module,) = hlo.parser.parse(WHOLE[:end])
    assert module.truncated.startswith("the text ends")
    for collective in hlo.collectives.collectives(module):
        assert collective.executions in (None, 1)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("f32[]", 4), ("bf16[4,8]{1,0:T(8,128)(2,1)S(1)}", 64), ("pred[3]", 3), ("c64[2]{0}", 16),
        ("c128[2]", 32), ("s4[3]{0:E(4)}", 2), ("s4[3]", 2), ("u2[5]", 2), ("f8e4m3fn[7]", 7),
        ("f4e2m1fn[80,20]{1,0:E(4)}", 800), ("f8e8m0fnu[2]", 2), ("token[]", 0), ("f64[2,0]", 0),
        ("(f32[2], (s8[3], /*index=2*/pred[]))", 12), ("()", 0), ("f32[<=8]", 32), ("f32[?]", None),
        ("(f32[2], new7type[2])", None), ("s8[4]{0:E(16)}", 8),
    ],
)  # fmt: skip
def test_bytes_of_a_shape(text: str, size: int | None) -> None:
    assert shapes.parse(text).bytes == size


@pytest.mark.parametrize("text", ["", "f32", "f32[", "(f32[2]", "f32[2])", "f32[a]", "f32[2] f32[3]"])
def test_invalid_shape(text: str) -> None:
    assert shapes.parse(text) is None


def test_element_width_of_thousands_of_digits_is_unknown() -> None:
    assert shapes.element_bits("s" + "9" * 5000) is None
