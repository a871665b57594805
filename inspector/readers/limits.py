"""How much of a file is read at most, so that no file can take a worker's memory or disk."""

from __future__ import annotations

# Bytes of one upload. A checkpoint's values are not needed, but an OCDBT keeps shapes beside them.
MOST_UPLOAD_BYTES = 200 * 1024**2
# Bytes of one JSON file. The worst of them, nothing but empty lists, takes 25 times as many in memory.
MOST_JSON_BYTES = 64 * 1024**2
# Bytes of one program's text, unpacked. The records read from it take about six times as many.
MOST_TEXT_BYTES = 128 * 1024**2
# Bytes of all programs' texts of one folder together.
MOST_TEXT_BYTES_TOGETHER = 512 * 1024**2
# Bytes of one array's own metadata (.zarray, zarr.json); a kilobyte is usual.
MOST_ARRAY_METADATA_BYTES = 1024**2
# Levels of lists and objects inside each other: a mesh of 64 axes is written as 64 lists.
DEEPEST_JSON = 96
# Arrays and programs of one Snapshot that the pages can still show.
MOST_ARRAYS = 50_000
MOST_PROGRAMS = 1_000
# Devices of one mesh: the largest TPU slice (v5p) has 8,960 chips, several slices are joined.
MOST_DEVICES = 262_144

# Axes of one mesh: NumPy's limit on dimensions, and so JAX's.
MOST_AXES = 64

# Of an archive: entries, bytes of all of them unpacked, folders inside each other, characters of a path.
MOST_ENTRIES = 50_000
MOST_UNPACKED_BYTES = 1024**3
DEEPEST_PATH = 32
LONGEST_PATH = 1_024
# Bytes that are read at once: the directory of an archive of so many entries with long names fits.
MOST_BYTES_AT_ONCE = 16 * 1024**2
# Files looked at in one folder.
MOST_FILES = 200_000
