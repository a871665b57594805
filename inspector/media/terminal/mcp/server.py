"""The server: it speaks the Model Context Protocol on standard input and output."""

import base64
import functools
import os
import tempfile

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

import inspector
from inspector.files import private_database
from inspector.jobs import compile_cache, start
from inspector.media.terminal import options, unexpected
from inspector.media.terminal.mcp import tools
from inspector.media.terminal.mcp.tools import ServedFolder
from inspector.model import own_model
from inspector.text.errors import InvalidInput
from inspector.text.printable import one_line

_AT_ONCE = 2  # calls; each can read a file of 64 MiB
_INSTRUCTIONS = (
    "Shardings of JAX models: where each shard is, why, and its cost in memory, traffic and time. Paths are "
    "those of Snapshots, layouts and folders of runs below one folder. A call without a path names some."
)


def serve(path: str) -> None:
    """Answer calls about the files of a folder until standard input ends.

    Nothing is written but temporary files: library and compile cache are those of an empty folder.
    Models of the user's own are not known, so none of their code runs.

    Raises:
      InvalidInput: there is no such folder.
    """
    folder = ServedFolder(path)
    for variable in (own_model.VARIABLE, start.OWN_MODELS):
        os.environ.pop(variable, None)
    with tempfile.TemporaryDirectory(prefix="sharding-inspector-mcp-") as empty:
        os.environ[private_database.VARIABLE] = os.environ[compile_cache.FOLDER_VARIABLE] = empty
        with options.kept_workers():
            anyio.run(_run, _server(folder))


async def _run(server: Server) -> None:
    async with stdio_server() as (requests, answers), anyio.create_task_group() as tasks:
        valid, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)

        async def answer_invalid() -> None:
            """Answer a line that is not JSON-RPC, which the server leaves without an answer."""
            async with valid:
                async for message in requests:
                    if isinstance(message, Exception):
                        fault = types.ErrorData(
                            code=types.PARSE_ERROR, message="this line is no valid message"
                        )
                        refusal = types.JSONRPCError(jsonrpc="2.0", id=None, error=fault)
                        await answers.send(SessionMessage(refusal))
                    else:
                        await valid.send(message)

        tasks.start_soon(answer_invalid)
        await server.run(messages, answers, server.create_initialization_options())


def _server(folder: ServedFolder) -> Server:
    at_once = anyio.CapacityLimiter(_AT_ONCE)

    async def list_tools(
        context: ServerRequestContext, parameters: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in tools.TOOLS.values()])

    async def call_tool(
        context: ServerRequestContext, parameters: types.CallToolRequestParams
    ) -> types.CallToolResult:
        answer = functools.partial(_answer, parameters.name, parameters.arguments or {}, folder)
        return await anyio.to_thread.run_sync(answer, limiter=at_once, abandon_on_cancel=True)

    return Server(
        "sharding-inspector",
        version=inspector.__version__,
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _described(tool: tools.Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.schema(),
        annotations=types.ToolAnnotations(
            read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
        ),
    )


def _answer(name: str, arguments: dict[str, object], folder: ServedFolder) -> types.CallToolResult:
    """Return the answer of a tool, or one sentence about its error."""
    try:
        answer = tools.call(name, arguments, folder)
    except InvalidInput as error:
        return _error(str(error))
    except OSError as error:
        return _error(f"input or output failed: {error.strerror or error}")
    except Exception as error:
        return _error(unexpected(error))
    content: list[types.ContentBlock] = [types.TextContent(text=answer.text)]
    if answer.png is not None:
        data = base64.b64encode(answer.png).decode()
        content.append(types.ImageContent(data=data, mime_type="image/png"))
    elif answer.no_picture is not None:
        content.append(types.TextContent(text=f"no picture: {one_line(answer.no_picture)}"))
    return types.CallToolResult(content=content)


def _error(sentence: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=one_line(sentence).strip())], is_error=True)
