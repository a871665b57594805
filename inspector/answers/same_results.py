"""Whether programs compute the same sharded and on one device, and their first difference."""

from inspector.answers.section import (
    Block,
    Code,
    Column,
    Inline,
    Mark,
    Section,
    Strong,
    Table,
    more,
    notice,
    text,
)
from inspector.records.same_results import (
    MEANINGFUL,
    ComparedProgram,
    ComparedValue,
    FirstOperation,
    SameResults,
    UnequalReplicas,
)
from inspector.text.formatting import and_text, counted

_MOST_RESULTS = 20  # of one program in a table
_MOST_PATHS = 3  # of results that cannot be checked


def section(results: SameResults) -> Section:
    """Return one sentence about all programs, a table of them, and the results that differ."""
    blocks: list[Block] = [_summary(results)]
    for program in results.programs:
        if program.differs:
            blocks.append(notice("error", *_of_program(program)))
        elif program.reason is not None:
            blocks.append(notice("unknown", Code(program.name), f" cannot be checked: {program.reason}."))
        if program.unchecked:
            blocks.append(notice("unknown", *_unchecked(program)))
    blocks.append(_programs(results))
    for number, program in enumerate(results.programs):
        if program.differing:
            blocks += _results(program, number)
    if results.unsharded:
        count = counted(results.unsharded, "program")
        runs = "runs" if results.unsharded == 1 else "run"
        blocks.append(text(f"{count} {runs} on one device anyway.", quiet=True))
    return Section("same_results", "Results, sharded and on one device", tuple(blocks))


def _summary(results: SameResults) -> Block:
    checked = [program for program in results.programs if program.reason is None]
    values = [value for program in checked for value in program.values if not value.unchecked]
    differing = [program.name for program in results.programs if program.differs]
    if differing:
        which = f"{len(differing)} of {len(results.programs)} sharded programs differ"
        if len(results.programs) == 1:
            which = "The sharded program differs"
        elif len(differing) == 1:
            which = f"1 of {len(results.programs)} sharded programs differs"
        return notice("error", Strong(f"{which} from the same program on one device."))
    amount = f"{counted(len(checked), 'program')}, {counted(len(values), 'result')}"
    largest = max((program.largest.difference or 0.0 for program in checked if program.largest), default=0.0)
    if results.same is None:
        programs = len(results.programs) - len(checked)
        unchecked = sum(len(program.unchecked) for program in checked)
        counts = [(programs, "sharded program"), (unchecked, "result")]
        which = and_text([counted(count, what) for count, what in counts if count])
        equal = f" The others compute the same as on one device: {amount}, largest relative difference "
        return notice(
            "warning", Strong(f"{which} cannot be checked."), f"{equal}{largest:.1g}." if values else ""
        )
    return notice(
        "success",
        Strong("The sharded program computes the same as on one device"),
        f": {amount}, largest relative difference {largest:.1g}.",
    )


def _unchecked(program: ComparedProgram) -> list[Inline]:
    """Return which results have a tolerance that hides real differences, the first ones by their paths."""
    paths = [value.path or "result" for value in program.unchecked]
    paths[_MOST_PATHS:] = [f"{len(paths) - _MOST_PATHS} more"] if len(paths) > _MOST_PATHS else []
    why = f"rounding errors in the arguments and sums need a tolerance above {MEANINGFUL}"
    return [Code(program.name), f": {and_text(paths)} cannot be checked: {why}."]


def _of_program(program: ComparedProgram) -> list[Inline]:
    """Return the first difference of a program."""
    count = len(program.differing)
    if not count:
        assert program.first is not None
        start = (": its results agree within rounding, but a value inside it differs. ",)
        return [Code(program.name), *start, *_first(program.first)]
    which = f"{count} of {counted(program.results, 'result')} differ{'s' if count == 1 else ''}"
    parts: list[Inline] = [Code(program.name), f": {which}. "]
    if program.first is None:
        why = program.first_unknown or program.reason
        return [*parts, f"The first operation that differs is unknown: {why}."]
    return [*parts, *_first(program.first)]


def _first(first: FirstOperation) -> list[Inline]:
    parts: list[Inline] = ["The first operation that differs is ", Code(first.operation)]
    if first.source is not None:
        parts += [" at ", Code(first.source)]
    parts.append(f", {_type_text(first.value)}: ")
    parts += [_difference(first.value), "."]
    if first.other_constants:
        parts.append(
            " Its constants are others on one device: the script computes with the number of devices."
        )
    return parts


def _difference(value: ComparedValue) -> str:
    reasons = []
    if value.unequal is not None:
        reasons.append(_copies(value.unequal))
    if value.factor is not None:
        reasons.append(f"the result is {value.factor:.4g} times that of one device")
    elif value.difference is None:
        reasons.append("elements are NaN or infinite on one side only")
    elif value.difference > value.tolerance:
        reasons.append(f"its relative difference is {value.difference:.1g}")
    return and_text(reasons)


def _copies(unequal: UnequalReplicas) -> str:
    first, second = unequal.devices
    return (
        f"devices {first} and {second} hold different copies of the same part "
        f"({unequal.values[0]} and {unequal.values[1]} at {_index_text(unequal.index)})"
    )


def _programs(results: SameResults) -> Table:
    return Table.of(
        "same_programs",
        results.programs,
        {
            Column("Program", "code"): lambda program: Code(program.name),
            Column("Devices", "count"): lambda program: program.devices,
            Column("Results", "count"): lambda program: None if program.reason else program.results,
            Column(
                "Largest difference",
                help="Norm of the difference relative to the norm of the result; of integers, the share of "
                "unequal elements. That of the first result that differs, else of those that can be checked.",
            ): lambda program: _number(program.largest) if program.largest else None,
            Column("Tolerance", help="What rounding explains."): lambda program: (
                f"{program.largest.tolerance:.1g}" if program.largest else None
            ),
            "Answer": _answer,
        },
        wrap=True,
    )


def _answer(program: ComparedProgram) -> Mark:
    if not program.differs:
        if program.reason is None and not program.unchecked:
            return Mark("same", "success")
        count = f"{len(program.unchecked)} of {program.results} " if program.unchecked else ""
        return Mark(f"{count}not checked", "unknown")
    values = [*program.differing, *([program.first.value] if program.first else [])]
    copies = any(value.unequal is not None for value in values)
    return Mark("differs, copies are unequal" if copies else "differs", "error")


def _results(program: ComparedProgram, number: int) -> list[Block]:
    rows = program.differing[:_MOST_RESULTS]
    table = Table.of(
        f"same_results:{number}",
        rows,
        {
            Column(f"Result of {program.name}", "code"): lambda value: Code(value.path or "result"),
            "Type": _type_text,
            "Difference": _number,
            "Tolerance": lambda value: f"{value.tolerance:.1g}",
            "Element": lambda value: "" if value.index is None else _index_text(value.index),
            "Sharded": lambda value: "" if value.values is None else value.values[0],
            "On one device": lambda value: "" if value.values is None else value.values[1],
            "Copies": lambda value: "equal" if value.unequal is None else _copies(value.unequal),
        },
        wrap=True,
    )
    return [table, *more(len(program.differing) - len(rows), "result")]


def _type_text(value: ComparedValue) -> str:
    return f"{value.dtype}[{','.join(map(str, value.shape))}]"


def _number(value: ComparedValue) -> str:
    return "not finite" if value.difference is None else f"{value.difference:.1g}"


def _index_text(index: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, index))}]"
