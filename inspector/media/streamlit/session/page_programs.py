"""Partitioned programs of a plan, made in the background while a panel that shows them is open."""

import time

import streamlit as st

from inspector.core.abstract import PartitionedPrograms
from inspector.core.snapshot import Snapshot
from inspector.layout import Layout
from inspector.layout.plan import not_partitioned, with_programs
from inspector.media.streamlit.session import asked, chip_choice, program_choice
from inspector.media.streamlit.session.planning import snapshots
from inspector.service.inspection import Inspection
from inspector.service.request import Asked, Outcome

POLL_SECONDS = 0.2
# A page whose open panel needs the programs waits this long for them, instead of being drawn twice.
PATIENCE_SECONDS = 0.6
# Figures are sent before the sidebar if the programs are known within this time: drawing the sidebar again
# occupies the browser for longer.
FIGURES_FIRST_SECONDS = 0.3
REST_SECONDS = 0.5  # between looks at the partitioning of the other programs
# They are propagated once the layout has been on the page for so long, because the user may be typing.
REST_AFTER_SECONDS = 3.0
_NEWEST, _REST, _SINCE = "programs", "rest_of_programs", "rest_of_programs_since"


def programs_of(layout: Layout) -> tuple[str, ...]:
    """Return the names of all programs of a layout, in their order in a Snapshot."""
    return ("init", *layout.programs)


def outcome(
    service: Inspection, layout: Layout, start: bool = True, seconds: float = 0.0
) -> Outcome[PartitionedPrograms]:
    """Return the known results of the programs that the open panel shows first.

    These are the train step, and the one that is chosen. Of the train step alone, the totals are known before
    its origins and conflicts.

    Args:
      start: start their partitioning if it neither runs nor failed.
      seconds: wait for it for so long, or until the totals are known.
    """
    first = (layout.step_program, program_choice.chosen(st.session_state.get("panel")))
    names = tuple(name for name in programs_of(layout) if name in first)
    request = service.programs(layout, names, platforms=chip_choice.platforms())
    return _newest().ask(request, start, seconds)


def added(snapshot: Snapshot, programs: Outcome[PartitionedPrograms]) -> Snapshot:
    """Return a plan, or compiled programs, with the partitioned ones that are known.

    A plan gets a note if they cannot be partitioned. Compiled programs wait for the origins.
    """
    result = programs.known if snapshot.source.kind == "plan" else programs.result
    if result is not None:
        return snapshots.of(None, (snapshot, result), lambda: with_programs(snapshot, result))
    if (failure := programs.failure) is not None:
        return snapshots.of(failure, (snapshot,), lambda: not_partitioned(snapshot, failure))
    return snapshot


def watch(service: Inspection, layout: Layout, totals: bool = False, words: str | None = None) -> None:
    """Propagate in the background, then rerun the page.

    Args:
      totals: whether the page has no use for the totals of the programs, or shows them.
      words: the figures that programs add, after a notice that they are partitioned; None draws no notice.
    """
    st.fragment(_poll, run_every=POLL_SECONDS)(service, layout, totals, words)


def show_rest(service: Inspection, layout: Layout, say_so: bool = True) -> None:
    """Propagate all other programs too, then rerun the page. Draw it after the ones that are known.

    say_so: draw a caption until they are known.
    """
    st.fragment(_poll_rest, run_every=REST_SECONDS)(service, layout, say_so)


def make_way() -> None:
    """Cancel the partitioning, because its process must first trace another model."""
    _newest().cancel()


def _poll(service: Inspection, layout: Layout, totals: bool, words: str | None) -> None:
    programs = outcome(service, layout)
    if programs.ended or (programs.so_far is not None and not totals):
        st.rerun()
    if words is not None:
        st.info(
            f"Partitioning the programs, without a compile … {words}".rstrip(),
            icon=":material/hourglass_top:",
        )


def _poll_rest(service: Inspection, layout: Layout, say_so: bool) -> None:
    waiting, since = st.session_state.get(_SINCE, (None, 0.0))
    if waiting != layout:
        since = time.monotonic()
        st.session_state[_SINCE] = layout, since
    programs = asked.of(_REST).ask(
        service.programs(layout, now=False, platforms=chip_choice.platforms()),
        start=time.monotonic() - since >= REST_AFTER_SECONDS,
    )
    if programs.result is not None:
        st.rerun()
    if say_so and programs.failure is None:
        st.caption("The other programs are not partitioned yet …")


def _newest() -> Asked[PartitionedPrograms]:
    return asked.of(_NEWEST, cancels=False)
