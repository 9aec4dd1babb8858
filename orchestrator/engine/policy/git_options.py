"""Options and subcommands of git that run another program. No rule grants them, not even by name.

Git takes every long option cut short, and letters in clusters: https://git-scm.com/docs/gitcli.
Remote helpers, by which an address runs a program: https://git-scm.com/docs/gitremote-helpers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orchestrator.engine.policy.executing import has_long, has_short

if TYPE_CHECKING:
    from collections.abc import Sequence

_GLOBAL = frozenset(
    {"--no-pager", "-P", "--version", "-v", "--no-optional-locks", "--no-replace-objects"}
) | {f"--{kind}-pathspecs" for kind in ("literal", "glob", "noglob", "icase")}
"""The options before the subcommand that pass. The others set configuration, or make another folder the repository,
whose configuration may run programs."""

_LONG = (
    "upload-pack",
    "receive-pack",
    "exec",
    "exec-path",
    "config-env",
    "config",
    "open-files-in-pager",
    "ext-diff",
    "textconv",
    "extcmd",
    "template",
    "strategy",
    "output",
    "upload-archive",
    "separate-git-dir",
)
_WHOLE = frozenset({"--text"})
"""Options that are also the beginning of one above; git takes a whole name first."""

_SHORT: dict[str, tuple[str, str]] = {
    "clone": ("cu", "bjo"),
    "fetch": ("u", "jo"),
    "pull": ("us", "jorX"),
    "ls-remote": ("u", "o"),
    "fetch-pack": ("u", ""),
    "archive": ("uo", ""),
    "grep": ("O", "efmABC"),
    "rebase": ("xs", "CSrX"),
    "merge": ("s", "mFSX"),
    "difftool": ("x", ""),
    "format-patch": ("o", ""),
}
"""By subcommand: the letters, and those whose value may follow in the same word."""

_NEVER = frozenset(
    "credential credential-cache credential-store cvsserver daemon difftool fast-import filter-branch for-each-repo "  # noqa: SIM905  words read best without quotes
    "gui citool hook http-backend instaweb mergetool p4 receive-pack remote-ext remote-fd send-email shell sh-setup "
    "svn upload-archive upload-pack upload-archive--writer web--browse cvsimport archimport quiltimport help".split()
)
_NEVER_WITH: dict[str, frozenset[str]] = {
    "bisect": frozenset({"run", "visualize", "view"}),
    "submodule": frozenset({"foreach"}),
    "interpret-trailers": frozenset({"--trailer"}),
}
_CONFIG_READS = frozenset({"get", "list", "--get", "--get-all", "--get-regexp", "--list", "-l"})

_USUAL = frozenset(
    "add blame branch cat-file checkout cherry-pick commit describe diff diff-tree grep log ls-files ls-tree "  # noqa: SIM905  words read best without quotes
    "merge-base mv name-rev reflog reset restore rev-list rev-parse revert rm shortlog show show-ref stash status "
    "switch tag whatchanged".split()
)
"""What a star grants as a subcommand; the others run hooks or helpers, reach a network, or leave the clone."""

_HELPER = re.compile(r"(?:^|=)[\w.+-]*::")


def git_refusal(argv: Sequence[str]) -> str | None:
    """Why a call of git never passes, or None. `argv[0]` is git.

    The rule `git config *` grants reading; whatever else of `config` writes what git runs later.
    """
    place = subcommand_at(argv)
    for word in argv[1:place]:
        if word not in _GLOBAL:
            return (
                f"git {word[:60]} before the subcommand is never granted: it can make git run other programs"
            )
    if place == len(argv):
        return None
    name, rest = argv[place], argv[place + 1 :]
    if name in _NEVER or "/" in name:
        return f"git {name[:60]} is never granted: it runs other programs"
    if name == "config" and (not rest or rest[0] not in _CONFIG_READS):
        return "git config is never granted but for reading: git config get NAME, git config list"
    return next((reason for word in rest if (reason := _word_refusal(name, word))), None)


def _word_refusal(subcommand: str, word: str) -> str | None:
    letters, takes = _SHORT.get(subcommand, ("", ""))
    shown = f"git {subcommand} {word[:60]}"
    if _HELPER.search(word):
        return f"{shown} is never granted: an address with :: makes git run a program"
    if word in _NEVER_WITH.get(subcommand, ()):
        return f"{shown} is never granted: it runs other programs"
    if word.startswith("--"):
        executes = word not in _WHOLE and has_long(word, _LONG, cut=True)
    else:
        executes = word.startswith("-") and has_short(word[1:], letters, takes)
    return f"{shown} is never granted: it can make git run a program or write anywhere" if executes else None


def subcommand_at(argv: Sequence[str]) -> int:
    """The place of the subcommand: the first word that is no option; the length if there is none."""
    return next((place for place, word in enumerate(argv[1:], 1) if not word.startswith("-")), len(argv))


def unusual_subcommand(argv: Sequence[str]) -> int | None:
    """The place of a subcommand that a star does not grant."""
    place = subcommand_at(argv)
    return place if place < len(argv) and argv[place] not in _USUAL else None


def without_options(argv: Sequence[str]) -> tuple[str, ...]:
    """The call without what stands before the subcommand, values included; to find what a rule denies."""
    place = 1
    while place < len(argv) and argv[place].startswith("-"):
        place += 2 if argv[place] in _WITH_VALUE else 1
    return (argv[0], *argv[place:])


_WITH_VALUE = frozenset(
    {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env", "--super-prefix"}
)
