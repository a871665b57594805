"""A change of a layout that may mend a finding, before it is planned."""

from __future__ import annotations

from dataclasses import dataclass

from inspector.layout import Layout


@dataclass(frozen=True)
class Candidate:
    """The layout with a change of its rules or PartitionSpecs, and the change in a sentence.

    count: how many rules or specs differ; fewer are better, whatever they save.
    size, order: of two that save as much, the smaller; `order` where they touch as many arrays, too.
    """

    layout: Layout
    words: str
    count: int
    size: tuple[int, ...]
    order: int = 0
