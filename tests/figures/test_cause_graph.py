"""The graph of a sharding's path: one lane per origin, from its rule to the result."""

from __future__ import annotations

import pytest

from inspector.core.snapshot import Origin, PropagationStep
from inspector.figures.cause_graph import cause_graph

STEPS = tuple(PropagationStep(f"op{n}", "forward", source=f"model.py:{n}") for n in range(12))
ORIGINS = (
    Origin("fsdp", "params/w", "embed → fsdp", STEPS[:1]),
    Origin("tensor", "constraint a.py:3, called at b.py:4", None, STEPS),
)


def drawn(width_px: int) -> tuple[list[dict], list[str], list[dict]]:
    figure = cause_graph(ORIGINS, "all-gather.7", "model.py:9", width_px=width_px).to_dict()
    layout = figure["layout"]
    arrows = [one for one in layout["annotations"] if one.get("showarrow")]
    texts = [one["text"] for one in layout["annotations"] if not one.get("showarrow")]
    return layout["shapes"], texts, arrows


@pytest.mark.parametrize("width_px", [380, 700, 1200])
def test_each_lane_leads_from_its_source_to_the_result(width_px: int) -> None:
    boxes, texts, arrows = drawn(width_px)
    assert len(arrows) == len(boxes) - len(ORIGINS)
    assert sum("all-gather.7" in text for text in texts) == len(ORIGINS)
    assert sum("operations" in text for text in texts[1:]) == 1, "the long path is folded"
    for box in boxes:
        assert -2 <= box["x0"] < box["x1"] <= width_px


@pytest.mark.parametrize("width_px", [380, 700, 1200])
def test_boxes_do_not_overlap(width_px: int) -> None:
    boxes, _, _ = drawn(width_px)
    for number, a in enumerate(boxes):
        for b in boxes[number + 1 :]:
            apart = a["x1"] < b["x0"] or b["x1"] < a["x0"] or a["y1"] < b["y0"] or b["y1"] < a["y0"]
            assert apart


def test_without_origins_there_is_no_graph() -> None:
    assert cause_graph((), "all-gather.7", None) is None
