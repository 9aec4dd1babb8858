"""The repository of an attack: files, links, names and messages that no careful person would commit."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.bot.git.hostgit import HostGit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_PLAIN = ("-U0", "--text", "--no-renames", "--no-ext-diff", "--no-textconv")
_DOING = "cannot plant the repository of an attack"
_TIME = "1767225600 +0000"
# Nobody needs it after the attack, so nothing waits for the disk, tidies up or makes a folder for every object.
_CONFIG = """\
[core]
	repositoryformatversion = 0
	bare = true
	fsync = none
[receive]
	autogc = false
	unpackLimit = 1
[fastimport]
	unpackLimit = 1
"""
_FILE, _PROGRAM, _LINK = "100644", "100755", "120000"


@dataclass(frozen=True, slots=True)
class Planted:
    """A branch's one commit, on top of the branch `start` if it names one that was planted before.

    `email` is its author's.
    """

    branch: str
    subject: str
    files: Mapping[str, str]
    links: Mapping[str, str] = field(default_factory=dict)
    programs: Iterable[str] = ()
    start: str = ""
    email: str = "ada@example.com"


def plant_repository(path: Path, default: str, commits: Iterable[Planted]) -> None:
    """Make a bare repository with these branches.

    Raises:
        WorkspaceError: git is missing or refused.
    """
    # What `git init --bare` would make: https://git-scm.com/docs/gitrepository-layout
    for name in ("objects", "refs"):
        (path / name).mkdir(parents=True)
    (path / "HEAD").write_text(f"ref: refs/heads/{default}\n", encoding="utf-8")
    (path / "config").write_text(_CONFIG, encoding="ascii")
    stream = b"".join(_commit(one) for one in commits)
    # https://git-scm.com/docs/git-fast-import: paths and messages need not pass a command line.
    HostGit(path, path).run("fast-import", "--quiet", doing=_DOING, stdin=stream)


def references(path: Path, below: str = "refs/heads/") -> dict[str, str]:
    """The object that every reference leads to, by the part of its name that follows `below`.

    Each is a file, as nothing packs them here: https://git-scm.com/docs/gitrepository-layout
    """
    folder = path / below
    names = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    return {name: (folder / name).read_text("ascii").strip() for name in names if not name.endswith(".lock")}


def changes(path: Path, base: str, tip: str) -> tuple[list[str], str]:
    """The paths that differ between two commits, and messages and differences of all commits between."""
    git = HostGit(path, path)
    names = git.run("diff", "--name-only", "--no-renames", "-z", base, tip, "--", doing=_DOING)
    text = git.run("log", "-p", "--no-renames", "--text", "--format=%B", f"{base}..{tip}", "--", doing=_DOING)
    return [os.fsdecode(name) for name in names.split(b"\0") if name], text.decode("utf-8", "replace")


def hidden(path: Path, base: str) -> dict[str, str]:
    """What the hidden references hold beside the base: records, saved pages and saved work, by name."""
    git = HostGit(path, path)

    def said(*words: str) -> str:
        return git.run(*words, doing=_DOING).decode("utf-8", "replace")

    found = {}
    for name in (f"refs/pullwright/{name}" for name in references(path, "refs/pullwright/")):
        pages = filter(None, said("ls-tree", "-r", "-z", "--name-only", name).split("\0"))
        texts = [
            said("log", "--format=%B", f"{base}..{name}"),
            *(said("show", f"{name}:{page}") for page in pages),
        ]
        if name.startswith("refs/pullwright/wip/"):
            texts.append(said("diff", *_PLAIN, base, f"{name}^", "--"))
        found[name] = "\n".join(texts)
    return found


def _commit(one: Planted) -> bytes:
    subject = one.subject.encode("utf-8", "surrogateescape")
    who = f"Ada <{one.email}> {_TIME}"
    parts = [
        f"commit refs/heads/{one.branch}\nauthor {who}\ncommitter {who}\n".encode(),
        b"data %d\n%b\n" % (len(subject), subject),
    ]
    if one.start:
        parts.append(f"from refs/heads/{one.start}\n".encode())
    programs = set(one.programs)
    parts += [_entry(_PROGRAM if name in programs else _FILE, name, text) for name, text in one.files.items()]
    parts += [_entry(_LINK, name, target) for name, target in one.links.items()]
    return b"".join(parts)


def _entry(mode: str, name: str, text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    return b"M %b inline %b\ndata %d\n%b\n" % (mode.encode(), _quoted(name), len(data), data)


def _quoted(name: str) -> bytes:
    """A path between quotes, as C writes it."""
    data = os.fsencode(name).replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + data + b'"'
