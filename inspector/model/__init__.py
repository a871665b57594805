"""Descriptions of models: static facts in the catalogue, and the `Model` that a build function returns.

Your own model is a function `build(**sizes) -> Model`, passed as `--model package.module:build`. Its keyword
parameters with a number, text or bool as default are the sizes that can be set. See `examples/` for Linen
and nnx.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from inspector.model.state_specs import by_regex, fsdp
from inspector.records.snapshot import MeshAxis, Spec
from inspector.sharding.rules import Rule, RulesSemantics
from inspector.sharding.state_specs import SpecRow

SizeValue = int | float | bool | str

# Names of dimensions: logical axes, which rules map to mesh axes, or mesh axes.
Names = Literal["logical", "mesh"]


@dataclass(frozen=True)
class Size:
    """A number, switch or choice of a model: its default, meaning and allowed values.

    `choices` are the allowed texts; empty allows any text. `least` and `most` bound a number. `normalize`
    returns the value of a text that can have other values than the choices, or raises InvalidInput.
    """

    name: str
    default: SizeValue
    meaning: str
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    normalize: Callable[[str], str] | None = None


@dataclass(frozen=True)
class SizePreset:
    """Sizes of a published model. The other sizes have their defaults."""

    name: str
    meaning: str
    sizes: Mapping[str, SizeValue]


@dataclass(frozen=True)
class PipelineSizes:
    """The sizes of a model that are the stages of a pipeline and its microbatches, by their names.

    The logical axis with the name of the stages is that of the parameters of all stages. With one stage,
    there is no pipeline. The microbatches divide `batch`.

    outside: logical axes of arrays outside of the stages, which their mesh axis can shard too.
    """

    stages: str
    microbatches: str
    outside: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)  # a key of what is computed once for a model, by identity
class ModelEntry:
    """A model in the catalogue, described without importing JAX.

    Attributes:
      build: `package.module:function`.
      logical_axes: the meaning of each logical axis.
      partitions: the logical axes of each parameter and activation that has a PartitionSpec. Empty for a
        model with logical axes and rules.
      constraints: activations whose sharding constraint can be switched off.
      presets: sizes to start from.
      extents: the size that is the extent of a logical axis, if it has another name or is known.
      multiples: the size that another one must be a multiple of.
      on_mesh: the values of sizes with which programs depend on the mesh, as those of `jax.shard_map` do.
      pipeline: the sizes that a search varies with the mesh axis of stages. None for a model without stages.
      names, rules_semantics: as in `Model`.
      own: whether it is the user's own model.
      mesh_axes: the mesh axes that the rules, names and code of a user's model have.
      set_mesh: whether its programs are traced under `jax.set_mesh`.
      state_specs: rows that give the PartitionSpec of a path. None if the names of dimensions give it.
      other_specs: whether the code of the model gives a PartitionSpec to paths that match no row.
      mesh: the axes of the model's default mesh; empty without one.
      programs: the names of the model's programs other than init.
      programs_of: returns the same from the sizes; None if they do not depend on them.
      traceable: whether JAX can trace the functions of the model as they are.
    """

    name: str
    title: str
    build: str
    sizes: tuple[Size, ...]
    logical_axes: Mapping[str, str]
    rules: tuple[Rule, ...]
    partitions: Mapping[str, tuple[str, ...]]
    constraints: tuple[str, ...] = ()
    presets: tuple[SizePreset, ...] = ()
    extents: Mapping[str, str] = field(default_factory=dict)
    multiples: Mapping[str, str] = field(default_factory=dict)
    on_mesh: Mapping[str, SizeValue] = field(default_factory=dict)
    pipeline: PipelineSizes | None = None
    names: Names = "logical"
    rules_semantics: RulesSemantics = "linen"
    own: bool = False
    # The ends of the array paths that belong to each partition. Moments end like their parameters.
    partition_paths: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    mesh_axes: tuple[str, ...] = ()
    state_specs: tuple[SpecRow, ...] | None = None
    other_specs: bool = False
    mesh: tuple[MeshAxis, ...] = ()
    set_mesh: bool = True
    programs: tuple[str, ...] = ("train_step", "apply")
    programs_of: Callable[[Mapping[str, SizeValue]], tuple[str, ...]] | None = None
    traceable: bool = True

    @property
    def has_rules(self) -> bool:
        return self.names == "logical" and not self.partitions

    def size(self, name: str) -> Size | None:
        return next((size for size in self.sizes if size.name == name), None)

    def sizes_of(self, preset: SizePreset) -> dict[str, SizeValue]:
        """Return every size of the model, with the values of the preset."""
        return {size.name: preset.sizes.get(size.name, size.default) for size in self.sizes}


# A pytree of JAX whose structure and leaves a user decides, such as a train state. JAX has no type for it.
PyTree: TypeAlias = Any
Batch = dict[str, Any]

# The programs that a Model has fields for.
RESERVED_PROGRAMS = ("init", "train_step", "apply")


@dataclass(frozen=True, kw_only=True)
class Model:
    """Pure functions over pytrees, ready to be traced, and what shards their arrays.

    Return it from a function whose keyword arguments are sizes, and pass the name of that function: `--model
    package.module:build`. Every page and verb then works for your model as for the built-in models.

    Attributes:
      init: (key, batch) -> state, any pytree, such as a Flax TrainState, an Equinox module or nnx variables.
        Leaves can be boxes (`nn.Partitioned`, `nn.LogicallyPartitioned`), nnx variables with sharding
        metadata, or Haliax's `NamedArray`, whose axis names are logical axes. A leaf without names is
        replicated; on explicit mesh axes it has the sharding of its type. Leaves that are not arrays, such as
        the functions in an Equinox module, are constants.
      batch: key -> batch, random input arrays by name. Or the arrays themselves, or their
        `jax.ShapeDtypeStruct`, by name.
      step: (state, batch) -> (state, loss), one training step with a scalar loss, or None.
      apply: (state, batch) -> output, inference, or None.
      programs: other programs by name, such as `prefill` and `decode`: (state, batch) -> output, or
        -> (state, output) if the program changes the state, such as a cache of keys and values.
      donates: names of `programs` that write the new state over the old one, also if the layout does not
        donate it. A decode step would otherwise copy its whole cache.
      state_specs: PartitionSpecs of the state, which replace its names: `by_regex([...])`, `fsdp(axis)`, a
        function (path, shape, mesh) -> PartitionSpec or None, or a pytree of PartitionSpecs or NamedShardings
        like the state or a prefix of it.
      batch_axes: names of the dimensions of batch arrays. A missing array is replicated.
      output_axes: names of the dimensions of the output of `apply`. None replicates it, or keeps its type
        on explicit mesh axes.
      names: whether these are logical axes or mesh axes. By default they are mesh axes if there are
        `state_specs`, else logical axes.
      rules: default rules as in Flax: `("embed", "fsdp")`, `("batch", ("data", "fsdp"))`, `("heads", None)`.
        Rules with unknown mesh axes are left out, with a warning.
      rules_semantics: how rules are applied.
      mesh: the default mesh: `{"data": 2, "model": 4}`, or a `jax.sharding.AbstractMesh` or `Mesh`.
      axis_types: `auto` or `explicit` for all its axes, or one for each. None takes those of `mesh`, and auto
        without these.
      set_mesh: whether programs are traced under `jax.set_mesh`. None does so unless the code fails under it.
      routing: of a mixture of experts, (state, batch) -> the tokens of each sequence that chose each expert,
        integers (layer, sequence, expert). A run calls it once, after the last step. None if unknown.
      kernel_costs: FLOPs and bytes of one execution on one device of custom kernels that state none, by the
        name of the kernel, the target of the call or its line: `{"my_attention": (2e9, 1e6)}`. Or a function
        of the sizes of the mesh axes by name that returns this, because a device of a larger mesh computes
        less. Predictions count them, as with `--kernel-cost`, and list them as assumptions.
      pipeline: the names of two sizes, ("stages", "microbatches"), if the model is a pipeline with more than
        one stage. A search gives the first one the size of the mesh axis `stage`, which shards the logical
        axis of this name, and varies the second one. Layers and result must be the same with any of them.

    Example:
      >>> import jax
      >>> from inspector.model import Model
      >>> def build(*, width: int = 256):
      ...     return Model(
      ...         init=lambda key, batch: {"kernel": jax.random.normal(key, (width, width))},
      ...         apply=lambda state, batch: batch["x"] @ state["kernel"],
      ...         batch={"x": jax.ShapeDtypeStruct((16, width), "float32")},
      ...         batch_axes={"x": ("data", None)},
      ...         state_specs=[("kernel", (None, "model"))],
      ...         mesh={"data": 2, "model": 4},
      ...     )
      >>> model = build(width=64)
      >>> state = jax.eval_shape(model.init, jax.random.key(0), model.batch)
      >>> jax.eval_shape(model.apply, state, model.batch).shape
      (16, 64)
    """

    init: Callable[[Any, Batch], Any]
    batch: Callable[[Any], Batch] | Mapping[str, Any]
    step: Callable[[Any, Batch], tuple[Any, Any]] | None = None
    apply: Callable[[Any, Batch], Any] | None = None
    programs: Mapping[str, Callable[[Any, Batch], Any]] = field(default_factory=dict)
    donates: Collection[str] = ()
    state_specs: Any = None
    batch_axes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    output_axes: Sequence[Any] | None = None
    names: Names = None  # type: ignore[assignment]  # `__post_init__` sets it
    rules: Sequence[tuple[str, Any]] = ()
    rules_semantics: RulesSemantics = "linen"
    mesh: Any = None
    axis_types: Any = None
    set_mesh: bool | None = None
    routing: Callable[[Any, Batch], Any] | None = None
    kernel_costs: (
        Mapping[str, tuple[float, float]] | Callable[[Mapping[str, int]], Mapping[str, tuple[float, float]]]
    ) = field(default_factory=dict)
    pipeline: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", self.names or ("logical" if self.state_specs is None else "mesh"))


# The PartitionSpec of each place of a model with partitions.
Partitions = Mapping[str, Spec]
