"""The schedule of a pipeline, and its stages, microbatches and bubble in words."""

from inspector.records.snapshot import Pipeline
from inspector.text.formatting import counted, share_text


def work_at(pipeline: Pipeline, device: int, iteration: int) -> tuple[int, int] | None:
    """Return the microbatch and the turn, from 0, of a device along the pipeline in one iteration.

    None if the device is idle, or if the number of microbatches is unknown. The backward pass runs the
    iterations of the forward pass from the last to the first.

    >>> pipeline = Pipeline(stages=2, microbatches=3, collective="", axes=None)
    >>> [work_at(pipeline, 1, iteration) for iteration in range(4)]
    [None, (0, 0), (1, 0), (2, 0)]
    """
    if pipeline.microbatches is None or pipeline.iterations is None:
        return None
    at = pipeline.iterations - 1 - iteration if pipeline.backward else iteration
    turn, microbatch = divmod(at - pipeline.delay * device, pipeline.microbatches)
    return (microbatch, turn) if 0 <= turn < pipeline.repeats else None


def what(pipeline: Pipeline) -> str:
    """Return its stages and its place: ``a pipeline of 4 stages along `stage` at train.py:31``."""
    along = f" along `{pipeline.axes[0]}`" if pipeline.axes else ""
    at = f" at {pipeline.source}" if pipeline.source else ""
    if pipeline.repeats > 1:
        stages = pipeline.stages * pipeline.repeats
        each = f", {pipeline.repeats} on each of {pipeline.stages} devices"
        return f"a pipeline of {stages} stages{each}{along}{at}"
    return f"a pipeline of {pipeline.stages} stages{along}{at}"


def bubble(pipeline: Pipeline, label: str | None = None) -> str:
    """Return its microbatches, iterations and bubble in sentences.

    label: the name of its loop in options, if the trip count is unknown.
    """
    iterations, share = pipeline.iterations, pipeline.bubble
    if iterations is None or share is None:
        name = label or pipeline.loop
        return (
            f"In {counted(pipeline.idle, 'iteration')}, a device has no microbatch. The share of "
            f"this bubble is unknown, because the trip count of the loop depends on data: state it with "
            f"--trips {name}=N."
        )
    if pipeline.microbatches is None:
        return (
            f"Of {counted(iterations, 'iteration')}, a device has no microbatch in at least "
            f"{pipeline.idle}: a bubble of at least {share_text(share, 0)}. No array shows the number of "
            "microbatches."
        )
    several = pipeline.repeats > 1
    around = f" go around {pipeline.repeats} times" if several else ""
    return (
        f"{counted(pipeline.microbatches, 'microbatch', 'microbatches')}{around} in "
        f"{counted(iterations, 'iteration')}. In {pipeline.idle} of them, a device has no microbatch: a "
        f"bubble of {share_text(share, 0)}."
    )
