"""`mcp`: verbs on one folder as read-only tools for agents, over the Model Context Protocol."""

import argparse
import importlib.util

from inspector.media.terminal.options import argument, verb
from inspector.text.errors import InvalidInput


@verb(
    "mcp",
    "serve the verbs that write nothing and run nothing to agents: the Model Context Protocol on standard "
    "input and output",
    argument("folder", metavar="FOLDER", help="the folder whose Snapshots, layouts and runs the tools read"),
)
def mcp(options: argparse.Namespace) -> None:
    """Serve the tools until standard input ends; raise InvalidInput without the package mcp."""
    if importlib.util.find_spec("mcp") is None:
        raise InvalidInput(
            "mcp needs the package mcp, which is not installed: pip install 'sharding-inspector[mcp]'"
        )
    from inspector.media.terminal.mcp import server

    server.serve(options.folder)
