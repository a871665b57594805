"""The options that describe a layout, and the layout that they give: for `inspect` and `search`."""

import argparse
import sys

from inspector import layout as layouts
from inspector.layout import Layout, rule_files
from inspector.machines import compiler_options
from inspector.machines.compiler_options import Options
from inspector.media.terminal import options as shared
from inspector.media.terminal.options import argument
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.text.errors import InvalidInput, shown
from inspector.text.printable import one_line

_OPTIONS = (
    *("model", "mesh", "axes", "rules", "specs", "state_specs"),
    *("target", "steps", "processes", "optimizer_axes", "compiler_options"),
)
LAYOUT_HELP = "a layout, or a Snapshot with a layout"

LAYOUT = (
    argument("layout", nargs="?", metavar="LAYOUT.json", help=LAYOUT_HELP),
    argument(
        "--model",
        metavar="NAME",
        help=f"one of {', '.join(CATALOGUE)}, or your own as package.module:function",
    ),
    argument("--mesh", metavar="2x4", help="sizes of the mesh axes"),
    argument(
        "--axes",
        metavar="data,model",
        help="names of the mesh axes; data:explicit,model for an explicit axis",
    ),
    argument(
        "--rules",
        metavar="batch=data,hidden=model",
        help="rules in order; embed=fsdp+tensor for more than one mesh axis, embed= for none; or a file with "
        "rules: YAML of MaxText or Levanter",
    ),
    argument(
        "--rule-set",
        metavar="NAME",
        help="a list in the file of --rules; the first one by default",
    ),
    argument(
        "--specs",
        metavar="W1=None.model,…",
        help="PartitionSpecs of a model with device axes, instead of rules",
    ),
    argument(
        "--state-specs",
        metavar="PATTERN=SPEC;…",
        help="PartitionSpecs of a model with state_specs, by regular expressions of paths in order: "
        "'wq/kernel=fsdp.mp;bias=;.*=fsdp(data,1024)'; fsdp shards the largest dimension of an array above "
        "a number of bytes",
    ),
    argument("--sizes", metavar="NAME", help="the sizes of a published model, such as Llama-3-8B"),
    argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="one size of the model; may be repeated",
    ),
    argument(
        "--target",
        metavar="T",
        help="cpu (default): build and run; plan: shapes and specs only; tpu:v5p:4x4x4, "
        "tpu:v5e:16x16*2 or gpu:h100:8: compile for a machine, without the machine",
    ),
    argument("--steps", metavar="N", help="number of measured train steps and inferences"),
    argument(
        "--processes",
        metavar="N",
        help="1 (default), 2 or 4 processes that share the devices, with jax.distributed",
    ),
    argument(
        "--optimizer-axes",
        metavar="data,…",
        help="mesh axes over which the optimizer state is sharded in addition to its parameters (ZeRO-1)",
    ),
    argument(
        "--compiler-options",
        metavar="NAME=VALUE,…",
        help="options of XLA for all programs, such as xla_tpu_scoped_vmem_limit_kib=98304; only those "
        "that are known to be safe",
    ),
    argument(
        compiler_options.UNSAFE_FLAG,
        metavar="NAME=VALUE,…",
        help="any other options of XLA; some start programs and write files. They do not become part of the "
        "layout, and nothing compiled with them is cached",
    ),
)


def layout_of(options: argparse.Namespace) -> Layout:
    """Return the layout of the options, and register its model if it is the user's own.

    Raises:
      InvalidInput: a file cannot be read, or a field is not valid.
    """
    if options.model not in CATALOGUE:
        shared.register_own_model(options.model)
    return layouts.parse(_fields(options)).unwrap()


def unsafe_options_of(options: argparse.Namespace, layout: Layout) -> Options:
    """Return the unsafe options of the compiler on the command line; empty without any.

    Raises:
      InvalidInput: they are malformed, the layout contains one too, or nothing is compiled.
    """
    given = options.unsafe_compiler_options
    if given is None:
        return ()
    unsafe = layouts.parse_unsafe_compiler_options(given)
    for name, _ in unsafe:
        if name in dict(layout.compiler_options):
            raise InvalidInput(
                f"{compiler_options.UNSAFE_FLAG} has {shown(name)}, which compiler_options has too, but must "
                "give each option once"
            )
    if layout.target == "plan":
        raise InvalidInput(
            f"{compiler_options.UNSAFE_FLAG} is {shown(given)}, but must be left out for target plan, which "
            "compiles nothing"
        )
    return unsafe


def _fields(options: argparse.Namespace) -> dict[str, str]:
    fields: dict[str, str] = {}
    if options.layout is not None:
        fields = layouts.to_fields(shared.read_layout(options.layout))
    given = {name: getattr(options, name) for name in _OPTIONS if getattr(options, name) is not None}
    if "axes" in given:
        fields.pop("axis_types", None)  # an axis without a type is auto
    if options.sizes is not None:
        given = _sizes_of(options.sizes, (fields | given).get("model")) | given
    for pair in options.set:
        name, separator, value = pair.partition("=")
        if name in _OPTIONS:
            option = name.replace("_", "-")
            raise InvalidInput(
                f"--set is {shown(pair)}, but {name} is not a size of the model: use --{option}"
            )
        if not separator:
            raise InvalidInput(f"--set is {shown(pair)}, but must be SIZE=VALUE, such as --set depth=512")
        given[name] = value
    path = given.get("rules", "")
    rule_files.check_exists(path)
    if path and rule_files.is_file(path):
        del given["rules"]
        keep_mesh = True if "mesh" in given or "axes" in given else None
        layout = layouts.parse(fields | given).unwrap()
        return layouts.to_fields(_with_rules(layout, path, options.rule_set, keep_mesh))
    if options.rule_set is not None:
        raise InvalidInput(f"--rule-set is {shown(options.rule_set)}, but --rules must be a file for it")
    return fields | given


def _with_rules(layout: Layout, path: str, name: str | None, keep_mesh: bool | None) -> Layout:
    """Return the layout with the rules of a file. Report its mesh and the rules that it does not use."""
    rule_set = rule_files.chosen(rule_files.rule_sets(rule_files.read(path), path), name)
    changed = rule_set.applied_to(layout, keep_mesh)
    print(one_line(f"{path}: {rule_files.applied_text(rule_set, changed)}"), file=sys.stderr)
    return changed


def _sizes_of(name: str, model: str | None) -> dict[str, str]:
    """Return the sizes of a published model, as the text of fields."""
    entry = layouts.parse({} if model is None else {"model": model}).unwrap().entry
    chosen = next((preset for preset in entry.presets if preset.name.lower() == name.lower()), None)
    if chosen is None:
        names = ", ".join(preset.name for preset in entry.presets) or "none"
        raise InvalidInput(f"--sizes is {shown(name)}, but model {entry.name} has {names}")
    return {key: layouts.print_size(value) for key, value in entry.sizes_of(chosen).items()}
