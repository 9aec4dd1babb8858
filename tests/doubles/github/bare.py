"""Bare git repositories: made and read with git's plumbing, without a work tree."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.doubles.templates import copied

if TYPE_CHECKING:
    from collections.abc import Mapping

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_AUTHOR_NAME": "Ada Example",
    "GIT_AUTHOR_EMAIL": "ada@example.com",
    "GIT_COMMITTER_NAME": "Ada Example",
    "GIT_COMMITTER_EMAIL": "ada@example.com",
}


def git(path: Path, *arguments: str, stdin: bytes | None = None, env: Mapping[str, str] | None = None) -> str:
    """Run git in a bare repository and return what it prints.

    Raises:
        subprocess.CalledProcessError: git failed.
    """
    done = subprocess.run(
        ["git", "-C", str(path), *arguments],
        input=stdin,
        capture_output=True,
        check=True,
        env={**ENVIRONMENT, **(env or {})},
    )
    return done.stdout.decode("utf-8", "surrogateescape").strip()


def create(path: Path, default_branch: str) -> None:
    """An empty bare repository that takes pushes over HTTP."""

    def make(template: Path) -> None:
        template.mkdir()
        git(template, "init", "--quiet", "--bare", f"--initial-branch={default_branch}")
        with (template / "config").open("a", encoding="utf-8") as config:
            config.write("[receive]\n\tautogc = false\n")
            config.write("[uploadpack]\n\tallowFilter = true\n\tallowAnySHA1InWant = true\n")

    copied(path, ("bare", default_branch), make)


def branches(path: Path) -> dict[str, str]:
    """Every branch and its commit."""
    found = _refs(path, "refs/heads")
    return {ref.removeprefix("refs/heads/"): commit for ref, commit in found.items()}


def _refs(path: Path, below: str) -> dict[str, str]:
    """Every reference below a name, and its object."""
    # From the files in which git keeps them: tests ask so often that programs would take most of their time.
    packed, found = path / "packed-refs", dict[str, str]()
    if packed.exists():
        lines = packed.read_text("utf-8", "surrogateescape").splitlines()
        found = {
            name: commit for commit, _, name in (line.partition(" ") for line in lines if line[0] not in "#^")
        }
    for folder, _, names in os.walk(path / below):
        for file in (Path(folder, name) for name in names if not name.endswith(".lock")):
            with suppress(FileNotFoundError):  # deleted just now
                found[file.relative_to(path).as_posix()] = file.read_text("ascii").strip()
    return {name: found[name] for name in sorted(found) if name.startswith(f"{below}/")}


def set_refs(path: Path, wanted: Mapping[str, str]) -> None:
    """Let references below `refs/pull` name commits; one whose commit is not there stays as it is."""
    there = _refs(path, "refs/pull")
    for name, commit in wanted.items():
        if there.get(name) != commit:  # a process for each, at each fetch, would take minutes
            with suppress(subprocess.CalledProcessError):
                git(path, "update-ref", name, commit)


def changed(path: Path, base: str, commit: str) -> list[str] | None:
    """The files that a commit changes since it left a branch; None where one of the two is not there."""
    try:
        return git(path, "diff", "--name-only", "--no-renames", f"{base}...{commit}", "--").splitlines()
    except subprocess.CalledProcessError:
        return None


def show(path: Path, revision: str, file: str) -> bytes | None:
    """A file's bytes at a revision, or None."""
    done = subprocess.run(
        ["git", "-C", str(path), "cat-file", "blob", f"{revision}:{file}"],
        capture_output=True,
        check=False,
        env=ENVIRONMENT,
    )
    return done.stdout if done.returncode == 0 else None


def commit(
    path: Path,
    files: Mapping[str, str | bytes | None],
    *,
    branch: str,
    message: str,
    start: str | None = None,
) -> str:
    """Put a commit on a branch; None as content removes the file. `start` names a new branch's parent."""
    there = branches(path)
    parent = there[branch] if branch in there else there[start] if start else None
    author = f"{ENVIRONMENT['GIT_AUTHOR_NAME']} <{ENVIRONMENT['GIT_AUTHOR_EMAIL']}> now"
    stream = f"commit refs/heads/{branch}\nmark :1\ncommitter {author}\n".encode()
    stream += _data(message.encode())
    stream += f"from {parent}\n".encode() if parent else b""
    for name, content in files.items():
        if content is None:
            stream += f"D {name}\n".encode()
        else:
            data = content.encode() if isinstance(content, str) else content
            stream += f"M 100644 inline {name}\n".encode() + _data(data)
    stream += b"get-mark :1\n"
    return git(path, "fast-import", "--quiet", "--date-format=now", stdin=stream)


def _data(data: bytes) -> bytes:
    return b"data %d\n" % len(data) + data + b"\n"


def merge(path: Path, *, base: str, head: str, message: str) -> str:
    """Merge a branch's commit into a base branch, as the button does."""
    ours = branches(path)[base]
    tree = git(path, "merge-tree", "--write-tree", ours, head).splitlines()[0]
    made = git(path, "commit-tree", tree, "-p", ours, "-p", head, "-m", message)
    git(path, "update-ref", f"refs/heads/{base}", made)
    return made


def commits_between(path: Path, base: str, head: str) -> int:
    """How many commits `head` has that `base` lacks."""
    return int(git(path, "rev-list", "--count", f"{base}..{head}"))
