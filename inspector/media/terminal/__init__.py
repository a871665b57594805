"""The command line: a file for each verb, and one way for all of them to end.

Exit status 0 means done, 2 that the input cannot be used, with one line on standard error that says why.
Data goes to the named output or to standard output, progress to standard error.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from inspector.core.errors import InvalidInput
from inspector.media.terminal import (
    audit_verb,
    check_verb,
    code_verb,
    compare_verb,
    dashboard_verb,
    device_verb,
    explain_verb,
    import_verb,
    inspect_verb,
    library_verb,
    report_verb,
    shards_verb,
    show_verb,
)

VERBS = (
    inspect_verb,
    import_verb,
    code_verb,
    shards_verb,
    device_verb,
    explain_verb,
    audit_verb,
    show_verb,
    compare_verb,
    report_verb,
    check_verb,
    library_verb,
    dashboard_verb,
)
UNUSABLE_INPUT = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells have it


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage text before it."""

    def error(self, message: str) -> NoReturn:
        raise InvalidInput(f"{message} (see {self.prog} --help)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and give the exit status."""
    parser = _Parser(
        prog="sharding-inspector", description="See where every shard of a JAX model lives."
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb in VERBS:
        subparser = verbs.add_parser(verb.NAME, help=verb.HELP, description=verb.HELP)
        verb.add_arguments(subparser)
        subparser.set_defaults(run=verb.run)
    try:
        options, unknown = parser.parse_known_args(arguments)
        if hasattr(options, "unknown"):
            options.unknown = unknown
        elif unknown:
            parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        options.run(options)
        sys.stdout.flush()
    except InvalidInput as refused:
        print(f"inspector: {' '.join(str(refused).split())}", file=sys.stderr)
        return UNUSABLE_INPUT
    except BrokenPipeError:
        # Whoever read our output has seen enough; do not let the interpreter complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("inspector: interrupted", file=sys.stderr)
        return INTERRUPTED
    return 0
