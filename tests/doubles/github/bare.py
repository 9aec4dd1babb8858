"""Bare git repositories: made and read with git's plumbing, without a work tree."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

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
    path.mkdir(parents=True)
    git(path, "init", "--quiet", "--bare", f"--initial-branch={default_branch}")
    git(path, "config", "http.receivepack", "true")
    git(path, "config", "uploadpack.allowFilter", "true")
    git(path, "config", "uploadpack.allowAnySHA1InWant", "true")


def branches(path: Path) -> dict[str, str]:
    """Every branch and its commit."""
    lines = git(path, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads").splitlines()
    return {ref.removeprefix("refs/heads/"): commit for ref, commit in (line.split(" ") for line in lines)}


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
    parent = branches(path).get(branch) or (branches(path)[start] if start else None)
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        if parent:
            git(path, "read-tree", parent, env=index)
        for name, content in files.items():
            if content is None:
                git(path, "update-index", "--force-remove", "--", name, env=index)
                continue
            data = content.encode() if isinstance(content, str) else content
            blob = git(path, "hash-object", "-w", "--stdin", stdin=data)
            git(path, "update-index", "--add", "--cacheinfo", f"100644,{blob},{name}", env=index)
        tree = git(path, "write-tree", env=index)
    parents = ("-p", parent) if parent else ()
    made = git(path, "commit-tree", tree, *parents, "-m", message)
    git(path, "update-ref", f"refs/heads/{branch}", made)
    return made


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
