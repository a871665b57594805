"""`code`: a runnable Flax script that gives exactly this layout."""

from __future__ import annotations

import argparse
import sys

from inspector.core import output
from inspector.core.errors import InvalidInput, shown
from inspector.layout.script import script
from inspector.media.terminal import layout_file
from inspector.service.own_model_registration import register_own

NAME = "code"
HELP = "write a Flax script that builds and trains a model in exactly this layout"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "layout", metavar="LAYOUT.json", help="a layout, or a Snapshot that has one"
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="the layout's model where it is one of your own, as package.module:function",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="standard output if absent")


def run(options: argparse.Namespace) -> None:
    """Write the script of the layout; a file names a model of one's own, and does not have it read."""
    if options.output is not None:
        output.refuse_unwritable(options.output)
    if options.model is not None and ":" in options.model:
        register_own(options.model)
    layout = layout_file.read(options.layout)
    if options.model not in (None, layout.model):
        raise InvalidInput(
            f"--model is {shown(options.model)}, but the model of {options.layout} is {layout.model}"
        )
    text = script(layout)
    if options.output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, options.output)
