"""The options of XLA that a layout may have (compiler_options.json), and the check of names and values.

XLA has about 1,500 options. Some name folders to write to, files to read, and the folder of programs that a
compile starts: `xla_gpu_cuda_data_dir=DIR` starts `DIR/bin/ptxas`. A layout can come from a link or a file of
somebody else, so it may only have options of this table. None of them takes a path, a command, an address, a
regular expression or free text: an option that XLA reads as text has a closed set of words here. Numbers are
bounded, so that no option makes a compile endless.

The command line takes other options with `--unsafe-compiler-options`. They never become part of a layout.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inspector.machines.hardware import Chip
from inspector.records.snapshot import Platform, Snapshot
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import and_text

# How the compilers for TPUs and GPUs make a collective asynchronous, and which options keep them from it.
#
# Each entry was tried: programs with one collective and three independent matrix products were compiled with
# and without the option, for eight devices of each chip that is named. Other chips and versions can differ.


_DISABLED = "xla_gpu_disable_async_collectives"
_OFF = frozenset({"false", "disabled"})
_ON = frozenset({"true", "enabled"})
_TPU = "XLA for TPUs"
_TRIED_ON_GPUS = "H100 with JAX 0.10"
_WORDS = {
    "all-gather": "ALLGATHER",
    "all-reduce": "ALLREDUCE",
    "reduce-scatter": "REDUCESCATTER",
    "all-to-all": "ALLTOALL",
    "collective-permute": "COLLECTIVEPERMUTE",
}
# Whether each operation is asynchronous without any option. Operations that are missing were not tried.
_DEFAULTS: Mapping[str, Mapping[str, bool]] = {
    "v5e": {
        **{"all-gather": True, "all-reduce": False, "reduce-scatter": False, "all-to-all": False},
        "collective-permute": True,
    },
    "v5p": {"all-gather": False, "all-to-all": False, "collective-permute": True},
    "v6e": {
        **{"all-gather": False, "all-reduce": False, "reduce-scatter": False, "all-to-all": False},
        "collective-permute": True,
    },
}
_SWITCHES = {
    "all-gather": (
        "xla_enable_async_all_gather",
        "xla_tpu_enable_async_collective_fusion",
        "xla_tpu_enable_async_collective_fusion_fuse_all_gather",
    ),
    "all-reduce": (
        "xla_enable_async_all_reduce",
        "xla_tpu_enable_async_collective_fusion_fuse_all_reduce",
    ),
    "reduce-scatter": (),
    "all-to-all": ("xla_tpu_enable_async_all_to_all",),
    "collective-permute": ("xla_enable_async_collective_permute",),
}


@dataclass(frozen=True)
class Overlap:
    """How one compiler makes one operation asynchronous.

    Attributes:
      machine: whose compiler it is, in words.
      tried: chips and version with which the options were tried.
      default: whether it is asynchronous without any option.
      switches: options that make it asynchronous; each that is false keeps it synchronous.
      word: what `xla_gpu_disable_async_collectives` calls the operation. "" for TPUs.
    """

    machine: str
    tried: str
    default: bool
    switches: tuple[str, ...] = ()
    word: str = ""

    def switched_off(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """Return the options of a compile that keep the operation synchronous, as `name=value`."""
        off = [f"{name}={options[name]}" for name in self.switches if options.get(name, "").lower() in _OFF]
        words = options.get(_DISABLED, "").upper().split(",")
        if self.word and {self.word, "ALLCOLLECTIVES"} & set(words):
            off.append(f"{_DISABLED}={options[_DISABLED]}")
        return tuple(off)

    def _switched_on(self, options: Mapping[str, str]) -> bool:
        values = [options.get(name, "").lower() for name in self.switches]
        return bool(values) and all(value in _ON for value in values)

    def text(self, options: Mapping[str, str] | None) -> str:
        """Return how the operation becomes asynchronous, as a sentence with names between backticks.

        Args:
          options: those of the compile. None if they are unknown.
        """
        if off := self.switched_off(options or {}):
            return f"It was compiled with {and_text([f'`{option}`' for option in off])}."
        if options is not None and (self.default or self._switched_on(options)):
            return (
                f"{self.machine} did not make it asynchronous, although the options of its compile allow it."
            )
        tried = f"As tried for {self.tried}, {self.machine}"
        if self.word:
            return (
                f"{tried} makes it asynchronous by default, and keeps it synchronous if `{_DISABLED}` has "
                f"`{self.word}`, or if nothing runs between its start and its end."
            )
        if not self.switches:
            return f"{tried} keeps it synchronous: no option was found that changes this."
        if self.default:
            switches = and_text([f"`{name}`" for name in self.switches], "or")
            return (
                f"{tried} makes it asynchronous by default, and keeps it synchronous if {switches} is false."
            )
        switches = and_text([f"`{name}=true`" for name in self.switches])
        return f"{tried} keeps it synchronous by default, and makes it asynchronous with {switches}."


def given(snapshot: Snapshot) -> dict[str, str] | None:
    """Return the options of XLA with which the programs of a Snapshot were compiled; None if unknown."""
    if snapshot.layout is None:
        return None
    written = snapshot.layout.get("compiler_options")
    options = {str(name): str(value) for name, value in written.items()} if isinstance(written, dict) else {}
    unsafe = (option.partition("=") for option in (snapshot.source.unsafe_compiler_options or "").split(","))
    return options | {name: value for name, equal, value in unsafe if equal}


def overlap_of(platform: Platform, op: str, chip: Chip | None) -> Overlap | None:
    """Return how the compiler for a chip makes an operation asynchronous; None if that was not tried."""
    if platform == "gpu":
        word = _WORDS.get(op)
        return None if word is None else Overlap("XLA for GPUs", _TRIED_ON_GPUS, True, (), word)
    default = _DEFAULTS.get(chip.name, {}).get(op) if platform == "tpu" and chip is not None else None
    if chip is None or default is None:
        return None
    return Overlap(_TPU, f"{chip.name} with libtpu 0.0.42", default, _SWITCHES[op])


# Name and value of each option, as text.
Options = tuple[tuple[str, str], ...]

UNSAFE_FLAG = "--unsafe-compiler-options"
# Has the unsafe options of a worker process, as JSON. A process passes it on to no other process.
UNSAFE_VARIABLE = "SHARDING_INSPECTOR_UNSAFE_COMPILER_OPTIONS"
# XLA starts `ptxas` from this folder. Its default is `cuda_sdk_lib` in the current folder, which can be of
# somebody else. JAX sets the folder of an installed CUDA package for each compile.
NO_CUDA_FOLDER = "--xla_gpu_cuda_data_dir=/dev/null"
UNSAFE = "unsafe-compiler-options"  # the code of the finding

_WHOLE = re.compile(r"-?[0-9]{1,15}")
_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?([eE]-?[0-9]{1,2})?")
_SWITCH = ("true", "false")
_SIMILAR = 3  # names in an error


@dataclass(frozen=True)
class Option:
    """The allowed values of one option.

    Attributes:
      words: The allowed words. Those of `true` and `false` may be in any case. Empty for a number.
      least, most: The bounds of a number.
      whole: Whether the number must be a whole one.
      unknown_to: Versions of JAX whose compilers do not know the option.
      prefix: What `XLA_FLAGS` allows to leave out at the beginning of a word. JAX does not.
    """

    words: tuple[str, ...] = ()
    least: float = 0
    most: float = 0
    whole: bool = True
    unknown_to: tuple[str, ...] = ()
    prefix: str = ""

    @property
    def allowed(self) -> str:
        """Return the allowed values in words.

        Example:
          >>> OPTIONS["xla_backend_optimization_level"].allowed
          'a whole number from 0 to 3'
        """
        if self.words:
            return f"one of {', '.join(self.words)}" if len(self.words) > 1 else self.words[0]
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} from {self.least:,} to {self.most:,}"

    @property
    def example(self) -> str:
        """Return one allowed value."""
        return self.words[0] if self.words else str(max(1, self.least))

    def allows(self, value: str) -> bool:
        """Return whether a text is an allowed value."""
        if self.words:
            return value in self.words or (value.lower() in _SWITCH and value.lower() in self.words)
        pattern = _WHOLE if self.whole else _NUMBER
        if not value.isascii() or not pattern.fullmatch(value):
            return False
        return self.least <= float(value) <= self.most


# Flags of the same recipes that no layout has, by the beginning of their names, and why.
NO_OPTIONS = {
    "megascale_": "is an option of the transport between slices, which does not change the compiled program",
    "xla_dump_": "writes files, and does not change the compiled program",
    "xla_force_host_platform_device_count": "is the number of emulated devices, which --mesh gives",
    "xla_gpu_enable_while_loop_unrolling": "can make a compile endless",
}


def _option(words: Sequence[str] = (), unknown_to: Sequence[str] = (), **others: Any) -> Option:
    return Option(tuple(words), unknown_to=tuple(unknown_to), **others)


def _read() -> dict[str, Option]:
    """Return the table, which is a file. Its keys say where the options come from."""
    groups = json.loads((Path(__file__).parent / "compiler_options.json").read_bytes())
    return {name: _option(**row) for group in groups.values() for name, row in group.items()}


OPTIONS: dict[str, Option] = _read()


def check(options: Iterable[tuple[str, str]]) -> None:
    """Check that all options are in the table, with an allowed value.

    Example:
      >>> check([("xla_tpu_scoped_vmem_limit_kib", "98304")])

    Raises:
      InvalidInput: one is not. The message names it and the allowed ones.
    """
    for name, value in options:
        option = OPTIONS.get(name)
        others = f"the command line takes others with {UNSAFE_FLAG}"
        if reason := next((why for start, why in NO_OPTIONS.items() if name.startswith(start)), None):
            raise InvalidInput(f"compiler_options has {shown(name)}, which {reason}: leave it out; {others}")
        if option is None:
            raise InvalidInput(
                f"compiler_options has {shown(f'{name}={value}')}, but must have options of XLA that are "
                f"known to be safe, such as {', '.join(_similar(name))}; {others}"
            )
        if not option.allows(value):
            raise InvalidInput(
                f"compiler_options has {shown(f'{name}={value}', 120)}, but the value must be "
                f"{option.allowed}; {others}"
            )


def with_colons(name: str, value: str) -> str:
    """Return the allowed value of which a link has dots for colons; the value itself if there is none.

    Example:
      >>> with_colons("xla_tpu_memory_bound_loop_optimizer_options", "enabled.true")
      'enabled:true'
    """
    words = OPTIONS[name].words if name in OPTIONS else ()
    return next((word for word in words if word.replace(":", ".") == value), value)


def _similar(name: str) -> list[str]:
    """Return the names of the table that share most words with a name.

    `difflib` takes 0.02 s for as many names, and a file of runs can have thousands of unknown ones.
    """
    words = set(name.split("_"))

    def unlike(known: str) -> tuple[int, int]:
        return -len(words.intersection(known.split("_"))), abs(len(known) - len(name))

    return sorted(OPTIONS, key=unlike)[:_SIMILAR]


def arguments(options: Iterable[tuple[str, str]]) -> dict[str, str | bool]:
    """Return options as JAX takes them: the compiler for CPUs refuses `true` as text.

    Example:
      >>> arguments([("xla_cpu_enable_fast_math", "true"), ("xla_backend_optimization_level", "1")])
      {'xla_cpu_enable_fast_math': True, 'xla_backend_optimization_level': '1'}
      >>> arguments([("xla_gpu_pipeline_all_gather", "on")])
      {'xla_gpu_pipeline_all_gather': 'COLLECTIVE_PIPELINING_MODE_ON'}
    """
    switches = {"true": True, "false": False}
    return {name: switches.get(value.lower(), _in_full(name, value)) for name, value in options}


def _in_full(name: str, value: str) -> str:
    prefix = OPTIONS[name].prefix if name in OPTIONS else ""
    return value if value.startswith(prefix) else f"{prefix}{value.upper()}"


def text(options: Iterable[tuple[str, str]]) -> str:
    """Return options for reading.

    Example:
      >>> text([("xla_a", "1"), ("xla_b", "2")])
      'xla_a=1,xla_b=2'
    """
    return ",".join(f"{name}={value}" for name, value in options)


def unsafe_variables(options: Options) -> tuple[tuple[str, str], ...]:
    """Return the environment variables of a worker that compiles with unsafe options, as (name, value).

    A worker keeps them until its end. So no request to a worker can contain unsafe options, and no
    other layout is compiled with them.
    """
    return ((UNSAFE_VARIABLE, json.dumps(options)),) if options else ()


def unsafe_options(environment: Mapping[str, str] = os.environ) -> Options:
    """Return the unsafe options of this worker process; empty in any other process."""
    plain = json.loads(environment.get(UNSAFE_VARIABLE, "[]"))
    return tuple((name, value) for name, value in plain)
