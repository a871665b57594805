"""`code`: write a runnable Flax script with the layout."""

from __future__ import annotations

import argparse

from inspector.core import output
from inspector.core.errors import InvalidInput, shown
from inspector.layout.script import script
from inspector.media.terminal import options as shared

NAME = "code"
HELP = "write a Flax script that builds and trains a model with exactly this layout"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "layout", metavar="LAYOUT.json", help="a layout, or a Snapshot with a layout"
    )
    shared.add_own_model(parser, "if the layout is of one")
    shared.add_output(parser, "FILE")


def run(options: argparse.Namespace) -> None:
    """Write the script. A model of the user's own is only loaded if --model names it."""
    if options.output is not None:
        output.refuse_unwritable(options.output)
    shared.register_own_model(options.model)
    layout = shared.read_layout(options.layout)
    if options.model not in (None, layout.model):
        raise InvalidInput(
            f"--model is {shown(options.model)}, but the model of {options.layout} is {layout.model}"
        )
    shared.write_text(script(layout), options.output)
