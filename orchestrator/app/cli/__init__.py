"""The command line: parses the arguments, and calls the module of the command.

A command raises a `PullwrightError`, which becomes one line and an exit status here.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from orchestrator.app.cli.arguments import DONE, FAILED, INTERRUPTED, USAGE, UsageError, for_error, parse
from orchestrator.app.cli.commands import command
from orchestrator.app.config import add_named_plugins
from orchestrator.app.plugins import load
from orchestrator.app.terminal import redact_terminal
from orchestrator.core.errors import PullwrightError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status (`orchestrator.app.cli.arguments`).

    Args:
        argv: the arguments without the program's name; None for those of the process.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(
            stream, "reconfigure"
        ):  # print the code point of a character that the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    end = redact_terminal()
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    finally:
        end()


def _run(argv: Sequence[str]) -> int:
    try:
        add_named_plugins(os.environ)
        status = _dispatch(parse(argv))
        sys.stdout.flush()
    except UsageError as error:
        return _report(str(error), USAGE)
    except PullwrightError as error:
        return _report(str(error), for_error(error))
    except KeyboardInterrupt:
        return _report("interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader of our output, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except SystemExit as stop:  # argparse, after --help and --version
        return stop.code if isinstance(stop.code, int) else DONE
    return status


def _dispatch(options: argparse.Namespace) -> int:
    """Run the command. Only the command's module is imported, so that each command starts fast."""
    known = command(options.command)
    assert known is not None  # noqa: S101  the parser has refused all others
    status: int = load(known.run)(options)
    return status


def _report(message: str, status: int) -> int:
    from orchestrator.app.cli.output import print_problem

    print_problem(message)
    return status
