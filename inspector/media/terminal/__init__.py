"""The command line: the verbs in `VERBS`, and one way for all of them to end.

Exit status 0 means done, 1 that `check` found a violation or `same` a difference, 2 that an error occurred,
with one line on standard error. Data goes to the named file or to standard output, progress to standard
error. With SHARDING_INSPECTOR_DEBUG=1 an unexpected error also prints its traceback.
"""

import argparse
import codecs
import contextlib
import importlib
import keyword
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

from inspector.media.terminal.options import Output, print_output
from inspector.text.errors import InvalidInput, bounded, shown
from inspector.text.printable import one_line

# Verb -> the module that has a function of this name. A command imports the module of its verb only.
_MODULES = {
    "inspect": "make_verbs",
    "run": "run_verb",
    "same": "run_verb",
    "import": "make_verbs",
    "show": "show_verb",
    "shards": "read_verbs",
    "device": "read_verbs",
    "explain": "explain_verb",
    "predict": "read_verbs",
    "accuracy": "accuracy_verb",
    "search": "search_verb",
    "audit": "read_verbs",
    "compare": "compare_verbs",
    "report": "compare_verbs",
    "check": "compare_verbs",
    "code": "make_verbs",
    "library": "library_verb",
    "dashboard": "serve_verb",
    "serve": "serve_verb",
    "mcp": "mcp",
}
PROGRAM = "sharding-inspector"
DEBUG = "SHARDING_INSPECTOR_DEBUG"
UNUSABLE_INPUT = 2
INTERRUPTED = 130  # 128 + SIGINT, as in shells

# Options of which no value is one: no rule, spec, axis or option of the compiler.
_CAN_BE_EMPTY = ("rules", "specs", "state_specs", "optimizer_axes", "compiler_options")

# Substitutes for characters that the encoding of a terminal lacks.
_SUBSTITUTES = {
    **{"×": "x", "–": "-", "−": "-", "·": "-", "…": "...", "→": "->", "µ": "u", "\ufffd": "?"},
    **{"±": "+/-", "≠": "!=", "✓": "+", "✗": "-", "∅": "0", "÷": "/", "─": "-", "•": "-"},
}


class _Parser(argparse.ArgumentParser):
    """Reports an error in one line, without the usage text."""

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Return the value of an argument. Python 3.11 makes a list of the value of `--option=--`."""
        refused = ["--"] if action.dest in _CAN_BE_EMPTY else ["--", ""]
        if (
            action.option_strings
            and action.nargs != argparse.REMAINDER
            and arg_strings in [[t] for t in refused]
        ):
            raise argparse.ArgumentError(action, f"the value is {shown(arg_strings[0])}, but must be another")
        return super()._get_values(action, arg_strings)

    def error(self, message: str) -> NoReturn:
        raise InvalidInput(f"{message} (see {self.prog} --help)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit status."""
    _accept_every_character()
    try:
        options = _parse(arguments)
        status = options.run(options)
        if isinstance(status, Output):
            print_output(status, options.json)
            status = None
        if sys.stdout is not None:  # it is None if the shell closed it
            sys.stdout.flush()
    except InvalidInput as error:
        return _fail(str(error))
    except BrokenPipeError:
        _discard_output()
    except KeyboardInterrupt:
        _fail("interrupted")
        return INTERRUPTED
    except OSError as error:
        _discard_output()
        return _fail(f"input or output failed: {error.strerror or error}")
    except Exception as error:
        return _fail(unexpected(error))
    else:
        return int(status or 0)
    return 0


def unexpected(error: Exception) -> str:
    """Return one sentence about an error of this project, and print its traceback if that is wanted."""
    if os.environ.get(DEBUG) == "1":
        traceback.print_exception(error)
    return bounded(f"unexpected {type(error).__name__}: {error}") + f" (set {DEBUG}=1 for the traceback)"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _Parser(
        prog=PROGRAM, description="Inspect the sharding of a JAX model: shards, reasons and costs."
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    given = sys.argv[1:] if arguments is None else arguments
    names = given[:1] if given[:1] and given[0] in _MODULES else _MODULES
    for verb in map(_verb, names):
        subparser = verbs.add_parser(verb.name, help=verb.help, description=verb.help)
        verb.add_arguments(subparser)
        subparser.set_defaults(run=verb.run)
    options, unknown = parser.parse_known_args(arguments)
    if hasattr(options, "unknown"):  # a verb that passes them on
        options.unknown = unknown
    elif unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return options


def _verb(name: str) -> Any:
    module = importlib.import_module(f"inspector.media.terminal.{_MODULES[name]}")
    return getattr(module, f"{name}_" if keyword.iskeyword(name) else name)


def __getattr__(name: str) -> Any:
    if name == "VERBS":
        return tuple(map(_verb, _MODULES))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _fail(message: str) -> int:
    print(f"{PROGRAM}: {one_line(message).strip()}", file=sys.stderr)
    return UNUSABLE_INPUT


def _discard_output() -> None:
    """Send the rest of the output nowhere, so that Python reports no second error when it exits."""
    with contextlib.suppress(OSError, ValueError):  # standard output may not be a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _accept_every_character() -> None:
    """Make output in any encoding succeed: characters that it lacks are replaced or escaped."""
    codecs.register_error(PROGRAM, _substitute)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=PROGRAM)


def _substitute(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    escaped = (
        _SUBSTITUTES.get(character) or character.encode("unicode_escape").decode() for character in text
    )
    return "".join(escaped), error.end
