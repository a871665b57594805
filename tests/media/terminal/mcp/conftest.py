"""A server over stdio on a folder with two plans, as an agent starts it."""

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client
from mcp_types import CallToolResult

from inspector.media.terminal import main
from tests.paths import ROOT

LAYOUTS = {"tensor": "batch=data,hidden=model", "fsdp": "batch=data,hidden=model,embed=data"}


@dataclass(frozen=True)
class Agent:
    """A client of a server.

    Attributes:
      outside: a folder beside that of the server. Nothing in it may be read.
      log: lists what the server opens.
    """

    folder: Path
    outside: Path
    client: Client
    portal: BlockingPortal
    log: Path

    def opened(self) -> set[Path]:
        """Return every path that the process of the server has opened, with links followed."""
        return {Path(ast.literal_eval(line)) for line in self.log.read_text().splitlines()}

    def result(self, tool: str, **arguments: Any) -> CallToolResult:
        return self.portal.call(self.client.call_tool, tool, arguments)

    def ask(self, tool: str, **arguments: Any) -> Any:
        """Return the JSON of an answer."""
        result = self.result(tool, **arguments)
        assert not result.is_error, result.content
        return json.loads(result.content[0].text)

    def error(self, tool: str, **arguments: Any) -> str:
        """Return the sentence of an error."""
        result = self.result(tool, **arguments)
        assert result.is_error, result.content
        (content,) = result.content
        return content.text


@pytest.fixture(scope="session")
def agent(tmp_path_factory: pytest.TempPathFactory, commands_share_workers: None) -> Iterator[Agent]:
    parent = tmp_path_factory.mktemp("agent")
    folder, outside = parent / "folder", parent / "outside"
    folder.mkdir()
    outside.mkdir()
    for name, rules in LAYOUTS.items():
        layout = ["--target", "plan", "--mesh", "2x4", "--axes", "data,model", "--rules", rules]
        assert main(["inspect", *layout, "-o", str(folder / f"{name}.json")]) == 0
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(outside)}
    log = parent / "opened.txt"
    server = StdioServerParameters(
        command=sys.executable,
        args=["-P", str(Path(__file__).with_name("audited_server.py")), str(folder), str(log)],
        cwd=str(outside),
        env=variables,
    )
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Client(stdio_client(server))) as client,
    ):
        yield Agent(folder, outside, client, portal, log)
