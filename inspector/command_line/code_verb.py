"""`code`: a runnable Flax script that gives exactly this layout."""

from __future__ import annotations

import argparse
import sys

from inspector import output
from inspector.command_line import layout_file
from inspector.layout_script import script

NAME = "code"
HELP = "write a Flax script that builds and trains a model in exactly this layout"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "layout", metavar="LAYOUT.json", help="a layout, or a Snapshot that has one"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="standard output if absent")


def run(options: argparse.Namespace) -> None:
    """Write the script of the layout."""
    if options.output is not None:
        output.refuse_unwritable(options.output)
    text = script(layout_file.read(options.layout))
    if options.output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, options.output)
