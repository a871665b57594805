"""The tools: verbs of the command line, with those options that only read files of the folder."""

import argparse
import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from inspector.answers import section
from inspector.answers.catalogue import Subject
from inspector.answers.section import Block, Picture
from inspector.layout import rule_files
from inspector.machines import hardware
from inspector.media import picture_file
from inspector.media.terminal import (
    compare_verbs,
    explain_verb,
    layout_options,
    make_verbs,
    read_verbs,
    render,
    search_verb,
    show_verb,
)
from inspector.media.terminal.options import CHIP, Output, Verb, argument, verb
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.records import program_run
from inspector.text.errors import InvalidInput, choices, shown
from inspector.text.formatting import capitalized

_MOST_LISTED = 1000  # names in an error or at the start
_MOST_ENTRIES = 100_000  # of a folder of a run


class ServedFolder:
    """A folder, and the files below it. It is the current folder of the process, so paths begin in it.

    Raises:
      InvalidInput: it is not a folder.
    """

    def __init__(self, path: str) -> None:
        try:
            self._root = Path(path or "\0").resolve(strict=True)  # an empty path is not the current folder
            os.chdir(self._root)
        except (OSError, RuntimeError, ValueError):
            raise InvalidInput(f"FOLDER is {shown(path, 200)}, but must be an existing folder") from None

    def inside(self, text: str, field: str) -> str:
        """Return the path of a file or of a folder of a run below this folder.

        Raises:
          InvalidInput: it is absolute, has `..`, does not exist, or leads out of the folder.
        """
        if not text or "\0" in text or Path(text).is_absolute() or ".." in Path(text).parts:
            raise InvalidInput(
                f"{field} is {shown(text, 200)}, but must be a path below the folder, without a leading / "
                "and without .."
            )
        path = Path(text)
        self._check(path, text, field)
        if not os.path.exists(path):
            raise InvalidInput(f"{field} is {shown(text, 200)}, but {self.allowed(text)}")
        if path.is_dir():
            for number, entry in enumerate(_entries(path)):
                if number >= _MOST_ENTRIES:
                    raise InvalidInput(f"{field} is {shown(text, 200)}, which has too many files")
                if entry.is_symlink():
                    self._check(entry, text, field)
        return str(path)

    def allowed(self, text: str) -> str:
        """Return which files there are, for an error about another one."""
        names = list(self.names())
        return f"must be {choices(text, names)}" if names else "the folder has no Snapshot, layout or run"

    def names(self) -> Iterator[str]:
        """Yield the paths of JSON files and of folders of runs, at most the first thousand."""
        listed = 0
        for entry in _entries(Path()):
            is_run = entry.name == program_run.FILE and entry.parent != Path()
            if is_run or (entry.suffix == ".json" and entry.is_file()):
                yield str(entry.parent if is_run else entry)
                listed += 1
            if listed >= _MOST_LISTED:
                return

    def _check(self, path: Path, text: str, field: str) -> None:
        """Refuse a path whose links lead out of the folder."""
        try:
            is_inside = path.resolve().is_relative_to(self._root)
        except (OSError, RuntimeError, ValueError):  # links that go round, or a name that is too long
            is_inside = False
        if not is_inside:
            raise InvalidInput(f"{field} is {shown(text, 200)}, which leads out of the folder")


def _entries(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, in order. Links are not followed."""
    for parent, folders, files in os.walk(folder):
        folders.sort()
        yield from (Path(parent, name) for name in sorted([*folders, *files]))


PICTURE = "picture"
_WIDTH_PX = 1200
_MOST_CHARACTERS = 9_800  # of an answer without `all`
_FILES = ("snapshot", "snapshots", "layout", "rules")  # options that can name files
_ASSUMPTIONS = ("trips", "branch", "kernel_cost")
_EXPLAIN = (
    "snapshot", "array", "collective", "rule", "agreement", "effects", "program", "chip", "rules", "all",
)  # fmt: skip
_LAYOUT = ("layout", "model", "mesh", "axes", "rules", "rule_set", "specs", "state_specs", "sizes", "set")


@dataclass(frozen=True)
class Tool:
    """One tool.

    Attributes:
      verb: has the help, the options, and the function that answers.
      options: those options of the verb that the tool has.
      set_options: options of the verb that have these values.
      answers: the content of the JSON, after the help of the verb.
      has_picture: whether a picture helps.
    """

    verb: Verb
    options: tuple[str, ...]
    answers: str
    set_options: tuple[str, ...] = ()
    has_picture: bool = True

    @property
    def name(self) -> str:
        return self.verb.name

    @property
    def description(self) -> str:
        return f"{capitalized(self.verb.help)}. {self.answers}"

    def actions(self) -> dict[str, argparse.Action]:
        """Return the options of the tool by name."""
        actions = {action.dest: action for action in _parser(self.verb)._actions}
        return {name: actions[name] for name in self.options}

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments."""
        actions = self.actions()
        properties = {name: _schema(action) for name, action in actions.items()}
        if self.has_picture:
            properties[PICTURE] = {"type": "boolean", "description": "also return the main figure as PNG"}
        required = [name for name, action in actions.items() if action.required and not _is_list(action)]
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }


@dataclass(frozen=True)
class ToolAnswer:
    """The JSON of a tool as text, and a picture, or why there is none."""

    text: str
    png: bytes | None = None
    no_picture: str | None = None


def call(name: str, arguments: Mapping[str, Any], folder: ServedFolder) -> ToolAnswer:
    """Return the answer of a tool.

    Raises:
      InvalidInput: there is no such tool, an argument is not valid, or the verb refuses its input.
    """
    tool = TOOLS.get(name)
    if tool is None:
        raise InvalidInput(f"the tool is {shown(name)}, but must be {choices(name, [*TOOLS])}")
    given = {key: value for key, value in arguments.items() if value is not None}
    wants_picture = given.pop(PICTURE, False)
    if not isinstance(wants_picture, bool) or (wants_picture and not tool.has_picture):
        allowed = "true or false" if tool.has_picture else f"left out: {name} has no picture"
        raise InvalidInput(f"{PICTURE} is {shown(wants_picture)}, but must be {allowed}")
    options = _parser(tool.verb).parse_args([*tool.set_options, *_command(tool, given, folder)])
    printed = tool.verb.run(options)
    assert isinstance(printed, Output)
    text = _fitting(printed) if printed.brief else json.dumps(printed.plain(), allow_nan=False)
    if not wants_picture:
        return ToolAnswer(text)
    try:
        return ToolAnswer(text, _png(printed.blocks()))
    except InvalidInput as error:  # there is no browser, or it took too long
        return ToolAnswer(text, no_picture=str(error))


def _fitting(printed: Output) -> str:
    """Return the JSON if it is short, else the text for one screen, with those keys that are short."""
    plain = printed.plain()
    text = json.dumps(plain, allow_nan=False)
    if len(text) <= _MOST_CHARACTERS:
        return text
    lines = render.text(render.fitting([*printed.blocks()], render.text)).splitlines()
    answer: dict[str, Any] = {"screen": lines, "left_out": []}
    left = _MOST_CHARACTERS - len(json.dumps(lines))
    parts = plain if isinstance(plain, dict) else {"all": plain}
    sizes = {key: len(json.dumps({key: value})) for key, value in parts.items()}
    for key in sorted(sizes, key=lambda key: sizes[key]):
        left -= sizes[key]
        if left > 0:
            answer[key] = parts[key]
        else:
            answer["left_out"].append(key)
    return json.dumps(answer, allow_nan=False)


def _command(tool: Tool, given: Mapping[str, Any], folder: ServedFolder) -> list[str]:
    """Return the arguments as those of the verb."""
    actions = tool.actions()
    options: list[str] = []
    positional: list[str] = []
    for name, action in actions.items():
        if name not in given and action.required and not _is_list(action):
            raise InvalidInput(f"{name} is missing, but {folder.allowed('')}")
    for name, value in given.items():
        if name not in actions:
            known = [*actions, *([PICTURE] if tool.has_picture else [])]
            raise InvalidInput(f"{tool.name} has no argument {shown(name)}: it has {choices(name, known)}")
        action = actions[name]
        if action.nargs == 0:
            if not isinstance(value, bool):
                raise InvalidInput(f"{name} is {shown(value)}, but must be true or false")
            options += [action.option_strings[0]] if value else []
            continue
        for text in _texts(value, name, _is_list(action)):
            checked = _checked(text, name, folder)
            if action.option_strings:
                options.append(f"{action.option_strings[0]}={checked}")
            else:
                positional.append(checked)
    return [*options, "--", *positional]


def _texts(value: Any, name: str, is_list: bool) -> Iterator[str]:
    values = value if is_list and isinstance(value, list) else [value]
    for text in values:
        if isinstance(text, bool) or not isinstance(text, (str, int, float)):
            raise InvalidInput(f"{name} is {shown(text)}, but must be text{' or a list of it' * is_list}")
        yield str(text)


def _checked(text: str, name: str, folder: ServedFolder) -> str:
    """Return the text of an option. A file is inside of the folder, and a model is built in."""
    if name == "model" and text not in CATALOGUE:
        raise InvalidInput(f"model is {shown(text)}, but must be {choices(text, [*CATALOGUE])}")
    is_file = name != "rules" or rule_files.is_file(text) or rule_files.is_file_name(text)
    return folder.inside(text, name) if name in _FILES and is_file else text


def _png(blocks: Iterable[Block]) -> bytes:
    """Return the first figure as PNG.

    Raises:
      InvalidInput: there is no figure, or it cannot be drawn.
    """
    for picture in _pictures(blocks):
        figure = picture.build(_WIDTH_PX)
        if figure is not None:
            return picture_file.picture(figure, "png", scale=1)
    raise InvalidInput("this answer has no figure")


def _pictures(blocks: Iterable[Block]) -> Iterator[Picture]:
    for block in blocks:
        match block:
            case Picture():
                yield block
            case section.Columns(columns):
                for column in columns:
                    yield from _pictures(column)
            case section.Folded(_, inside) | section.Section(_, _, inside):
                yield from _pictures(inside)


class _Parser(argparse.ArgumentParser):
    """Reports an error as InvalidInput."""

    def error(self, message: str) -> NoReturn:
        raise InvalidInput(message)


def _parser(verb: Verb) -> argparse.ArgumentParser:
    parser = _Parser(prog=verb.name, add_help=False, allow_abbrev=False)
    verb.add_arguments(parser)
    return parser


def _is_list(action: argparse.Action) -> bool:
    return action.nargs == "*" or isinstance(action.default, list)


def _schema(action: argparse.Action) -> dict[str, Any]:
    text: dict[str, Any] = {"type": "string"}
    if action.choices is not None:
        text["enum"] = list(action.choices)
    kind = {"type": "array", "items": text} if _is_list(action) else text
    kind = {"type": "boolean"} if action.nargs == 0 else kind
    words = action.help or ""
    form = f" ({action.metavar})" if isinstance(action.metavar, str) else ""
    return {**kind, "description": words + form}


@verb(
    "plan",
    "plan a layout without a compile: its arrays, and the programs that XLA's partitioner makes",
    *layout_options.LAYOUT,
    CHIP,
    argument("--whole", action="store_true", help="return the whole Snapshot, which can be megabytes"),
)
def plan(options: argparse.Namespace) -> Output:
    """Return source, layout and assessment of a plan, as `show` does for its Snapshot."""
    layout = layout_options.layout_of(options)
    planned = make_verbs.snapshot_of(dataclasses.replace(layout, target="plan"))
    chip = layout.machine.chip if layout.machine else None
    if options.chip is not None:
        chip = hardware.chip(options.chip)
    if options.whole:
        return Output(planned.to_json, list)
    return Output(
        lambda: show_verb.facts_of(planned, chip), lambda: show_verb.answers(Subject.of(planned, chip))
    )


_AS_VERB = (
    "The JSON is that of `{} --json`. If it is long, the answer is what the verb prints on one screen, with "
    "the keys that are short: `left_out` names the others, and `all` returns them."
)
TOOLS = {
    tool.name: tool
    for tool in (
        Tool(show_verb.show, ("snapshot", "chip", "all", *_ASSUMPTIONS), _AS_VERB.format("show")),
        Tool(
            explain_verb.explain,
            _EXPLAIN,
            _AS_VERB.format("explain"),
            has_picture=False,
        ),
        Tool(read_verbs.audit, ("snapshot", "all"), _AS_VERB.format("audit"), has_picture=False),
        Tool(
            read_verbs.predict,
            ("snapshot", "program", "chip", "all", *_ASSUMPTIONS),
            _AS_VERB.format("predict"),
        ),
        Tool(
            compare_verbs.compare,
            ("snapshots", "chip", "baseline", "all", *_ASSUMPTIONS),
            _AS_VERB.format("compare"),
        ),
        Tool(
            plan,
            (*_LAYOUT, "optimizer_axes", "chip", "whole"),
            "The JSON is that of `show --json` for the Snapshot that `inspect --target plan` writes.",
        ),
        Tool(
            search_verb.search,
            (
                *(*_LAYOUT, "target", "chip", "objective", "weights", "limits", "lock", "vary"),
                "exhaustive",
            ),
            "The JSON is that of `search --budget 0 --json`. Nothing is compiled.",
            set_options=("--budget=0",),
        ),
    )
}
