"""`explain`: why an array or a collective is as it is, and what each rule costs."""

import argparse
import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inspector.answers import (
    activations,
    causes,
    collectives,
    expert_load,
    exposed,
    partitioned_traffic,
    pipelines,
    rules,
)
from inspector.answers import array as one_array
from inspector.answers import effects as section
from inspector.answers.section import Block, text
from inspector.compiled.causes import Dependents, dependents, rules_behind
from inspector.files import input_file, strict_json
from inspector.jobs.engine import Status
from inspector.layout import Layout, rule_files
from inspector.machines import targets
from inspector.machines.hardware import Chip
from inspector.media.terminal import options as shared
from inspector.media.terminal.options import CHIP, JSON, SNAPSHOT, Output, argument, one_of, verb
from inspector.model.built_in.catalogue import semantics
from inspector.prediction.step_program import main_first
from inspector.records import snapshot as snapshots
from inspector.records import typed_json
from inspector.records.snapshot import Array, Collective, Effects, Program, Snapshot
from inspector.sharding.folding import fold
from inspector.sharding.rules import Rule, written
from inspector.sharding.rules.entries import ledger_of
from inspector.sharding.rules.written import recorded
from inspector.sharding.traffic import least_bytes
from inspector.text.errors import InvalidInput, choices, shown

# The answer to one question: as JSON, and as blocks for the terminal.
Answer = tuple[Any, list[Block]]

EFFECTS = argument(
    "--effects",
    action="store_true",
    help="the change in bytes and time without each rule, sharding constraint and mesh axis, and with two "
    "rules swapped, after XLA's partitioner; the file is a layout, or a Snapshot with one",
)
PROGRAM_OF_EFFECTS = argument(
    "--program",
    metavar="NAME",
    help="the program of --effects: train_step, apply, init or another; by default the train step, else the "
    "first program of the model",
)


@verb(
    "explain",
    "print why an array has its sharding (every rule that was tried), why a collective is there, or what "
    "each rule costs",
    SNAPSHOT,
    one_of(
        argument(
            "--array",
            metavar="PATH",
            help="one array; without it, which arrays follow the rules, or without rules the largest "
            "collective and the largest array",
        ),
        argument(
            "--collective",
            metavar="NAME",
            help="one collective, such as all-reduce.7 or train_step/all-reduce.7",
        ),
        argument(
            "--rule",
            metavar="RULE",
            help="what depends on a rule: its logical axis, such as embed, or the rule, such as embed=fsdp",
        ),
        argument(
            "--agreement",
            action="store_true",
            help="partitioned against compiled collectives, with the reason of each difference",
        ),
        argument(
            "--activations",
            action="store_true",
            help="what is kept for the backward pass on the device and on the host, what is computed again, "
            "and whether the compiler did what the policy asks for",
        ),
        EFFECTS,
    ),
    PROGRAM_OF_EFFECTS,
    CHIP,
    shared.own_model("for --effects"),
    argument(
        "--rules",
        metavar="RULES",
        help="rules, or a file of rules, for a Snapshot without rules: batch=data,embed=fsdp+tensor or a "
        "JSON list of [logical axis, mesh axes]",
    ),
    shared.ALL,
    JSON,
)
def explain(options: argparse.Namespace) -> Output:
    """Return the answer to one question, or the effects of all changes.

    Raise InvalidInput for a program without effects.
    """
    shared.register_own_model(options.model)
    if options.effects:
        return _explain_effects(options)
    if options.program is not None:
        raise InvalidInput(f"--program is {shown(options.program)}, but needs --effects")
    plain, blocks = _answer(options, shared.read_snapshot(options.snapshot))
    return shared.on_screen(options, lambda: plain, lambda: blocks)


def _answer(options: argparse.Namespace, snapshot: Snapshot) -> Answer:
    if options.collective is not None:
        return _collective(snapshot, options.collective, shared.chip_of(options, snapshot))
    if options.agreement:
        return _agreement(snapshot, options.snapshot)
    if options.activations:
        return _activations(snapshot, shared.chip_of(options, snapshot), options.snapshot)
    if options.rule is not None:
        return _rule(snapshot, options.rule)
    given = recorded(snapshot) if options.rules is None else _read_rules(options.rules)
    chosen = None if options.array is None else snapshot.array(options.array)
    by_propagation = chosen is not None and options.rules is None and chosen.origins is not None
    by_rules = given is not None and chosen is not None and chosen.logical_axes
    if chosen is not None and by_propagation and not by_rules:
        return _partitioned(chosen)
    if given is None and chosen is None:
        return _largest(snapshot, shared.chip_of(options, snapshot))
    if given is None:
        assert chosen is not None
        return _placed(snapshot, chosen)
    return _all_arrays(snapshot, given) if chosen is None else _array(snapshot, chosen, given)


def _largest(snapshot: Snapshot, chip: Chip | None) -> Answer:
    """Answer for the collective that sends most, and for the largest array on a device."""
    plain: dict[str, Any] = {"collective": None, "array": None}
    blocks: list[Block] = []
    sent = [
        (least_bytes(collective), f"{program.name}/{collective.name}")
        for program in main_first(snapshot)
        for collective in program.collectives or ()
    ]
    if sent:
        _, name = max(sent, key=lambda pair: pair[0])
        plain["collective"], blocks = _collective(snapshot, name, chip)
    elif snapshot.programs:
        blocks = [text("No program has a collective.")]
    if snapshot.arrays:
        largest = max(snapshot.arrays, key=lambda array: array.bytes_per_device or 0)
        answer = _partitioned if largest.origins is not None else functools.partial(_placed, snapshot)
        plain["array"], of_array = answer(largest)
        blocks += of_array
    if not blocks:
        raise InvalidInput("the Snapshot has no programs and no arrays to explain")
    return plain, blocks


def _placed(snapshot: Snapshot, chosen: Array) -> Answer:
    """Answer for an array whose sharding no rule gave: the code placed it, or a program returned it."""
    plain = {"array": chosen.path, "spec": chosen.spec, "bytes_per_device": chosen.bytes_per_device}
    return plain, [one_array.placed(chosen, snapshot)]


def _collective(snapshot: Snapshot, name: str, chip: Chip | None) -> Answer:
    program, collective = collective_named(snapshot, name)
    own = [pipeline for pipeline in pipelines.plain(program) if pipeline["collective"] == collective.name]
    chip = targets.chip_for(snapshot, chip)
    plain = {
        "program": program.name,
        **typed_json.encode(collective),
        **({"pipeline": own[0]} if own else {}),
        **exposed.of_collective_json(snapshot, program, collective, chip),
        **expert_load.of_collective_json(snapshot, program, collective),
    }
    return plain, [
        collectives.cause(snapshot, program, collective),
        *exposed.of_collective(snapshot, program, collective, chip),
        *expert_load.of_collective(snapshot, program, collective),
    ]


def _agreement(snapshot: Snapshot, path: str) -> Answer:
    plain = partitioned_traffic.to_json(snapshot)
    if plain is None:
        raise InvalidInput(f"{path} {partitioned_traffic.NOTHING}")
    return plain, list(partitioned_traffic.sections(snapshot))


def _activations(snapshot: Snapshot, chip: Chip | None, path: str) -> Answer:
    sections = list(activations.sections(snapshot, targets.chip_for(snapshot, chip)))
    if not sections:
        raise InvalidInput(f"{path} has no program with a known backward pass")
    return activations.to_json(snapshot, targets.chip_for(snapshot, chip)), [*sections]


def _rule(snapshot: Snapshot, name: str) -> Answer:
    on_rule = dependents(snapshot, rule_named(snapshot, name))
    return _dependents_json(on_rule), [causes.of_rule(on_rule)]


def _partitioned(chosen: Array) -> Answer:
    """Answer for an array whose sharding no rule gave, such as an activation."""
    plain = {"array": chosen.path, "origins": typed_json.encode(chosen.origins)}
    return plain, [text(chosen.path), *_origins(chosen)]


def _all_arrays(snapshot: Snapshot, given: tuple[Rule, ...]) -> Answer:
    known = rules.ledgers(snapshot, given)
    plain = [
        {"array": array.path, "spec": array.spec, "linen": ledger.linen, "nnx": ledger.nnx}
        | {"follows": ledger.follows}
        for array, ledger in known
    ]
    *said, _ = rules.overall(known, semantics(snapshot)).blocks
    ledgers = {id(array): ledger for array, ledger in known}
    equal = fold(array for array, _ in known)  # layers
    rows = [(dataclasses.replace(one.first, path=one.path), ledgers[id(one.first)]) for one in equal]
    return plain, [*said, rules.table(rows)]


def _array(snapshot: Snapshot, chosen: Array, given: tuple[Rule, ...]) -> Answer:
    reading = semantics(snapshot)
    ledger = ledger_of(chosen, snapshot.mesh_of(chosen), given, reading)
    if ledger is None:
        raise InvalidInput(f"{chosen.path} has no logical axes, so no rule applies to it")
    origins = {} if chosen.origins is None else {"origins": typed_json.encode(chosen.origins)}
    plain = {"array": chosen.path, **dataclasses.asdict(ledger), **origins}
    blocks = rules.of_array(chosen, ledger, given, reading)
    return plain, [text(chosen.path), *blocks, *_origins(chosen)]


def _origins(array: Array) -> list[Block]:
    section = causes.of_array(array)
    return [] if section is None else [section]


def rule_named(snapshot: Snapshot, text: str) -> str:
    """Return the rule `embed → fsdp` for `embed`, `embed=fsdp` or the rule itself.

    Raises:
      InvalidInput: nothing in the Snapshot depends on such a rule.
    """
    known = rules_behind(snapshot)
    for rule in known:
        name, _, axes = rule.partition(" → ")
        if text in (name, rule, f"{name}={axes.replace(' + ', '+')}"):
            return rule
    choices = f"the rules are {', '.join(known)}" if known else "no rule is recorded as an origin"
    raise InvalidInput(f"--rule is {shown(text)}, but nothing here depends on it: {choices}")


def _dependents_json(dependents: Dependents) -> dict[str, Any]:
    return {
        "rule": dependents.rule,
        "arrays": [array.path for array in dependents.arrays],
        "intermediates": [array.path for array in dependents.intermediates],
        "collectives": [
            {"program": program.name, **typed_json.encode(collective)}
            for program, collective in dependents.collectives
        ],
    }


def collective_named(snapshot: Snapshot, name: str) -> tuple[Program, Collective]:
    """Return the collective with this name, which may begin with `PROGRAM/`.

    If several programs have it, the one of the train step is returned.

    Raises:
      InvalidInput: no program has such a collective.
    """
    named = {
        f"{program.name}/{collective.name}": (program, collective)
        for program in main_first(snapshot)
        for collective in program.collectives or ()
    }
    for full, (program, collective) in named.items():
        if name in (full, collective.name):
            return program, collective
    if not named:
        raise InvalidInput(f"--collective is {shown(name)}, but no program here has a collective")
    raise InvalidInput(f"--collective is {shown(name)}, but must be {choices(name, [*named])}")


def _read_rules(text: str) -> tuple[Rule, ...]:
    """Return the rules in the option, or in the file that it names."""
    rule_files.check_exists(text)
    return written.parse(input_file.read_text(text) if rule_files.is_file(text) else text)


def _explain_effects(options: argparse.Namespace) -> Output:
    """Return the effects for the layout of a Snapshot or of a layout file."""
    if Path(options.snapshot).is_dir():
        raise InvalidInput(
            f"{options.snapshot} is a folder, but --effects needs a layout or a Snapshot of one"
        )
    layout = shared.read_layout(options.snapshot)
    chip = shared.chip_of(options) or (layout.machine.chip if layout.machine else None)
    program = options.program or layout.step_program
    effects = _recorded_effects(options.snapshot, program, chip) or computed_effects(layout, program, chip)
    return shared.on_screen(options, lambda: typed_json.encode(effects), lambda: [section.section(effects)])


def computed_effects(layout: Layout, program: str, chip: Chip | None, kinds: Sequence[str] = ()) -> Effects:
    """Compute the effects of changes in a worker process, with progress on standard error.

    kinds: kinds of changes that are tried; all if it is empty.

    Raises:
      InvalidInput: the layout is not valid, or it has no such program.
    """
    with shared.workers() as service:
        request = service.effects(layout, program, None if chip is None else chip.name, kinds)
        return shared.follow(request, _progress)


def _recorded_effects(path: str, program: str, chip: Chip | None) -> Effects | None:
    """Return the effects that the Snapshot contains, if they are those of this program and chip."""
    plain = strict_json.read(path)
    if not isinstance(plain, dict) or plain.get("effects") is None:
        return None
    effects = snapshots.from_json(plain, path).effects
    wanted = (program, None if chip is None else chip.name)
    return effects if effects and (effects.program, effects.chip) == wanted else None


def _progress(status: Status) -> str:
    if "of" not in status.progress:
        return ""
    done, number = status.progress["done"], status.progress["of"]
    return f"change {min(done + 1, number)} of {number}"
