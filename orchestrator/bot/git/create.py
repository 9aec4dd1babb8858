"""A new repository with a first commit."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.bot.git.failures import storage_errors
from orchestrator.bot.git.hostgit import HostGit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.bot.git.base import Identity

_BRANCH = "main"


def create_repository(path: Path, files: Mapping[str, str], message: str, identity: Identity) -> None:
    """Make a bare repository at `path` whose branch `main` holds these files.

    Args:
        path: where; must not exist.
        files: text by relative path.
        message: the first commit's message.
        identity: its author.

    Raises:
        WorkspaceError: git is missing or failed, or there is no space.
    """
    doing = f"cannot create a repository at {path}"
    who = {
        "GIT_AUTHOR_NAME": identity.name,
        "GIT_AUTHOR_EMAIL": identity.email,
        "GIT_COMMITTER_NAME": identity.name,
        "GIT_COMMITTER_EMAIL": identity.email,
    }
    with storage_errors(doing), tempfile.TemporaryDirectory(prefix="pullwright-") as folder:
        path.mkdir(parents=True)
        tree = Path(folder)
        start = HostGit(tree)
        start.run(
            "init",
            "--quiet",
            "--template=",
            "--bare",
            f"--initial-branch={_BRANCH}",
            "--",
            str(path),
            doing=doing,
        )
        for name, text in files.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text, encoding="utf-8")
        git = HostGit(tree, path, tree)
        git.run("add", "--all", doing=doing)
        git.run("commit", "--quiet", f"--message={message}", doing=doing, variables=who)
