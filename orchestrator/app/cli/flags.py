"""The types of values and the flags that several commands share. A plug-in makes its flags of them too."""

from __future__ import annotations

import argparse
import math
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

DRY_RUN = (
    "push nothing and write nothing to GitHub; print what would be proposed. Requests to the model still cost: "
    "they count for this machine's daily limit, not for the repository's"
)
REPO = "owner/name, a URL, or a path"
RUN = "the run's id, the beginning of the id, or 'last'"
_LAST_PORT = 65_535
_PORT_DIGITS = 5


# The types of values. argparse puts the flag before the message.


def text_value(value: str) -> str:
    """Return a value that is not empty."""
    if not value.strip():
        raise argparse.ArgumentTypeError("must not be empty")
    return value


def whole_number(value: str) -> int:
    """Return a whole number from 1."""
    if not (value.isascii() and value.isdigit() and int(value[:20]) > 0):
        raise argparse.ArgumentTypeError(f"{value!r} is not a number from 1")
    return int(value[:20])


_MOST_DIGITS_OF_SECONDS = 10


def seconds(value: str) -> int:
    """Return a number of seconds."""
    if not (value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS_OF_SECONDS):
        raise argparse.ArgumentTypeError(f"{value!r} is not a number of seconds")
    return int(value)


def amount(value: str) -> float:
    """Return a number above 0."""
    try:
        amount = float(value)
    except ValueError:
        amount = math.nan
    if not 0 < amount < math.inf:
        raise argparse.ArgumentTypeError(f"{value!r} is not a number above 0")
    return amount


def port(value: str) -> int:
    """Return the number of a port."""
    if not (value.isascii() and value.isdigit() and len(value) <= _PORT_DIGITS and int(value) <= _LAST_PORT):
        raise argparse.ArgumentTypeError(f"{value!r} is not a port from 0 to {_LAST_PORT}")
    return int(value)


# Flags that several commands have.


def add_text(to: argparse._ActionsContainer, name: str, metavar: str, text: str, **more: Any) -> None:
    """Add a flag or argument that is a text."""
    to.add_argument(name, type=text_value, metavar=metavar, help=text, **more)


def add_switch(to: argparse._ActionsContainer, flag: str, text: str, **more: Any) -> None:
    """Add a flag without a value."""
    to.add_argument(flag, action="store_true", help=text, **more)


def add_json(to: argparse._ActionsContainer, text: str, **more: Any) -> None:
    """Add `--json`."""
    add_switch(to, "--json", text, **more)


def add_repo(to: argparse._ActionsContainer, text: str = REPO, **more: Any) -> None:
    """Add `--repo`."""
    add_text(to, "--repo", "REPO", text, **more)


def add_server(to: argparse._ActionsContainer) -> None:
    """Add the flags that say on which server a repository is, for a command without the other options."""
    from orchestrator.app.options import add_option_flags, all_options

    if names := [key for key, one in all_options().items() if one.names_server]:
        add_option_flags(to, names)


def add_plain(to: argparse._ActionsContainer, text: str = "plain lines instead of the live view") -> None:
    """Add `--plain`."""
    add_switch(to, "--plain", text)


def add_debug(to: argparse._ActionsContainer) -> None:
    """Add `--debug`."""
    add_switch(to, "--debug", "show the state of the session after each turn")


def add_settings(
    parser: argparse.ArgumentParser, only: Collection[str] = (), without: Collection[str] = ()
) -> None:
    """Add the flags of the configuration's options, which are not loaded for a command without them."""
    from orchestrator.app.options import add_option_flags

    add_option_flags(parser, only, without)


def actions_of(parser: argparse.ArgumentParser, *, required: bool = True) -> Callable[..., Any]:
    """Return a function that adds an action to the parser of a command."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=required)
    return partial(actions.add_parser, allow_abbrev=False)
