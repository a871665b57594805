"""A train state that one worker saves under one layout and another restores under another.

The number of devices is fixed when JAX starts, so the two layouts need two workers. They share a temporary
folder, which is removed at the end.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from typing import Any, Literal

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
from inspector.service.engine import LOCAL, Environment, Job, Pool, Requester, Status
from inspector.service.subject import subject_of

TIMEOUT = 900.0  # seconds for each of the two jobs
UNEQUAL = "unequal-after-restore"

Stage = Literal["save", "restore"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """The state as it was saved and as it was restored.

    `snapshot` is the restored state, with the `transfer` between the two live placements. `file_bytes` is
    the size of Orbax's files. The seconds are those of Orbax on this machine.
    """

    saved: Snapshot
    snapshot: Snapshot
    file_bytes: int
    seconds_saving: float
    seconds_restoring: float


@dataclass(frozen=True)
class RestorationStatus:
    """A restoration at one moment: its `state` like that of a job, and its current stage and job."""

    state: str
    stage: Stage
    job: Status | None
    error: str | None

    @property
    def finished(self) -> bool:
        return self.state in ("done", "failed", "cancelled")


class Restoration:
    """One save and one restore, with the methods of a Job. Thread safe.

    Raises:
      InvalidInput: the train states of the two layouts differ, or the disk is too full.
    """

    def __init__(
        self,
        pool: Pool,
        saved_layout: Layout,
        layout: Layout,
        planned: Snapshot,
        memory: int | None = None,
        requester: Requester = LOCAL,
    ) -> None:
        refuse_different(saved_layout, layout)
        sums = state_totals(planned)
        temporary_folder.refuse_too_large(temporary_folder.bytes_needed(sums.bytes or 0, sums.arrays))
        self.saved_layout, self.layout = saved_layout, layout
        self.planned = planned
        self._pool = pool
        self._memory = memory
        self._requester = requester
        self._lock = threading.Lock()  # guards the stage, its job, and whether it was cancelled
        self._stage: Stage = "save"
        self._job: Job[dict[str, Any]] | None = None
        self._cancelled = False
        self._outcome: Future[Outcome] = Future()
        # A daemon, because the pool ends its jobs when the server ends.
        threading.Thread(target=self._save_and_restore, name="restoration", daemon=True).start()

    def status(self) -> RestorationStatus:
        """Return its status now."""
        with self._lock:
            job = self._job.status() if self._job is not None else None
            if not self._outcome.done():
                queued = job is None or (self._stage == "save" and job.state == "queued")
                return RestorationStatus("queued" if queued else "running", self._stage, job, None)
            error = self._outcome.exception()
            if error is None:
                return RestorationStatus("done", self._stage, job, None)
            ended = self._cancelled or (job is not None and job.state == "cancelled")
            return RestorationStatus("cancelled" if ended else "failed", self._stage, job, str(error))

    def cancel(self) -> None:
        """Stop it. Return at once."""
        with self._lock:
            self._cancelled = True
            if self._job is not None:
                self._job.cancel()

    def wait(self, timeout: float | None = None) -> Restoration:
        """Block until it is finished and its folder is removed, at most `timeout` seconds."""
        wait([self._outcome], timeout)
        return self

    def answer(self) -> Outcome:
        """Return the outcome, with a finding for each array that is not placed as planned.

        Raises:
          InvalidInput: it failed, was cancelled or is not finished.
        """
        if not self._outcome.done():
            raise InvalidInput("the restoration has not finished")
        outcome = self._outcome.result()
        state = tuple(array for array in self.planned.arrays if array.group in STATE_GROUPS)
        found = outcome.snapshot
        differences = disagreements(replace(self.planned, arrays=state), found)
        return replace(outcome, snapshot=replace(found, findings=found.findings + differences))

    def _save_and_restore(self) -> None:
        try:
            folder = TemporaryFolder()
            try:
                saved = self._run("save", self.saved_layout, folder, Saved)
                restored = self._run("restore", self.layout, folder, Restored)
                outcome = outcome_of(saved, restored)
            finally:
                folder.remove()
            self._outcome.set_result(outcome)
        except InvalidInput as refused:
            self._outcome.set_exception(refused)
        except Exception as error:
            _log.exception("A restoration failed.")
            self._outcome.set_exception(InvalidInput(f"the restoration failed: {error}"))

    def _run(self, stage: Stage, layout: Layout, folder: TemporaryFolder, kind: type[AnyRecord]) -> AnyRecord:
        """Return the answer of one of the two jobs.

        Raises:
          InvalidInput: it failed or was cancelled.
        """
        payload = {
            "layout": layout.to_json(), "folder": str(folder.path), "memory": self._memory,
        }  # fmt: skip
        with self._lock:
            if not self._cancelled:
                self._stage = stage
                self._job = self._pool.submit(
                    f"{stage}_checkpoint",
                    payload,
                    Environment(layout.devices),
                    TIMEOUT,
                    self._requester,
                    subject_of(payload),
                    lane=lanes.RUNS,
                )
            job = self._job
        if job is not None:
            job.wait()
        if job is None or self._cancelled:
            at = "" if job is None else f" during the {self._stage}"
            raise InvalidInput(f"Cancelled{at}; the checkpoint is removed.")
        return typed_json.decode(kind, job.answer(), "the worker's answer")


def outcome_of(saved: Saved, restored: Restored) -> Outcome:
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
    return Outcome(saved.snapshot, snapshot, saved.file_bytes, saved.seconds, restored.seconds)


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
