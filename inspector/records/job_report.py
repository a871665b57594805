"""The reports of a job while it runs."""

from typing import Any, Protocol


class JobReport(Protocol):
    """Reports the phase of a job to the server, with figures of its progress.

    It raises an error that ends the job if the job was cancelled.
    """

    def __call__(self, phase: str, /, **figures: Any) -> None: ...
