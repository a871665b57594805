"""How often one run of a program executes each computation, and facts that several analyses share."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inspector.hlo.asynchronous import Chains, chains
from inspector.hlo.dataflow import Backward, CallSite, CallSites, call_sites, clones
from inspector.hlo.loops import Loops
from inspector.hlo.module import Computation, Instruction, Module, users_of
from inspector.hlo.opcodes import CALLS
from inspector.records.snapshot import CollectivePart, OpenChoice
from inspector.records.typed_json import LARGEST


@dataclass(frozen=True)
class Runs:
    """Executions of a computation in one run of the program.

    count: None if unknown. Each branch of a conditional counts as taken.
    per_iteration: the executions in one iteration of each loop whose trip count is unknown, in any depth;
      equal to the count without such loops. None if unknown for another reason.
    conditional: a branch is on the way. asynchronous: an asynchronous call is on the way.
    within: the loops whose trip count is unknown and the branches around it, the outermost first: `while.3`,
      `while.3+1` for its condition, `conditional.2:1` for its second branch. None if call sites differ.
    """

    count: int | None
    conditional: bool = False
    asynchronous: bool = False
    per_iteration: int | None = None
    within: tuple[str, ...] | None = ()


class Analysis:
    """Facts about a module that several analyses need. Each is computed on first use and kept."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._users: dict[str, Mapping[str, Sequence[Instruction]]] = {}
        self._argument_names: dict[str, frozenset[str | None]] = {}
        self.parts: dict[tuple[str, str], tuple[CollectivePart, ...] | None] = {}  # see `collective_requests`

    def users(self, computation: Computation) -> Mapping[str, Sequence[Instruction]]:
        """Return the instructions of a computation that use each result, by its name."""
        if computation.name not in self._users:
            self._users[computation.name] = users_of(computation.instructions)
        return self._users[computation.name]

    def argument_names(self, computation: Computation) -> frozenset[str | None]:
        """Return the `op_name` of each argument of a computation, and None."""
        if computation.name not in self._argument_names:
            arguments = computation.parameters.values()
            named = frozenset(argument.metadata.get("op_name") for argument in arguments)
            self._argument_names[computation.name] = named | {None}
        return self._argument_names[computation.name]

    @functools.cached_property
    def call_sites(self) -> CallSites:
        return call_sites(self.module)

    @functools.cached_property
    def backward(self) -> Backward:
        return Backward(self.module, self.call_sites)

    @functools.cached_property
    def clones(self) -> Mapping[str, set[str]]:
        return clones(self.module, self.call_sites)

    @functools.cached_property
    def chains(self) -> Chains:
        return chains(self.module)

    @functools.cached_property
    def loops(self) -> Loops:
        return Loops(self.module, self.call_sites)

    @functools.cached_property
    def runs(self) -> Mapping[str, Runs]:
        """The executions of each computation by its name.

        A truncated text can lack calls, so only the executions of its entry are known.
        """
        runs: dict[str, Runs] = {}
        for name in _callers_first(self.module, self.call_sites):
            runs[name] = _runs_of(self.module, name, self.call_sites, self.loops, runs)
        return runs


def _runs_of(module: Module, name: str, sites: CallSites, loops: Loops, runs: Mapping[str, Runs]) -> Runs:
    count: int | None = 1 if name == module.entry else 0
    if module.truncated and name != module.entry:
        count = None
    per_iteration = count
    conditional = asynchronous = False
    around: set[tuple[str, ...] | None] = {()} if name == module.entry else set()
    for site in sites.get(name, ()):
        # A caller that is not found is recursive.
        caller = runs.get(site.caller.name, Runs(None))
        if caller.count == 0:
            continue
        conditional |= caller.conditional or site.role == "branch"
        asynchronous |= caller.asynchronous or site.instruction.opcode.endswith("-start")
        times = _times(site, loops)
        count = _sum(count, caller.count, times)
        inside: tuple[str, ...] = ()
        if site.role == "branch":
            inside = (f"{site.instruction.name}:{site.number}",)
        elif times is None and site.role in ("body", "condition"):
            inside = (f"{site.instruction.name}{'+1' if site.role == 'condition' else ''}",)
            times = 1
        around.add(None if caller.within is None else (*caller.within, *inside))
        per_iteration = _sum(per_iteration, caller.per_iteration, times)
    within = around.pop() if len(around) == 1 else None if around else ()
    return Runs(count, conditional, asynchronous, per_iteration, within)


def _sum(count: int | None, caller: int | None, times: int | None) -> int | None:
    """Return the count with those of one more call site; None if one is unknown or the sum is too large."""
    if count is None or caller is None or times is None:
        return None
    total = count + caller * times
    return total if total <= LARGEST else None


def _times(site: CallSite, loops: Loops) -> int | None:
    """Return how often one run of the caller executes the computation at this call site."""
    if site.role == "branch":
        return 1
    if site.role == "call":
        # A reduction, a sort or a custom call applies its computation any number of times.
        return 1 if site.instruction.does in CALLS else None
    trips = loops.trip_count(site.caller, site.instruction)
    # The condition runs once more than the body.
    return trips if trips is None or site.role == "body" else trips + 1


def _callers_first(module: Module, sites: CallSites) -> list[str]:
    """Return the names of all computations, callers before callees."""
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
    # The rest is recursive, which no compiler writes.
    reached = set(order)
    return order + [name for name in waiting if name not in reached]


def open_choices(analysis: Analysis) -> tuple[OpenChoice, ...]:
    """Return what `Runs.within` names, in the order of the text, with the lines of the program."""
    module = analysis.module
    names = {
        name.partition(":")[0].removesuffix("+1")
        for runs in analysis.runs.values()
        if runs.count != 0
        for name in runs.within or ()
    }
    if not names:
        return ()
    return tuple(
        _choice(analysis, computation, instruction)
        for computation, instruction in module.instructions
        if instruction.name in names and instruction.opcode in ("while", "conditional")
    )


def _choice(analysis: Analysis, computation: Computation, instruction: Instruction) -> OpenChoice:
    branches = sum(call.role == "branch" for call in instruction.called)
    # With a predicate, the first branch is the one for true. With an index, JAX's `cond` puts it last.
    by_predicate = "true_computation" in instruction.attributes
    return OpenChoice(
        instruction.name,
        "loop" if instruction.opcode == "while" else "conditional",
        branches=branches,
        stated=0 if by_predicate else max(branches - 1, 0),
        op_name=instruction.metadata.get("op_name") or None,
        source=analysis.module.source(instruction.metadata),
        most=None if branches else analysis.loops.most_trips(computation, instruction),
    )
