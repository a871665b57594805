"""The options that each installed compiler has, from the descriptors of protocol buffers in its library.

XLA finds an option by the name of a field of two messages, so these are all options that a compiler accepts.
"""

from __future__ import annotations

import functools
import importlib.util
import mmap
import re
from pathlib import Path

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError

# The library of each compiler, as (package, file).
LIBRARIES = {
    "cpu": ("jaxlib", "libjax_common.so"),
    "tpu": ("libtpu", "libtpu.so"),
    "gpu": ("jax_plugins.xla_cuda13", "xla_cuda_plugin.so"),
}
# The files of the messages, by the end of their names. Only the compiler for TPUs has the second one.
_FILE, _MESSAGE = b"xla/xla.proto", "DebugOptions"
_TPU_FILE, _TPU_MESSAGE = b"/tpu_compilation_environment.proto", "TpuCompilationEnvironment"
_LONGEST = 5_000_000  # bytes of a descriptor


def installed() -> list[str]:
    """Return the names of the compilers that are installed."""
    return [name for name in LIBRARIES if _library(name) is not None]


@functools.cache
def options(compiler: str) -> dict[str, FieldDescriptorProto]:
    """Return the field of each option of a compiler, by name."""
    path = _library(compiler)
    assert path is not None
    found: dict[str, FieldDescriptorProto] = {}
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        messages = {_FILE: _MESSAGE} | ({_TPU_FILE: _TPU_MESSAGE} if compiler == "tpu" else {})
        for name, message in messages.items():
            for described in _descriptors(data, name):
                for one in described.message_type:
                    if one.name == message:
                        found |= {field.name: field for field in one.field}
    assert len(found) > 200, compiler
    return found


def _library(compiler: str) -> Path | None:
    package, file = LIBRARIES[compiler]
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / file
    return path if path.is_file() else None


def _descriptors(data: mmap.mmap, name: bytes) -> list[FileDescriptorProto]:
    """Return the descriptors of files whose name ends so. They begin with their name, as field 1."""
    found, at = [], data.find(name)
    while at >= 0:
        head = data[max(0, at - 130) : at + len(name)]
        for start in re.finditer(rb"\n([\x01-\x7f])(?=[\w/.-]+\Z)", head):
            if start[1][0] == len(head) - start.end():
                described = _parsed(data[at + len(name) - len(head) + start.start() :][:_LONGEST])
                found += [described] if described is not None else []
        at = data.find(name, at + 1)
    return found


def _parsed(text: bytes) -> FileDescriptorProto | None:
    """Return the descriptor at the beginning of a text. It ends where no more of its fields follow."""
    at = 0
    try:
        while at < len(text):
            key, after = _number(text, at)
            if key >> 3 not in range(1, 15) or (at and key >> 3 == 1) or key & 7 not in (0, 2):
                break
            size, after = _number(text, after)
            at = after + (size if key & 7 == 2 else 0)
        return FileDescriptorProto.FromString(text[:at])
    except (DecodeError, IndexError):
        return None


def _number(text: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place, and the place after it."""
    value = shift = 0
    while True:
        value |= (text[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if text[at - 1] < 128:
            return value, at
