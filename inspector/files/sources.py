"""The kinds of sources of a Snapshot: one table of producers, one table of file readers.

To add a reader, add an entry to `READERS` and write the module that it names. The module has
`recognizes(sample) -> bool` and `read(path, what, step, report) -> Snapshot`; `READERS` is tried in order.
All readers run in a worker process, and none of them imports JAX.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal


@dataclass(frozen=True)
class Reader:
    """One kind of file or folder that can be read.

    Attributes:
      name: the noun with its article, such as `an Orbax checkpoint`.
      module: the module with the functions `recognizes` and `read`.
      path: what to give on the command line.
      upload: what to upload on the Open page.
      contains: the contents of the file, in a few words.
      has_steps: whether one folder can contain several training steps.
      takes_mesh: whether the user can give the mesh if the file lacks it; then `read` has an argument `mesh`.
    """

    name: str
    module: str
    path: str
    upload: str
    contains: str
    has_steps: bool = False
    takes_mesh: bool = False

    @property
    def title(self) -> str:
        """The noun without its article."""
        return self.name.removeprefix("an ").removeprefix("a ")


@dataclass(frozen=True)
class SourceKind:
    """One value of `Source.kind`.

    Attributes:
      made: how the figures of the Snapshot were made.
      name: the source of arrays and programs that no Layout describes; None for a Snapshot of a Layout.
      reader: the reader that makes such Snapshots; None for the other producers.
    """

    made: str
    name: str | None = None
    reader: Reader | None = None


PROFILE_ENDING = ".xplane.pb"
SNAPSHOT = "snapshot"  # the key of Snapshot files in `READERS`: a Snapshot keeps its own source

READERS: dict[str, Reader] = {
    "profile": Reader(
        name="a JAX profile",
        module="inspector.readers.profile",
        path="the folder that jax.profiler.trace wrote, or a file *.xplane.pb",
        upload="zip of the folder of `jax.profiler.trace`, or one `*.xplane.pb`",
        contains="measured time of each instruction; inputs, outputs, mesh, collectives",
        takes_mesh=True,
    ),
    "orbax": Reader(
        name="an Orbax checkpoint",
        module="inspector.readers.orbax",
        path="the checkpoint's folder, or the folder of a CheckpointManager",
        upload="zip of its folder",
        contains="shapes, dtypes, specs, mesh, bytes",
        has_steps=True,
    ),
    "maxtext": Reader(
        name="a MaxText golden",
        module="inspector.readers.maxtext",
        path="named_shardings.json or its folder",
        upload="`named_shardings.json`, optionally with `logical_shardings.json` and `input_shardings.json`",
        contains="shapes, specs, logical axes, mesh",
    ),
    "sharding": Reader(
        name="a _sharding file",
        module="inspector.readers.sharding_file",
        path="the file _sharding of a checkpoint",
        upload="that file of a checkpoint, also truncated",
        contains="specs and mesh",
    ),
    SNAPSHOT: Reader(
        name="a Snapshot",
        module="inspector.readers.snapshot_file",
        path="a Snapshot file, or a folder of run",
        upload="JSON of `inspect`, of `capture` or of *Share*, or zip of a folder of `run`",
        contains="everything",
    ),
    "stablehlo": Reader(
        name="StableHLO",
        module="inspector.readers.stablehlo",
        path="text or bytecode of a lowered program, such as jax.jit(f).lower(…).as_text()",
        upload="text or bytecode of `jax.jit(f).lower(…)`",
        contains="inputs, outputs, mesh, shardings and collectives",
        takes_mesh=True,
    ),
    "hlo": Reader(
        name="HLO text",
        module="inspector.readers.hlo_text",
        path="compiled text, also as .gz, or a folder that --xla_dump_to wrote",
        upload="compiled text, `.gz`, or zip of an `--xla_dump_to` folder",
        contains="inputs, outputs, mesh, collectives, FLOPs",
        takes_mesh=True,
    ),
}

IMPORT_KINDS: tuple[str, ...] = tuple(sorted(READERS.keys() - {SNAPSHOT}))

SOURCES: dict[str, SourceKind] = {
    "plan": SourceKind("planned, nothing compiled"),
    "cpu": SourceKind("run on emulated devices"),
    "local": SourceKind("run on the devices of this machine"),
    "tpu": SourceKind("compiled, not run"),
    "gpu": SourceKind("compiled, not run"),
    "capture": SourceKind("recorded while the program ran", "a captured state"),
    **{
        kind: SourceKind(f"imported from {READERS[kind].name}", READERS[kind].name, READERS[kind])
        for kind in IMPORT_KINDS
    },
}

if TYPE_CHECKING:
    Kind = str
else:
    Kind = Literal[tuple(SOURCES)]
