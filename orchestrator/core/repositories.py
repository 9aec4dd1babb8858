"""Names of repositories, branches, tasks and git's own files.

Of names that a file system may treat as git's own, git's checks are `is_ntfs_dotgit` and `is_ntfs_dot_generic`
(https://github.com/git/git/blob/master/path.c) and `is_hfs_dotgit` (`utf8.c`). This module refuses all that
git refuses, and more: every compatible form of a letter, marks on it, other short names. A test compares it
with git.
"""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from orchestrator.core.prompts import decomposed

OWNER_AND_NAME = re.compile(
    r"(?P<owner>[A-Za-z0-9][A-Za-z0-9-]{0,38})/(?P<name>[A-Za-z0-9._-]{1,100}?)(?:\.git)?/?"
)
SSH_ADDRESS = re.compile(r"(?:ssh://)?(?:[^@/]+@)(?P<host>[^:/]+)(?::\d+/|[:/])(?P<path>.+)")
GITHUB = "github.com"
_USUAL_PORT = re.compile(r"^(http://.*):80$|^(https://.*):443$")


def repository_key(name: str) -> str:
    """Return the key that identifies a repository, from any of its names.

    `owner/name` is the repository on github.com. A path is resolved, so that links, `.` and `..` make no
    difference. A relative path is returned unchanged and equals no key, because it names another folder in
    each working directory. Names in journals are complete: the wiring makes them so.

    Args:
        name: `owner/name`, a URL, `git@host:owner/name`, or a path.
    """
    text = name.strip()
    parts = urlsplit(text) if "://" in text else None
    if parts is not None and parts.scheme == "file":
        return _of_path(unquote(parts.path))
    if text.startswith(("/", "~")):
        return _of_path(text)
    match, host = OWNER_AND_NAME.fullmatch(text), GITHUB
    if match is None and parts is not None and parts.scheme in {"http", "https"}:
        match, host = OWNER_AND_NAME.fullmatch(parts.path.strip("/")), _host(parts.scheme, parts.netloc)
    elif match is None and (ssh := SSH_ADDRESS.fullmatch(text)):
        match, host = OWNER_AND_NAME.fullmatch(ssh["path"].strip("/")), _host("https", ssh["host"])
    return f"{host}/{match['owner']}/{match['name']}".lower() if match else text


def same_repository(one: str, other: str) -> bool:
    """Return whether two names mean the same repository. A relative path never does."""
    return repository_key(one) == repository_key(other)


def _of_path(path: str) -> str:
    folder = Path(os.path.realpath(Path(path).expanduser()))
    return str(folder.parent if folder.name == ".git" else folder)


def _host(scheme: str, authority: str) -> str:
    address = f"{scheme}://{authority.rpartition('@')[2]}".lower()
    host = _USUAL_PORT.sub(r"\1\2", address).partition("://")[2].rstrip(".")
    return GITHUB if host == f"ssh.{GITHUB}" else host.removeprefix("www.").removeprefix("api.")


GIT_FOLDER: Final = ".git"
MODULES_FILE: Final = ".gitmodules"

# Hangul fillers show nothing but are letters; the small i without its dot is one in some languages only.
_LETTERS = {**dict.fromkeys(map(ord, "\u115f\u1160\u3164\uffa0"), ""), 0x131: "i"}
_NOT_UTF_8 = re.compile(r"[\udc80-\udcff]")  # where git stops to read a name of HFS+
_SEPARATORS = re.compile(r"[/\\]")

# Short names, which NTFS makes up: the first six letters, or two letters and a digest (here as in git's path.c) that is
# cut where the number is long. Of `.git` any digest is taken: git does not check it.
_SHORT = re.compile(r"(?P<head>[^~]{0,6})~(?P<number>[0-9]{1,20})")
_SHORT_OF = {
    MODULES_FILE: ("gitmod", "gi7eba"),
    ".gitattributes": ("gitatt", "gi7d29"),
    ".gitignore": ("gitign", "gi250a"),
    ".mailmap": ("mailma", "maba30"),
}
_SHORT_CHARS = 8
_SHORT_GIT = re.compile(r"git|gi[0-9a-f]{4}")
# What `git check-ref-format` refuses of a branch (https://git-scm.com/docs/git-check-ref-format), so that no
# process is needed to ask. A test compares the answers.
_BAD_IN_BRANCH = re.compile(
    r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|^[-/]|/$|\.$|(?:^|/)\.|\.lock(?:/|$)|^@$|^HEAD$"
)
_KEY = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
_MOST_KEY_CHARACTERS = 100


def is_git_name(name: str, of: str = GIT_FOLDER) -> bool:
    r"""Return whether git or a file system may treat a name, or a part of a path, as one of git's own.

    Args:
        name: a name, or a path with `\` or `/`.
        of: git's own name, `.git` or `.gitmodules`.
    """
    parts = _SEPARATORS.split(name if name.isascii() else decomposed(name, "NFKD"))
    return any(folded_name(part) == of or folded_name(_NOT_UTF_8.split(part)[0]) == of for part in parts)


def folded_name(name: str) -> str:
    """Return a key that is equal for all names that some file system treats as the same name.

    Names of git's own files map to those names. HFS+ and APFS ignore invisible characters and fold letters;
    NTFS ignores dots and spaces at the end and has `name:stream` and short names. The key folds too much
    rather than too little: marks on letters, compatible forms, spaces at the start.
    """
    plain = name.lower()
    if not (name.isascii() and name.isprintable()):
        compatible = decomposed(decomposed(name, "NFKD").casefold(), "NFKD")
        plain = "".join(letter for letter in compatible if unicodedata.category(letter)[0] not in "CM")
        plain = plain.translate(_LETTERS)
    plain = plain.partition(":")[0].strip(" ").rstrip(" .") or plain
    return _of_git(plain) if "~" in plain else plain


def is_branch_name(text: str) -> bool:
    """Return whether git accepts the text as the name of a branch."""
    return bool(text) and _BAD_IN_BRANCH.search(text) is None


def is_task_key(text: str) -> bool:
    """Return whether a text can be the key of a task: one name of a ref and of a file, the same on every system."""
    return (
        len(text) <= _MOST_KEY_CHARACTERS and _KEY.fullmatch(text) is not None and not text.endswith(".lock")
    )


def _of_git(plain: str) -> str:
    """Return the name of git's that a short name may stand for, or the name unchanged."""
    match = _SHORT.fullmatch(plain)
    if match is None:
        return plain
    head = match["head"]
    for name, (first, digest) in _SHORT_OF.items():
        if head in (first, digest) or (len(plain) >= _SHORT_CHARS and digest.startswith(head)):
            return name
    return GIT_FOLDER if _SHORT_GIT.fullmatch(head) else plain
