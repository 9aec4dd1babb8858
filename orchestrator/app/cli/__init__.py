"""The command line: reads what was typed, and hands over to one module a command."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from orchestrator.app.cli.arguments import UsageError, parse
from orchestrator.app.cli.exit_codes import DONE, FAILED, INTERRUPTED, USAGE, for_error
from orchestrator.core.errors import PullwrightError
from orchestrator.core.repositories import PROGRAM

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status (`orchestrator.app.cli.exit_codes`).

    Args:
        argv: the arguments without the program's name; what was typed, if None.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that lacks a character gets its number instead
            stream.reconfigure(errors="backslashreplace")
    try:
        status = _dispatch(parse(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except UsageError as error:
        return _report(str(error), USAGE)
    except PullwrightError as error:
        return _report(str(error), for_error(error))
    except KeyboardInterrupt:
        return _report("interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except SystemExit as stop:  # argparse, after --help and --version
        return stop.code if isinstance(stop.code, int) else DONE
    return status


def _dispatch(options: argparse.Namespace) -> int:  # noqa: PLR0911  one for each command
    """Only the module of the command that was named is imported: start-up is a feature."""
    match options.command:
        case "run":
            from orchestrator.app.cli.run import run

            return run(options)
        case "worker":
            from orchestrator.app.cli.worker_command import worker

            return worker(options)
        case "show":
            from orchestrator.app.cli.show import show

            return show(options)
        case "redteam":
            from orchestrator.app.cli.redteam import redteam

            return redteam(options)
        case "pulls":
            from orchestrator.app.cli.pulls import pulls

            return pulls(options)
        case "digest":
            from orchestrator.app.cli.digest_command import digest

            return digest(options)
        case "claims":
            from orchestrator.app.cli.claims_command import claims

            return claims(options)
        case "retry" | "close" | "forget":
            from orchestrator.app.cli import task_commands

            decide = {
                "retry": task_commands.retry,
                "close": task_commands.close,
                "forget": task_commands.forget,
            }
            return decide[options.command](options)
        case "doctor":
            from orchestrator.app.cli.doctor_command import doctor

            return doctor(options)
        case _:
            from orchestrator.app.cli.config_command import config

            return config(options)


def _report(message: str, status: int) -> int:
    from orchestrator.app.cli.text import clean
    from orchestrator.engine.policy.secrets import Redactor

    sys.stderr.write(f"{PROGRAM}: {Redactor().redact(clean(message))}\n")
    return status
