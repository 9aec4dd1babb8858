"""The flags that are options of the configuration, the same for every command that runs something."""

from __future__ import annotations

import argparse
from typing import Any

# What the value is called (None: a switch), and help. Values are read as text here: the configuration
# knows what each may be.
_SCOPES = {
    "task": "for a task, all its cycles together",
    "day": "on this machine in a UTC day",
    "repo": "for the repository in a UTC day, on all machines",
}
_UNITS = {
    "usd": ("USD", "US dollars"),
    "tokens": ("N", "tokens"),
    "minutes": ("MIN", "minutes"),
    "rounds": ("N", "requests to the model"),
}
_GROUPS: dict[str, dict[str, tuple[str | None, str]]] = {
    "model": {
        "model": ("PROVIDER:NAME", "such as anthropic:NAME, or replay:RUN to run a recorded run again"),
        "api-url": ("URL", "a model server other than the vendor's, such as http://localhost:11434/v1"),
        "contract": (
            "NAME",
            "how replies become actions: json-plan (default), native, single-step, or whole-file (default for small models)",
        ),
        "profile": (
            "NAME",
            "planner, openai, anthropic, gemini, minimal or small (default: by contract and model)",
        ),
        "web": ("ENGINE", "give the model web tools that search with tavily, brave or exa (default: none)"),
        "stream": (None, "take the reply piece by piece (default: yes)"),
        "temperature": ("T", "0 to 2; not sent if not given"),
        "reasoning-effort": ("WORD", "such as low or high; not sent if not given"),
        "max-output-tokens": ("N", "longest reply"),
        "context-chars": ("N", "most characters of the repository in the first prompt (default: 60000)"),
    },
    "GitHub": {
        "github-url": ("URL", "an Enterprise server (default: https://github.com)"),
        "label": ("NAME", "open issues with this label are the backlog (default: pullwright)"),
        "base": ("BRANCH", "start from and propose to this branch (default: the repository's)"),
        "draft": (None, "open pull requests as drafts (default: yes)"),
    },
    "what comes in": {
        "allow-actor": ("LOGIN+", "this login may cause work without write permission"),
        "comments": ("WHICH", "none, writers (default), or quoted: comments in the prompt"),
    },
    "what may run": {
        "permission": ("LEVEL", "read-only, safe (default) or dangerous"),
        "allow-command": ("RULE+", "run such commands at the level safe: 'pytest *', 'git diff *'"),
        "deny-command": ("RULE+", "never run such commands"),
        "sandbox": ("WHICH", "off runs commands as you, without walls (default: auto)"),
        "sandbox-read": ("PATH+", "commands may read this folder too"),
        "allow-host": ("HOST+", "commands may reach this host: pypi.org, '*.example.com'"),
    },
    "what goes out": {
        "allow-path": ("PATTERN+", "this protected path may change: 'package.json', '.github/**'"),
        "protect-path": ("PATTERN+", "this path waits for a person too"),
        "allow-link": ("HOST+", "texts may link to this host"),
        "max-files": ("N", "most files that a pull request changes (default: 50)"),
        "max-lines": ("N", "most lines that it adds and removes (default: 5000)"),
        "max-bytes": ("N", "most bytes of the files that it changes (default: 1000000)"),
    },
    "tests": {
        "test-command": (
            "COMMAND",
            "run the tests by it, in the sandbox: 'pytest -q'; auto: as the repository has it (default: not run)",
        ),
        "setup-command": ("COMMAND", "install what they need by it, in the sandbox too: 'npm ci'"),
        "test-report": ("PATH", "where they write a report: 'target/surefire-reports/*.xml'"),
        "test-minutes": ("MIN", "most minutes of one run of them (default: 10)"),
        "test-paths": ("PATTERN+", "such a path belongs to the tests too"),
        "require-tests": (None, "propose nothing whose tests were not run and found good (default: say so)"),
    },
    "limits; what is not proposed yet is saved as a patch": {
        "max-rounds": ("N", "most requests to the model in a cycle (default: 20)"),
        "max-usd": ("USD", "most US dollars in a cycle"),
        "max-tokens": ("N", "most tokens in a cycle"),
        "max-minutes": ("MIN", "most minutes of a cycle"),
        "max-cycles": ("N", "most cycles with --continuous"),
        **{
            f"max-{unit}-per-{scope}": (metavar, f"most {words} {where}")
            for scope, where in _SCOPES.items()
            for unit, (metavar, words) in _UNITS.items()
        },
        "price": ("IN/OUT", "US dollars a million tokens, for a model of unknown price: 3/15"),
        "fallback-model": ("PROVIDER:NAME+", "ask this model where the one before has no quota or is down"),
    },
    "manners": {
        "max-open-prs": ("N", "no new task while so many pull requests of ours are open (default: 3)"),
        "max-prs-per-day": ("N", "most pull requests opened in a UTC day (default: 10)"),
        "max-unreviewed": ("N", "no new task while nobody reviewed so many of them (default: 2)"),
        "review-rounds": ("N", "answer reviews and failed checks of one so often (default: 3)"),
        "quiet-minutes": ("MIN", "wait so long after the last word of a review (default: 10)"),
        "signoff": ("WHEN", "sign commits off: auto (default, as the repository asks), always or never"),
        "ai-policy": (
            "WHAT",
            "respect (default): a repository that wants nothing from machines is left alone",
        ),
        "trailer": (
            "WHICH",
            "auto (default), none, assisted-by or co-authored-by: name the model in commits",
        ),
    },
    "when": {
        "every": ("TIME", "begin a cycle every 30m, 2h, 1d; implies --continuous"),
        "cron": ("FIELDS", "begin cycles at the times of '0 3 * * *'; implies --continuous"),
        "timezone": ("NAME", "of the times in --cron (default: UTC)"),
        "claim-minutes": ("MIN", "the task of a worker that died is free again after so long (default: 20)"),
        "mirror": (None, "keep a copy of the repository's objects for the next clone (default: yes)"),
    },
}
_OLD_NAMES = ("strict-tests",)
"""Flags as they were called; a switch each, understood and not shown."""
SETTING_KEYS = frozenset(
    name.replace("-", "_") for group in (*_GROUPS.values(), _OLD_NAMES) for name in group
)
"""The options that have a flag, by key."""

_AS_DANGEROUS = "--allow-dangerous-tools"


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the flags, in groups. A value `NAME+` may be given several times, one item each."""
    for title, settings in _GROUPS.items():
        group = parser.add_argument_group(title)
        for name, (metavar, text) in settings.items():
            group.add_argument(f"--{name}", default=argparse.SUPPRESS, help=text, **_shape(metavar))
            if name == "permission":
                group.add_argument(
                    _AS_DANGEROUS,
                    action="store_const",
                    const="dangerous",
                    dest=name,
                    default=argparse.SUPPRESS,
                    help="the same as --permission dangerous",
                )
    for name in _OLD_NAMES:
        parser.add_argument(
            f"--{name}",
            default=argparse.SUPPRESS,
            help=argparse.SUPPRESS,
            action=argparse.BooleanOptionalAction,
        )


def _shape(metavar: str | None) -> dict[str, Any]:
    if metavar is None:
        return {"action": argparse.BooleanOptionalAction}
    if metavar.endswith("+"):
        return {"metavar": metavar.removesuffix("+"), "action": "append"}
    return {"metavar": metavar}
