"""What a star of a rule grants: programs that start nothing else, and no option that makes them.

A star behind any other program may grant every program, and `starts_others` says so. The table of options
makes that harder where the rule names what runs nothing of the clone's, as `pip list *` and `node --check *`
do; what always runs it, such as `pytest`, `make` and `python`, is not in the table.

_Options and subcommands of git that run another program are granted by no rule, not even by name. Git takes every
long option cut short, and letters in clusters: https://git-scm.com/docs/gitcli. Remote helpers, by which an address
runs a program: https://git-scm.com/docs/gitremote-helpers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from posixpath import basename, isabs
from typing import TYPE_CHECKING

from orchestrator.core.git_names import is_git_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True)
class _Options:
    """What a program must be granted by name.

    Attributes:
        short: letters, also inside of a cluster such as `-xvc`.
        takes: letters whose value may follow in the same word, where a cluster ends.
        long: names without dashes, with blanks between; `--name=value` counts too.
        cut: whether the program takes a long name that is cut short.
        starts: beginnings of a word.
        words: whole words.
    """

    short: str = ""
    takes: str = ""
    long: str = ""
    cut: bool = False
    starts: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    def holds(self, word: str) -> bool:
        """Whether a word is such an option."""
        if word in self.words or (self.starts and word.startswith(self.starts)):
            return True
        if word.startswith("--"):
            return _has_long(word, self.long.split(), cut=self.cut)
        return word.startswith("-") and _has_short(word[1:], self.short, self.takes)


def _has_long(word: str, names: Sequence[str], *, cut: bool) -> bool:
    """Whether `--word` or `--word=value` is one of these options, or (if `cut`) the beginning of one."""
    name = word[2:].partition("=")[0]
    if not name:
        return False
    return any(known == name or (cut and known.startswith(name)) for known in names)


def _has_short(cluster: str, letters: str, takes: str) -> bool:
    """Whether a cluster of one-letter options holds one of `letters`, before a value begins."""
    for letter in cluster:
        if letter in letters:
            return True
        if letter in takes:
            return False
    return False


_FIND = _Options(starts=("-exec", "-ok", "-delete", "-fprint", "-fls", "-files0-from"))
_TAR = _Options(
    short="IF",
    takes="bCfgHKLNTVX",
    long="to-command checkpoint-action use-compress-program info-script new-volume-script rsh-command rmt-command",
    cut=True,
)
_NODE = _Options(short="epr", long="eval print require import loader experimental-loader", words=("-",))
_PACKAGES = _Options(
    long="script-shell node-options prefix userconfig globalconfig",
    words=("config", "c", "set", "exec", "x", "explore", "dlx"),
)
_VI = _Options(short="cSuswWq", starts=("+", "--cmd"))
_SHELL = _Options(short="cs", long="init-file rcfile", words=("-",))

STARTS_NOTHING = frozenset(
    "awk b2sum base32 base64 basename basenc cat cd cksum cmp comm cut date df dirname du echo expand expr "  # noqa: SIM905  words read best without quotes
    "factor false find fmt fold gawk grep groups head hexdump id jq join ls mawk md5sum mkdir nawk nl nproc "
    "numfmt od paste printenv printf pwd readlink realpath rev rg rm rmdir sed seq sha1sum sha224sum sha256sum "
    "sha384sum sha512sum sleep sort stat sum tac tail tee test touch tr true tsort tty uname unexpand uptime "
    "users wc who whoami".split()
)
"""Programs that start no other one with anything that a star grants.

Most import no function that starts one, which a test reads in their files. find, rg, sed, sort and the awks
do, by options that are left to rules which name them. Not among them is what writes a file that an argument
names, such as `cp` and `uniq`: that may be a hook of git, or the program of another rule.
"""

_TABLE: dict[str, _Options] = {
    "find": _FIND,
    "fd": _Options(short="xX", takes="dteEcjS", long="exec exec-batch"),
    "tar": _TAR,
    "bsdtar": _TAR,
    "zip": _Options(starts=("-T",), long="unzip-command test"),
    "split": _Options(long="filter", cut=True),
    "env": _Options(short="S", takes="uC", long="split-string", cut=True),
    "man": _Options(short="PHpCl", long="pager html preprocessor config-file local-file", cut=True),
    "less": _Options(short="koO", starts=("+",), long="lesskey-file lesskey-src log-file LOG-FILE", cut=True),
    "more": _Options(starts=("+",)),
    **dict.fromkeys(("vi", "vim", "nvim", "view", "ex"), _VI),
    "cargo": _Options(short="C", long="config manifest-path"),
    "rg": _Options(short="z", takes="ABCEMTdefgjmrt", long="pre hostname-bin search-zip"),
    "sort": _Options(short="oT", takes="kSt", long="compress-program output files0-from", cut=True),
    "node": _NODE,
    "perl": _Options(short="eEMmIid", words=("-",)),
    "ruby": _Options(short="eriI", words=("-",)),
    "php": _Options(short="rdBREF"),
    **dict.fromkeys(("sh", "bash", "dash", "zsh"), _SHELL),
    **dict.fromkeys(("npm", "pnpm", "yarn"), _PACKAGES),
    "pip": _Options(long="python config-settings global-option", cut=True, words=("config",)),
    "go": _Options(
        starts=tuple(f"{dash}{name}" for dash in ("-", "--") for name in ("exec", "toolexec", "vettool"))
    ),
    "curl": _Options(
        short="KoOTDcJ",
        takes="dHXAbeEFmruUwxYyzQP",
        long="config output remote-name upload-file dump-header cookie-jar libcurl trace trace-ascii output-dir "
        "remote-name-all stderr etag-save hsts alt-svc",
        cut=True,
    ),
    "wget": _Options(
        short="OoaPei",
        takes="tTwQUlABDIXR",
        long="output-document output-file append-output directory-prefix execute use-askpass post-file body-file "
        "config input-file",
        cut=True,
    ),
    "ssh": _Options(short="oFEwSI", takes="bcDeiJLlmOpQRW"),
    "scp": _Options(short="oFSD", takes="cilPX"),
    "rsync": _Options(short="eM", takes="fT", long="rsh rsync-path remote-option", cut=True),
    "test": _Options(starts=("-v", "-R")),
    "printf": _Options(starts=("-v",)),
}

_SUBSCRIPTS = frozenset(
    "printf test read unset export readonly declare typeset local let getopts wait mapfile readarray".split()  # noqa: SIM905  words read best without quotes
)
"""Of bash: they evaluate `name[...]`, and with it any `$()` inside, also where it came in quotes."""

_AWKS = frozenset({"awk", "gawk", "mawk", "nawk"})
_AWK_RUNS = re.compile(r"system|getline|[|>@]|^-(?![Fv]|-\Z)")
"""Pipes, redirections and calls; options but those for the separator and for variables."""

_SED_OPTION = re.compile(
    r"-[nErsuz]+|--(?:quiet|silent|regexp-extended|separate|unbuffered|null-data|posix|sandbox)"
)
_ADDRESS = r"(?:\d+|\$|/(?:[^/\\\n]|\\.)*/)"
_SED_SCRIPT = re.compile(
    rf"(?:{_ADDRESS}(?:,{_ADDRESS})?)?\s*(?:[pdq=]|s([/|#,@:])(?:(?!\1)[^\\\n]|\\.)*\1(?:(?!\1)[^\\\n]|\\.)*\1[gpiI0-9]*)"
)
"""One command that prints, deletes a line or replaces: no `e`, `w`, `r` or `W`, which run or touch files."""


def named_only(argv: Sequence[str]) -> dict[int, str]:
    """Which words of a command a star must not grant, by their place, with the reason."""
    name = program_name(argv[0])
    reasons: dict[int, str] = {}
    if options := _TABLE.get(name):
        for place, word in enumerate(argv[1:], 1):
            if options.holds(word):
                reasons[place] = f"{word[:60]} of {name} runs a program or writes a file: a rule must name it"
    for place, reason in _special(name, argv):
        reasons.setdefault(place, reason)
    return reasons


def starts_others(words: Sequence[str]) -> bool:
    """Whether a star behind these words of a rule may make their program start another one."""
    return words[0] not in STARTS_NOTHING or bool(named_only(words))


def program_name(word: str) -> str:
    """The name under which a program is known: no folder, no version as in `python3.11`."""
    name = basename(word)
    return re.sub(r"(?<=[a-z])[0-9.]+\Z", "", name) or name


def _special(name: str, argv: Sequence[str]) -> Iterator[tuple[int, str]]:
    """What takes more than a list of options to see."""
    if name == "sed":
        yield from _sed(argv)
    if name in _AWKS:
        for place, word in enumerate(argv[1:], 1):
            if _AWK_RUNS.search(word):
                yield place, "a program of awk may run others and write files: a rule must name it"
    for place, word in enumerate(argv[1:], 1):
        if name == "tar" and place == 1 and word[:1] != "-" and _has_short(word, "IF", ""):
            yield place, "I and F of tar run a program: a rule must name them"
        if name == "tee" and word[:1] != "-" and not stays_inside(word):
            yield place, f"tee would write {word[:60]}, which is outside of the clone"
        if name in _SUBSCRIPTS and "[" in word and ("$" in word or "`" in word):
            yield place, f"{name} would evaluate {word[:60]}"


def _sed(argv: Sequence[str]) -> Iterator[tuple[int, str]]:
    script_came = False
    for place, word in enumerate(argv[1:], 1):
        is_script = argv[place - 1] in {"-e", "--expression"}
        if word.startswith("-") and len(word) > 1 and not is_script:
            if not _SED_OPTION.fullmatch(word):
                yield place, f"{word[:60]} of sed: a rule must name it"
        elif is_script or not script_came:
            script_came = True
            if not _SED_SCRIPT.fullmatch(word):
                yield place, "a script of sed may run programs and write files: a rule must name it"


def stays_inside(path: str) -> bool:
    """Whether a path is relative, never goes up, and enters no `.git`, however it is spelled."""
    return bool(path) and not isabs(path) and ".." not in path.split("/") and not is_git_name(path)


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
"""_Options that are also the beginning of one above; git takes a whole name first."""

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
        executes = word not in _WHOLE and _has_long(word, _LONG, cut=True)
    else:
        executes = word.startswith("-") and _has_short(word[1:], letters, takes)
    return f"{shown} is never granted: it can make git run a program or write anywhere" if executes else None


def subcommand_at(argv: Sequence[str]) -> int:
    """The place of the subcommand: the first word that is no option; the length if there is none."""
    return next((place for place, word in enumerate(argv[1:], 1) if not word.startswith("-")), len(argv))


def unusual_subcommand(argv: Sequence[str]) -> int | None:
    """The place of a subcommand that a star does not grant."""
    place = subcommand_at(argv)
    return place if place < len(argv) and argv[place] not in _USUAL else None


def without_options(argv: Sequence[str]) -> tuple[str, ...]:
    """The call without the options before the subcommand and their values. Rules that deny are compared with it."""
    place = 1
    while place < len(argv) and argv[place].startswith("-"):
        place += 2 if argv[place] in _WITH_VALUE else 1
    return (argv[0], *argv[place:])


_WITH_VALUE = frozenset(
    {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env", "--super-prefix"}
)
