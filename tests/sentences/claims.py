"""Checks of what the sentences claim, from the dumps of JAX and XLA alone."""

from __future__ import annotations

import importlib.metadata
import json
import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from tests.sentences.evidence import Collective, Evidence, bytes_of

Check = Callable[..., bool]
# The parts of the memory of a program on the short screen.
MEMORY_PARTS = {"arguments", "activations", "outputs and temporaries", "state and batch", "arrays"}
_AMOUNT_OF_TIME = r"(?:< )?[\d.,]+ (?:ns|µs|ms|s|min)"

_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SECONDS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
_HLO_TYPES = {
    "float": "f",
    "int": "i",
    "uint": "ui",
    "bfloat16": "bf16",
    "bool": "i1",
    "complex64": "complex<f32>",
}
CONTRACTIONS = {"dot_general", "dot", "conv_general_dilated", "convolution"}
# Operations that combine the elements of a dimension. `reduce` is the opcode.
REDUCTIONS = re.compile(
    r"reduce(_\w+)?|arg(max|min)|cum\w+|scatter(-|_)?\w*|segment_sum|logsumexp|norm|mean|var|median"
)
CALLS = {
    "psum": "all-reduce",
    "pmean": "all-reduce",
    "pmax": "all-reduce",
    "pmin": "all-reduce",
    "all_gather": "all-gather",
    "psum_scatter": "reduce-scatter",
    "ppermute": "collective-permute",
    "pshuffle": "collective-permute",
    "all_to_all": "all-to-all",
}


def amount(text: str) -> float:
    """Return the bytes of a text such as `1.5 KiB`."""
    number, unit = text.removeprefix("at least ").split(" ")[:2]
    return float(number.replace(",", "")) * _UNITS[unit]


def close(text: str, bytes_known: float) -> bool:
    """Return whether a text is this number of bytes, up to half of its last digit."""
    number, unit = text.removeprefix("at least ").split(" ")[:2]
    digits = len(number.partition(".")[2])
    return abs(amount(text) - bytes_known) <= 0.51 * 10**-digits * _UNITS[unit]


def _half(text: str) -> float:
    """Return half of the last digit of a text, in bytes."""
    number, unit = text.split(" ")[:2]
    return 0.51 * 10.0 ** -len(number.partition(".")[2]) * _UNITS[unit]


def at_most(text: str, bytes_known: float) -> bool:
    """Return whether a text is at most this number of bytes, up to half of its last digit."""
    return close(text, bytes_known) or amount(text) <= bytes_known


def seconds(text: str) -> float:
    number, unit = text.removeprefix("< ").split(" ")
    return float(number.replace(",", "")) * _SECONDS[unit]


def names(text: str) -> tuple[str, ...]:
    """Return the mesh axes of a text such as `data, model` or `a+b`."""
    return tuple(name for name in re.split(r", | and | × |\+", text) if name)


@dataclass(frozen=True)
class Argument:
    """An argument of a lowered module, with the mesh axes of each dimension, None if JAX did not say."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    axes: tuple[tuple[str, ...], ...] | None

    @property
    def bytes(self) -> int:
        kind = self.dtype.replace("ui", "u").replace("i1", "pred") if self.dtype != "i1" else "pred"
        kind = kind if kind.startswith(("f", "bf", "pred", "u")) else kind.replace("i", "s", 1)
        return bytes_of(f"{kind}[{','.join(map(str, self.shape))}]") if "complex" not in self.dtype else 0


def arguments(evidence: Evidence) -> list[Argument]:
    """Return the arguments of all lowered modules."""
    found = []
    for module in evidence.lowered.split("\nmodule ")[0:]:
        places = dict(re.findall(r'^(#loc\d*) = loc\("([^"]*)"', module, re.M))
        for head in re.findall(r"func\.func public @main\((.*?)\) -> ", module, re.S):
            for kind, attributes, place in re.findall(
                r"%arg\d+: tensor<([^>]*)>(?: \{((?:[^{}]|\{[^{}]*\})*)\})? loc\(([^)]*)\)", head
            ):
                *sizes, dtype = kind.split("x")
                listed = re.search(r"sdy\.sharding<@\w+, \[(.*?)\]", attributes)
                axes = None
                if listed:
                    axes = tuple(
                        tuple(re.findall(r'"([^"]+)"', part))
                        for part in re.findall(r"\{([^{}]*)\}", listed[1])
                    )
                name = place.strip('"') if place.startswith('"') else places.get(place, "")
                found.append(Argument(name, tuple(map(int, sizes)), dtype, axes))
    return found


def always(_evidence: Evidence, **_fields: str) -> bool:
    """Accept a label, or a sentence about the run itself, which claims nothing about the program."""
    return True


def modules_of(evidence: Evidence, program: str) -> list:
    """Return the compiled modules that a program's name in a sentence can be."""
    plain = re.sub(r"^(?:the|a|an) ", "", program, flags=re.I)
    plain = re.sub(r" at \S+$| \(\d+\)$", "", plain)
    wanted = re.sub(r"\W+", "_", plain).strip("_").lower()
    return [
        module
        for module in evidence.modules
        if re.sub(r"\W+", "_", re.sub(r"^(jit|pmap)_+", "", module.name)).strip("_").lower() == wanted
        or wanted in ("unnamed_function", "lambda")
        or (module.name == "jit__fun" and "pmap" in evidence.source)
    ]


def _named(evidence: Evidence, axes: str, collective: str) -> list[Collective]:
    return [
        known
        for known in evidence.over(names(axes))
        if known.op == collective or (collective == "reduce-scatter" and known.op == "all-reduce")
    ]


def _made_by(evidence: Evidence, axes: str, collective: str, *opcodes: str) -> bool:
    """Return whether such a collective over these axes combines what one of these opcodes makes."""
    return any(known.made & {*opcodes} for known in _named(evidence, axes, collective))


def sums(evidence: Evidence, *, op: str, axes: str, collective: str, **_rest: str) -> bool:
    """Accept a contraction, and a collective that adds what a product, or a sum of products, makes."""
    made = ("dot", "convolution", "custom-call", "reduce")
    return op in CONTRACTIONS and _made_by(evidence, axes, collective, *made)


def reduces(evidence: Evidence, *, op: str, axes: str, collective: str, **_rest: str) -> bool:
    """Accept an operation that combines elements, and a collective of what a reduction makes."""
    return bool(REDUCTIONS.fullmatch(op)) and _made_by(evidence, axes, collective, "reduce", "reduce-window")


def updates(evidence: Evidence, *, op: str, axes: str, collective: str, **_rest: str) -> bool:
    """Accept a scatter. XLA for CPUs writes it as a loop."""
    return "scatter" in op and _made_by(evidence, axes, collective, "scatter", "while")


def reads(evidence: Evidence, *, op: str, axes: str, collective: str, **_rest: str) -> bool:
    """Accept an operation that reads elements by index, and a collective of what one makes."""
    indexed = op in ("gather", "dynamic_slice", "dynamic-slice", "take")
    opcodes = ("gather", "dynamic-slice", "parameter", "while", "concatenate")
    return indexed and _made_by(evidence, axes, collective, *opcodes)


def moves(evidence: Evidence, *, op: str, axes: str, collective: str, **_rest: str) -> bool:
    """Accept an operation that reads what a collective over these axes moves; the code does not call it."""
    reads = {op, op.replace("_", "-"), op.replace("-", "_")}
    return op not in CALLS and any(
        known.read & reads for known in evidence.over(names(axes)) if known.op == collective
    )


def asked(
    evidence: Evidence, *, line: str, axes: str, collective: str, spec: str = "", spec2: str = " ", **_: str
) -> bool:
    """Accept a line that asks for a sharding, and a collective over axes that it leaves out or moves."""
    place = evidence.source.splitlines()[int(line.rpartition(":")[2]) - 1]
    asks = "sharding_constraint" in place or "reshard" in place
    return asks and spec != spec2 and bool(_named(evidence, axes, collective))


def calls(evidence: Evidence, *, call: str, axes: str, **_rest: str) -> bool:
    """Accept a collective that the source calls by one of these names, over these axes."""
    called = [one for one in re.split(", | or ", call) if re.search(rf"\b{one}\(", evidence.source)]
    return any(known.op == CALLS.get(one) for known in evidence.over(names(axes)) for one in called)


def _axes_in(spec: str) -> tuple[tuple[str, ...], ...]:
    """Return the mesh axes of each entry of a PartitionSpec in text."""
    entries = re.findall(
        r"\([^()]*\)|'[^']*'|None", spec.removeprefix("P").removeprefix("(").removesuffix(")")
    )
    return tuple(tuple(re.findall(r"'([^']*)'", entry)) for entry in entries)


def constraint(
    evidence: Evidence, *, spec: str, spec2: str, axes: str, collective: str, line: str, **_rest: str
) -> bool:
    """Accept a line of the source that asks for a sharding, and a collective over these axes."""
    number = int(line.rpartition(":")[2])
    place = evidence.source.splitlines()[number - 1]
    asks = re.search(r"with_sharding_constraint|reshard|device_put|out_sharding", place) is not None
    return asks and spec != spec2 and bool(_named(evidence, axes, collective))


def left_out(evidence: Evidence, *, line: str, axes: str, axes2: str, **_rest: str) -> bool:
    """Accept a constraint in this line that does not name the axis, and an all-gather over it."""
    place = evidence.source.splitlines()[int(line.rpartition(":")[2]) - 1]
    asks = "with_sharding_constraint" in place and f'"{axes}"' not in place
    return asks and axes == axes2 and bool(_named(evidence, axes, "all-gather"))


def asked_by_jit(evidence: Evidence, *, axes: str, collective: str, **_rest: str) -> bool:
    """Accept a lowered module with a sharding on each result, and a collective that no arithmetic reads."""
    results = re.findall(r"func.func public @main\(.*\) -> \((.*)\) \{", evidence.lowered)
    given = any(text.count("tensor<") == len(re.findall(r"sdy.sharding =", text)) for text in results)
    arithmetic = {"dot", "convolution", "reduce", "sort", "add", "subtract", "multiply", "divide"}
    over = [known for known in evidence.over(names(axes)) if known.op == collective]
    return given and any(not known.read & arithmetic for known in over)


def _counts(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, op in re.findall(r"([\d,]+) ([a-z-]+?)s?(?= and|,|$)", text):
        found[op] = int(number.replace(",", ""))
    return found


def runs(evidence: Evidence, *, program: str, counts: str, axes: str, sent: str, **_rest: str) -> bool:
    """Accept the number of collectives by operation, and their bytes by the formulas of a ring."""
    for module in modules_of(evidence, program):
        known: dict[str, int] = {}
        total = 0
        for one in module.collectives:
            known[one.op] = known.get(one.op, 0) + (one.executions or 0)
            total += one.sent * (one.executions or 0)
        if known == _counts(counts) and close(sent, total):
            return True
    return False


def runs_at_most(evidence: Evidence, *, program: str, sent: str, low: str, **_rest: str) -> bool:
    """Accept the least and the most that a device sends: in a permute, only sources do."""
    for module in modules_of(evidence, program):
        groups_of = [group for one in module.collectives for group in (*one.groups, *one.pairs)]
        devices = {device for group in groups_of for device in group}
        sums = [
            sum(
                one.sent * (one.executions or 0)
                for one in module.collectives
                if not one.pairs or any(device == source != target for source, target in one.pairs)
            )
            for device in devices
        ]
        if sums and close(sent, max(sums)) and close(low, min(sums)):
            return True
    return False


def without_count(evidence: Evidence, *, program: str = "", **_rest: str) -> bool:
    """Accept a loop whose count XLA does not know."""
    modules = modules_of(evidence, program) if program else evidence.modules
    return any(one.executions is None for module in modules for one in module.collectives)


def partly_compared(evidence: Evidence, **_rest: str) -> bool:
    """Accept a loop without a count, and a custom call, whose module has no record of its partition."""
    return without_count(evidence) or any("custom-call(" in module.text for module in evidence.modules)


def runs_none(evidence: Evidence, *, program: str = "", **_rest: str) -> bool:
    modules = modules_of(evidence, program) if program else evidence.modules
    return (
        bool(modules or not program) and any(not module.collectives for module in modules or ())
    ) or not modules


def sends_nothing(evidence: Evidence, **_rest: str) -> bool:
    return not evidence.collectives


def groups(
    evidence: Evidence, *, count: str, members: str, times: str, payload: str, sent: str, **_rest: str
) -> bool:
    """Accept if a compiled collective has these groups, executions and bytes."""
    return any(
        (len(one.groups) == int(count) or one.op == "collective-permute")
        and (one.size == int(members) or one.op == "collective-permute")
        and (one.executions == int(times) or (one.branch and one.executions == 1))
        and close(payload, one.payload)
        and close(sent, one.sent * (one.executions or 1))
        for one in evidence.collectives
    )


def groups_in_loop(evidence: Evidence, *, members: str, payload: str, **_rest: str) -> bool:
    return any(
        one.executions is None and one.size == int(members) and close(payload, one.payload)
        for one in evidence.collectives
    )


def exists(evidence: Evidence, *, axes: str, collective: str = "", **_rest: str) -> bool:
    """Accept a collective over these axes."""
    if not collective:
        return any(evidence.over(names(axes)))
    return bool(_named(evidence, axes, collective)) or any(
        known.op == collective for known in evidence.over(names(axes))
    )


def gradient(evidence: Evidence, **_rest: str) -> bool:
    """Accept if reverse mode ran."""
    return evidence.has_gradient


def checkpointed(evidence: Evidence, **_rest: str) -> bool:
    return evidence.has_gradient and evidence.has_checkpoint


def sharded_as(evidence: Evidence, *, type: str, spec: str, size: str, copies: str, **_rest: str) -> bool:
    """Accept bytes and copies that follow from shape, PartitionSpec and one of the meshes."""
    kind, dimensions = re.fullmatch(r"([\w<>]+)\[([^\]]*)\]", type).groups()  # type: ignore[union-attr]
    sizes = [int(one) for one in dimensions.split(", ") if one]
    bits = re.search(r"\d+$", kind)
    width = 1 if kind == "bool" else int(bits[0]) // 8 if bits else 8
    for mesh in evidence.meshes or ({},):
        over = [name for entry in _axes_in(spec) for name in entry]
        if any(name not in mesh for name in over):
            continue
        shards = math.prod(mesh[name] for name in over)
        whole = math.prod(sizes) * width
        devices = math.prod(mesh.values())
        if close(size, whole / shards) and int(copies) == devices // shards:
            return True
    return "key<" in kind


def took(evidence: Evidence, *, program: str = "", programs: str = "", **_rest: str) -> bool:
    """Accept the names of functions that JAX lowered."""
    return all(modules_of(evidence, one) for one in re.split(r" and |, ", program or programs))


def took_it(evidence: Evidence, *, lines: str = "", **fields: str) -> bool:
    """Accept a function that JAX lowered, and lines with a constraint."""
    numbers = [int(number) - 1 for number in re.findall(r":(\d+)", lines)]
    source = evidence.source.splitlines()
    return took(evidence, **fields) and all("sharding_constraint" in source[number] for number in numbers)


def needs(evidence: Evidence, *, program: str, size: str, **_rest: str) -> bool:
    """Accept bytes between those of the entry's arguments and all that XLA allocates."""
    for module in modules_of(evidence, program):
        text = evidence.allocations.get(module.name, ())
        if any(amount(size) <= 1.01 * total + 64 for total in text):
            return True
    return False


def peak(evidence: Evidence, *, size: str, parts: str, most: str = "", **_rest: str) -> bool:
    """Accept parts that are at most the whole, and bytes that XLA allocates."""
    if not most and not largest_part(evidence, size=size):
        return False
    texts = re.findall(r"[\d.,]+ (?:B|KiB|MiB|GiB)", parts)
    rounded = sum(map(_half, (size, *texts)))
    listed = sum(amount(part) for part in texts)
    return 0.9 * amount(size) - rounded <= listed <= 1.02 * amount(size) + rounded


def replicated(evidence: Evidence, *, array: str, size: str, count: str, **_rest: str) -> bool:
    """Accept an argument of some program that has no mesh axis in its sharding, with these bytes."""
    devices = {math.prod(mesh.values()) for mesh in evidence.meshes}
    plain = array.rpartition("/")[2]
    known = [one for one in arguments(evidence) if plain in re.split(r"\W+", one.name)]
    fits = [one for one in known if close(size, one.bytes) and not any(one.axes or ((),))]
    return (int(count) in devices or not devices) and (bool(fits) or not known)


def interval(_evidence: Evidence, *, low: str, middle: str, high: str = "", **_rest: str) -> bool:
    return seconds(low) <= seconds(middle) and (not high or seconds(middle) <= seconds(high))


def in_loop(
    evidence: Evidence, *, times: str, name: str | None = None, line: str | None = None, **_rest: str
) -> bool:
    """Accept if the collective of this name is of this line, and one runs this often."""
    return any(one.executions == int(times) for one in evidence.collectives) and any(
        name in (None, one.name) and (line is None or line in one.lines) for one in evidence.collectives
    )


def failed(evidence: Evidence, **_rest: str) -> bool:
    return evidence.exit != 0


def ended(evidence: Evidence, *, status: str, **_rest: str) -> bool:
    return int(status) == evidence.exit


def several_meshes(evidence: Evidence, **_rest: str) -> bool:
    return bool(evidence.meshes)


def moved_outside(evidence: Evidence, **_rest: str) -> bool:
    return "device_put" in evidence.source


def combined(evidence: Evidence, **_rest: str) -> bool:
    """Accept a collective with several operands."""
    return any(":" in one.op_name or one.result for one in evidence.collectives)


def has_constant(evidence: Evidence, *, size: str, **_rest: str) -> bool:
    return any(
        close(size, bytes_of(kind))
        for module in evidence.modules
        for kind in re.findall(r"= (\S+) constant\(", module.text)
    )


def primitive_calls(evidence: Evidence, *, call: str, axes: str, **_rest: str) -> bool:
    """Accept a collective of JAX whose primitive is in the lowered module, over these axes."""
    op = {"reduce_scatter": "reduce-scatter", "psum_invariant": "all-reduce"}.get(call, CALLS.get(call))
    return any(known.op == op for known in evidence.over(names(axes)))


def transposes(evidence: Evidence, *, call: str, call2: str, axes: str, **_rest: str) -> bool:
    """Accept a primitive of reverse mode over these axes, if the source has the call that it transposes."""
    in_source = re.search(rf"\b{call2}\(", evidence.source)
    return evidence.has_gradient and bool(in_source) and primitive_calls(evidence, call=call, axes=axes)


def reshards(evidence: Evidence, *, program: str, size: str = "", **_rest: str) -> bool:
    """Accept bytes that are at most those of the collectives that the code does not call."""
    for module in modules_of(evidence, program):
        moved = [one for one in module.collectives if not one.primitives & {*CALLS, "reduce_scatter"}]
        if moved and (
            not size or amount(size) <= 1.01 * sum(one.sent * (one.executions or 0) for one in moved)
        ):
            return True
    return False


def over_axes(evidence: Evidence, *, program: str = "", axes: str = "", **_rest: str) -> bool:
    """Accept axes along which the program has a collective."""
    known = modules_of(evidence, program) if program else evidence.modules
    if not axes:
        return True
    over = set(evidence.over(names(axes)))
    return any(one in over for module in known for one in module.collectives)


def less_than_step(_evidence: Evidence, *, time: str, time2: str, **_rest: str) -> bool:
    return 0 < seconds(time) <= seconds(time2)


def unused_axis(evidence: Evidence, *, axes: str, **_rest: str) -> bool:
    """Accept an axis that no sharding of the lowered modules has."""
    text = re.sub(r"sdy\.mesh.*", "", evidence.lowered)
    return axes in evidence.axes and f'"{axes}"' not in text


def has_unused_axis(evidence: Evidence, **_rest: str) -> bool:
    return any(unused_axis(evidence, axes=axis) for axis in evidence.axes)


def has_collectives(evidence: Evidence, **_rest: str) -> bool:
    return bool(evidence.collectives)


def no_mesh(evidence: Evidence, **_rest: str) -> bool:
    return not evidence.meshes and "NamedSharding" not in evidence.source


def fewer_devices(evidence: Evidence, **_rest: str) -> bool:
    return max((math.prod(mesh.values()) for mesh in evidence.meshes), default=1) < 8


def pipeline(evidence: Evidence, *, n: str, axes: str, **_rest: str) -> bool:
    """Accept a permute in a counted loop along an axis of this size."""
    along = [one for one in evidence.over(names(axes)) if one.op == "collective-permute"]
    return any((one.executions or 0) > 1 for one in along) and any(
        mesh.get(axes) == int(n) for mesh in evidence.meshes
    )


def pipeline_loop(evidence: Evidence, **_rest: str) -> bool:
    return any(one.op == "collective-permute" and (one.executions or 0) > 1 for one in evidence.collectives)


def versions(_evidence: Evidence, *, text: str, **_rest: str) -> bool:
    return text.startswith(importlib.metadata.version("jax"))


def next_same(evidence: Evidence, *, n: str, **_rest: str) -> bool:
    return evidence.exit == 0 and 1 < int(n) <= 8


def static_argument(evidence: Evidence, **_rest: str) -> bool:
    return "static_arg" in evidence.source


def allocated(evidence: Evidence, *, size: str, **_rest: str) -> bool:
    """Accept bytes that are at most the sum of what XLA allocates for all modules."""
    total = sum(max(sizes) for sizes in evidence.allocations.values())
    return not total or amount(size) <= 1.01 * total + 64


def alive(evidence: Evidence, *, size: str, **_rest: str) -> bool:
    """Accept bytes that the live arrays of JAX have on one device, and that are more than of any program."""
    return at_most(size, evidence.most_alive)


def largest_part(evidence: Evidence, *, size: str, **_rest: str) -> bool:
    return any(
        amount(size) <= 1.01 * total + 64 for sizes in evidence.allocations.values() for total in sizes
    )


def in_branch(evidence: Evidence, *, program: str, sent: str, **_rest: str) -> bool:
    """Accept the bytes outside of the branches with those of the largest branch of one conditional."""

    def taken(collectives: tuple[Collective, ...]) -> int:
        sums = Counter[str]()
        for one in collectives:
            sums[one.computation if one.branch else ""] += one.sent * (one.executions or 0)
        return sums.pop("", 0) + max(sums.values(), default=0)

    return any(
        any(one.branch for one in module.collectives) and close(sent, taken(module.collectives))
        for module in modules_of(evidence, program)
    )


def uncounted_or_branch(evidence: Evidence, **_rest: str) -> bool:
    """Accept if a loop has no known count, a branch is taken at run time, or a library solves equations."""
    texts = [module.text for module in evidence.modules]
    if any(re.search(r'"lapack_\w+"| (cholesky|triangular-solve)\(', text) for text in texts):
        return True
    counted = all(
        "known_trip_count" in line
        for module in evidence.modules
        for line in module.text.splitlines()
        if " while(" in line
    )
    return not counted or any(" conditional(" in module.text for module in evidence.modules)


def in_condition(evidence: Evidence, *, axes: str, collective: str, **_rest: str) -> bool:
    """Accept a collective over these axes in a module with a loop whose trip count XLA does not know."""
    loops = any(" while(" in module.text for module in evidence.modules)
    return loops and uncounted_or_branch(evidence) and exists_over(evidence, axes=axes, collective=collective)


def idle_senders(evidence: Evidence, *, n: str, **_rest: str) -> bool:
    return any(len({a for a, b in one.pairs if a != b}) == int(n) for one in evidence.collectives)


def source_line(evidence: Evidence, *, lines: str, line2: str = "", phase: str = "", **_rest: str) -> bool:
    """Accept lines that compiled operations and a collective have, and a phase only if reverse mode ran."""
    every = {line for module in evidence.modules for own in module.frames.values() for line in own}
    shown = {*re.findall(r"\S+\.py:\d+", lines)}
    known = lines == "unknown" or (
        shown <= every and any((shown | {line2}) & one.lines for one in evidence.collectives)
    )
    return known and (("backward" not in phase and "optimizer" not in phase) or evidence.has_gradient)


def donatable(evidence: Evidence, *, program: str, size: str, **_rest: str) -> bool:
    """Accept a module whose arguments and results have types in common with these bytes together."""
    return _can_donate(modules_of(evidence, program), size)


def can_donate(evidence: Evidence, **_rest: str) -> bool:
    return _can_donate(evidence.modules, "0 B")


def _can_donate(modules: list, size: str) -> bool:
    for module in modules:
        header = module.text.split("\n", 1)[0]
        layout = re.search(r"entry_computation_layout=\{\((.*?)\)->(.*?)\}(?:, [a-z]+_|$)", header)
        if layout is None:
            continue
        inputs = re.findall(r"[a-z]+\d*\[[\d,]*\]", layout[1])
        total = 0
        for kind in re.findall(r"[a-z]+\d*\[[\d,]*\]", layout[2]):
            same = [one for one in inputs if bytes_of(one) == bytes_of(kind)]
            if same:
                inputs.remove(same[0])
                total += bytes_of(kind)
        if total and at_most(size, total):
            return True
    return False


def donated(evidence: Evidence, *, program: str, **_rest: str) -> bool:
    return any(module.donated for module in modules_of(evidence, program))


def unused_donation(evidence: Evidence, **_rest: str) -> bool:
    return "donate_arg" in evidence.source and not all(module.donated for module in evidence.modules)


def keeps(evidence: Evidence, *, recomputed: str, **_rest: str) -> bool:
    return evidence.has_gradient and (recomputed == "none again" or evidence.has_checkpoint)


def keeps_gathers(evidence: Evidence, *, program: str, size2: str, name: str, **_rest: str) -> bool:
    """Accept an all-gather of these bytes, whose result an operation of a transposed function reads."""
    return any(
        known.name == name and close(size2, known.result) and "transpose" in known.read
        for module in modules_of(evidence, program)
        for known in module.collectives
        if known.op == "all-gather"
    )


def in_host(evidence: Evidence, **_rest: str) -> bool:
    return "pinned_host" in evidence.lowered


def known_axes(evidence: Evidence, *, axes: str, **_rest: str) -> bool:
    return set(names(axes)) <= evidence.axes


def axis_size(evidence: Evidence, *, axes: str, n: str, **_rest: str) -> bool:
    return any(
        set(names(axes)) <= set(mesh) and math.prod(mesh[axis] for axis in names(axes)) == int(n)
        for mesh in evidence.meshes
    )


def state_repeated(evidence: Evidence, *, axes: str, n: str, held: str, **_rest: str) -> bool:
    """Accept an axis of this size, and a train state only if reverse mode ran."""
    return ("optimizer" not in held or evidence.has_gradient) and axis_size(evidence, axes=axes, n=n)


def above_mean(_evidence: Evidence, *, size: str, size2: str, **_rest: str) -> bool:
    return amount(size) > amount(size2)


def on_one_device(evidence: Evidence, *, size: str, name: str, **_rest: str) -> bool:
    """Accept if so many bytes of JAX's arrays are alive on one device, and the script has the name."""
    return amount(size) <= 1.01 * evidence.most_alive and name.rpartition("/")[2] in evidence.source


def less_after(_evidence: Evidence, *, size: str, size2: str, **_rest: str) -> bool:
    return amount(size) > amount(size2)


def distinct(_evidence: Evidence, *, text: str, **_rest: str) -> bool:
    listed = re.split(r", | and ", text)
    return len(set(listed)) == len(listed)


def spec_axes(evidence: Evidence, *, spec: str, **_rest: str) -> bool:
    return {name for entry in _axes_in(spec) for name in entry} <= evidence.axes


def mesh_cell(evidence: Evidence, *, mesh: str, n: str, **_rest: str) -> bool:
    sizes = dict(part.rsplit(" ", 1) for part in mesh.split(" × "))
    return math.prod(map(int, sizes.values())) == int(n) and any(
        {name: str(size) for name, size in known.items()} == sizes for known in evidence.meshes
    )


def sends_wider(evidence: Evidence, **_rest: str) -> bool:
    """Accept a collective of float32 whose operand has been rounded to bfloat16, or whose result is then."""
    return any(
        one.payload and re.search(rf"%?{re.escape(one.name)} = \(?f32", module.text)
        for module in evidence.modules
        for one in module.collectives
        if any(re.search(r"= bf16\S* convert\(", line) for line in module.around(one))
    )


def differs(_evidence: Evidence, *, size: str, size2: str, **_rest: str) -> bool:
    return not close(size, amount(size2))


def small_permutes(evidence: Evidence, *, n: str, size: str, **_rest: str) -> bool:
    small = [one for one in evidence.collectives if one.payload <= 1.01 * amount(size)]
    return sum(one.executions or 0 for one in small) >= int(n)


def outside_of_jit(evidence: Evidence, **_rest: str) -> bool:
    """Accept a script that calls no jitted function, or that ends before."""
    return evidence.exit != 0 or re.search(r"jit\(|@jax\.jit", evidence.source) is None


def lowered_again(evidence: Evidence, **_rest: str) -> bool:
    """Accept if JAX lowered several functions of one name."""
    lowered = re.findall(r"^module @(\w+)", evidence.lowered, re.M)
    return len(set(lowered)) < len(lowered)


def _devices(evidence: Evidence) -> set[int]:
    return {math.prod(mesh.values()) for mesh in evidence.meshes} | {1}


def held_equally(_evidence: Evidence, *, size: str, size2: str, copies: str, **_rest: str) -> bool:
    """Accept bytes that a device of eight has, up to rounding: all bytes times copies."""
    everywhere = amount(size) * float(copies.replace(",", ""))
    return any(0.9 * amount(size2) <= everywhere / number <= 1.1 * amount(size2) for number in range(1, 9))


def held_at_most(
    _evidence: Evidence, *, size: str, size2: str, copies: str, size3: str = "0 B", **_rest: str
) -> bool:
    """Accept bytes of the fullest device, and in host memory, between the mean of eight and all bytes."""
    mean = amount(size) * float(copies.replace(",", "")) / 8
    return 0.95 * mean <= amount(size2) + amount(size3) <= 1.05 * amount(size)


def fewer(_evidence: Evidence, *, n: str, n2: str, **_rest: str) -> bool:
    return int(n) < int(n2)


def on_device(_evidence: Evidence, *, type: str, size: str, n: str, **_rest: str) -> bool:
    """Accept the bytes of a whole array, on one of eight devices."""
    kind, sizes = re.fullmatch(r"([\w<>]+)\[([^\]]*)\]", type).groups()  # type: ignore[union-attr]
    bits = re.search(r"\d+$", kind)
    whole = math.prod(int(one) for one in sizes.split(", ") if one) * (int(bits[0]) // 8 if bits else 1)
    return 0 <= int(n) < 8 and ("key<" in kind or "complex" in kind or close(size, whole))


def large_constant(evidence: Evidence, **_rest: str) -> bool:
    kinds = (kind for m in evidence.modules for kind in re.findall(r"= (\S+) constant\(", m.text))
    return any(bytes_of(kind) >= 2**16 for kind in kinds)


def reduces_in_loop(evidence: Evidence, **_rest: str) -> bool:
    reductions = [one for one in evidence.collectives if one.op in ("all-reduce", "reduce-scatter")]
    return any(one.executions is None or one.executions > 1 for one in reductions)


def in_interval(_evidence: Evidence, *, time: str, interval: str = "", **_rest: str) -> bool:
    """Accept a time inside of its interval."""
    ends = re.fullmatch(rf"({_AMOUNT_OF_TIME})–({_AMOUNT_OF_TIME})", interval)
    return ends is None or seconds(ends[1]) <= seconds(time) <= seconds(ends[2])


def devices_of_mesh(evidence: Evidence, *, n: str, **_rest: str) -> bool:
    """Accept the devices of a mesh, or those of several meshes together: all eight."""
    return int(n) in _devices(evidence) - {1} or int(n) == 8


def replicated_inputs(evidence: Evidence, *, n: str = "", **_rest: str) -> bool:
    """Accept an argument that no axis shards, on as many devices."""
    known = any(not any(one.axes or ()) and one.shape for one in arguments(evidence))
    return known and (not n or int(n) in _devices(evidence))


def compiled_for_cpus(evidence: Evidence, **_rest: str) -> bool:
    """Accept modules that XLA's compiler for CPUs has written."""
    return any((evidence.folder / "dump").glob("*cpu_after_optimizations.txt"))


def operand_axes(evidence: Evidence, *, operands: str, **_rest: str) -> bool:
    """Accept PartitionSpecs with axes of a mesh, or of parts of one."""
    return {name.partition(":")[0] for name in re.findall(r"'([^']+)'", operands)} <= evidence.axes


def placed_arrays(evidence: Evidence, **_rest: str) -> bool:
    return "device_put" in evidence.source


def more_collectives(evidence: Evidence, *, n: str, **_rest: str) -> bool:
    """Accept if a module has as many collectives besides the twenty of a table."""
    return any(len(module.collectives) == int(n) + 20 for module in evidence.modules)


def more_findings(evidence: Evidence, *, n: str, **_rest: str) -> bool:
    """Accept if the JSON of `audit` has at least as many findings."""
    command = (sys.executable, "-m", "inspector", "audit", evidence.folder / "run", "--json")
    listed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return 0 < int(n) <= len(listed)


def exists_over(evidence: Evidence, *, axes: str, collective: str, n: str = "", **_rest: str) -> bool:
    """Accept a collective over these axes, or over parts of one."""
    if n:
        return known_axes(evidence, axes=axes) and any(one.op == collective for one in evidence.collectives)
    return exists(evidence, axes=axes, collective=collective)


def source_lines(evidence: Evidence, *, line: str, line2: str, n: str, **_rest: str) -> bool:
    """Accept lines that operations of a module with a collective have, with at least as many others."""
    modules = [module for module in evidence.modules if module.collectives]
    known = {place for module in modules for own in module.frames.values() for place in own}
    return {line, line2} <= known and len(known) >= int(n) + 2


def same_programs(
    evidence: Evidence, *, program: str, program2: str, program3: str = "", **_rest: str
) -> bool:
    """Accept programs with the same collectives."""
    listed = [modules_of(evidence, name) for name in (program, program2, program3) if name]
    ops = [{tuple(sorted(one.op for one in module.collectives)) for module in found} for found in listed]
    return bool(set.intersection(*ops))


def subject(
    evidence: Evidence, *, status: str, n: str, count: str = "1", text: str = "", **_rest: str
) -> bool:
    """Accept the devices of the run or of a mesh, its status, and meshes that JAX lowered."""
    devices = {1, 8, *(math.prod(mesh.values()) for mesh in evidence.meshes)}
    jitted = {module.name for module in evidence.modules}
    sizes = re.search(r"mesh(?: 1:)? (\S+ \d+(?: × \S+ \d+)*)", text)
    mesh = (
        {name: int(size) for name, size in (part.split(" ") for part in sizes[1].split(" × "))}
        if sizes
        else {}
    )
    known = not mesh or not evidence.meshes or mesh in evidence.meshes
    return int(count) in devices and int(status) == evidence.exit and int(n) <= len(jitted) and known


def legend(evidence: Evidence, *, legend: str, **_rest: str) -> bool:
    """Accept parts from the largest to the smallest: of an allocation, or of what a module sends by axes."""
    texts = [
        (re.sub(r"^[▓▒▏] ", "", part).rsplit(" ", 2)[0], " ".join(part.rsplit(" ", 2)[1:]))
        for part in legend.removesuffix(", ░ the rest").split(", ")
    ]
    listed = [amount(size) for _, size in texts]
    rounded = sum(_half(size) for _, size in texts)
    falling = all(one >= other - rounded for one, other in pairwise(listed))
    if all(name in MEMORY_PARTS for name, _ in texts):
        return falling
    # The groups of a collective can be a part of an axis.
    return falling and all("parts of" in name or any(evidence.over(names(name))) for name, _ in texts)


def sent_over(evidence: Evidence, *, size: str, axes: str, share: str = "", **_rest: str) -> bool:
    """Accept the bytes of a module, and the share of them over these axes."""
    over = set(evidence.over(names(axes)))
    for module in evidence.modules:
        sent = [one.sent * (one.executions or 0) for one in module.collectives]
        part = sum(one.sent * (one.executions or 0) for one in module.collectives if one in over)
        near = not share or abs(100 * part / (sum(sent) or 1) - float(share)) <= 1
        if part and near and at_most(size, sum(sent)):
            return True
    return False


def one_of_programs(evidence: Evidence, *, program: str, n: str, **_rest: str) -> bool:
    """Accept a program that was compiled, and at most as many as XLA compiled."""
    return bool(modules_of(evidence, program)) and 2 <= int(n) <= len(evidence.modules)


def makes_state(evidence: Evidence, *, program: str, program2: str, **_rest: str) -> bool:
    """Accept a program that was compiled, if the other one takes whole numbers only."""
    others = [module for one in re.split(r", | and ", program2) for module in modules_of(evidence, one)]
    taken = [kind for module in others for kind in re.findall(r"= (\w+)\[[^=]* parameter\(", module.text)]
    return bool(modules_of(evidence, program)) and bool(others) and not any("f" in kind for kind in taken)


def not_profiled(evidence: Evidence, **_rest: str) -> bool:
    """Accept a run of several programs in whose folder no profile is."""
    return len(evidence.modules) >= 2 and not list((evidence.folder / "run").rglob("*.xplane.pb"))


def allocates_most(evidence: Evidence, *, program: str, **_rest: str) -> bool:
    """Accept a program for which XLA allocates no less than for the other jitted functions."""
    own = [max(evidence.allocations.get(module.name, (0,))) for module in modules_of(evidence, program)]
    jitted = re.findall(r"^\s*def (\w+)\(", evidence.source, re.M)
    others = [max(evidence.allocations.get(f"jit_{name}", (0,))) for name in jitted]
    return bool(own) and max(own) >= max(others, default=0)


def offloads(evidence: Evidence, *, name: str = "", **_rest: str) -> bool:
    """Accept a name in the source of a program with a policy that offloads."""
    return "offload" in evidence.source and name in evidence.source


def saved(evidence: Evidence, *, size: str, **_rest: str) -> bool:
    """Accept at most the bytes of all arguments of the lowered modules."""
    return at_most(size, sum(one.bytes for one in arguments(evidence)))


def compiled_again(evidence: Evidence, *, program: str, **_rest: str) -> bool:
    """Accept a function that XLA compiled several times."""
    return len(modules_of(evidence, program)) >= 2


def far(evidence: Evidence, **_rest: str) -> bool:
    """Accept a program that names the memory of the host."""
    return "pinned_host" in evidence.source
