"""The time of a step and its memory, as bars, and the reason of the verdict in a sentence."""

from collections.abc import Iterable, Sequence

import plotly.graph_objects as go

from inspector import figures
from inspector.answers.section import Block, Picture, Table, Text, columns, text, with_code
from inspector.assessment import because, memory_words, part_text
from inspector.assessment.assess import NO_CHIP
from inspector.records.assessment import MEMORY, STEP, Assessment, LayoutFigures
from inspector.text.formatting import bytes_text, seconds_text, share_text

_BAR, _SIGN, _END = 24, "█", "▏"  # signs of the longest bar


def blocks(assessment: Assessment, key: str, values: bool = True) -> tuple[Block, ...]:
    """Return the bars of one layout, why there is none, and the reason of its verdict.

    Args:
      key: that of the figure.
      values: whether to write the figures above the bars.
    """
    shown: list[Block] = []
    if layouts := drawn([("", assessment)]):
        shown.append(picture(layouts, key, values))
    # The answers above bars without figures say that a step needs a chip.
    if (missing := why_no_step(assessment)) and (values or assessment.unknown_step != NO_CHIP):
        shown.append(text(missing, quiet=True))
    return (*shown, *reason(assessment))


def drawn(named: Sequence[tuple[str, Assessment]]) -> list[LayoutFigures]:
    """Return what can be drawn of each layout: nothing of one that JAX rejects, and no step without parts."""
    layouts: list[LayoutFigures] = []
    for name, assessment in named:
        step, need = assessment.step, assessment.memory
        step = step if step is not None and step.parts else None
        need = need if need is not None and need.parts else None
        if assessment.rejected is None and (step or need):
            layouts.append(LayoutFigures(name, step, need, traffic_made=assessment.traffic_made))
    return layouts


def reason(assessment: Assessment) -> tuple[Text, ...]:
    """Return the dominant reason of an assessment as a sentence; () if nothing is known."""
    sentence = because(assessment)
    return (Text(with_code(sentence)),) if sentence else ()


def picture(layouts: Sequence[LayoutFigures], key: str, values: bool = True, step: str = STEP) -> Picture:
    """Return the bars of layouts, and the same as tables with bars of text.

    step: the timed work, such as `Decode step`.
    """

    def draw(width_px: int) -> go.Figure | None:
        return figures.verdict_bars.verdict_bars(layouts, values=values, step=step, width_px=width_px)

    titles = [MEMORY] if any(layout.memory for layout in layouts) else []
    titles += [step] if any(layout.step for layout in layouts) else []
    return Picture(key, " and ".join(titles), draw, in_text=tuple(_tables(layouts, key, step)))


def why_no_step(assessment: Assessment) -> str:
    """Return why there is no bar of a step, and what to do, as a sentence; "" if there is one."""
    step = assessment.step
    if assessment.rejected is not None or (step is not None and step.parts):
        return ""
    if step is not None:
        return "The step was measured without a profile, so its parts are unknown."
    if assessment.unknown_step == NO_CHIP:  # the label of the figure says so
        return ""
    return f"The time of a step is unknown: {assessment.unknown_step}." if assessment.unknown_step else ""


def _tables(layouts: Sequence[LayoutFigures], key: str, timed: str) -> Iterable[Table]:
    for layout in layouts:
        step, need = layout.step, layout.memory
        label = f"{layout.name}: " if layout.name else ""
        if need is not None:
            total = max(need.peak_bytes, need.capacity_bytes or 0)
            rows = [
                (memory_words(kind, need)[0], size, bar(size / total)) for kind, size in need.parts.items()
            ]
            head = columns(f"{label}{MEMORY}, {need.text}", "Bytes:bytes", "")
            yield Table(f"{key}_memory", head, tuple(rows), wrap=True)
        if step is not None:
            across = any(part.kind == "between" for part in step.parts)
            longest = max(part.seconds for part in step.parts)
            hides = any(part.hidden for part in step.parts)
            shown = [
                (
                    part_text(part, across, step.kind == "measured"),
                    seconds_text(part.seconds),
                    share_text(part.seconds / step.seconds, 0),
                    *([seconds_text(part.hidden) if part.hidden else ""] if hides else []),
                    bytes_text(part.bytes) if part.bytes is not None else "",
                    bar(part.seconds / longest),
                )
                for part in step.parts
            ]
            hidden = ["Hidden"] if hides else []
            sent = f"Sent, {layout.traffic_made}" if layout.traffic_made else "Sent"
            head = columns(f"{label}{timed}, {step.text}", "Seconds", "Share", *hidden, sent, "")
            yield Table(f"{key}_step", head, tuple(shown), wrap=True)


def bar(share: float) -> str:
    """Return a bar of text for a share of the longest one."""
    return _SIGN * round(_BAR * share) or _END
