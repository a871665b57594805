"""Add the measured steps of a run on this machine to the own runs, on which predictions rest."""

from inspector.files import output
from inspector.machines import targets
from inspector.prediction import calibration
from inspector.prediction.calibration import FORMAT, VERSION, OwnRun, OwnRuns, digest_of
from inspector.prediction.predicted import predicted_in
from inspector.records import typed_json
from inspector.records.snapshot import Snapshot
from inspector.records.statistics import statistics
from inspector.text.errors import InvalidInput

MOST_RUNS = 1_000  # the oldest are removed first


def runs_of(snapshot: Snapshot) -> tuple[OwnRun, ...]:
    """Return one run for each program of a Snapshot with measured steps and a prediction.

    Raises:
      InvalidInput: there is none, because the chip is unknown, no step was measured, or no step is predicted.
    """
    chip, mesh = targets.chip_of(snapshot), snapshot.mesh
    if snapshot.source.kind == "cpu" or mesh is None:
        raise InvalidInput(
            "the Snapshot is not one of a run on a chip: of the target `local`, of `run --profile`, or of a "
            "profile"
        )
    if chip is None:
        raise InvalidInput(f"the chip {mesh.device_kind} is unknown, so that nothing is predicted for it")
    found = []
    for program in snapshot.programs:
        steps = statistics(program.seconds.steps) if program.seconds else None
        seconds = predicted_in(snapshot, program, chip).seconds
        if steps is not None and steps.median > 0 and seconds is not None:
            model = (snapshot.layout or {}).get("model")
            found.append(
                OwnRun(
                    chip.name,
                    mesh.size,
                    program=program.name,
                    measured=steps.median,
                    predicted=seconds,
                    constants=digest_of(chip.name),
                    created=snapshot.source.created,
                    model=model if isinstance(model, str) else None,
                )
            )
    if not found:
        raise InvalidInput("no program of the Snapshot has both measured steps and a prediction")
    return tuple(found)


def add(snapshot: Snapshot) -> tuple[OwnRun, ...]:
    """Add the runs of a Snapshot to the file, each once. Return those that are new.

    Raises:
      InvalidInput: the Snapshot has no such run, or the file is damaged or cannot be written.
    """
    known = calibration.read()
    new = tuple(run for run in runs_of(snapshot) if run not in known)
    if new:
        every = OwnRuns((*known, *new)[-MOST_RUNS:])
        plain = typed_json.encode_file(every, FORMAT, VERSION)
        file = calibration.path()
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInput(f"the folder {file.parent} cannot be created: {error.strerror}") from None
        output.write_text(typed_json.dumps(plain), file)
    return new
