"""Commands that destroy a machine, which run at no level. A seat belt: see `shell_scan`; the sandbox is the wall."""

from __future__ import annotations

import re
from posixpath import basename, join, normpath
from typing import TYPE_CHECKING

from orchestrator.engine.policy.shell_scan import TooManyShells, scan_deep

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST_COMMAND = 8_192
"""Characters."""

_FORMATS = re.compile(r"(?:mkfs|newfs)(?:[._].*)?|mke2fs|mkswap|wipefs")
_HOME = re.compile(r"(?:~|\$HOME|\$\{HOME\})(?=/|$)")
_ANYWHERE = "/home/somebody"
_STARS = re.compile(r"[.?!\[\]]*\*[.?!*\[\]]*")
_DEVICE = re.compile(r"/dev/(?:sd|hd|vd|xvd|nvme|mmcblk|disk|mapper/|md|dm-|loop)[\w/-]*")
_OWNERS = frozenset({"chmod", "chown", "chgrp"})

# A function that starts itself twice, or in the background; the body is looked at up to its first brace.
_FUNCTION = re.compile(r"(?:function\s+)?([^\s(){}<>;|&\"'`$#]{1,64})\s*\(\s*\)\s*[{(](?=([^{}]{0,2000}))")
_WORDED = re.compile(r"function\s+([^\s(){}<>;|&\"'`$#]{1,64})\s*[{(](?=([^{}]{0,2000}))")
_ITSELF = re.compile(r"\$\{?0\}?\"?\s*[|&]\s*\"?(?:\./)?\$\{?0\b")


def blocked(command: str) -> str | None:
    """Why a command is never run, or None.

    These are: more than 8,192 characters; deleting `/`, all of it or the home folder with everything below;
    changing the mode or owner of `/` and everything below; making file systems; `dd` from or onto a
    device; writing over a disk; fork bombs; more shells inside of shells than are looked into.
    """
    if len(command) > LONGEST_COMMAND:
        return f"a command may have {LONGEST_COMMAND:,} characters, and this one has {len(command):,}"
    if "\0" in command:
        return "a command has no NUL characters"
    if _is_bomb(command):
        return "a function that starts itself again and again is a fork bomb"
    try:
        return _destruction(command)
    except TooManyShells:
        return "shells inside of shells, more or deeper than can be looked into"


def _destruction(command: str) -> str | None:
    folder = _ANYWHERE
    for found in scan_deep(command):
        if reason := _destroys(found.words, folder) or _overwrites(found.targets):
            return reason
        if found.words[:1] == ("cd",):
            folder = normpath(join(folder, _at_home(found.words[-1])))
    return None


def _is_bomb(command: str) -> bool:
    if "(" not in command and "function" not in command:
        return _ITSELF.search(command) is not None
    for definition in (_FUNCTION, _WORDED):
        for found in definition.finditer(command):
            name = re.escape(found[1])
            again = rf"(?<![\w./-]){name}\s*(?:\|&?\s*{name}(?![\w./-])|&(?!&))"
            if re.search(again, found[2]):
                return True
    return _ITSELF.search(command) is not None


def _destroys(words: Sequence[str], folder: str) -> str | None:
    if not words:
        return None
    name, rest = basename(words[0]), words[1:]
    if _FORMATS.fullmatch(name):
        return f"{name} makes a file system"
    if name == "dd" and any(word.startswith("if=") or _DEVICE.match(word[3:]) for word in rest):
        return "dd if= reads or writes whole devices; use head, tail or cp"
    is_rm = name == "rm" and _recursive(rest, "rR")
    is_find = name == "find" and bool({"-delete", "rm"} & {*rest})
    if (is_rm and _hits(rest, folder, home=True)) or (is_find and _hits(rest[:1], folder, home=True)):
        return f"{name} would delete the whole file system or the home folder"
    if name in _OWNERS and _recursive(rest, "R") and _hits(rest, folder, home=False):
        return f"{name} would change the whole file system"
    return None


def _overwrites(targets: Sequence[str]) -> str | None:
    return next((f"{target} is a disk" for target in targets if _DEVICE.fullmatch(target)), None)


def _recursive(words: Sequence[str], letters: str) -> bool:
    """Whether an option asks for everything below; long options may be cut short."""
    for word in words:
        if word.startswith("--"):
            if len(word) > len("--") and "--recursive".startswith(word):
                return True
        elif word.startswith("-") and any(letter in word for letter in letters):
            return True
    return False


def _hits(words: Sequence[str], folder: str, *, home: bool) -> bool:
    return any(_is_root(word, folder, home=home) for word in words if not word.startswith("-"))


def _is_root(path: str, folder: str, *, home: bool) -> bool:
    """Whether a path is `/`, everything in it, or (if `home`) the home folder."""
    at_home = _HOME.match(path) is not None
    whole = normpath(join(folder, _at_home(path))) if path else folder
    above, _, last = whole.rpartition("/")
    if _STARS.fullmatch(last):
        whole = above or "/"
    return not whole.strip("/") or (home and at_home and whole == _ANYWHERE)


def _at_home(path: str) -> str:
    return _HOME.sub(_ANYWHERE, path, count=1)
