"""Check the options of `streamlit run` that `dashboard` passes on."""

from __future__ import annotations

from collections.abc import Sequence

import click
from streamlit.web import cli

from inspector.core.errors import InvalidInput


def check(options: Sequence[str]) -> None:
    """Check options for `streamlit run`, whose own errors show the usage of another program.

    Raises:
      InvalidInput: Streamlit has no such option, its value is not allowed, or an argument is left over.
    """
    try:
        context = cli.main_run.make_context("streamlit run", ["script.py", *options])
    except click.NoSuchOption as error:
        raise InvalidInput(
            f"{error.option_name} is an option neither of `dashboard` nor of `streamlit run`"
        ) from None
    except click.UsageError as error:
        raise InvalidInput(" ".join(error.format_message().split()).rstrip(".")) from None
    except click.exceptions.Exit:  # an option that prints something, such as --version
        raise InvalidInput("an option of Streamlit that only prints is not allowed") from None
    if context.params["args"]:
        raise InvalidInput(f"unrecognized arguments: {' '.join(context.params['args'])}")
