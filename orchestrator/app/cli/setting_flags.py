"""The flags that are options of the configuration, the same for every command that runs something."""

from __future__ import annotations

import argparse
from typing import Any

from orchestrator.app.options import KEYS, OPTIONS, RENAMED, choices, flag_of, kind

SETTING_KEYS = frozenset((*KEYS, *RENAMED))
"""What a flag may set, by key."""

_AS_DANGEROUS = "--allow-dangerous-tools"


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add a flag for each option, in groups. The flag of a list may be given several times, one item each.

    Values are read as text here: the configuration knows what each may be.
    """
    group: argparse._ActionsContainer = parser
    for key, option in OPTIONS.items():
        if option.begins:
            group = parser.add_argument_group(option.begins)
        group.add_argument(flag_of(key), default=argparse.SUPPRESS, help=_help(key), **_shape(key))
        if key == "permission":
            group.add_argument(
                _AS_DANGEROUS,
                action="store_const",
                const="dangerous",
                dest=key,
                default=argparse.SUPPRESS,
                help="the same as --permission dangerous",
            )
    for old, new in RENAMED.items():
        parser.add_argument(flag_of(old), default=argparse.SUPPRESS, help=argparse.SUPPRESS, **_shape(new))


def _help(key: str) -> str:
    option = OPTIONS[key]
    text = option.description.removesuffix(".")
    if option.default in {None, ()}:
        return text
    return f"{text} (default: {({True: 'yes', False: 'no'} if kind(key) is bool else {}).get(option.default, option.default)})"


def _shape(key: str) -> dict[str, Any]:
    if kind(key) is bool:
        return {"action": argparse.BooleanOptionalAction}
    if OPTIONS[key].bounds:
        return {"metavar": "N"}
    metavar = "|".join(choices(key)) or key.rpartition("_")[2].upper()
    return {"metavar": metavar, "action": "append" if OPTIONS[key].is_list else "store"}
