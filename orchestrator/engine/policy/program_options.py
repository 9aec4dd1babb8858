"""The options of programs that a star of a rule does not grant, because they start another program.

A star after an unknown program may grant every program; `starts_others` reports this. The table of options
makes that harder where the rule names a program that runs no code of the clone, as `pip list *` and
`node --check *` do. Programs that always run such code, like `pytest`, `make` and `python`, are not in it.

Options and subcommands of git that run another program are granted by no rule, not even by name. Git accepts
abbreviated long options and clusters of letters: https://git-scm.com/docs/gitcli. Remote helpers, by which an
address runs a program: https://git-scm.com/docs/gitremote-helpers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from posixpath import basename, isabs
from typing import TYPE_CHECKING

from orchestrator.core.repositories import is_git_name
from orchestrator.engine.policy.shell import shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of a program that a rule must name.

    Attributes:
        short: letters, also inside of a cluster such as `-xvc`.
        with_value: letters whose value may follow in the same word, where a cluster ends.
        long: names without dashes, separated by blanks; `--name=value` counts too.
        abbreviations: whether the program accepts abbreviated long names.
        prefixes: beginnings of a word.
        words: whole words.
    """

    short: str = ""
    with_value: str = ""
    long: str = ""
    abbreviations: bool = False
    prefixes: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    def holds(self, word: str) -> bool:
        """Return whether a word is such an option."""
        if word in self.words or (self.prefixes and word.startswith(self.prefixes)):
            return True
        if word.startswith("--"):
            return _has_long(word, self.long.split(), abbreviations=self.abbreviations)
        return word.startswith("-") and _has_short(word[1:], self.short, self.with_value)


def _has_long(word: str, names: Sequence[str], *, abbreviations: bool) -> bool:
    """Return whether `--word` or `--word=value` is one of these options, or an abbreviation if those count."""
    name = word[2:].partition("=")[0]
    if not name:
        return False
    return any(known == name or (abbreviations and known.startswith(name)) for known in names)


def _has_short(cluster: str, letters: str, with_value: str) -> bool:
    """Return whether a cluster of one-letter options has one of `letters`, before a value begins."""
    for letter in cluster:
        if letter in letters:
            return True
        if letter in with_value:
            return False
    return False


_FIND = _Options(prefixes=("-exec", "-ok", "-delete", "-fprint", "-fls", "-files0-from"))
_TAR = _Options(
    short="IF",
    with_value="bCfgHKLNTVX",
    long="to-command checkpoint-action use-compress-program info-script new-volume-script rsh-command rmt-command",
    abbreviations=True,
)
_NODE = _Options(short="epr", long="eval print require import loader experimental-loader", words=("-",))
_PACKAGES = _Options(
    long="script-shell node-options prefix userconfig globalconfig",
    words=("config", "c", "set", "exec", "x", "explore", "dlx"),
)
_VI = _Options(short="cSuswWq", prefixes=("+", "--cmd"))
_SHELL = _Options(short="cs", long="init-file rcfile", words=("-",))

STARTS_NOTHING = frozenset(
    "awk b2sum base32 base64 basename basenc cat cd cksum cmp comm cut date df dirname du echo expand expr "  # noqa: SIM905  words read best without quotes
    "factor false find fmt fold gawk grep groups head hexdump id jq join ls mawk md5sum mkdir nawk nl nproc "
    "numfmt od paste printenv printf pwd readlink realpath rev rg rm rmdir sed seq sha1sum sha224sum sha256sum "
    "sha384sum sha512sum sleep sort stat sum tac tail tee test touch tr true tsort tty uname unexpand uptime "
    "users wc who whoami".split()
)
"""Programs that start no other one with any argument that a star grants.

Most import no function that starts one, which a test checks in their files. find, rg, sed, sort and the awks
do, by options that only rules which name them grant. Programs that write a file named by an argument, such as
`cp` and `uniq`, are left out: the file may be a hook of git, or the program of another rule.
"""

_TABLE: dict[str, _Options] = {
    "find": _FIND,
    "fd": _Options(short="xX", with_value="dteEcjS", long="exec exec-batch"),
    "tar": _TAR,
    "bsdtar": _TAR,
    "zip": _Options(prefixes=("-T",), long="unzip-command test"),
    "split": _Options(long="filter", abbreviations=True),
    "env": _Options(short="S", with_value="uC", long="split-string", abbreviations=True),
    "man": _Options(short="PHpCl", long="pager html preprocessor config-file local-file", abbreviations=True),
    "less": _Options(
        short="koO", prefixes=("+",), long="lesskey-file lesskey-src log-file LOG-FILE", abbreviations=True
    ),
    "more": _Options(prefixes=("+",)),
    **dict.fromkeys(("vi", "vim", "nvim", "view", "ex"), _VI),
    "cargo": _Options(short="C", long="config manifest-path"),
    "rg": _Options(short="z", with_value="ABCEMTdefgjmrt", long="pre hostname-bin search-zip"),
    "sort": _Options(
        short="oT", with_value="kSt", long="compress-program output files0-from", abbreviations=True
    ),
    "node": _NODE,
    "perl": _Options(short="eEMmIid", words=("-",)),
    "ruby": _Options(short="eriI", words=("-",)),
    "php": _Options(short="rdBREF"),
    **dict.fromkeys(("sh", "bash", "dash", "zsh"), _SHELL),
    **dict.fromkeys(("npm", "pnpm", "yarn"), _PACKAGES),
    "pip": _Options(long="python config-settings global-option", abbreviations=True, words=("config",)),
    "go": _Options(
        prefixes=tuple(f"{dash}{name}" for dash in ("-", "--") for name in ("exec", "toolexec", "vettool"))
    ),
    "curl": _Options(
        short="KoOTDcJ",
        with_value="dHXAbeEFmruUwxYyzQP",
        long="config output remote-name upload-file dump-header cookie-jar libcurl trace trace-ascii output-dir "
        "remote-name-all stderr etag-save hsts alt-svc",
        abbreviations=True,
    ),
    "wget": _Options(
        short="OoaPei",
        with_value="tTwQUlABDIXR",
        long="output-document output-file append-output directory-prefix execute use-askpass post-file body-file "
        "config input-file",
        abbreviations=True,
    ),
    "ssh": _Options(short="oFEwSI", with_value="bcDeiJLlmOpQRW"),
    "scp": _Options(short="oFSD", with_value="cilPX"),
    "rsync": _Options(short="eM", with_value="fT", long="rsh rsync-path remote-option", abbreviations=True),
    **dict.fromkeys(("test", "["), _Options(prefixes=("-v", "-R"))),
    "printf": _Options(prefixes=("-v",)),
}

_SUBSCRIPTS = frozenset(
    "printf test [ read unset export readonly declare typeset local let getopts wait mapfile readarray".split()  # noqa: SIM905  words read best without quotes
)
"""Builtins of bash that evaluate `name[...]`, and any `$()` inside it, even if it was quoted."""

_AWKS = frozenset({"awk", "gawk", "mawk", "nawk"})
_AWK_RUNS = re.compile(r"system|getline|[|@]|^-(?![Fv]|-\Z)")
"""Pipes and calls, and options except those for the separator and for variables."""

_SED_OPTION = re.compile(
    r"-[nErsuz]+|--(?:quiet|silent|regexp-extended|separate|unbuffered|null-data|posix|sandbox)"
)
_ADDRESS = r"(?:\d+|\$|/(?:[^/\\\n]|\\.)*/)"
_SED_SCRIPT = re.compile(
    rf"(?:{_ADDRESS}(?:,{_ADDRESS})?)?\s*(?:[pdq=]|s([/|#,@:])(?>(?:(?!\1)[^\\\n]|\\.)*)\1(?>(?:(?!\1)[^\\\n]|\\.)*)\1[gpiI0-9]*)"
)
"""One command that prints, deletes a line or replaces.

The commands `e`, `w`, `r` and `W`, which run programs or touch files, do not match.
"""


def words_to_name(argv: Sequence[str]) -> dict[int, str]:
    """Return the words of a command that a star must not grant, by their place, with the reason."""
    name = program_name(argv[0])
    reasons: dict[int, str] = {}
    if options := _TABLE.get(name):
        for place, word in enumerate(argv[1:], 1):
            if options.holds(word):
                reasons[place] = (
                    f"{shortened(word)} of {name} runs a program or writes a file: a rule must name it"
                )
    for place, reason in _special(name, argv):
        reasons.setdefault(place, reason)
    return reasons


def starts_others(words: Sequence[str]) -> bool:
    """Return whether a star after these words of a rule may make their program start another one."""
    return words[0] not in STARTS_NOTHING or bool(words_to_name(words))


def program_name(word: str) -> str:
    """Return a program's plain name: without folder, and without a version as in `python3.11`."""
    name = basename(word)
    return re.sub(r"(?<=[a-z])[0-9.]+\Z", "", name) or name


def _special(name: str, argv: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield words that need more than a list of options to be recognised."""
    if name == "sed":
        yield from _sed(argv)
    if name in _AWKS:
        yield from _awk(argv)
    for place, word in enumerate(argv[1:], 1):
        if name == "tar" and place == 1 and word[:1] != "-" and _has_short(word, "IF", ""):
            yield place, "I and F of tar run a program: a rule must name them"
        if name == "tee" and word[:1] != "-" and not stays_inside(word):
            yield place, f"tee would write {shortened(word)}, which is outside of the clone"
        if name in _SUBSCRIPTS and "[" in word and ("$" in word or "`" in word):
            yield place, f"{name} would evaluate {shortened(word)}"


def _awk(argv: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the words that may be a program which does more than print. The separator, `-F`, is none."""
    options = True
    value_of = ""
    for place, word in enumerate(argv[1:], 1):
        is_separator = value_of == "-F" or (options and not value_of and word.startswith("-F"))
        writes = ">" in word.partition("print")[2]  # before every print, > compares
        if not is_separator and (writes or _AWK_RUNS.search(word.replace("||", ""))):
            yield place, "a program of awk may run others and write files: a rule must name it"
        if value_of:
            value_of = ""
        elif options and word in {"-F", "-v"}:
            value_of = word
        else:
            options = options and word.startswith("-") and word != "--"


def _sed(argv: Sequence[str]) -> Iterator[tuple[int, str]]:
    script_came = False
    for place, word in enumerate(argv[1:], 1):
        is_script = argv[place - 1] in {"-e", "--expression"}
        if word.startswith("-") and len(word) > 1 and not is_script:
            if not _SED_OPTION.fullmatch(word):
                yield place, f"{shortened(word)} of sed: a rule must name it"
        elif is_script or not script_came:
            script_came = True
            if not _SED_SCRIPT.fullmatch(word):
                yield place, "a script of sed may run programs and write files: a rule must name it"


def stays_inside(path: str) -> bool:
    """Return whether a path is relative, never goes up, and enters no `.git` in any spelling."""
    return bool(path) and not isabs(path) and ".." not in path.split("/") and not is_git_name(path)


_GLOBAL = frozenset(
    {"--no-pager", "-P", "--version", "-v", "--no-optional-locks", "--no-replace-objects"}
) | {f"--{kind}-pathspecs" for kind in ("literal", "glob", "noglob", "icase")}
"""The allowed options before the subcommand.

The others set configuration, or make another folder the repository, whose configuration may run programs.
"""

_LONG = tuple(
    "upload-pack receive-pack exec exec-path config-env config open-files-in-pager ext-diff textconv extcmd "  # noqa: SIM905  words read best without quotes
    "template strategy output upload-archive separate-git-dir".split()
)
_WHOLE = frozenset({"--text"})
"""Options that are also the beginning of one above; git prefers an exact name."""

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
"""By subcommand: the refused letters, and those whose value may follow in the same word."""

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
"""The subcommands that a star grants. The others run hooks or helpers, reach a network, or leave the clone."""

_HELPER = re.compile(r"(?:^|=)[\w.+-]*::")


def git_refusal(argv: Sequence[str]) -> str | None:
    """Return why a git command is never allowed, or None. `argv[0]` is git.

    The rule `git config *` grants reading. The rest of `config` writes settings that can make git run
    programs later.
    """
    place = subcommand_at(argv)
    for word in argv[1:place]:
        if word not in _GLOBAL:
            return f"git {shortened(word)} before the subcommand is never granted: it can make git run other programs"
    if place == len(argv):
        return None
    name, rest = argv[place], argv[place + 1 :]
    if name in _NEVER or "/" in name:
        return f"git {shortened(name)} is never granted: it runs other programs"
    if name == "config" and (not rest or rest[0] not in _CONFIG_READS):
        return "git config is never granted except for reading: git config get NAME, git config list"
    return next((reason for word in rest if (reason := _word_refusal(name, word))), None)


def _word_refusal(subcommand: str, word: str) -> str | None:
    letters, with_value = _SHORT.get(subcommand, ("", ""))
    shown = f"git {subcommand} {shortened(word)}"
    if _HELPER.search(word):
        return f"{shown} is never granted: an address with :: makes git run a program"
    if word in _NEVER_WITH.get(subcommand, ()):
        return f"{shown} is never granted: it runs other programs"
    if word.startswith("--"):
        executes = word not in _WHOLE and _has_long(word, _LONG, abbreviations=True)
    else:
        executes = word.startswith("-") and _has_short(word[1:], letters, with_value)
    return f"{shown} is never granted: it can make git run a program or write anywhere" if executes else None


def subcommand_at(argv: Sequence[str]) -> int:
    """Return the place of the subcommand, the first word that is no option; the length if there is none."""
    return next((place for place, word in enumerate(argv[1:], 1) if not word.startswith("-")), len(argv))


def unusual_subcommand(argv: Sequence[str]) -> int | None:
    """Return the place of a subcommand that a star does not grant, or None."""
    place = subcommand_at(argv)
    return place if place < len(argv) and argv[place] not in _USUAL else None


def without_options(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the command without the options before the subcommand and their values.

    Denying rules are compared with it.
    """
    place = 1
    while place < len(argv) and argv[place].startswith("-"):
        place += 2 if argv[place] in _WITH_VALUE else 1
    return (argv[0], *argv[place:])


_WITH_VALUE = frozenset(
    {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env", "--super-prefix"}
)
