"""A train state that one worker saves under one layout and another restores under another.

The number of devices is fixed when JAX starts, so the two layouts need two workers. They share a temporary
folder, which is removed at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from inspector import layout as layouts
from inspector.core import temporary_folder, typed_json
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Finding, Snapshot
from inspector.core.temporary_folder import TemporaryFolder
from inspector.core.totals import STATE_GROUPS, state_totals
from inspector.core.typed_json import AnyRecord
from inspector.guides.restore import transfer
from inspector.guides.restore.checkpoint import Restored, Saved
from inspector.layout import Layout
from inspector.service import lanes
from inspector.service.agreement import disagreements
from inspector.service.engine import Environment, Job, Pool, Requester
from inspector.service.subject import subject_of

TIMEOUT = 900.0  # seconds for each of the two jobs
UNEQUAL = "unequal-after-restore"

_LOOK_SECONDS = 0.05  # between looks at the progress of a job


@dataclass(frozen=True)
class Restoration:
    """The state as it was saved and as it was restored.

    `snapshot` is the restored state, with the `transfer` between the two live placements. `file_bytes` is
    the size of Orbax's files. The seconds are those of Orbax on this machine.
    """

    saved: Snapshot
    snapshot: Snapshot
    file_bytes: int
    seconds_saving: float
    seconds_restoring: float


@dataclass(eq=False)
class SaveAndRestore:
    """The work of a restoration: one job saves and another restores."""

    pool: Pool
    saved_layout: Layout
    layout: Layout
    planned: Snapshot
    memory: int | None
    requester: Requester
    _job: Job[dict[str, Any]] | None = None
    _stopped: bool = False

    def refuse(self) -> None:
        """Refuse layouts whose train states differ.

        Raises:
          InvalidInput: the train states differ, or the disk is too full.
        """
        refuse_different(self.saved_layout, self.layout)
        sums = state_totals(self.planned)
        temporary_folder.refuse_too_large(temporary_folder.bytes_needed(sums.bytes or 0, sums.arrays))

    def run(self, report: Callable[[str, dict[str, Any]], None]) -> Restoration:
        """Return the result, with a finding for each array that is not placed as planned.

        Phases are those of the two jobs, after `save` or `restore`. While a job waits for a worker, the phase
        is `queued` and the figures have its `place`.

        Raises:
          InvalidInput: a job failed or was cancelled.
        """
        folder = TemporaryFolder()
        try:
            saved = self._stage("save", self.saved_layout, folder, Saved, report)
            restored = self._stage("restore", self.layout, folder, Restored, report)
        finally:
            folder.remove()
        restoration = restoration_of(saved, restored)
        state = tuple(array for array in self.planned.arrays if array.group in STATE_GROUPS)
        snapshot = restoration.snapshot
        differences = disagreements(replace(self.planned, arrays=state), snapshot)
        return replace(restoration, snapshot=replace(snapshot, findings=snapshot.findings + differences))

    def stop(self) -> None:
        """Cancel the running job."""
        self._stopped = True
        if self._job is not None:
            self._job.cancel()

    def _stage(
        self,
        stage: str,
        layout: Layout,
        folder: TemporaryFolder,
        kind: type[AnyRecord],
        report: Callable[[str, dict[str, Any]], None],
    ) -> AnyRecord:
        payload = {"layout": layout.to_json(), "folder": str(folder.path), "memory": self.memory}
        self._job = job = self.pool.submit(
            f"{stage}_checkpoint",
            payload,
            Environment(layout.devices),
            TIMEOUT,
            self.requester,
            subject_of(payload),
            lane=lanes.RUNS,
        )
        if self._stopped:
            job.cancel()
        while not job.wait(_LOOK_SECONDS).finished:
            status = job.status()
            figures = status.progress if status.place is None else {"place": status.place}
            report(f"{stage} {status.phase or 'queued'}", figures)
        return typed_json.decode(kind, job.answer(), "the worker's answer")


def restoration_of(saved: Saved, restored: Restored) -> Restoration:
    """Combine both answers: bytes by route from the live placements, compared values, findings."""
    found = transfer.transfer(saved.snapshot, restored.snapshot)
    compared = {array.path: array for array in restored.compared}
    arrays = tuple(
        replace(
            row,
            unequal=compared[row.path].unequal if row.path in compared else None,
            first_unequal=compared[row.path].first_unequal if row.path in compared else None,
        )
        for row in found.arrays
    )
    found = replace(found, arrays=arrays)
    findings = tuple(
        Finding("error", UNEQUAL, transfer.unequal_in_words(row), row.path) for row in arrays if row.unequal
    )
    snapshot = replace(restored.snapshot, transfer=found, findings=findings)
    return Restoration(saved.snapshot, snapshot, saved.file_bytes, saved.seconds, restored.seconds)


def refuse_different(saved_layout: Layout, layout: Layout) -> None:
    """Refuse two layouts whose train states are not the same arrays.

    Raises:
      InvalidInput: the model or a size differs.
    """
    if saved_layout.model != layout.model:
        raise InvalidInput(
            f"model is {saved_layout.model} in the saved layout and {layout.model} in the layout of the "
            "restore, but must be the same in both"
        )
    for name, value in saved_layout.sizes.items():
        if layout.sizes[name] != value:
            raise InvalidInput(
                f"{name} is {layouts.print_size(value)} in the saved layout and "
                f"{layouts.print_size(layout.sizes[name])} in the layout of the restore, but must be the "
                "same in both"
            )
