"""How the compilers for TPUs and GPUs make a collective asynchronous, and which options keep them from it.

Each entry was tried: programs with one collective and three independent matrix products were compiled with
and without the option, for eight devices of each chip that is named. Other chips and versions can differ.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from inspector.core.formatting import and_text
from inspector.core.snapshot import Platform, Snapshot
from inspector.machines.hardware import Chip

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
