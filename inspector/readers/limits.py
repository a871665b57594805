"""Limits on the input, so that no file exhausts the memory or the disk of a worker."""

from inspector.files import strict_json

MOST_UPLOAD_BYTES = 200 * 1024**2
MOST_JSON_BYTES = strict_json.MOST_BYTES
MOST_JSON_VALUES = 4_000_000  # of a file other than a Snapshot
# Bytes of one program's text, unpacked. Its records need about six times as many.
MOST_TEXT_BYTES = 128 * 1024**2
MOST_TEXT_BYTES_TOGETHER = 512 * 1024**2  # of all texts in one folder
MOST_ARRAY_METADATA_BYTES = 1024**2  # of one .zarray or zarr.json, usually a kilobyte
# Arrays and programs of one Snapshot that the pages can still show.
MOST_ARRAYS = 50_000
MOST_PROGRAMS = 1_000
# Of all programs. A step of 126 layers, none of them in a loop, has about 10,000; each is 400 bytes of JSON.
MOST_COLLECTIVES = 100_000
# Bytes of JSON of one Snapshot: no verb reads a larger file.
MOST_SNAPSHOT_BYTES = strict_json.MOST_BYTES
MOST_DEVICES = 262_144  # of one mesh; the largest TPU slice (v5p) has 8,960 chips
MOST_DEVICES_TOGETHER = 4_000_000  # of all different meshes of one file, 36 bytes each
MOST_SHARDS = 400_000  # listed in one Snapshot, half a kilobyte each
MOST_AXES = 64  # of one mesh: NumPy's limit on dimensions

# Archives.
MOST_ENTRIES = 50_000  # files and folders, also those that no entry names
MOST_UNPACKED_BYTES = 1024**3
DEEPEST_PATH = 32  # nested folders
LONGEST_PATH = 1_024  # bytes; less than any system allows, with the path of the folder before it
MOST_BYTES_AT_ONCE = 16 * 1024**2  # enough for the directory of MOST_ENTRIES long names
MOST_FILES = 200_000  # listed in one folder

# Profiles.
MOST_PROFILE_BYTES = 2**31 - 1  # of one file: protobuf has no larger messages
MOST_PROFILES = 4_096  # files of one run, one for each host
MOST_EVENTS = 20_000_000  # of instructions, about 100 bytes each
