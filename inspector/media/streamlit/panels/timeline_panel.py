"""The timeline of a predicted step: zoom and pan down to one operation, and its facts."""

from dataclasses import dataclass
from typing import Any

import streamlit as st

from inspector.core.snapshot import Program
from inspector.figures.timeline import WHOLE_STEP, windows
from inspector.machines.prediction.predicted import Predicted
from inspector.media.streamlit.page import buttons, page_width
from inspector.media.streamlit.parts import chart, render
from inspector.sections import prediction

_SHOWN, _OPERATION = "timeline_shown", "timeline_operation"
_BESIDE = 0.5  # of the period that is shown: detail on each side of it, for the next pan
_HINT = (
    "Zoom with the wheel or the keys W and S, pan by dragging or with A and D. A double click shows the "
    "whole step. Click a bar to see its operation, or several operations in one bar to zoom to them."
)


@dataclass(frozen=True)
class _Shown:
    """The period that the timeline shows, in seconds.

    Attributes:
      step: identifies the timeline; another one begins with one iteration, such as one layer, if the
        others take most of it.
      period: None for the whole step.
      number: of the last period that the server has chosen.
    """

    step: tuple[Any, ...]
    period: tuple[float, float] | None = None
    number: int = 0


@st.fragment
def show(predicted: Predicted, program: Program) -> None:
    """Draw the timeline with the details of the period that it shows, then the picked operation."""
    assert predicted.simulated is not None
    state = st.session_state
    measured = prediction.measured_for(predicted, program)
    periods = windows(predicted.simulated, program, measured)
    end = max(end for _, end in periods.values())
    step = (predicted.program, predicted.chip.name, end)
    further = sum(span.end - span.start for span in predicted.simulated.spans if span.basis == "loop")
    one_layer = next((period for name, period in periods.items() if name != WHOLE_STEP), None)
    one_layer = one_layer if further > end / 2 else None
    shown: _Shown = state.get(_SHOWN, _Shown(step, one_layer))
    if shown.step != step:
        shown = _Shown(step, one_layer, shown.number + 1)
    state[_SHOWN] = shown

    def zoom(sent: Any, number: int) -> None:
        if (period := _period(sent, end)) is not None:
            whole = period == (0.0, end)
            state[_SHOWN] = _Shown(step, None if whole else period, number)

    def pick(value: Any) -> None:
        if isinstance(value, list):  # several operations in one bar
            zoom(value, shown.number + 1)
        else:
            state[_OPERATION] = value if isinstance(value, str) else None

    if len(periods) > 1:
        with st.container(horizontal=True, gap="small"):
            for name, period in periods.items():
                label, key, number = name.capitalize(), f"timeline:{name}", shown.number + 1
                buttons.draw(label, key, "zoom_in_map", zoom, period, number, type="tertiary")
    detail = None
    if shown.period is not None:
        start, stop = shown.period
        more = _BESIDE * (stop - start)
        detail = (start - more, stop + more)
    picture = prediction.timeline_picture(predicted.simulated, program, detail, measured)
    figure = picture.build(page_width.content_px())
    if figure is None:
        return
    zoomed = chart.Zoom(shown.period, shown.number, lambda sent: zoom(sent, shown.number))
    chart.draw(figure, picture.key, alt=picture.alt, on_pick=pick, zoom=zoomed)
    st.caption(_HINT)
    render.show(prediction.operation_blocks(predicted, program, state.get(_OPERATION) or ""))


def _period(sent: Any, end: float) -> tuple[float, float] | None:
    """Return the period of the step in a message of the browser; None without one."""
    if not isinstance(sent, (list, tuple)) or len(sent) != 2:
        return None
    if not all(isinstance(bound, (int, float)) for bound in sent):
        return None
    start, stop = (min(max(float(bound), 0.0), end) for bound in sent)
    return (start, stop) if start < stop else None
