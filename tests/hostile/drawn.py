"""Everything that the project shows of one Snapshot or of several, as functions that a test can call."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree

import plotly.graph_objects as go

from inspector import audit
from inspector.answers import (
    array,
    arrays,
    catalogue,
    causes,
    collectives,
    comparison,
    devices,
    effects,
    glance,
    improvements,
    memory,
    partitioned_traffic,
    prediction,
    rules,
    section,
    sharding_errors,
    subject,
    summary,
    time,
    train_state,
    whole_model,
)
from inspector.answers.catalogue import Subject
from inspector.answers.section import Drawing, Picture
from inspector.audit import checked, lock_file
from inspector.compare import board
from inspector.compare.board import aligned
from inspector.compiled.causes import dependents, rules_behind
from inspector.figures.linked_maps import cut_of, linked_maps, panel
from inspector.figures.timeline import trace_events, windows
from inspector.files import strict_json
from inspector.layout import layout_of
from inspector.machines import hardware
from inspector.media import report
from inspector.media.terminal import compare_verbs, render
from inspector.model.built_in.catalogue import semantics
from inspector.prediction.predicted import predicted_in
from inspector.records import snapshot
from inspector.records.snapshot import Snapshot
from inspector.sharding import device_holdings
from inspector.sharding.rules.written import recorded

CHIP = hardware.chip("v5e")

# A name, and a function that draws and raises nothing but InvalidInput.
View = tuple[str, Callable[[], object]]


def one(found: Snapshot) -> Iterator[View]:
    """Yield the name and the function of each thing that is shown of one Snapshot."""
    audited = _cached(lambda: audit.audited(found))
    yield (
        "written and read",
        lambda: snapshot.from_json(strict_json.parse(snapshot.dumps(found), "the copy")),
    )
    yield "show", lambda: render.text(catalogue.blocks(Subject.of(found, None)))
    yield "show on a chip", lambda: render.text(catalogue.blocks(Subject.of(found, CHIP)))
    yield "audit", lambda: render.text([improvements.section(audited())])
    yield "fixes", lambda: _fixes(found)
    yield "provenance", lambda: (subject.source_line(found), subject.source_facts(found))
    yield "whole model", lambda: _draw(whole_model.blocks(found, CHIP))
    yield "tree", lambda: _draw([*arrays.tree_pictures(found, found.arrays), arrays.tree(found)])
    yield "Arrays", lambda: _draw([arrays.table(found.arrays), arrays.folded_table(found)])
    yield "maps", lambda: _draw([arrays.maps(found, 8)])
    for each in found.arrays:
        yield f"array {each.path[:40]!r}", lambda each=each: _array(found, each)
    yield "Collectives", lambda: _draw([collectives.section(found)])
    for program in found.programs:
        yield f"program {program.name[:40]!r}", lambda each=program: _program(found, each)
    yield (
        "agreement",
        lambda: (
            _draw(partitioned_traffic.sections(found)),
            _json(partitioned_traffic.to_json(found)),
        ),
    )
    yield "refusals", lambda: _draw(sharding_errors.sections(found))
    yield (
        "Train state",
        lambda: _draw(
            [
                train_state.verdict(found),
                *train_state.arrays(found),
                *train_state.inside(found),
                *[train_state.shardings(found, each.name) for each in found.programs],
                train_state.training(found),
                *train_state.boxes(found),
            ]
        ),
    )
    yield (
        "Memory",
        lambda: _draw(
            [memory.section(found, None), memory.verdict(found, CHIP), memory.section(found, CHIP)]
        ),
    )
    yield "Time", lambda: _draw([time.section(found, CHIP), *time.measured(found)])
    yield "Time without a chip", lambda: _draw([time.section(found, None)])
    yield "profiled", lambda: _draw(time.by_operation(found))
    yield "bounds", lambda: _bounds(found)
    yield "Devices", lambda: _devices(found)
    yield "machine", lambda: _machine(found)
    yield "Rules", lambda: _rules(found)
    yield "what depends on a rule", lambda: _dependents(found)
    if found.effects is not None:
        yield "Effects", lambda: _draw([effects.section(found.effects)])
    yield "totals", lambda: _draw([summary.facts(found), summary.totals(found)])
    yield "lock file", lambda: _lock(found)
    yield "link", lambda: board.to_query(board.Board().pinned("a", found))
    yield "HTML report", lambda: report.content([("a", found)], ".html", CHIP)
    yield "Markdown report", lambda: report.content([("a", found)], ".md")


def several(snapshots: list[Snapshot]) -> Iterator[View]:
    """Yield the name and the function of each thing that is shown of several Snapshots together."""
    named = [(f"layout {place}", snapshot) for place, snapshot in enumerate(snapshots)]
    compared = _cached(
        lambda: [
            (name, snapshot)
            for (name, _), snapshot in zip(
                named, aligned([audit.audited(snapshot) for snapshot in snapshots]), strict=True
            )
        ]
    )
    yield "compare", lambda: _draw(comparison.sections(compared(), CHIP))
    yield "compare -o X.json", lambda: _json(compare_verbs.to_json(compared(), 0, CHIP))
    yield "glance", lambda: _draw(glance.of_report(compared(), CHIP))
    yield "board file", lambda: board.parse(board.dumps(_board(named)).encode())
    yield "board link", lambda: board.to_query(_board(named).aligned())
    yield "linked maps", lambda: _linked(compared())
    yield "lines", lambda: subject.source_lines(named)
    yield "lock changes", lambda: checked.changes(*map(lock_file.locked, snapshots[:2]))
    yield "HTML report of several", lambda: report.content(named, ".html", CHIP)
    yield "Markdown report of several", lambda: report.content(named, ".md", CHIP)


def _cached(make: Callable[[], Any]) -> Callable[[], Any]:
    known: list[Any] = []

    def get() -> Any:
        if not known:
            known.append(make())
        return known[0]

    return get


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False)


def _draw(blocks: Any) -> None:
    """Render the blocks as text and Markdown, and their figures as JSON."""
    blocks = tuple(blocks)
    text = render.text(blocks)
    assert all(one == "\n" or one.isprintable() for one in text), "the text has control characters"
    text.encode("utf-8")
    for picture in _pictures(blocks):
        if isinstance(picture, Drawing):
            ElementTree.fromstring(picture.build(900).text)
        else:
            _figure(picture.build(900))


def _pictures(blocks: Any) -> Iterator[Picture | Drawing]:
    for block in blocks:
        match block:
            case Picture() | Drawing():
                yield block
            case section.Columns(columns):
                for column in columns:
                    yield from _pictures(column)
            case section.Folded(_, inside) | section.Section(_, _, inside):
                yield from _pictures(inside)


def _figure(figure: object) -> None:
    if figure is not None:
        assert isinstance(figure, go.Figure)
        assert figure.to_json()


def _array(snapshot: Snapshot, each: Any) -> None:
    layout = layout_of(snapshot)
    _draw(
        [
            *array.maps(each, snapshot),
            *array.notes(each),
            *array.why(each, snapshot, layout),
            array.attributes(each, snapshot),
            *collectives.of_array(each, snapshot),
            *filter(None, [causes.of_array(each)]),
        ]
    )
    rows = array.shard_rows(each, snapshot)
    if rows is not None:
        _json(rows)
        _draw([array.shards(each, snapshot)])


def _program(snapshot: Snapshot, program: Any) -> None:
    _draw(collectives.of_program(program, snapshot))
    for each in program.collectives or ():
        _draw([collectives.cause(snapshot, program, each)])
    _draw([collectives.each(program, program.collectives or ())])
    _draw(filter(None, [causes.conflicts(program)]))
    if snapshot.mesh is None:
        return
    predicted = predicted_in(snapshot, program, CHIP)
    _json(prediction.json_of(predicted, program))
    _draw(prediction.blocks(predicted, program, snapshot.mesh))
    if predicted.simulated is not None:
        for period in windows(predicted.simulated, program).values():
            _draw([prediction.timeline_picture(predicted.simulated, program, period)])
    _draw([prediction.section(snapshot, program.name, CHIP)])
    if predicted.seconds is not None and predicted.simulated is not None:
        _json(trace_events(predicted.simulated, program))


def _bounds(snapshot: Snapshot) -> None:
    if snapshot.mesh is None:
        return
    models = time.models_of(snapshot, CHIP)
    for model in models.values():
        _draw([*time.how_computed(snapshot, model)])


def _devices(snapshot: Snapshot) -> None:
    if snapshot.mesh is None:
        return
    chosen = snapshot.mesh.devices[:1] or (0,)
    for groups in (None, ("params", "opt_state")):
        held = device_holdings.holdings(snapshot, chosen, groups)
        _draw([devices.section(held), *devices.copies(snapshot, held, groups, section.text("x"))])
        _json(dataclasses.asdict(held))
    if snapshot.mesh.processes:
        device_holdings.devices_of_process(snapshot, snapshot.mesh.processes[0])


def _machine(snapshot: Snapshot) -> None:
    target = devices.target_of(snapshot)
    if target is not None:
        _draw([devices.links(snapshot, target)])


def _rules(snapshot: Snapshot) -> None:
    given = recorded(snapshot)
    if given is None:
        return
    known = rules.ledgers(snapshot, given)
    reading = semantics(snapshot)
    _draw([rules.overall(known, reading)])
    for each, ledger in known:
        _draw(rules.of_array(each, ledger, given, reading))


def _dependents(snapshot: Snapshot) -> None:
    for rule in rules_behind(snapshot):
        _draw([causes.of_rule(dependents(snapshot, rule))])


def _fixes(snapshot: Snapshot) -> None:
    changes = audit.audited(snapshot).findings
    _draw(
        improvements.audited(
            snapshot, improvements.ranked(snapshot, audit.merged_by_logical_axis(changes)), {}
        )
    )


def _lock(snapshot: Snapshot) -> None:
    lock = lock_file.locked(snapshot)
    lock_file.from_json(strict_json.parse(lock_file.dumps(lock), "the lock file"))


def _board(named: list[tuple[str, Snapshot]]) -> board.Board:
    pinned = board.Board()
    for name, each in named:
        pinned = pinned.pinned(name, each)
    return pinned


def _linked(named: list[tuple[str, Snapshot]]) -> None:
    (_, first), *_ = named
    if first.mesh is None:
        return
    for lead in first.arrays:
        cut = cut_of([(lead, first.mesh)])
        if cut is None or lead.shape is None:
            continue
        panels = [
            panel(
                name,
                next((array for array in snapshot.arrays if array.path == lead.path), None),
                snapshot.mesh,
                cut,
                lead.shape,
            )
            for name, snapshot in named
        ]
        _figure(linked_maps(panels, lead.path, cut, width_px=1200))
