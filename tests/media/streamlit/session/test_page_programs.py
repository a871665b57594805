"""The partitioned programs of a plan on the Layout page."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace

import pytest

from inspector.jobs import inspection
from inspector.jobs.inspection import Inspection
from inspector.jobs.request import Request
from inspector.layout import Layout
from inspector.layout.plan import plan
from inspector.media.streamlit.panels import improve_panel
from inspector.media.streamlit.session import planning
from inspector.records import typed_json
from inspector.records.snapshot import Collective, MatmulFlops, Program, Snapshot, Work
from inspector.sharding.abstract import PartitionedPrograms
from inspector.text.errors import InvalidInput
from inspector.tracing.model.abstract import abstract_state
from tests.media.streamlit.scripted_page import PATIENCE, ScriptedPage

pytestmark = [pytest.mark.close_to_jax, pytest.mark.first_jax_is_enough]

SMALL = {"depth": "64", "batch": "16"}


@dataclass
class FakeJob:
    """A partitioning that the test ends."""

    hidden: tuple[str, ...]  # mesh axes of the rule for `hidden`
    state: str = "running"
    error: str = ""
    refused: bool = False
    progress: dict[str, object] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        return self.state != "running"

    def wait(self, timeout: float) -> FakeJob:
        return self

    def cancel(self) -> None:
        self.state = "cancelled"

    def answer(self) -> tuple[Program, ...]:
        if self.state != "done":
            raise InvalidInput(self.error)
        return ()


@dataclass
class FakePartition:
    """Records the partitionings that a page starts."""

    jobs: list[FakeJob] = field(default_factory=list)

    def request(self, layout, only=(), now: bool = True, platforms=()) -> Request:
        def start() -> FakeJob:
            self.jobs.append(FakeJob(dict(layout.rules)["hidden"]))
            return self.jobs[-1]

        return Request(f"{layout.key()} {only}", start, so_far=inspection._totals, layout=layout)

    @property
    def hidden(self) -> list[tuple[str, ...]]:
        return [job.hidden for job in self.jobs]


@pytest.fixture
def fake(monkeypatch) -> FakePartition:
    fake = FakePartition()
    monkeypatch.setattr(Inspection, "programs", fake.request)
    return fake


def is_waiting(page) -> bool:
    return any("Partitioning the programs" in info.value for info in page.test.main.info)


def run_snapshot(layout: Layout) -> Snapshot:
    """A run of the layout, of which only the collectives of the train step matter."""
    planned = plan(layout, abstract_state(layout))
    step = Program("train_step", collectives=(), stage="compiled")
    return replace(planned, source=replace(planned.source, kind="cpu"), programs=(step,))


def wait(page) -> None:
    until = time.monotonic() + PATIENCE
    while is_waiting(page):
        assert time.monotonic() < until
        time.sleep(0.1)
        page.test.run()


def mesh_axes(page) -> set[str]:
    return set(page.test.dataframe[0].value["Mesh axes"])


def test_collectives_follow_the_rules_without_a_run(open_page):
    page = open_page(chip="v5e", **SMALL)
    page.open_panel("Communication")
    wait(page)
    assert mesh_axes(page) == {"data", "model"}
    assert any(one.value.startswith("Partitioned") for one in page.test.main.caption)
    page.type(page.rule_key(1, "axes"), "")
    wait(page)
    assert mesh_axes(page) == {"data"}
    for place, said in ((("Time",), "Partitioned"), (("Arrays", "Train state"), "Propagated")):
        page.open_panel(*place)
        assert any(one.value.startswith(said) for one in page.test.main.caption)
    page.open_panel("Memory")
    assert any("Estimated before a compile" in one.value for one in page.test.main.markdown)


def test_effects_begin_once_the_layout_rests(open_page, monkeypatch):
    started: list[Layout] = []

    def effects(self, layout, program, chip, kinds=()) -> Request:
        def start() -> FakeJob:
            started.append(layout)
            return FakeJob(())

        return Request(f"effects {layout.key()}", start, layout=layout)

    monkeypatch.setattr(Inspection, "effects", effects)
    monkeypatch.setattr(improve_panel, "_AFTER_SECONDS", math.inf)
    page = open_page(**SMALL)
    page.open_panel("Communication")
    wait(page)
    page.test.run()
    assert not started
    monkeypatch.setattr(improve_panel, "_AFTER_SECONDS", 0.0)
    page.test.run()
    page.test.run()
    assert len(started) == 1


def test_the_train_state_of_a_plan_is_listed(open_page):
    page = open_page(**SMALL)
    page.open_panel("Arrays", "Train state")
    wait(page)
    state, values = (one.value for one in page.test.dataframe)
    groups = {path.partition("/")[0] for path in state["Path"]}
    assert {"params", "opt_state"} <= groups and not groups & {"activation", "gradient", "batch"}
    assert any(path.startswith("activation/") for path in values["Path"])
    assert any("only planned" in one.value for one in page.test.main.info)


def test_a_refused_program_is_shown_above_the_plan(open_page):
    page = open_page(axis_types="explicit.explicit", unconstrained="z", **SMALL)
    wait(page)
    (error,) = page.errors()
    assert "JAX refuses" in error and "dot_general" in error
    assert any("out_sharding=P('data', None)" in one.value for one in page.test.main.markdown)
    assert page.block_map()  # everything else of the plan


def test_known_programs_are_not_propagated_again(open_page, monkeypatch):
    page = open_page(**SMALL)
    page.open_panel("Communication")
    wait(page)
    programs = Inspection.programs

    def only_the_rest(service, layout, only=(), now=True, platforms=()):
        request = programs(service, layout, only, now, platforms)
        return request if not only and not now else replace(request, start=lambda: pytest.fail("known"))

    monkeypatch.setattr(Inspection, "programs", only_the_rest)
    again = open_page(**SMALL)
    again.open_panel("Communication")
    assert not is_waiting(again) and mesh_axes(again) == {"data", "model"}


def test_the_collectives_of_a_run_are_marked_until_its_programs_are_propagated(fake):
    page = ScriptedPage(**SMALL)
    layout = page.test.session_state["last_layout"]
    ran = run_snapshot(layout)
    page.test.session_state["finished_runs"] = {layout.key(): ran}
    page.open_panel("Communication")
    assert is_waiting(page) and len(fake.jobs) == 1
    drawn = [element.type for element in page.test.main if element.type in ("info", "button_group")]
    assert drawn.index("info") < drawn.index("button_group")  # above the choice of a program
    fake.jobs[-1].state = "failed"
    page.test.run()
    assert not is_waiting(page)
    page.open_panel("Memory")
    assert not is_waiting(page)


def test_totals_of_the_train_step_are_shown_before_its_origins(fake, page):
    """The head, the table by mesh axes and the map do not wait for reasons and conflicts."""
    sent = Collective(
        *("all-gather", False, "all-gather.1", "main", 1, False, ("model",)),
        *(4, 2, 4096, 6144, None),
    )
    work = Work(2.0, (MatmulFlops("f32", 2.0),), 2.0)
    program = Program("train_step", stage="partitioned", flops_per_device=2.0, collectives=(sent,), work=work)
    totals = PartitionedPrograms((program,), only=("train_step",), complete=False)
    page.open_panel("Communication")
    assert is_waiting(page)
    fake.jobs[-1].progress = {"totals": typed_json.encode(totals)}
    page.test.run()
    assert not is_waiting(page)
    (why,) = (one.value for one in page.test.main.markdown if "| Why |" in one.value)
    assert "over `model` | computing |" in why
    assert mesh_axes(page) == {"model"}
    assert any(one.value.startswith("Computing") for one in page.test.main.caption)
    page.open_panel("Memory")
    assert not is_waiting(page)
    page.type(page.rule_key(1, "axes"), "data")
    page.open_panel("Communication")
    assert is_waiting(page), "totals of another layout"


def test_only_the_newest_layout_follows_a_running_partitioning(fake, page):
    page.open_panel("Communication")
    page.type(page.rule_key(1, "axes"), "data")
    page.type(page.rule_key(1, "axes"), "")
    assert fake.hidden == [("model",)] and is_waiting(page)
    fake.jobs[0].state = "done"
    page.test.run()
    assert fake.hidden == [("model",), ()]


def test_an_untraced_model_cancels_the_partitioning(fake, page):
    page.open_panel("Communication")
    page.set("size:depth", 96)
    assert [job.state for job in fake.jobs] == ["cancelled", "running"]


def test_a_failed_partitioning_shows_its_reason_and_the_plan(fake, page):
    page.open_panel("Communication")
    fake.jobs[-1].state, fake.jobs[-1].error = "failed", "No rule for op."
    page.test.run()
    assert len(fake.jobs) == 1 and not is_waiting(page)
    assert any("No rule for op." in warning for warning in page.warnings())
    page.open_panel("Summary")
    assert page.block_map()
    page.open_panel("Communication")
    page.type(page.rule_key(1, "axes"), "data")
    assert len(fake.jobs) == 2 and is_waiting(page) and not page.warnings()


@pytest.fixture
def asked(monkeypatch) -> list[tuple[str, ...]]:
    """The programs that each partitioning was started for; all if it is empty."""
    asked: list[tuple[str, ...]] = []
    programs = Inspection.programs

    def noted(service, layout, only=(), now=True, platforms=()):
        request = programs(service, layout, only, now, platforms)

        def start():
            asked.append(tuple(only))
            assert now == bool(only)
            return request.start()

        return replace(request, start=start)

    monkeypatch.setattr(Inspection, "programs", noted)
    return asked


def test_the_train_step_is_partitioned_first_and_the_chosen_program_with_it(open_page, asked, monkeypatch):
    monkeypatch.setattr(planning, "REST_AFTER_SECONDS", math.inf)  # the machine may be busy
    page = open_page(**SMALL, learning_rate="0.5")  # a layout of this test only
    page.open_panel("Communication")
    wait(page)
    assert asked == [("train_step",)]
    assert program_titles(page)[:3] == ["Initialization", "Train step", "Inference"]
    page.test.session_state["collectives_program"] = "apply"
    page.test.run()
    wait(page)
    page.type(page.rule_key(1, "axes"), "data")
    wait(page)
    assert asked[1:] == [("train_step", "apply")] * 2
    assert page.test.session_state["collectives_program"] == "apply"


@pytest.mark.nightly
def test_the_other_programs_follow_the_train_step(open_page, asked):
    page = open_page(**SMALL, learning_rate="0.25")
    page.open_panel("Communication")
    wait(page)
    until = time.monotonic() + PATIENCE
    while () not in asked:
        assert time.monotonic() < until
        assert "not partitioned yet" in "".join(one.value for one in page.test.main.caption)
        time.sleep(0.1)
        page.test.run()
    assert asked == [("train_step",), ()] and mesh_axes(page) == {"data", "model"}


def program_titles(page) -> list[str]:
    groups = page.test.main.get("button_group")
    return [option.content for group in groups for option in group.proto.options]
