"""Why a collective is not hidden: one reason with its evidence, from a schedule or a profile."""

from __future__ import annotations

import html
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from inspector.answers.exposed import blocks, json_of, reason_text, section
from inspector.assessment.exposed import Exposed, ExposedCollective, exposed
from inspector.compiled.assumed import Assumed, with_assumed
from inspector.machines import hardware, targets
from inspector.media.terminal import main
from inspector.prediction.predicted import predicted_in
from inspector.readers import hlo_text, profile
from inspector.records import snapshot as snapshots
from inspector.records.snapshot import Program, ScheduledComputation, ScheduledOperation, Snapshot
from inspector.text.formatting import seconds_text
from tests.readers.profiles.tpu_files import TEXT, Operation, Profile, Run

pytestmark = pytest.mark.first_jax_is_enough

V5E = hardware.CHIPS["v5e"]
T = "{1,0:T(8,128)(2,1)}"
# Products of a few microseconds each, and a gather that takes as long as several.
HEAD = """HloModule jit_step, is_scheduled=true, num_partitions=8

add { a = bf16[] parameter(0)  b = bf16[] parameter(1)  ROOT s = bf16[] add(a, b) }
"""
ARGUMENTS = f"""
  x = bf16[64,2048]{T} parameter(0), sharding={{devices=[8,1]<=[8]}}
  w = bf16[512,2048]{T} parameter(1)
"""
GATHER = (
    "channel_id=1, replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}, use_global_device_ids=true, "
    'metadata={op_name="jit(step)/all_gather" source_file="model.py" source_line=7}'
)
PRODUCT = "lhs_contracting_dims={1}, rhs_contracting_dims={1}"


def entry(*lines: str) -> str:
    return HEAD + "\nENTRY main {" + ARGUMENTS + "\n".join(f"  {line}" for line in lines) + "\n}\n"


SYNCHRONOUS = f"gather = bf16[512,2048]{T} all-gather(x), {GATHER}"
START = f"start = (bf16[64,2048]{T}, bf16[512,2048]{T}) all-gather-start(x), {GATHER}"
DONE = f"gather = bf16[512,2048]{T} all-gather-done(start)"
SOURCE = ', metadata={op_name="jit(step)/mul" source_file="model.py" source_line=9}'
USE = f"use = bf16[512,2048]{T} multiply(gather, gather){SOURCE}"


def product(name: str, operand: str = "w") -> str:
    return f"{name} = bf16[512,512]{T} dot({operand}, {operand}), {PRODUCT}"


def root(*names: str) -> str:
    return f"ROOT out = (bf16[512,2048]{T}) tuple({', '.join(names)})"


def of_text(text: str, folder: Path) -> tuple[Snapshot, Program]:
    path = folder / "program.txt"
    path.write_text(text)
    read = hlo_text.read(path, path.name)
    return read, read.programs[0]


def predicted(folder: Path, *lines: str) -> Exposed:
    known = exposed(*of_text(entry(*lines), folder), V5E)
    assert known is not None and known.basis == "schedule", known
    return known


def only(known: Exposed) -> ExposedCollective:
    (own,) = known.collectives
    assert 0 <= own.saves <= own.seconds
    assert own.whole is not None and own.seconds <= own.whole * (1 + 1e-9)
    return own


PRODUCTS = [product(f"p.{number}") for number in range(100)]
NAMES = [f"p.{number}" for number in range(100)]


def test_a_synchronous_collective_has_this_reason_and_the_same_asynchronous_has_none(tmp_path: Path) -> None:
    own = only(predicted(tmp_path, SYNCHRONOUS, *PRODUCTS, USE, root("use", *NAMES)))
    assert own.reason == "synchronous" and own.synchronous and not own.switched_off
    assert own.seconds == own.whole == own.saves and own.available > own.seconds
    assert own.user is not None and own.user.name == "use" and own.user.source == "model.py:9"
    assert predicted(tmp_path, START, *PRODUCTS, DONE, USE, root("use", *NAMES)).collectives == ()


def test_what_it_saves_is_what_the_asynchronous_form_hides(tmp_path: Path) -> None:
    few, names = PRODUCTS[:2], NAMES[:2]
    waits = only(predicted(tmp_path, SYNCHRONOUS, *few, USE, root("use", *names)))
    hides = only(predicted(tmp_path, START, *few, DONE, USE, root("use", *names)))
    assert waits.saves == waits.available == pytest.approx(waits.seconds - hides.seconds)
    assert hides.reason == "nothing to compute" and hides.available == hides.saves == 0
    assert hides.before_use == pytest.approx(waits.available)


def test_a_result_that_is_used_at_once(tmp_path: Path) -> None:
    own = only(predicted(tmp_path, START, DONE, USE, *PRODUCTS, root("use", *NAMES)))
    assert own.reason == "used at once" and not own.synchronous
    assert own.user is not None and (own.user.name, own.user.source) == ("use", "model.py:9")
    assert own.before_use == 0 and own.saves == own.seconds
    assert "`use` (`model.py:9`)" in reason_text(own)


def test_nothing_is_left_to_compute(tmp_path: Path) -> None:
    before, after = product("before"), product("after", "gather")
    result = START.replace("(x)", "(made)")
    slice_ = f"made = bf16[64,2048]{T} slice(before.2), slice={{[0:64], [0:2048]}}"
    wide = (
        f"before.2 = bf16[512,2048]{T} dot(before, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    )
    for done in ((result, DONE), (SYNCHRONOUS.replace("(x)", "(made)"),)):
        own = only(predicted(tmp_path, before, wide, slice_, *done, after, USE, root("use", "after")))
        assert own.reason == "nothing to compute" and own.saves == own.available == 0
        assert own.user is not None and own.user.name == "after"


def test_links_that_another_transfer_uses_at_the_same_time(tmp_path: Path) -> None:
    others = START.replace("start =", "start.2 ="), f"gather.2 = bf16[512,2048]{T} all-gather-done(start.2)"
    twice = (START, others[0], *PRODUCTS[:4], DONE, others[1], USE)
    known = predicted(tmp_path, *twice, root("use", "gather.2", *NAMES[:4]))
    shared = [own for own in known.collectives if own.reason == "shared links"]
    assert [own.collective.name for own in shared] == ["start.2"]
    (own,) = shared
    assert [other.name for other in own.others] == ["start"]
    assert own.whole is not None and own.queued == pytest.approx(own.whole / 2)
    assert own.saves == min(own.seconds, own.queued)


BODY = """
body {{
  state = (s32[], bf16[512,2048]{T}, bf16[512,512]{T}, bf16[64,2048]{T}) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  full = bf16[512,2048]{T} get-tuple-element(state), index=1
  x = bf16[64,2048]{T} get-tuple-element(state), index=3
  {lines}
  ROOT both = (s32[], bf16[512,2048]{T}, bf16[512,512]{T}, bf16[64,2048]{T}) tuple(next, {result}, product, x)
}}
condition {{
  state.2 = (s32[], bf16[512,2048]{T}, bf16[512,512]{T}, bf16[64,2048]{T}) parameter(0)
  i.2 = s32[] get-tuple-element(state.2), index=0
  limit = s32[] constant(6)
  ROOT less = pred[] compare(i.2, limit), direction=LT
}}
ENTRY main {{
  x.1 = bf16[64,2048]{T} parameter(0), sharding={{devices=[8,1]<=[8]}}
  w.1 = bf16[512,2048]{T} parameter(1)
  p.1 = bf16[512,512]{T} parameter(2)
  zero = s32[] constant(0)
  first = (s32[], bf16[512,2048]{T}, bf16[512,512]{T}, bf16[64,2048]{T}) tuple(zero, w.1, p.1, x.1)
  ROOT loop = (s32[], bf16[512,2048]{T}, bf16[512,512]{T}, bf16[64,2048]{T}) while(first), \
condition=condition, body=body
}}
"""


def of_loop(folder: Path, result: str, *lines: str) -> Exposed:
    text = HEAD + BODY.format(T=T, lines="\n  ".join(lines), result=result)
    known = exposed(*of_text(text, folder), V5E)
    assert known is not None and known.basis == "schedule", known
    return known


def test_a_collective_of_a_loop_has_the_work_of_its_iteration_and_of_others(tmp_path: Path) -> None:
    # The gather is ready before the iteration, and the product of the iteration needs it.
    gather = only(of_loop(tmp_path, "full", SYNCHRONOUS, product("product", "gather")))
    assert gather.place == "iteration" and gather.reason == "nothing to compute"
    assert gather.available == 0 and gather.elsewhere > 0
    assert gather.saves == min(gather.seconds, gather.elsewhere)
    assert gather.collective.executions == 6 and "unroll" in reason_text(gather)
    # The next iteration needs it, and this one has a product of the result of the last one.
    carried = only(of_loop(tmp_path, "gather", SYNCHRONOUS, product("product", "full")))
    assert carried.reason == "synchronous" and carried.available == pytest.approx(gather.elsewhere)
    assert carried.user is not None and carried.user.name == "product" and carried.in_next


def test_seconds_of_a_loop_without_a_trip_count_are_those_of_one_iteration(tmp_path: Path) -> None:
    lines = (SYNCHRONOUS, product("product", "gather"))
    known = of_loop(tmp_path, "full", *lines)
    assert known.assumed == ()
    text = (tmp_path / "program.txt").read_text().replace("constant(6)", "multiply(i.2, i.2)")
    snapshot, program = of_text(text, tmp_path)
    (choice,) = program.open_choices
    open_loop = exposed(snapshot, program, V5E)
    assert open_loop is not None and only(open_loop).collective.executions is None
    assert 6 * only(open_loop).seconds == pytest.approx(only(known).seconds)
    (clause,) = open_loop.assumed
    assert f"--trips {choice.label}=N" in clause
    (row,) = json_of(snapshot, V5E)["exposed_collectives"]  # type: ignore[misc]
    assert row["assumed"] == [clause]
    (shown,) = section(snapshot, V5E)
    assert clause in str(shown.blocks[0])
    stated = with_assumed([snapshot], Assumed({choice.name: 6}))[0]
    six = exposed(stated, stated.programs[0], V5E)
    assert six is not None and six.assumed == ()
    assert only(six).seconds == pytest.approx(only(known).seconds)


def test_the_exposed_seconds_are_those_of_the_prediction(tmp_path: Path) -> None:
    lines = (START, *PRODUCTS[:1], DONE, USE)
    snapshot, program = of_text(entry(*lines, root("use", "p.0")), tmp_path)
    totals = predicted_in(snapshot, program, V5E).simulated
    known = exposed(snapshot, program, V5E)
    assert totals is not None and known is not None
    assert math.fsum(totals.totals.exposed.values()) == pytest.approx(only(known).seconds)
    assert sum(totals.totals.taken_by.values()) == pytest.approx(sum(totals.totals.transfers.values()))


def test_the_sentence_has_the_waits_of_the_bar(tmp_path: Path) -> None:
    """Waits for the rest of hidden collectives are in the bar of the step, and in no row of the table."""
    snapshot, program = of_text(entry(SYNCHRONOUS, USE, root("use")), tmp_path)
    known = exposed(snapshot, program, V5E)
    assert known is not None and known.waits is not None
    assert known.waits == pytest.approx(sum(own.seconds for own in known.collectives))
    for collectives in (known.collectives, ()):
        more = replace(known, collectives=collectives, waits=known.waits * 1.5)
        assert seconds_text(more.waits) in str(blocks(more))


def test_the_options_of_the_compile_are_named(tmp_path: Path) -> None:
    snapshot, program = of_text(entry(SYNCHRONOUS, USE, root("use")), tmp_path)
    options = {"compiler_options": {"xla_enable_async_all_gather": "false"}}
    known = exposed(replace(snapshot, layout=options), program, V5E)
    assert known is not None
    own = only(known)
    # Nothing else could run, but the option is the reason that is known.
    assert own.reason == "synchronous" and own.saves == 0
    assert own.switched_off == ("xla_enable_async_all_gather=false",)


@pytest.mark.parametrize("marked", ["true", "false"])
def test_a_pair_of_a_gpu_that_is_synchronous(marked: str, tmp_path: Path) -> None:
    config = (
        f', backend_config={{"operation_queue_id":"0","collective_backend_config":{{"is_sync":{marked}}}}}'
    )
    lines = (START + config, *PRODUCTS[: 0 if marked == "true" else None], DONE, *PRODUCTS[:2], USE)
    text = entry(*lines, root("use")).replace(T, "{1,0}")
    snapshot, program = of_text(text, tmp_path)
    assert program.collectives is not None and program.collectives[0].asynchronous is (marked == "false")
    known = exposed(snapshot, program, hardware.CHIPS["h100"])
    assert known is not None and known.basis == "schedule"
    reasons = [own.reason for own in known.collectives]
    assert reasons == (["synchronous"] if marked == "true" else [])


# --- Unknown ---------------------------------------------------------------------------------------------


def unknown(snapshot: Snapshot, program: Program, chip: hardware.Chip | None = V5E) -> Exposed:
    known = exposed(snapshot, program, chip)
    assert known is not None
    assert known.basis is None and known.collectives == () and known.unknown and known.remedy
    return known


def test_what_is_missing_is_unknown_with_a_remedy(tmp_path: Path) -> None:
    snapshot, program = of_text(entry(SYNCHRONOUS, USE, root("use")), tmp_path)
    assert "--chip" in unknown(snapshot, program, None).remedy
    cpu = replace(program, platform="cpu")
    assert "--target" in unknown(replace(snapshot, programs=(cpu,)), cpu).remedy
    partitioned = replace(program, stage="partitioned")
    assert "--target" in unknown(replace(snapshot, programs=(partitioned,)), partitioned).remedy
    for target, named in (("cpu", True), ("gpu:h100:8", False), ("tpu:v5e:2x4", False)):
        planned = replace(snapshot, programs=(partitioned,), layout={"model": "mlp", "target": target})
        assert ("--target" in unknown(planned, partitioned).remedy) == named
    without = replace(program, schedule=None)
    unknown(replace(snapshot, programs=(without,)), without)
    assert exposed(snapshot, replace(program, collectives=()), V5E) is None


def test_a_schedule_of_an_older_version_lacks_what_reads_what(tmp_path: Path) -> None:
    snapshot, program = of_text(entry(SYNCHRONOUS, USE, root("use")), tmp_path)
    assert program.schedule is not None
    old = replace(
        program.schedule,
        computations=tuple(
            replace(
                computation,
                operations=tuple(replace(operation, operands=None) for operation in computation.operations),
            )
            for computation in program.schedule.computations
        ),
    )
    older = replace(program, schedule=old)
    unknown(replace(snapshot, programs=(older,)), older)


# --- Profiles --------------------------------------------------------------------------------------------

NOW = "all-reduce.4 = f32[8,8] all-reduce(y), channel_id=1, replica_groups={{0,1,2,3}},"
SYNC_TEXT = (
    TEXT.replace(
        "all-reduce-start.4 = f32[8,8] all-reduce-start(y), channel_id=1, replica_groups={{0,1,2,3}},", NOW
    )
    .replace("  all-reduce-done.4 = f32[8,8] all-reduce-done(all-reduce-start.4)\n", "")
    .replace("add(all-reduce-done.4", "add(all-reduce.4")
)


def profiled(folder: Path, text: str, *operations: Operation) -> Exposed:
    runs = {
        number: [Run(1000 * run, 260, operations, id=500 + run) for run in range(3)] for number in range(4)
    }
    Profile(runs, hlo={"jit_step(77)": text}).write(folder / "host.xplane.pb")
    snapshot = profile.read(folder, "trace")
    (program,) = snapshot.programs
    known = exposed(snapshot, program, targets.chip_of(snapshot))
    assert known is not None and known.basis == "profile", known
    return known


LOOP = (Operation("loop.3", 0, 120), Operation("product.1", 2, 55), Operation("product.1", 60, 57))


def test_a_profile_of_a_synchronous_collective_and_of_the_same_asynchronous(tmp_path: Path) -> None:
    waits = (*(Operation("all-reduce.4", 121, 60), Operation("sine.5", 182, 70), Operation("sum.6", 254, 5)),)
    own = only(profiled(tmp_path / "a", SYNC_TEXT, *LOOP, *waits))
    assert own.reason == "synchronous" and own.seconds == pytest.approx(60e-6)
    # The sine neither makes its input nor needs its result.
    assert own.available == pytest.approx(70e-6) and own.saves == pytest.approx(60e-6)
    assert own.user is not None and own.user.name == "sum.6"
    hidden = (
        *(Operation("all-reduce-start.4", 121, 1), Operation("sine.5", 122, 70)),
        *(Operation("all-reduce-done.4", 193, 1), Operation("sum.6", 254, 5)),
    )
    assert profiled(tmp_path / "b", TEXT, *LOOP, *hidden).collectives == ()


def test_a_profile_with_calls_that_are_nested_too_deeply(tmp_path: Path) -> None:
    runs = {number: [Run(0, 260, (Operation("all-reduce.4", 121, 60),), id=500)] for number in range(4)}
    Profile(runs, hlo={"jit_step(77)": SYNC_TEXT}).write(tmp_path / "host.xplane.pb")
    snapshot = profile.read(tmp_path, "trace")
    (program,) = snapshot.programs
    assert program.schedule is not None
    nested = [
        ScheduledComputation(
            f"inner.{n}", (ScheduledOperation("loop", "while", operands=(), runs=(f"inner.{n + 1}",)),)
        )
        for n in range(3000)
    ]
    entry, *others = program.schedule.computations
    first = replace(entry.operations[0], opcode="while", runs=("inner.0",))
    entry = replace(entry, operations=(first, *entry.operations[1:]))
    schedule = replace(program.schedule, entry=entry.name, computations=(entry, *others, *nested))
    known = exposed(snapshot, replace(program, schedule=schedule), targets.chip_of(snapshot))
    assert known is not None and known.basis == "profile"
    assert [own.collective.name for own in known.collectives] == ["all-reduce.4"]


def test_a_profile_whose_sine_is_too_short(tmp_path: Path) -> None:
    operations = (
        *(Operation("all-reduce-start.4", 121, 1), Operation("sine.5", 122, 20)),
        *(Operation("all-reduce-done.4", 143, 40), Operation("sum.6", 200, 40)),
    )
    own = only(profiled(tmp_path, TEXT, *LOOP, *operations))
    assert own.reason == "nothing to compute" and own.available == 0
    assert own.seconds == pytest.approx(41e-6) and own.whole == pytest.approx(62e-6)
    assert own.before_use == pytest.approx(20e-6)
    assert own.user is not None and own.user.name == "sum.6"


def test_a_profile_of_two_collectives_on_the_same_links(tmp_path: Path) -> None:
    second = (
        "  all-reduce-start.7 = f32[8,8] all-reduce-start(p), channel_id=2, replica_groups={{0,1,2,3}},\n"
    )
    second += "    use_global_device_ids=true, to_apply=add\n"
    text = TEXT.replace("  sine.5 =", second + "  sine.5 =").replace(
        "  ROOT sum.6 = f32[8,8] add(all-reduce-done.4",
        "  all-reduce-done.7 = f32[8,8] all-reduce-done(all-reduce-start.7)\n"
        "  both.8 = f32[8,8] add(all-reduce-done.4, all-reduce-done.7)\n"
        "  ROOT sum.6 = f32[8,8] add(both.8",
    )
    operations = (
        *(Operation("all-reduce-start.4", 121, 1), Operation("all-reduce-start.7", 122, 1)),
        *(Operation("sine.5", 125, 10), Operation("all-reduce-done.4", 136, 30)),
        *(Operation("all-reduce-done.7", 167, 30), Operation("both.8", 198, 5), Operation("sum.6", 204, 5)),
    )
    known = profiled(tmp_path, text, *LOOP, *operations)
    assert {own.collective.name: own.reason for own in known.collectives} == {
        "all-reduce-start.4": "shared links",
        "all-reduce-start.7": "shared links",
    }
    first, last = sorted(known.collectives, key=lambda own: own.collective.name)
    # From the start of the second one to the end of the first one.
    assert first.queued == pytest.approx(44e-6) and last.queued == pytest.approx(44e-6)
    assert [other.name for other in first.others] == ["all-reduce-start.7"]
    assert first.saves == pytest.approx(min(first.seconds, 44e-6))


def test_a_profile_of_cpu_devices_says_nothing_about_chips(tmp_path: Path) -> None:
    runs = {number: [Run(0, 260, LOOP, id=1)] for number in range(4)}
    Profile(runs).write(tmp_path / "host.xplane.pb")
    snapshot = profile.read(tmp_path, "trace")
    assert snapshot.mesh is not None
    snapshot = replace(snapshot, mesh=replace(snapshot.mesh, device_kind="cpu"))
    unknown(snapshot, snapshot.programs[0], None)


def test_sections_and_json_have_the_same_reasons(tmp_path: Path) -> None:
    snapshot, _ = of_text(entry(START, DONE, USE, *PRODUCTS, root("use", *NAMES)), tmp_path)
    (shown,) = section(snapshot, V5E)
    (plain,) = json_of(snapshot, V5E)["exposed_collectives"]  # type: ignore[misc]
    table = next(block for block in shown.blocks if hasattr(block, "rows"))
    assert len(table.rows) == len(plain["collectives"]) == 1
    assert plain["basis"] == "schedule" and plain["unknown"] is None
    (own,) = plain["collectives"]
    assert own["reason"] == "used at once" and own["used_by"] == "use" and own["used_at"] == "model.py:9"
    assert own["saves_at_most"] in table.rows[0]


def test_every_door_has_the_same_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot, program = of_text(entry(START, DONE, USE, *PRODUCTS, root("use", *NAMES)), tmp_path)
    file = tmp_path / "step.json"
    file.write_text(snapshots.dumps(snapshot))
    known = exposed(snapshot, program, V5E)
    assert known is not None
    sentence = reason_text(only(known)).replace("`", "")

    def printed(*arguments: str) -> str:
        assert main([*arguments, "--chip", "v5e"]) == 0
        return capsys.readouterr().out

    verbs = (
        ["predict", str(file)],
        ["show", str(file), "--all"],
        ["explain", str(file), "--collective", "start"],
    )
    for verb in verbs:
        assert sentence in printed(*verb), verb
        (plain,) = json.loads(printed(*verb, "--json"))["exposed_collectives"]
        (own,) = plain["collectives"]
        assert (plain["count"], plain["seconds"]) == (1, own["seconds"])
        assert (own["name"], own["sentence"]) == ("start", sentence)
    report = tmp_path / "report.html"
    printed("report", str(file), "-o", str(report))
    assert sentence in html.unescape(re.sub(r"<[^>]+>", "", report.read_text())).replace("`", "")
