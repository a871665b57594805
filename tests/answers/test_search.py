"""The sections of a search result."""

from __future__ import annotations

from dataclasses import replace

from inspector import layout as layouts
from inspector.answers import search
from inspector.answers.section import Block, Listing
from inspector.assessment import assess
from inspector.records.assessment import Assessment, Step, StepPart
from inspector.search.answer import answer_sentences
from inspector.search.result import Candidate, Counts, Objective, SearchProgress, SearchResult
from tests.figures import samples


def layout(mesh: str, axes: str) -> dict[str, object]:
    fields = {"model": "transformer", "mesh": mesh, "axes": axes, "rules": "batch=fsdp,embed=fsdp"}
    return layouts.parse(fields).unwrap().to_json()


def test_the_table_has_the_fields_in_which_candidates_differ() -> None:
    plain = {"model": "transformer", "mesh": "4x2", "axes": "data,tensor", "rules": "batch=data"}
    changes = ({}, {"donate": "true"}, {"remat": "full"}, {"optimizer_axes": "data,tensor"})
    candidates = tuple(
        Candidate("propagated", layout=layouts.parse(plain | change).unwrap().to_json()) for change in changes
    )
    search_result = SearchResult("plan", None, "now", Counts(), candidates, None)
    names = [column.heading for column in search.table(search_result).columns]
    cells = [row[names.index("Fields")] for row in search.table(search_result).rows]
    assert cells == [
        "remat=none, donate=false, optimizer_axes=none",
        "remat=none, donate=true, optimizer_axes=none",
        "remat=full, donate=false, optimizer_axes=none",
        "remat=none, donate=false, optimizer_axes=data+tensor",
    ]
    same = SearchResult("plan", None, "now", Counts(), candidates[:1], None)
    assert "Fields" not in [column.heading for column in search.table(same).columns]


def test_a_spent_budget_names_candidates_that_were_predicted_to_be_better() -> None:
    def candidate(mesh: str, stage: str, partitioned: float, seconds: float) -> Candidate:
        return Candidate(
            stage,
            seconds=seconds,
            partitioned_seconds=partitioned,
            layout=layout(mesh, "fsdp" if mesh == "8" else "fsdp,tensor"),
        )

    compiled = candidate("8", "compiled", 3.0, 1.0)
    faster, slower = candidate("4x2", "propagated", 2.0, 2.0), candidate("2x4", "propagated", 4, 4)

    def found(*others: Candidate, finished: str = "budget", objective: Objective = "time") -> SearchResult:
        counts = Counts(considered=2, partitioned=2, compiled=1)
        candidates = (compiled, *others)
        return SearchResult("cpu", None, "now", counts, candidates, 0, objective, finished)

    assert search.predicted_better(found(faster, slower)) == 1
    assert "1 candidate was predicted" in (search.end_text(found(faster)) or "")
    assert search.predicted_better(found(slower)) == 0
    assert "not compiled" in (search.end_text(found(slower)) or "")
    # The search has shown that no other one can be better.
    assert search.predicted_better(found(faster, finished="none better")) == 0
    assert "no other" in (search.end_text(found(slower, finished="none better")) or "")


def test_dimensions_that_stay_unsharded_are_no_difference() -> None:
    rules = ("batch=data,hidden=", "batch=data")
    candidate, other = (
        Candidate(
            "propagated",
            current=not place,
            layout=layouts.parse({"mesh": "8", "axes": "data", "rules": rule}).unwrap().to_json(),
        )
        for place, rule in enumerate(rules)
    )
    search_result = SearchResult("cpu", None, "now", Counts(), (candidate, other), None)
    assert "hidden" not in str(search.why(search_result, other))


def searched(*rules: tuple[str, str, str], **fields: object) -> tuple[SearchResult, tuple[Candidate, ...]]:
    """Return a result with a candidate for each mesh, axes and rules. The first one is the current layout."""
    candidates = tuple(
        Candidate(
            "propagated",
            current=not place,
            seconds=1.0 + place,
            wire_bytes={
                axis: 2**20
                for axis, size in zip(axes.split(","), mesh.split("x"), strict=True)
                if size != "1"
            },
            layout=layouts.parse(
                {"model": "transformer", "mesh": mesh, "axes": axes, "rules": rule}
            ).unwrap().to_json(),
        )
        for place, (mesh, axes, rule) in enumerate(rules)
    )  # fmt: skip
    return SearchResult("cpu", "v5e", "now", Counts(), candidates, 0, **fields), candidates


def test_axes_with_other_names_are_no_difference() -> None:
    result, (_, other) = searched(
        ("4x4", "data,model", "batch=data,mlp=model,vocab=model"),
        ("1x4x4", "data,fsdp,tensor", "batch=data+fsdp,embed=fsdp,mlp=tensor"),
    )
    said = str(search.why(result, other))
    assert "data is now fsdp" in said and "model is now tensor" in said
    assert "embed: sharded over nothing → fsdp." in said and "vocab: sharded over tensor → nothing." in said
    assert "mlp" not in said and "batch" not in said and "Sends over" not in said
    # Axes that shard nothing in common are not the same ones.
    result, (_, other) = searched(("4", "data", "batch=data"), ("4", "tensor", "mlp=tensor"))
    assert "is now" not in str(search.why(result, other))


def test_layouts_with_one_mesh_are_told_apart_by_their_rules() -> None:
    rules = ("batch=data", "batch=data,mlp=data", "mlp=data", "batch=data")
    result, _ = searched(*(("8", "data", rule) for rule in rules))
    titles = [row[0] for row in search.table(result).rows]
    assert titles == [
        "data 8 (current)",
        "data 8 with mlp → data",
        "data 8 with mlp → data, without batch → data",
        "data 8",
    ]


def test_a_verdict_has_two_sentences_and_details_have_the_others() -> None:
    served = ("8", "fsdp", "batch=fsdp")
    result, _ = searched(served, ("8", "tensor", "mlp=tensor"), limits={"apply": 1.0, "init": 1.0})
    every = answer_sentences(result)
    assert len(every) > 2
    said = ["".join(map(str, line)).replace("'", "") for line in _listed(search.details(result))]
    assert len(said) == len(every) - 2
    assert search.answer(result)[0].parts[0] == " ".join(every[:2]).partition("`")[0]


def _listed(blocks: tuple[Block, ...]) -> list[object]:
    return [item for block in blocks if isinstance(block, Listing) for item in block.items]


def test_the_time_left_is_unknown_until_the_first_compile_ends() -> None:
    def said(phase: str, done: int, left: float | None) -> str:
        return search.progress_text(SearchProgress(phase, done, 8, Counts(), left, 0))

    assert said("compile", 0, None).endswith("0 of 8, time left unknown until the first compile ends")
    assert "unknown" not in said("compile", 1, 60.0) and "unknown" not in said("partition", 0, None)


def test_the_change_of_the_step_has_an_interval_and_the_sign_of_other_tables() -> None:
    def measured(seconds: float) -> Assessment:
        step = Step(seconds, 0.99 * seconds, 1.01 * seconds, "measured")
        return Assessment(None, 8, "measured", "train_step", step, None, None, None, None)

    best, current, same = (
        Candidate(
            "compiled",
            seconds=seconds,
            layout=layout("8", "fsdp"),
            current=seconds == 4.0,
            assessment=measured(seconds),
        )
        for seconds in (1.0, 4.0, 4.01)
    )
    for candidate, change in ((best, "−75% to −74%"), (same, "not distinguishable")):
        search_result = SearchResult("cpu", None, "now", Counts(), (candidate, current), 0)
        assert f"{change}." in str(search.summary(search_result).parts)


def test_each_place_says_that_a_time_is_that_of_a_round() -> None:
    step = Step(1.0, None, None, "predicted", parts=(StepPart("compute", 1.0),))
    served = layouts.parse({"model": "transformer", "cache": "128", "mesh": "8", "axes": "fsdp"}).unwrap()
    best, current = (
        Candidate("propagated", seconds=seconds, layout=served.to_json(), current=seconds > 1.0,
                  assessment=replace(assess(samples.snapshot(), None), step=step))
        for seconds in (1.0, 4.0)
    )  # fmt: skip
    for weights, name in (
        (None, "Step"),
        ({"decode": 1.0, "prefill": 0.0}, "Decode step"),
        ({"decode": 9.0, "prefill": 1.0}, "Round"),
    ):
        searched = SearchResult("cpu", "v5e", "now", Counts(), (best, current), 0, weights=weights)
        bars = search.bars(searched)
        assert bars is not None and name in bars.alt
        places = (
            search.why(searched, best),
            search.table(searched),
            bars.build(800),
        )
        assert all(name.lower() in str(place).lower() for place in places)
        assert name == "Step" or "'Step" not in str(places)


def test_rules_are_written_as_in_the_editor() -> None:
    fields = {"model": "transformer", "mesh": "2x2x2x1", "axes": "data,fsdp,tensor,expert"}
    layout = layouts.parse(fields | {"rules": "batch=data+fsdp,mlp=expert,vocab="}).unwrap()
    assert search.use_text(layout) == "batch → data + fsdp, nothing → tensor"
    one_device = layouts.parse({"mesh": "1", "axes": "data", "rules": "batch=data"}).unwrap()
    assert search.use_text(one_device) == "nothing"


def test_the_table_has_the_best_layout_that_fits_and_none_that_was_not_partitioned() -> None:
    def candidate(number: int, stage: str = "propagated", fits: bool | None = None) -> Candidate:
        return Candidate(
            stage, seconds=1.0 + number if stage == "propagated" else None, fits=fits,
            at_least=9.0, pareto=None if stage == "planned" else False,
            layout=layout("8", "fsdp") | {"sizes": {"batch": 8 * (number + 1)}},
        )  # fmt: skip

    large = [candidate(number) for number in range(search.SHOWN)]
    best, planned = candidate(50, fits=True), candidate(60, "planned")
    search_result = SearchResult(
        "gpu:h100:8", "h100", "now", Counts(considered=22, partitioned=21, excluded=1),
        (*large, best, planned), search.SHOWN, listed=20,
    )  # fmt: skip
    assert search.listed(search_result) == [*large, best]
    words = search.known_text(search_result)
    assert words is not None and "22 considered, 21 partitioned" in words and "best 20" in words
    assert search.known_text(replace(search_result, listed=None)) is None
