"""How often one run of a program runs each of its computations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from inspector.compiled.hlo.loops import CallSite, CallSites, Loops, call_sites
from inspector.compiled.hlo.module import Module
from inspector.core.typed_json import LARGEST

# Instructions that run the computation they name once.
_ONCE = frozenset({"call", "fusion", "async-start", "call-start", "fusion-start"})


@dataclass(frozen=True)
class Runs:
    """What is known of a computation's runs in one run of the program.

    `count` is None where it cannot be known, and counts every branch of a conditional as taken;
    `conditional` says that a branch is on the way, `asynchronous` that an asynchronous call is.
    """

    count: int | None
    conditional: bool = False
    asynchronous: bool = False


def runs(module: Module) -> dict[str, Runs]:
    """The runs of every computation, by its name.

    A text that ends too early may hold back any number of calls, so that only the entry's run is known.
    """
    sites = call_sites(module)
    loops = Loops(module, sites)
    found: dict[str, Runs] = {}
    for name in _callers_first(module, sites):
        found[name] = _runs_of(module, name, sites, loops, found)
    return found


def _runs_of(
    module: Module, name: str, sites: CallSites, loops: Loops, found: Mapping[str, Runs]
) -> Runs:
    count: int | None = 1 if name == module.entry else 0
    if module.truncated and name != module.entry:
        count = None
    conditional = asynchronous = False
    for site in sites.get(name, ()):
        # A caller without an answer calls itself by way of this one.
        caller = found.get(site.caller.name, Runs(None))
        if caller.count == 0:
            continue
        conditional |= caller.conditional or site.role == "branch"
        asynchronous |= caller.asynchronous or site.instruction.opcode.endswith("-start")
        times = _times(site, loops)
        if count is None or caller.count is None or times is None:
            count = None
        else:
            count += caller.count * times
    if count is not None and count > LARGEST:
        count = None
    return Runs(count, conditional, asynchronous)


def _times(site: CallSite, loops: Loops) -> int | None:
    """How often one run of the caller runs the computation at this place."""
    if site.role == "branch":
        return 1
    if site.role == "call":
        # A reduction, a sort or a custom call runs what it names as often as it likes.
        return 1 if site.instruction.opcode in _ONCE else None
    trips = loops.trip_count(site.caller, site.instruction)
    # The condition runs once more than the body, to find that it fails.
    return trips if trips is None or site.role == "body" else trips + 1


def _callers_first(module: Module, sites: CallSites) -> list[str]:
    """The names of all computations, every caller before what it calls."""
    waiting: dict[str, int] = {}
    callees: dict[str, list[str]] = {}
    for computation in module.computations:
        callers = sites.get(computation.name, ())
        waiting[computation.name] = len(callers)
        for site in callers:
            callees.setdefault(site.caller.name, []).append(computation.name)
    ready = [name for name, count in waiting.items() if count == 0]
    order = []
    while ready:
        name = ready.pop()
        order.append(name)
        for callee in callees.get(name, ()):
            waiting[callee] -= 1
            if waiting[callee] == 0:
                ready.append(callee)
    # What is left calls itself in a circle, which no compiler writes.
    reached = set(order)
    return order + [name for name in waiting if name not in reached]
