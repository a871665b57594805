"""How much of a file is read at most, so that no file can take a worker's memory or disk."""

from __future__ import annotations

# Bytes of one upload. A checkpoint's values are not needed, but an OCDBT keeps shapes beside them.
MOST_UPLOAD_BYTES = 200 * 1024**2
# Bytes of one JSON file. Text takes as many in memory, nothing but empty lists 25 times as many, and so
# the values in it are counted, too: every list, object and comma, each of which may begin one.
MOST_JSON_BYTES = 64 * 1024**2
MOST_JSON_VALUES = 4_000_000
# A Snapshot file may list every shard, and does so with 9 of them in 80 bytes.
MOST_SNAPSHOT_VALUES = 8_000_000
# Bytes of one program's text, unpacked. The records read from it take about six times as many.
MOST_TEXT_BYTES = 128 * 1024**2
# Bytes of all programs' texts of one folder together.
MOST_TEXT_BYTES_TOGETHER = 512 * 1024**2
# Bytes of one array's own metadata (.zarray, zarr.json); a kilobyte is usual.
MOST_ARRAY_METADATA_BYTES = 1024**2
# Arrays and programs of one Snapshot that the pages can still show.
MOST_ARRAYS = 50_000
MOST_PROGRAMS = 1_000
# Devices of one mesh: the largest TPU slice (v5p) has 8,960 chips, several slices are joined.
MOST_DEVICES = 262_144
# Devices of all different meshes of one file: 36 bytes each.
MOST_DEVICES_TOGETHER = 4_000_000
# Shards of all arrays of one Snapshot that are told one by one, which takes half a kilobyte each.
MOST_SHARDS = 400_000

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
