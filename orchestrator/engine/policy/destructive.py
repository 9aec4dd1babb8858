"""Recognises commands that would destroy a machine, or the files of the person who owns it.

The text is read as a shell reads it, as far as a reader can: quotes, variables that the text sets, braces, `cd`,
wrappers such as `sudo` and `xargs`, and shells inside of shells. A shell can hide a command in more ways than
that, and another program can do the same harm. So this catches mistakes; the sandbox is the one to rely on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from posixpath import basename, join, normpath
from typing import TYPE_CHECKING

from orchestrator.engine.policy.shell import (
    BLANK,
    CLOSE_BRACE,
    COMMA,
    DOLLAR,
    KEYWORDS,
    OPEN_BRACE,
    OPEN_BRACKET,
    OUTPUT,
    QUESTION,
    QUOTED_DOLLAR,
    RUNNERS,
    SHELLS,
    STAR,
    TILDE,
    SimpleCommand,
    TooManyShells,
    TooManyWords,
    expand_braces,
    printed_words,
    scan,
    shortened,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from orchestrator.engine.policy.shell import Word

LONGEST_COMMAND = 8_192
"""The limit in characters."""

_HOME = "/home/somebody"
_START = "/a/b/c/d/e/f/g/h"
"""Where a command is assumed to start if that is not known."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SYSTEM = _words(
    "bin boot dev etc home lib lib32 lib64 libx32 opt proc root run sbin srv sys usr var usr/bin usr/lib usr/lib64 "
    "usr/sbin usr/share var/lib var/log Applications Library System Users Volumes private"
)
"""The folders without which a machine does not work, or that hold everybody's files, below `/`."""
_HOME_FOLDER = re.compile(r"(?:home|Users)/[^/]+|root")
_DEVICE = re.compile(
    r"/dev/(?:(?:sd|hd|vd|xvd|nvme|mmcblk|r?disk|mapper/|md|dm-|loop|zram|pmem)[\w/.-]*|k?mem|port)"
)
_SWITCH_FILE = re.compile(r"/proc/sysrq-trigger|/sys/(?:block|class/block|power|firmware/efi)/.*")

_FORMATTERS = re.compile(r"(?:mkfs|newfs)(?:[._].*)?|mke2fs|mkswap|mkdosfs|wipefs|blkdiscard|zerofree")
_WRITERS = _words("shred truncate fallocate cp mv tee badblocks")
_PARTITIONERS = _words("cfdisk fdisk gdisk sfdisk sgdisk parted hdparm")
_READS = _words("-l --list -L print -p --print -d --dump -i --info -I -t -T -v -V")
"""Options and words with which a program for partitions only shows something."""
_DISK_VERBS: Mapping[str, frozenset[str]] = {
    "cryptsetup": _words("luksFormat erase luksErase reencrypt luksKillSlot"),
    "nvme": _words("format sanitize"),
    "zpool": _words("destroy labelclear"),
    "zfs": _words("destroy"),
    "mdadm": _words("--zero-superblock"),
    "diskutil": _words("eraseDisk eraseVolume partitionDisk zeroDisk secureErase"),
}
"""The words with which programs for disks erase one."""
_ERASERS = _words("lvremove vgremove pvremove")
_STOPS = _words("shutdown reboot halt poweroff kexec")
_STOP_VERBS = _words("poweroff reboot halt kexec soft-reboot suspend hibernate hybrid-sleep emergency rescue")
_STOP_LEVELS = _words("0 1 6 s S")
_EVERY_NAME = frozenset({"", ".", ".*", f".{STAR}", STAR})
_MODE_PROGRAMS = _words("chmod chown chgrp chattr setfacl")
_DELETERS = _words("-delete rm shred unlink")
_INTERPRETER = re.compile(r"(?:python|perl|ruby|node|php)[\d.]*")

_VARIABLE = re.compile(
    rf"[{DOLLAR}{QUOTED_DOLLAR}](?:([A-Za-z_]\w*+|[@*#?$!\-0-9{STAR}{QUESTION}])"
    rf"|[{{{OPEN_BRACE}]([A-Za-z_]\w*+|[@*#?$!0-9])([^}}{CLOSE_BRACE}]{{0,200}}+)[}}{CLOSE_BRACE}])"
)
_DEFAULT = re.compile(r":?[-=+](.*)", re.DOTALL)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*+)(\+?)=(.*)", re.DOTALL)
_DECLARERS = _words("export declare typeset local readonly")
_READERS = _words("read mapfile readarray getopts")
_UNSET, _SET = "\ue010", "\ue011"
"""In an expanded word: a variable that the text does not set, and one whose value is not known."""
_KNOWN = {"HOME": _HOME, "IFS": " ", "SHELL": "/bin/sh", "BASH": "/bin/bash", "PWD": "."}
_OFTEN_SET = re.compile(
    r"\d|[#?$!\-]|(?:XDG_|GITHUB_|CI_|RUNNER_)\w+|TMPDIR|OLDPWD|VIRTUAL_ENV|CONDA_PREFIX|GOPATH|CARGO_HOME"
)
_AS_TEXT = str.maketrans(
    {DOLLAR: "$", QUOTED_DOLLAR: "$", OPEN_BRACE: "{", CLOSE_BRACE: "}", COMMA: ",", TILDE: "~", BLANK: " "}
)
_ONLY_STARS = f"{STAR}{QUESTION}{OPEN_BRACKET}].!^"

_MOST_WORDS = 200
"""The limit of words that the braces of one word make."""
_MOST_VALUE_CHARS = 1_024
_MOST_COMMANDS = 100
"""The limit of commands that one command may run by its arguments."""
_DEEPEST = 5
"""The depth to which shells inside of shells are examined."""
_MOST_SCRIPTS = 20
"""The limit of scripts passed to shells in one command."""

_POSITIONALS: Mapping[str, int] = {
    "timeout": 1, "taskset": 1, "chroot": 1, "flock": 1, "chrt": 1, "su": 1, "runuser": 1, "uv": 1, "poetry": 1,
    "pdm": 1, "hatch": 1, "pipenv": 1, "strace": 0, "setarch": 1, "npm": 1, "pnpm": 1, "yarn": 1,
}  # fmt: skip
"""How many words may stand between the options of a program and the command that it runs."""
_SWITCHES: Mapping[str, str] = {
    "sudo": "EHSnkKbAisPVl", "env": "i0v", "xargs": "0rtpxo", "timeout": "v", "setsid": "cfw", "time": "pv",
    "flock": "nsxuoF", "exec": "cl", "doas": "n", "command": "p", "strace": "fcqvtTy", "find": "", "npx": "yq",
}  # fmt: skip
"""The options of such programs that take no value. After another one the next word may be its value."""
_LONG_SWITCH = re.compile(
    r"--\w[\w-]*+=.*|--(?:foreground|preserve-status|null|no-run-if-empty|ignore-environment|verbose|args|yes)?"
)
_NUMBER = re.compile(r"[\d.]+[smhd]?")
_HAS_SCRIPT_OPTION = _words("su script flock runuser")
_JOINS_WORDS = _words("eval watch parallel trap")
_FIND_RUNS = _words("-exec -execdir -ok -okdir")
# `env -S`, also behind other letters, and `--split-string`, also abbreviated, with the value in the same word or not.
_ENV_SPLIT = re.compile(r"(?:-[0iv]*+S|--s[a-z-]*+=?)(.*)", re.DOTALL)
_CLUSTER_WITH_C = re.compile(r"[-+][A-Zabd-z]*+c[A-Za-z]*+")

# A function that starts itself twice, or in the background; its body is searched up to the first brace.
_FUNCTION = re.compile(r"(?:function\s+)?([^\s(){}<>;|&\"'`$#]{1,64})\s*+\(\s*+\)\s*+[{(](?=([^{}]{0,2000}))")
_FUNCTION_BY_KEYWORD = re.compile(r"function\s+([^\s(){}<>;|&\"'`$#]{1,64})\s*+[{(](?=([^{}]{0,2000}))")
_SCRIPT_BOMB = re.compile(r"\$\{?0\}?\"?\s*+[|&]\s*+\"?(?:\./)?\$\{?0\b")
_FORK_LOOP = re.compile(
    r"\bfork(?:\(\))?\s*+(?:while|until|for)\b|\bwhile\b[^;\n]{0,40}[:({;]\s*+(?:os\.)?fork\b"
    r"|\bloop\s*+[{(]\s*+fork\b|\bwhile\s*+\(?\s*+fork\b"
)

_TAKE_TEXT = frozenset(
    {*((name,) for name in _words("echo printf grep egrep fgrep rg ag")), ("git", "commit")}
)
"""Programs that run no text that they are given. If a shell reads what they print, that is examined by itself."""


def blocked(command: str, folder: str = "") -> str | None:
    """Return why a command is never run, or None.

    Blocked are: more than 8,192 characters; deleting `/`, a folder of the system or a home folder with
    everything below, moving it away, or changing its modes; making file systems; `dd` with `if=` or onto a
    device; writing over a disk; stopping the machine or all its processes; fork bombs; more shells inside of
    shells than are examined.

    Args:
        folder: the absolute path where the command starts; empty if it is not known.
    """
    if len(command) > LONGEST_COMMAND:
        return f"a command may have {LONGEST_COMMAND:,} characters, and this one has {len(command):,}"
    if "\0" in command:
        return "a command cannot have NUL characters"
    try:
        return _Examination(folder or _START).why(command)
    except TooManyWords:
        return "its braces make more words than can be examined"
    except TooManyShells:
        return "it runs more shells, or more of them inside each other, than can be examined"


@dataclass(slots=True)
class _Examination:
    """What is known while the commands of a text are read, in the order in which they end."""

    folder: str
    variables: dict[str, str] = field(default_factory=lambda: dict(_KNOWN))
    scripts: int = 0
    is_guessed: bool = False

    def why(self, text: str, depth: int = 0) -> str | None:
        """Return why this text must not run; None if nothing is known against it."""
        if _is_fork_bomb(text) and _is_fork_bomb(_without_quoted(text)):
            return "what starts itself again and again is a fork bomb"
        return _first(self._why_command(command, depth) for command in scan(text))

    def _why_command(self, command: SimpleCommand, depth: int) -> str | None:
        targets = (one.target for one in command.redirects if ">" in one.operator)
        if reason := _first(map(self._why_written, self._expanded(targets))):
            return reason
        words = self._expanded(command.words)
        if words[:1] in (["for"], ["select"]) and words[1:]:
            # Of all values the one that does the greatest harm, also as in `rm -rf "/$name"`.
            values = (one for one in words[3:] if self._is_precious(one) or self._is_precious(f"/{one}"))
            self.variables[words[1]] = next(values, _SET)
        words = _program_first(words)
        for assignment in command.assignments if not words else ():
            self._assign(self._expand(assignment.live).translate(_AS_TEXT))
        if not words:
            return None
        return _first(self._why_words(argv, command, depth) for argv in _commands_of(words))

    def _why_words(self, argv: Sequence[str], command: SimpleCommand, depth: int) -> str | None:
        name, rest = basename(argv[0]), argv[1:]
        for script in self._scripts_of(name, rest, command):
            self.scripts += 1
            if depth == _DEEPEST or self.scripts > _MOST_SCRIPTS:
                raise TooManyShells
            if reason := self.why(script, depth + 1):
                return reason
        if name == "xargs" and rest:
            given = self._given_by(command.source)
            for inner in _commands_of(argv):
                if inner is not argv and (reason := self._why_destroying(inner[0], [*inner[1:], *given])):
                    return reason
        self._learn(name, rest)
        return self._why_destroying(argv[0], rest)

    def _learn(self, name: str, rest: Sequence[str]) -> None:
        """Note what a command changes for those after it: the folder, and variables."""
        if name in {"cd", "pushd"}:
            self._move(next((word for word in rest if word == "-" or not word.startswith("-")), _HOME))
        elif name in _DECLARERS:
            for word in rest:
                self._assign(word)
        elif name in _READERS:
            self.variables.update(dict.fromkeys(rest, _SET))

    def _given_by(self, source: SimpleCommand | None) -> list[str]:
        """Return the words that a command passes through a pipe, as far as they are known."""
        if source is None or not source.words:
            return []
        words = self._expanded(source.words)
        if words and basename(words[0]) == "find":
            return ["-R", *_searched(words[1:])]  # all that is below is given, too
        return self._expand(printed_words(source.words)).translate(_AS_TEXT).split()

    def _scripts_of(self, name: str, rest: Sequence[str], command: SimpleCommand) -> Iterator[str]:
        """Yield the texts that a command has a shell run."""
        if name in _JOINS_WORDS:
            yield " ".join(rest)
        elif name == "env":
            for place, word in enumerate(rest):
                if found := _ENV_SPLIT.fullmatch(word):
                    yield " ".join([found[1], *rest[place + 1 :]])
        elif name in SHELLS | _HAS_SCRIPT_OPTION:
            if (script := _option_c(rest)) is not None:
                yield script
            elif name in SHELLS and all(word.startswith(("-", "+")) for word in rest):
                yield from self._read_by(command)

    def _read_by(self, command: SimpleCommand) -> Iterator[str]:
        """Yield what a shell without a script reads: from a pipe, or a here-string."""
        texts = [printed_words(command.source.words)] if command.source and command.source.words else []
        texts += [one.target.live for one in command.redirects if one.operator.endswith("<<<")]
        for text in texts:
            yield self._expand(text).translate(_AS_TEXT)

    def _why_destroying(self, program: str, rest: Sequence[str]) -> str | None:
        name = basename(program)
        operands = [word for word in rest if not word.startswith("-")]
        if _FORMATTERS.fullmatch(name) and not {"-n", "--no-act", "-V", "--version", "--help"}.intersection(
            rest
        ):
            return f"{name} makes a file system, or erases one"
        if name == "dd" and any(word.startswith("if=") for word in rest):
            return "dd if= reads or writes whole devices; use head, tail or cp"
        return (
            self._why_disk(name, rest, operands)
            or self._why_whole(name, rest, operands)
            or (_why_stopping(name, rest, operands) if program == name or program.startswith("/") else None)
        )

    def _why_disk(self, name: str, rest: Sequence[str], operands: Sequence[str]) -> str | None:
        written: Iterable[str] = ()
        if name == "dd":
            written = (word[3:] for word in rest if word.startswith("of="))
        elif name in _WRITERS:
            written = operands[-1:] if name == "cp" else operands
        elif name in _PARTITIONERS and not _READS.intersection(rest):
            written = operands
        if name in _ERASERS or _DISK_VERBS.get(name, frozenset()).intersection(rest):
            return f"{name} would erase a disk"
        return _first(map(self._why_written, written))

    def _why_written(self, path: str) -> str | None:
        whole = normpath(join(self.folder, path))
        if _DEVICE.fullmatch(whole):
            return f"{whole} is a disk"
        return f"{whole} controls the machine" if _SWITCH_FILE.fullmatch(whole) else None

    def _why_whole(self, name: str, rest: Sequence[str], operands: Sequence[str]) -> str | None:
        """Return why a command destroys whole folders of the machine, or None."""
        targets: Sequence[str] = ()
        if name in {"rm", "srm"} and _recursive(rest, "rR"):
            targets = operands
        elif name == "find" and _DELETERS.intersection(map(basename, rest)):
            targets = _searched(rest)
        elif name == "rsync" and any(word.startswith("--del") for word in rest):
            targets = operands[-1:]
        if found := next(filter(self._is_precious, targets), None):
            where = " in a folder that a variable or a command names" if self.is_guessed else ""
            return f"{name} would delete all of {_shown(found)}{where}"
        if name == "mv" and (found := next(filter(self._is_precious, _moved(rest)), None)):
            return f"mv would move {_shown(found)} away"
        targets = operands if name in _MODE_PROGRAMS and _recursive(rest, "R") else ()
        if name == "find" and _MODE_PROGRAMS.intersection(map(basename, rest)):
            targets = _searched(rest)
        if targets:
            found = next((word for word in targets if self._is_precious(word, home=False)), None)
            return f"{name} would change all of {_shown(found)}" if found else None
        return None

    def _is_precious(self, path: str, *, home: bool = True) -> bool:
        """Return whether a path is `/`, a folder of the system or (if `home`) of a person, or everything in it."""
        if path[:1] == _UNSET:  # `rm -rf "$X"/*` is `rm -rf /*` if nobody has set X
            rest = path.lstrip(_UNSET)
            return rest.startswith("/") and not rest.strip(f"/{_ONLY_STARS}")
        path = path.replace(_UNSET, "")
        whole = normpath(join(self.folder, path)).lstrip("/") if path else "."
        above, _, last = whole.rpartition("/")
        if STAR in last and not last.strip(_ONLY_STARS):
            whole = above
        if any(letter in whole for letter in (STAR, QUESTION, OPEN_BRACKET)):
            pattern = whole.translate(_AS_PATTERN)
            same = (name for name in _SYSTEM if name.count("/") == pattern.count("/"))
            return any(fnmatchcase(name, pattern) for name in same)
        return not whole or whole in _SYSTEM or (home and _HOME_FOLDER.fullmatch(whole) is not None)

    def _move(self, target: str) -> None:
        """Note that commands run in another folder. Of folders that are not known, it is the one of the greatest harm."""
        self.is_guessed = target[:1] in {_UNSET, _SET, OUTPUT}
        rest = target.lstrip(f"{_UNSET}{_SET}{OUTPUT}")
        if target == "-":
            self.folder = _START
        elif target[:1] == _UNSET:  # `cd $X/..` is `cd /..` if nobody has set X, and `cd $X` is `cd`
            self.folder = normpath(join(self.folder, rest)) if rest else _HOME
        elif self.is_guessed:
            below = normpath(f"./{rest}")
            self.folder = normpath(f"/{below}") if below.startswith("..") else _START
        else:
            self.folder = normpath(join(self.folder, target))
        self.variables["PWD"] = self.folder

    def _assign(self, text: str) -> None:
        if found := _ASSIGNMENT.fullmatch(text):
            name, plus, value = found.groups()
            value = (self.variables.get(name, "") if plus else "") + value
            self.variables[name] = _SET if OUTPUT in value else value[:_MOST_VALUE_CHARS]

    def _expanded(self, words: Iterable[Word]) -> list[str]:
        """Return the words as the shell gives them to a program, but for files that match."""
        made: list[str] = []
        for word in words:
            for text in expand_braces(word.live, _MOST_WORDS):
                pieces = self._expand(text).split(BLANK)
                made += [piece.translate(_AS_TEXT) for piece in pieces if piece or len(pieces) == 1]
        return made

    def _expand(self, text: str) -> str:
        """Replace variables and the folder for `~`."""
        if TILDE in text:
            text = _TILDE.sub(lambda found: _HOME if found[1] in {"", "root"} else f"/home/{found[1]}", text)
        if DOLLAR in text or QUOTED_DOLLAR in text:
            text = _VARIABLE.sub(self._value, text)[:LONGEST_COMMAND]
        return text

    def _value(self, found: re.Match[str]) -> str:
        name, rest = found[1] or found[2], found[3] or ""
        if name in {"@", "*", STAR}:
            return ""
        default = _DEFAULT.fullmatch(rest)
        value = self.variables.get(name)
        if default and (value is None or "+" in rest[:2]):
            value = default[1]
        elif value is None:
            value = _SET if rest or _OFTEN_SET.fullmatch(name) else _UNSET
        return BLANK.join(value.split(" ")) if found[0][0] == DOLLAR else value


_AS_PATTERN = str.maketrans({STAR: "*", QUESTION: "?", OPEN_BRACKET: "["})
_TILDE = re.compile(rf"(?<![^=:]){TILDE}([\w-]*+)(?![^/])")


def _first(reasons: Iterable[str | None]) -> str | None:
    return next(filter(None, reasons), None)


def _shown(path: str) -> str:
    return shortened(path.translate(_AS_PATTERN).replace(_UNSET, "(a variable that is not set)"))


def _program_first(words: list[str]) -> list[str]:
    """Return a command without keywords, and without the unknown parts of its program's name."""
    start = 0
    while start < len(words) and (
        words[start] in KEYWORDS
        or _ASSIGNMENT.fullmatch(words[start])
        or words[start - 1 : start + 1] == ["time", "-p"]
    ):
        start += 2 if words[start] == "function" else 1
    while start < len(words) and not words[start].strip(_UNSET + _SET):
        start += 1
    return [words[start].replace(_UNSET, "").replace(_SET, ""), *words[start + 1 :]] if words[start:] else []


def _commands_of(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield a command, and those that it runs because its arguments name them."""
    waiting, seen = [0], set[int]()
    while waiting:
        start = waiting.pop()
        if start in seen or start >= len(words) or not words[start]:
            continue
        if len(seen) == _MOST_COMMANDS:
            raise TooManyShells
        seen.add(start)
        yield words[start:] if start else words
        waiting += [start + place for place in _places_of_commands(words[start:])]


def _places_of_commands(words: Sequence[str]) -> list[int]:
    """Return where a command that these words run may begin."""
    name = basename(words[0])
    if name == "find":
        return [place + 1 for place, word in enumerate(words) if word in _FIND_RUNS]
    if name not in RUNNERS or name == "eval" or (name == "command" and words[1:2] in (["-v"], ["-V"])):
        return []
    switches, left, places, has_option = _SWITCHES.get(name, ""), _POSITIONALS.get(name, 0), [], False
    for place, word in enumerate(words[1:], 1):
        if word.startswith(("-", "+")):
            is_switch = all(letter in switches for letter in word[1:]) or _LONG_SWITCH.fullmatch(word)
            has_option = not is_switch
            continue
        if _ASSIGNMENT.fullmatch(word):
            continue
        if not _NUMBER.fullmatch(word):
            places.append(place)
            if not has_option and not left:
                break
        left -= not has_option and left > 0
        has_option = False
    return places


def _option_c(words: Sequence[str]) -> str | None:
    """Return the script after an option `-c`, also in a cluster; None if there is none."""
    for place, word in enumerate(words):
        if word.startswith("--command="):
            return word.partition("=")[2]
        if word == "--command" or _CLUSTER_WITH_C.fullmatch(word):
            return next((text for text in words[place + 1 :] if not text.startswith("-")), None)
    return None


def _searched(words: Sequence[str]) -> list[str]:
    """Return the paths that `find` searches, which stand before its first test."""
    paths: list[str] = []
    for word in words:
        if word in {"-H", "-L", "-P"} or word.startswith("-O"):
            continue
        if word.startswith("-") or word in {"(", "!"}:
            break
        paths.append(word)
    return paths


def _moved(words: Sequence[str]) -> list[str]:
    """Return the paths that `mv` moves: all but the last, or all if an option names the target."""
    paths: list[str] = []
    has_target = is_target = False
    for word in words:
        if is_target:
            is_target = False
        elif not word.startswith("-"):
            paths.append(word)
        elif word.startswith(("-t", "--t")):
            has_target, is_target = True, word in {"-t", "--target-directory"}
    return paths if has_target else paths[:-1]


def _recursive(words: Sequence[str], letters: str) -> bool:
    """Return whether an option asks for recursion; long options may be abbreviated."""
    for word in words:
        if word.startswith("--"):
            if len(word) > len("--") and "--recursive".startswith(word):
                return True
        elif word.startswith("-") and any(letter in word for letter in letters):
            return True
    return False


def _why_stopping(name: str, rest: Sequence[str], operands: Sequence[str]) -> str | None:
    """Return why a command stops the machine or all its processes, or starts processes without end; or None."""
    stops = (
        (name in _STOPS and not {"--help", "--version", "-c"}.intersection(rest))
        or (name in {"init", "telinit"} and bool(_STOP_LEVELS.intersection(operands[:1])))
        or (name in {"systemctl", "loginctl"} and bool(_STOP_VERBS.intersection(operands[:1])))
    )
    if stops:
        return f"{name} stops the machine"
    every = name in {"pkill", "killall"} and bool(_EVERY_NAME.intersection(operands))
    if every or name == "killall5" or (name == "kill" and "-1" in rest[1:]):
        return f"{name} would end every process"
    if _INTERPRETER.fullmatch(name) and any(map(_FORK_LOOP.search, rest)):
        return "what starts itself again and again is a fork bomb"
    return None


def _without_quoted(text: str) -> str:
    """Return a text without the words that a program only prints, stores or searches for."""
    if "<(" in text:  # a shell may read what is printed
        return text
    for command in scan(text):
        names = tuple(word.text for word in command.words[:2])
        if names[:1] in _TAKE_TEXT or names in _TAKE_TEXT:
            for word in command.words:
                if "(" in word.text or "$0" in word.text:
                    text = text.replace(word.text, " ", 1)
    return text


def _is_fork_bomb(command: str) -> bool:
    may_define = "(" in command or "function" in command
    for definition in (_FUNCTION, _FUNCTION_BY_KEYWORD) if may_define else ():
        for found in definition.finditer(command):
            again = _again(found[1])
            if re.search(again, found[2]):
                return True
    return _SCRIPT_BOMB.search(command) is not None


def _again(name: str) -> str:
    """Return an expression for a function that starts itself twice, or in the background."""
    itself = rf"(?<![\w./-]){re.escape(name)}(?![\w./-])"
    return rf"{itself}[^;&|\n]{{0,40}}+(?:\|&?[\s(]*+{itself}|&(?![&>]))"
