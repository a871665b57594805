"""Read a Snapshot file, or the Snapshot of a folder that `run` wrote."""

from pathlib import Path

from inspector.files import strict_json
from inspector.jobs.program_run import folder_snapshot
from inspector.readers import content
from inspector.readers.content import Report, Sample, no_report
from inspector.records import program_run, snapshot
from inspector.records.snapshot import Snapshot
from inspector.text.errors import InvalidInput


def recognizes(sample: Sample) -> bool:
    """Return whether it is JSON with the format of a Snapshot, in any order of keys, or a folder of `run`."""
    return sample.json_format() == snapshot.FORMAT or program_run.FILE in (sample.names or ())


def read(path: Path, what: str, step: int | None = None, report: Report = no_report) -> Snapshot:
    """Return the Snapshot in a file, in the only file of a folder, or in a folder of `run`.

    Raise InvalidInput if there is none, or several.
    """
    files = content.files_below(path, what) if path.is_dir() else []
    runs = [file.parent for file in files if file.name == program_run.FILE]
    if len(runs) > 1:
        raise InvalidInput(f"{what} contains {len(runs)} folders of `run`, but must contain one")
    if not runs:
        file = content.only_file(path, what)
        return snapshot.from_json(content.read_json(file, what, strict_json.MOST_VALUES), what)
    try:
        return folder_snapshot.read(runs[0])
    except InvalidInput as error:  # it names the folder into which a zip file was unpacked
        raise InvalidInput(str(error).replace(str(runs[0]), what)) from None
