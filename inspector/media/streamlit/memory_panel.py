"""What the layout takes of one device's memory, whether that fits a chip, and what devices hold twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from inspector.core.formatting import bytes_text
from inspector.core.snapshot import Snapshot
from inspector.figures.memory_bars import memory_bars
from inspector.layout import Layout
from inspector.machines.prediction import memory
from inspector.machines.prediction.memory import Breakdown, Duplication, Fit
from inspector.media.streamlit import (
    chart,
    chip_choice,
    not_known,
    page_width,
    selection,
    table,
)
from inspector.media.streamlit.plain_text import plain

SELECTED_KEY = "memory_selected"
_WIDEST_PX = 1040


def show(found: Snapshot, _: Layout | None) -> None:
    """The verdict first, then what it is made of, then what could be saved."""
    said, chosen = _places()
    with chosen:
        chip = chip_choice.draw(found)
    with said:
        _show_verdict(memory.fit(found, chip))
    programs = memory.breakdowns(found)
    figure = memory_bars(
        programs,
        memory.capacity_of(chip),
        chip.title,
        width_px=min(int(page_width.content_px()), _WIDEST_PX),
    )
    if figure is not None:
        chart.draw(figure, "memory_bars", alt="Memory of each program by part")
        _show_donation(programs)
        _show_figures(found, programs)
    else:
        if found.programs:
            not_known.show(
                "What the programs take of a device's memory is not in "
                f"{not_known.origin(found) or 'this Snapshot'}: the compiler did not write it there."
            )
        else:
            not_known.no_programs(
                found,
                "A plan has only what arrays take. Build and run the layout to see outputs, temporaries "
                "and the peak, as the compiler counts them.",
                "outputs, temporaries and the peak of a step are unknown",
            )
    _show_duplication(found)


def rows(program: Breakdown) -> list[tuple[str, int | None]]:
    """(what, bytes) of one program, in the order in which they add up."""
    found: list[tuple[str, int | None]] = []
    for whole, parts in (("Arguments", program.arguments), ("Outputs", program.outputs)):
        found.append((whole, memory.summed(part.bytes for part in parts)))
        found += [(f"{whole}: {part.name}", part.bytes) for part in parts]
    shared = None if program.aliased is None else -program.aliased
    found += [("Temporaries", program.temporaries), ("Aliased, in both", shared)]
    code = "Code" if program.code_on_device else "Code, in the host's memory"
    total = [("Total", program.total), ("Peak, as the compiler says", program.peak)]
    at = 0 if program.code_on_device else len(total)
    total.insert(at, (code, program.code))
    return [*found, *total]


def duplication_columns(each: Sequence[Duplication], first: str) -> dict[str, list[Any]]:
    """An entry a group or an array; sizes as numbers, so that they sort."""
    return {
        first: [one.name for one in each],
        "Bytes once": table.numbers([one.once for one in each]),
        "On all devices": table.numbers([one.everywhere for one in each]),
        "Duplicated": table.numbers([one.duplicated for one in each]),
        "Copies": table.numbers([_as_read(one.factor) for one in each], ",.6g", "×"),
    }


def _show_verdict(fit: Fit) -> None:
    if fit.fits is None:
        st.info(plain(fit.sentence), icon=":material/help:")
    elif fit.fits:
        st.success(plain(fit.sentence), icon=":material/check:")
    else:
        st.error(plain(fit.sentence), icon=":material/memory:")


def _show_donation(programs: Sequence[Breakdown]) -> None:
    for program in programs:
        if program.aliased:
            st.caption(
                f"`{program.program}` writes {bytes_text(program.aliased)} of its outputs over arguments "
                "that were donated to it, and they count once. In return it may need more temporaries: "
                "what donation saves in all is the difference of the totals with and without it."
            )
        if program.not_donated:
            st.caption(
                f"Donating the train state to `{program.program}` would save up to "
                f"{bytes_text(program.not_donated)} a device, less what it needs in temporaries for it: "
                "so many bytes of its outputs have the shapes and shardings of its arguments."
            )


def _show_figures(found: Snapshot, programs: Sequence[Breakdown]) -> None:
    with st.expander("All figures, in bytes on one device"):
        st.caption(
            "Total = arguments + outputs + temporaries − aliased"
            + (" + code" if any(one.code_on_device for one in programs) else "")
            + ": what is reserved while the program runs. The peak is the most that is in use at one "
            "time. Arguments and outputs are split by the arrays that they are; the rest, such as a "
            "random key, a loss or the table of a tuple, is what remains of the compiler's own figure."
            + (
                " The compiler is that of the emulated devices; an accelerator's has other temporaries."
                if found.source.kind == "cpu"
                else ""
            )
        )
        listed = {program.program: dict(rows(program)) for program in programs}
        names = _in_order([list(numbers) for numbers in listed.values()])
        # A part that a program has nothing of is 0; what nobody knows is a word.
        table.show(
            {"": names}
            | {
                one: [_number_text(numbers.get(name, 0)) for name in names]
                for one, numbers in listed.items()
            },
            "memory_table",
            column_config={one: st.column_config.TextColumn(alignment="right") for one in listed},
        )


def _show_duplication(found: Snapshot) -> None:
    groups = memory.duplication_by_group(found)
    arrays = memory.duplication_by_array(found)
    if found.mesh is None or not groups:
        return
    st.markdown("##### Held on several devices")
    if all(one.duplicated is None for one in groups):
        st.caption("How many bytes devices hold twice is unknown, as the bytes of the arrays are.")
        return
    if not arrays and any(one.duplicated is None for one in groups):
        st.caption(
            "Of the arrays whose bytes are known, no two devices hold the same data; of the others it "
            "is unknown."
        )
        return
    if not arrays:
        st.success("No two devices hold the same data.", icon=":material/check:")
        return
    numbers = {name: _bytes_column() for name in ("Bytes once", "On all devices", "Duplicated")} | {
        "Copies": st.column_config.NumberColumn(format="%.6g×")
    }
    by_group = duplication_columns(groups, "Arrays")
    table.show(by_group, "duplication_by_group", column_config=table.of_numbers(by_group, numbers))
    by_array = duplication_columns(arrays, "Path")
    event = table.show(
        by_array,
        "duplication_by_array",
        height=min(38 + 35 * len(arrays), 350),
        on_select="rerun",
        selection_mode="single-row",
        column_config=table.of_numbers(by_array, numbers),
    )
    if event.selection.rows:
        path = arrays[event.selection.rows[0]].name
        if path != st.session_state.get(SELECTED_KEY):
            st.session_state[SELECTED_KEY] = path
            selection.select(path)
        st.caption(f"`{path}` is the array of the shard map now.")
    else:
        st.caption("The most wasteful first. Select a row to see its shard map.")


def _places() -> tuple[Any, Any]:
    """Where the verdict stands and where the choice of the chip: beside it, below it on a narrow page."""
    if page_width.content_px() < page_width.NARROW_PX:
        return st.container(), st.container()
    said, chosen = st.columns([3, 1], vertical_alignment="bottom")
    return said, chosen


def _as_read(factor: float | None) -> float | None:
    """A factor with three figures, and all of them from 1,000 up, as it is written in words."""
    if factor is None:
        return None
    return float(f"{factor:.3g}") if factor < 999.5 else round(factor)


def _number_text(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"


def _bytes_column() -> Any:
    return st.column_config.NumberColumn(format="localized")


def _in_order(lists: Sequence[Sequence[str]]) -> list[str]:
    """All names, each after those that stand before it in its own list."""
    merged: list[str] = []
    for names in lists:
        at = 0
        for name in names:
            if name in merged:
                at = merged.index(name) + 1
            else:
                merged.insert(at, name)
                at += 1
    return merged
