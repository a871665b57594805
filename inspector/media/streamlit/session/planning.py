"""Plans, partitioned programs and last runs of the layouts of a page."""

import time
from collections.abc import Callable

import streamlit as st
from cachetools import LRUCache

from inspector.jobs import compile_cache
from inspector.jobs.inspection import Inspection
from inspector.jobs.request import Asked, Outcome
from inspector.layout import Layout
from inspector.layout.plan import not_partitioned, plan, with_programs
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.session import asked, chip_choice
from inspector.records.snapshot import Snapshot
from inspector.sharding.abstract import PartitionedPrograms
from inspector.sharding.once import NewestResults
from inspector.text.errors import InvalidInput

REMEMBERED_RUNS = 8


def run_of(service: Inspection, layout: Layout) -> Snapshot | None:
    """Return the run of exactly this layout in this session, or else its known results.

    That is its compile from the compile cache, or the result of a search.
    """
    runs = _runs()
    key = layout.key()
    if key not in runs and (known := compile_cache.of_search(layout, service.compiled)) is not None:
        runs[key] = known
    return runs.get(key)


def remember(layout: Layout, run: Snapshot) -> None:
    """Show this run when the session opens its layout."""
    _runs()[layout.key()] = run


def _runs() -> LRUCache[str, Snapshot]:
    runs: LRUCache[str, Snapshot] = st.session_state.setdefault("finished_runs", LRUCache(REMEMBERED_RUNS))
    return runs


_PLAN = "plan"
_MOST_SNAPSHOTS = 32
# The content of the pages of all sessions: plans, and Snapshots with their additions.
snapshots = NewestResults[Snapshot](_MOST_SNAPSHOTS)


def planned(
    service: Inspection, layout: Layout, before_tracing: Callable[[], None] = lambda: None
) -> Snapshot | None:
    """Return the planned Snapshot. If the model cannot be traced, draw the error and return None."""
    try:
        return traced(service, layout, "Tracing the model with JAX …", before_tracing)
    except InvalidInput as error:
        request = service.state(layout)
        if not asked.show_failure(_PLAN, request.key, request):
            st.error(plain(str(error)), icon=":material/error:")
        return None


def traced(
    service: Inspection,
    layout: Layout,
    message: str,
    before_tracing: Callable[[], None] = lambda: None,
) -> Snapshot:
    """Return the planned Snapshot. If its shapes are unknown, wait until JAX has traced the model.

    Args:
      message: the text of the page while it waits.
      before_tracing: called before it waits.

    Raises:
      InvalidInput: the model cannot be traced with these sizes.
    """
    request = service.state(layout)
    if request.known() is None:
        before_tracing()
    outcome = asked.waited(_PLAN, request, message)
    shapes = outcome.result
    if shapes is None:
        raise InvalidInput(outcome.failure or "the model was not traced")
    return snapshots.of(layout.key(), (shapes,), lambda: plan(layout, shapes))


POLL_SECONDS = 0.2
# A page whose open panel needs the programs waits this long for them, instead of being drawn twice.
PATIENCE_SECONDS = 1.0
# Figures are sent before the sidebar if the programs are known within this time: drawing the sidebar again
# occupies the browser for longer.
FIGURES_FIRST_SECONDS = 0.3
# The rest of a program is often known so soon after its totals that the page is drawn once for both.
TOTALS_SECONDS = 0.25
REST_SECONDS = 0.5  # between looks at the partitioning of the other programs
# They are partitioned once the layout has been on the page for so long, because the user may be typing.
REST_AFTER_SECONDS = 3.0
_NEWEST, _REST, _SINCE = "programs", "rest_of_programs", "layout_since"


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
    first = (layout.step_program, chip_choice.chosen(st.session_state.get("panel")))
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


def rests(layout: Layout, seconds: float) -> bool:
    """Return whether the layout has been on the page for so long that the user is probably not typing."""
    if st.session_state.get(_SINCE, (None, 0.0))[0] != layout:
        st.session_state[_SINCE] = layout, time.monotonic()
    since: float = st.session_state[_SINCE][1]
    return time.monotonic() - since >= seconds


def make_way() -> None:
    """Cancel the partitioning, because its process must first trace another model."""
    _newest().cancel()


def _poll(service: Inspection, layout: Layout, totals: bool, words: str | None) -> None:
    programs = outcome(service, layout)
    if programs.job is not None and programs.so_far is not None and not totals:
        programs.job.wait(TOTALS_SECONDS)
    if programs.ended or (programs.so_far is not None and not totals):
        st.rerun()
    if words is not None:
        st.info(
            f"Partitioning the programs, without a compile … {words}".rstrip(),
            icon=":material/hourglass_top:",
        )


def _poll_rest(service: Inspection, layout: Layout, say_so: bool) -> None:
    programs = asked.of(_REST).ask(
        service.programs(layout, now=False, platforms=chip_choice.platforms()),
        start=rests(layout, REST_AFTER_SECONDS),
    )
    if programs.result is not None:
        st.rerun()
    if say_so and programs.failure is None:
        st.caption("The other programs are not partitioned yet …")


def _newest() -> Asked[PartitionedPrograms]:
    return asked.of(_NEWEST, cancels=False)
